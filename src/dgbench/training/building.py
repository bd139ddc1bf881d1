"""Building what the configuration names, with errors that say which part of it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dgbench.errors import ConfigError, DgbenchError

if TYPE_CHECKING:
    from dgbench.callbacks.loggers import MetricsLogger

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


def build_logger(config: Any) -> MetricsLogger | None:
    """What ``config["logger"]`` names: one of dgbench's loggers, or a Lightning logger of the user's own.

    Raises:
        ConfigError: it cannot be imported or built, or is no logger.
    """
    import inspect

    from hydra.utils import get_class
    from pytorch_lightning.loggers import Logger

    from dgbench.callbacks.lightning_log import LightningLog
    from dgbench.callbacks.loggers import MetricsLogger

    content = dict(config["logger"] or {})
    target = content.pop("_target_", None)
    if not target:
        return None
    try:
        kind: type[Any] = get_class(target)
        if issubclass(kind, Logger):
            inspect.signature(kind).bind_partial(**content)
    except Exception as error:  # also whatever the module itself raises
        reason = " ".join(str(error).split())
        raise ConfigError(f"logger._target_={target} cannot be used: {reason}; correct path or arguments") from error
    if issubclass(kind, Logger):
        return LightningLog(build({"logger": {**config["logger"], "_partial_": True}}, "logger"), target)
    built = build(config, "logger")
    if not isinstance(built, MetricsLogger):
        raise ConfigError(f"logger._target_={target} is no logger; subclass pytorch_lightning.loggers.Logger")
    return built


def without(config: Mapping[str, Any], group: str, *keys: str) -> dict[str, Any]:
    """``config[group]`` without keys that its class does not care for, e.g. ``name``; to be built."""
    return {group: {key: value for key, value in config[group].items() if key not in keys}}
