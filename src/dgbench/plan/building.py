"""Building what the configuration names, with errors that say which part of it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.errors import ConfigError, DgbenchError

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
            raise cause from None
        reason = " ".join((f"{type(cause).__name__}: {cause}" if cause else str(error).splitlines()[0]).split())
        raise ConfigError(f"{group} cannot be built: {reason}; see the keys in conf/{group}") from error


def without(config: Mapping[str, Any], group: str, *keys: str) -> dict[str, Any]:
    """``config[group]`` without keys that its class does not care for, e.g. ``name``; to be built."""
    return {group: {key: value for key, value in config[group].items() if key not in keys}}
