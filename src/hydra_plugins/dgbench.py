"""The plugins that Hydra finds here, and only here; what they do stands in ``dgbench.sweeps``."""

from dgbench.sweeps import local, slurm, sweeper


class LocalLauncher(local.LocalLauncher):
    """``hydra/launcher=local``."""


class SlurmLauncher(slurm.SlurmLauncher):
    """``hydra/launcher=slurm``."""


class StudySweeper(sweeper.StudySweeper):
    """``hydra/sweeper=studies``, the default of ``conf/train.yaml``."""
