"""What every file of ``conf/dataset`` names: options that describe a dataset, and build it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dgbench.data.description import DatasetInfo

if TYPE_CHECKING:
    from dgbench.data.environments import Environments


class DatasetOptions(Protocol):
    """What ``conf/dataset/NAME.yaml`` names: a frozen dataclass in a module that imports no torch."""

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Check every value that needs no pixels, list the files, and say what the dataset holds. Decodes nothing.

        Args:
            absent_ok: where the files are absent, return what the configuration knows: environments and classes,
                without counts or content.
            download: try to download what :meth:`build` would.

        Raises:
            ConfigError: a value that cannot work.
            DataError: files that are absent (unless ``absent_ok`` and the configuration names the environments) or
                wrong.
        """

    def build(self) -> Environments:
        """The environments with their images; ``environments.info`` is the :class:`DatasetInfo`.

        Raises:
            ConfigError, DataError: as :meth:`describe`; also images that cannot be decoded.
        """
