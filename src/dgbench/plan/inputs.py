"""The dataset and the initial weights that a configuration names, before an image or a weight is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dgbench.data.description import DatasetInfo
from dgbench.data.options import DatasetOptions
from dgbench.errors import ConfigError, DgbenchError
from dgbench.plan.building import NOT_BUILT, build, without

if TYPE_CHECKING:
    from dgbench.data.environments import Environments


class InitialWeights(Protocol):
    """What ``conf/init`` names."""

    @property
    def identity(self) -> str:
        """For the rows; it changes with every byte of the weights."""

    images: Any  #: :class:`dgbench.networks.weights.ImageRecord`: mean, deviation and size of its training images
    text_model: str | None  #: OpenCLIP's name of the model whose text encoder the file holds, if it holds one

    def to_fetch(self) -> str | None:
        """The command that fetches their file; None where it is here. Asks no network."""

    def check(self, make: Callable[[], Any]) -> None:
        """Raise where the weights do not fit the network that ``make`` makes."""

    def load(self, featurizer: Any) -> None:
        """Put the weights in."""


def named_weights(config: Mapping[str, Any]) -> InitialWeights:
    """Build the weights that a configuration names; nothing is read yet.

    Raises:
        ConfigError: there are none for this network.
    """
    arch = config["backbone"].get("arch")
    weights: InitialWeights = build(without(config, "init", "norm"), "init", arch=arch)
    return weights


def filled_dataset(weights: InitialWeights, dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in mean, deviation and size of the images where keys of the dataset are null."""
    filled: dict[str, Any] = deepcopy(dict(dataset))
    if "image_size" in filled and filled["image_size"] is None:
        filled["image_size"] = weights.images.input_size
    normalize = filled.get("normalize")
    if isinstance(normalize, dict):
        for key, value in (("mean", weights.images.mean), ("std", weights.images.std)):
            if normalize.get(key, value) is None:
                normalize[key] = list(value)
    return filled


T = TypeVar("T")


def dataset_options(dataset: Mapping[str, Any]) -> DatasetOptions:
    """Build the options that ``conf/dataset`` names.

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
    keys = without({"dataset": dataset}, "dataset", *NOT_BUILT)
    options: DatasetOptions = build(keys, "dataset", _recursive_=False, _convert_="all")
    if not hasattr(options, "describe"):
        raise ConfigError(
            f"dataset._target_={dataset['_target_']} describes no dataset; choose a file of conf/dataset, or see "
            "docs/tutorials/own_dataset.md"
        )
    return options


def described(options: DatasetOptions, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
    """Describe the dataset in names and numbers, without decoding an image; see :class:`DatasetOptions`.

    Raises:
        ConfigError, DataError: as :meth:`DatasetOptions.describe`.
    """
    return _one_line(lambda: options.describe(absent_ok=absent_ok, download=download))


def built(options: DatasetOptions) -> Environments:
    """Build the environments with their images.

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
