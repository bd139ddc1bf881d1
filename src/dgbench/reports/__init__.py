"""From run folders to tables, figures and pages. Everything here is a function of rows; no torch.

The functions below make one table each from a frame of :func:`dgbench.results`; they are loaded
when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgbench.reports.api import certainty as certainty
    from dgbench.reports.api import correlation as correlation
    from dgbench.reports.api import differences as differences
    from dgbench.reports.api import held_out_errors as held_out_errors
    from dgbench.reports.api import leaderboard as leaderboard
    from dgbench.reports.api import measures as measures
    from dgbench.reports.api import seeds as seeds
    from dgbench.reports.api import selected as selected

# no module of this package may have one of these names: importing it would hide the function
__all__ = [
    "certainty",
    "correlation",
    "differences",
    "held_out_errors",
    "leaderboard",
    "measures",
    "seeds",
    "selected",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function: object = getattr(import_module("dgbench.reports.api"), name)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
