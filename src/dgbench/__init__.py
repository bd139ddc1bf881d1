"""dgbench: domain generalization experiments whose numbers can be trusted.

The names below are loaded when they are first used: importing the package loads neither torch nor
pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dgbench.version import __version__ as __version__

if TYPE_CHECKING:
    from dgbench.cli.api import TrainResult as TrainResult
    from dgbench.cli.api import train as train
    from dgbench.cli.models import evaluate as evaluate
    from dgbench.reports.api import leaderboard as leaderboard
    from dgbench.reports.frames import measures as measures
    from dgbench.reports.frames import results as results
    from dgbench.reports.scoring import score as score
    from dgbench.shift.job import estimate_shift as estimate_shift
    from dgbench.trained.loading import load as load
    from dgbench.training.modules.factory import algorithm as algorithm

_HOME = {
    "TrainResult": "dgbench.cli.api",
    "algorithm": "dgbench.training.modules.factory",
    "estimate_shift": "dgbench.shift.job",
    "evaluate": "dgbench.cli.models",
    "leaderboard": "dgbench.reports.api",
    "load": "dgbench.trained.loading",
    "measures": "dgbench.reports.frames",
    "results": "dgbench.reports.frames",
    "score": "dgbench.reports.scoring",
    "train": "dgbench.cli.api",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
