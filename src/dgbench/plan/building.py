"""Build what the configuration names, with errors that say which part of it is wrong.

The dataset and the initial weights are built before an image or a weight is loaded.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dgbench.configuration import CONF
from dgbench.errors import ConfigError, DgbenchError, is_out_of_memory, one_line
from dgbench.plan.code import raised_at
from dgbench.plan.keys import owners_of
from dgbench.records.files import read_yaml

if TYPE_CHECKING:
    from dgbench.data.description import DatasetInfo
    from dgbench.data.environments import Environments
    from dgbench.data.options import DatasetOptions

T = TypeVar("T")

#: keys of conf/dataset that the dataset itself does not take, but hyperparameters, protocols, ...
NOT_BUILT = ("image_kind", "fetch", "test_groups", "split", "log2_batch_sizes")


def build(config: Any, group: str, **extra: Any) -> Any:
    """Instantiate ``config[group]``; ``extra`` reaches the constructor.

    Raises:
        DgbenchError: what the constructor itself raised.
        ConfigError: anything else that went wrong, in one line.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        return instantiate(config[group], **extra)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, DgbenchError):
            raise cause from cause.__cause__
        if cause is not None and is_out_of_memory(cause):
            raise cause from None
        located = re.match(
            r"Error locating target '(.+)', set env.*(?:\nfull_key: (\S+))?", str(error)
        )
        if located:
            key = located[2] or group  # of the whole configuration, or within the group
            if not key.startswith(group):
                key = f"{group}.{key}"
            imported(located[1], f"{key}._target_")
        raise _not_built(group, cause or str(error).splitlines()[0]) from error


def _not_built(group: str, reason: BaseException | str) -> ConfigError:
    """Build the one-line error of a group that cannot be built.

    It names the class and the message of an exception.
    """
    text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", text)
    key = unexpected[1] if unexpected else ""
    owners = owners_of(group, key) if key else []
    if owners:
        return ConfigError(
            f"the {group} that was chosen has no key {key}; name one that has: {', '.join(owners)}"
        )
    return ConfigError(
        f"{group} cannot be built: {' '.join(text.split())}; see the keys in conf/{group}"
    )


def build_plain(keys: Mapping[str, Any], group: str) -> Any:
    """Instantiate the class of a group with plain values as they stand, none of which is built
    itself.

    Hydra finds the class, and would copy and resolve every value of the group as a configuration,
    in 30 ms for images.

    Args:
        keys: of the group, with ``_target_``; the class gets copies.
        group: that the keys belong to, for messages.

    Raises:
        DgbenchError, ConfigError: as :func:`build`.
    """
    make = build({group: {"_target_": keys["_target_"], "_partial_": True}}, group)
    try:
        return make(**deepcopy({key: value for key, value in keys.items() if key != "_target_"}))
    except DgbenchError:
        raise
    except Exception as error:
        raise _not_built(group, error) from error


def imported(path: str, key: str) -> Any:
    """Import the object at a path, ``module.name`` or ``module:name``.

    Args:
        path: that a user wrote.
        key: where it was written.

    Raises:
        ConfigError: it is not there, or its module raised something; with the file and line of
            that.
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module:
        raise ConfigError(f"{key}={path} names no module; write MODULE.NAME")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the module raises
        if is_out_of_memory(error):
            raise
        fault = one_line(error, None)
        fix = "correct the path"
        place = raised_at(error)
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            fix = (
                f"put the folder that holds {module.partition('.')[0]} on PYTHONPATH, or correct "
                "the path"
            )
        elif place:
            fault = f"{place}: {fault}"
            fix = "correct that file, or install what it imports"
        raise ConfigError(f"{key}={path} cannot be imported ({fault}); {fix}") from error


def class_at(path: str, key: str, base: type[T]) -> type[T]:
    """Import a class by its path, as :func:`imported`.

    Hydra's ``get_class`` would also log what its module raises.

    Args:
        path: ``package.module.Class``.
        key: that names it, for the message.
        base: what it must be, or be a subclass of.

    Raises:
        ConfigError: it cannot be imported, or is something else.
    """
    kind = imported(path, key)
    if not isinstance(kind, type) or not issubclass(kind, base):
        package = base.__module__.partition(".")[0]
        raise ConfigError(f"{key}={path} is no {package} {base.__name__}; name a subclass of that")
    return kind


@cache
def conf_of(group: str, name: str) -> Any:
    """Read the content of a file of ``conf/``, interpolations unresolved.

    It is cached, so do not change it.
    """
    return read_yaml(CONF / group / f"{name}.yaml")


#: small networks of ``conf/`` -> least side of their images, and what their width is a multiple of
#: (groups of norms)
WIDEST = 4096  #: units of a small network; memory is asked for what is wider
SMALL = {"mlp": (1, 1), "mnist_cnn": (14, 8)}


def is_small(config: Mapping[str, Any], image: Sequence[int]) -> bool:
    """Return whether no check with torch is needed: a small network, random weights, and device
    ``auto`` or ``cpu``.
    """
    return has_small_network(config, image) and runs_anywhere(config) and is_random(config)


def runs_anywhere(config: Mapping[str, Any]) -> bool:
    """Return whether every machine has the device and the precision, as far as is known without
    torch.
    """
    trainer = config["trainer"]
    return trainer["device"] in ("auto", "cpu") and trainer["precision"] == "32-true"


def is_random(config: Mapping[str, Any]) -> bool:
    """Return whether a network begins with random weights."""
    return bool(config["init"] == conf_of("init", "random"))


def has_small_network(config: Mapping[str, Any], image: Sequence[int]) -> bool:
    """Return whether the network is one of :data:`SMALL`, of a width up to :data:`WIDEST`, and
    takes such images.
    """
    backbone = config["backbone"]
    width = backbone.get("width")
    side = min(image[1:]) if len(image) == 3 else 0
    changed = {"name": backbone.get("name"), "width": width}
    if type(width) is not int or not 0 < width <= WIDEST:
        return False
    return any(
        backbone == {**conf_of("backbone", name), **changed}
        and side >= least
        and width % multiple == 0
        for name, (least, multiple) in SMALL.items()
    )


def without(config: Mapping[str, Any], group: str, *keys: str) -> dict[str, Any]:
    """Return ``{group: config[group]}``, to be built, without keys that its class does not take,
    e.g. ``name``.
    """
    return {group: {key: value for key, value in config[group].items() if key not in keys}}


class InitialWeights(Protocol):
    """What ``conf/init`` names."""

    @property
    def identity(self) -> str:
        """For the rows; it changes with every byte of the weights."""

    @property
    def planned_identity(self) -> str:
        """The identity for a plan: a file that is not on disk is not fetched for it, and named as
        absent.
        """

    #: class:`dgbench.networks.weights.ImageRecord`: mean, deviation and size of its training images
    images: Any
    #: OpenCLIP's name of the model whose text encoder the file holds, if it holds one
    text_model: str | None
    #: how much of the network came from a file,
    #: :class:`dgbench.networks.checkpoint_layouts.Arrival`; None: nothing yet
    arrival: Any

    def to_fetch(self) -> str | None:
        """Return the command that fetches their file, or None if it is on disk. Uses no network."""

    def check(self, featurizer: Any) -> None:
        """Refuse weights that do not fit the network, whose tensors may be on the meta device."""

    def load(self, featurizer: Any) -> None:
        """Load the weights into the network."""


def named_weights(config: Mapping[str, Any]) -> InitialWeights:
    """Build the weights that a configuration names; nothing is read yet.

    Raises:
        ConfigError: there are none for this network.
    """
    arch = config["backbone"].get("arch")
    weights: InitialWeights = build(without(config, "init", "norm"), "init", arch=arch)
    return weights


def filled_dataset(images: Any, dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in mean, deviation and size of the images where keys of the dataset are null.

    Args:
        images: :class:`dgbench.networks.weights.ImageRecord` of the weights.
        dataset: keys of ``conf/dataset``.
    """
    filled: dict[str, Any] = deepcopy(dict(dataset))
    if "image_size" in filled and filled["image_size"] is None:
        filled["image_size"] = images.input_size
    normalize = filled.get("normalize")
    if isinstance(normalize, dict):
        for key, value in (("mean", images.mean), ("std", images.std)):
            if normalize.get(key, value) is None:
                normalize[key] = list(value)
    return filled


def dataset_options(dataset: Mapping[str, Any]) -> DatasetOptions:
    """Build the options that ``conf/dataset`` names.

    Raises:
        ConfigError: an unknown or missing key.
    """
    unset = [key for key, value in dataset.items() if value == "???"]
    if unset:
        raise ConfigError(
            f"dataset.{unset[0]} is not set; add dataset.{unset[0]}=VALUE, see "
            "docs/reference/configuration.md"
        )
    keys = without({"dataset": dataset}, "dataset", *NOT_BUILT)
    options: DatasetOptions = build_plain(keys["dataset"], "dataset")
    if not hasattr(options, "describe"):
        raise ConfigError(
            f"dataset._target_={dataset['_target_']} describes no dataset; choose a file of "
            "conf/dataset, or see docs/tutorials/own_dataset.md"
        )
    return options


def described(
    options: DatasetOptions, *, absent_ok: bool = False, download: bool = False
) -> DatasetInfo:
    """Describe the dataset in names and numbers, without decoding an image.

    See :class:`DatasetOptions`.

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
    """Call a function.

    An error that is no :class:`DgbenchError` is raised again as a ConfigError of one line.
    """
    try:
        return call()
    except DgbenchError:
        raise
    except Exception as error:  # a user's reader or painter may raise anything
        raise ConfigError(
            f"dataset cannot be built: {one_line(error, None)}; see the keys in conf/dataset"
        ) from error
