"""The plugins that Hydra finds here, and only here; what they do stands in ``dgbench.cli.sweeps``."""

from dgbench.cli.sweeps import local, sweeper


class LocalLauncher(local.LocalLauncher):
    """``hydra/launcher=local``."""


class StudySweeper(sweeper.StudySweeper):
    """``hydra/sweeper=studies``, the default of ``conf/train.yaml``."""
