"""The plugins that Hydra finds here, and only here; what they do stands in ``dgbench.cli.sweeps``."""

from dgbench.cli.sweeps import local


class LocalLauncher(local.LocalLauncher):
    """``hydra/launcher=local``."""
