"""Checks of how a command is run, before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.errors import ConfigError

RETRIES = ("all", "failed", "none")


def check_retry(retry: str) -> None:
    """Refuse an unknown ``retry``.

    Raises:
        ConfigError: it is none of :data:`RETRIES`.
    """
    if retry not in RETRIES:
        raise ConfigError(f"retry={retry} is unknown; choose {', '.join(RETRIES)}")


def check_execution(execution: Mapping[str, Any]) -> str:
    """The mode of execution.

    Raises:
        ConfigError: a key of ``conf/execution`` that cannot work.
    """
    mode, most = execution["mode"], execution["max_runs"]
    if mode not in ("auto", "single", "stacked"):
        raise ConfigError(f"execution.mode={mode} is unknown; choose auto, single or stacked")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ConfigError(f"execution.max_runs={most} is not at least 1; give a number or null")
    if execution["compile"] not in ("auto", False):
        raise ConfigError(f"execution.compile={execution['compile']} is unknown; choose auto or false")
    return str(mode)
