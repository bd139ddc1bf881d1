"""Building what the configuration names, with errors that say which part of it is wrong."""

from __future__ import annotations

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from dgbench.errors import ConfigError, DgbenchError

#: keys of conf/dataset that the dataset itself does not take, but hyperparameters, protocols, ...
NOT_BUILT = ("image_kind", "fetch", "test_groups", "split")


def build(config: DictConfig, group: str, **extra: Any) -> Any:
    """Instantiate ``config[group]``; ``extra`` reaches the constructor.

    Raises:
        DgbenchError: what the constructor itself raised.
        ConfigError: anything else that went wrong, in one line.
    """
    try:
        return instantiate(config[group], **extra)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, DgbenchError):
            raise cause from None
        reason = f"{type(cause).__name__}: {cause}" if cause else str(error).splitlines()[0]
        raise ConfigError(f"{group} cannot be built: {reason}; see the keys in conf/{group}") from error


def without(config: DictConfig, group: str, *keys: str) -> DictConfig:
    """The configuration with keys of ``config[group]`` removed that its class does not care for, e.g. ``name``."""
    content: dict[str, Any] = OmegaConf.to_container(config[group], resolve=True)  # type: ignore[assignment]
    return OmegaConf.create({group: {key: value for key, value in content.items() if key not in keys}})
