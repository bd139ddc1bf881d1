"""The modules that train an algorithm: one run, or many runs of one shape at once.

The names below are loaded when they are first used: importing the package does not import
Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgbench.training.modules.base import RunModule as RunModule
    from dgbench.training.modules.factory import training_module as training_module
    from dgbench.training.modules.lightning import LightningRuns as LightningRuns
    from dgbench.training.modules.lightning import SingleRun as SingleRun
    from dgbench.training.modules.single import SteppedRun as SteppedRun
    from dgbench.training.modules.stacked import StackedRuns as StackedRuns

_HOME = {
    "LightningRuns": "lightning",
    "RunModule": "base",
    "SingleRun": "lightning",
    "StackedRuns": "stacked",
    "SteppedRun": "single",
    "training_module": "factory",
}

__all__ = [
    "LightningRuns",
    "RunModule",
    "SingleRun",
    "StackedRuns",
    "SteppedRun",
    "training_module",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
