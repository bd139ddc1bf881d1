"""The plugins that Hydra finds here, and only here; what they do stands in ``dgbench.sweeps``.

Hydra imports this module in every command, so each class is imported by the commands that use it.
"""

from typing import Any

from hydra.plugins.plugin import Plugin


class LocalLauncher(Plugin):
    """``hydra/launcher=local``."""

    def __new__(cls, **options: Any) -> Any:
        """Make :class:`dgbench.sweeps.local.LocalLauncher`."""
        from dgbench.sweeps import local

        return local.LocalLauncher(**options)


class RayLauncher(Plugin):
    """``hydra/launcher=ray``."""

    def __new__(cls, **options: Any) -> Any:
        """Make the launcher of hydra-ray-launcher, which is no part of dgbench."""
        from dgbench.errors import ConfigError

        try:
            from hydra_plugins.hydra_ray_launcher import ray_launcher
        except ImportError as error:
            raise ConfigError(f"{error}; pip install 'dgbench[ray]'") from error
        return ray_launcher.RayLauncher(**options)


class SlurmLauncher(Plugin):
    """``hydra/launcher=slurm``."""

    def __new__(cls, **options: Any) -> Any:
        """Make :class:`dgbench.sweeps.slurm.SlurmLauncher`."""
        from dgbench.sweeps import slurm

        return slurm.SlurmLauncher(**options)


class StudySweeper(Plugin):
    """``hydra/sweeper=studies``, the default of ``conf/train.yaml``."""

    def __new__(cls, **options: Any) -> Any:
        """Make :class:`dgbench.sweeps.sweeper.StudySweeper`."""
        from dgbench.sweeps import sweeper

        return sweeper.StudySweeper(**options)
