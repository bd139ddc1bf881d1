"""The dataset that a configuration names: what it holds, without an image, and its environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dgbench.data.description import DatasetInfo
from dgbench.data.options import DatasetOptions
from dgbench.errors import ConfigError, DgbenchError
from dgbench.training.building import NOT_BUILT, build, without

if TYPE_CHECKING:
    from dgbench.data.environments import Environments

T = TypeVar("T")


def dataset_options(dataset: Mapping[str, Any]) -> DatasetOptions:
    """The options that ``conf/dataset`` names.

    Args:
        dataset: its resolved keys.

    Raises:
        ConfigError: an unknown or missing key.
    """
    unset = [key for key, value in dataset.items() if value == "???"]
    if unset:
        raise ConfigError(
            f"dataset.{unset[0]} is not set; add dataset.{unset[0]}=VALUE, see docs/reference/configuration.md"
        )
    own = without({"dataset": dataset}, "dataset", *NOT_BUILT)
    found: DatasetOptions = build(own, "dataset", _recursive_=False, _convert_="all")
    if not hasattr(found, "describe"):
        raise ConfigError(
            f"dataset._target_={dataset['_target_']} describes no dataset; choose a file of conf/dataset, or see "
            "docs/tutorials/own_dataset.md"
        )
    return found


def described(options: DatasetOptions, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
    """The dataset in names and numbers, without decoding an image; see :class:`DatasetOptions`.

    Raises:
        ConfigError, DataError: as :meth:`DatasetOptions.describe`.
    """
    return _one_line(lambda: options.describe(absent_ok=absent_ok, download=download))


def built(options: DatasetOptions) -> Environments:
    """The environments with their images.

    Raises:
        ConfigError, DataError: as :meth:`DatasetOptions.build`.
    """
    return _one_line(options.build)


def _one_line(call: Callable[[], T]) -> T:
    """Whatever a wrong value leads to, said in one line."""
    try:
        return call()
    except DgbenchError:
        raise
    except Exception as error:  # a user's reader or painter may raise anything
        raise ConfigError(
            f"dataset cannot be built: {type(error).__name__}: {' '.join(str(error).split())}; "
            "see the keys in conf/dataset"
        ) from error
