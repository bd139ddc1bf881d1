"""A job that takes too long, in parts that do not need one another: lists of its grid, trials, draws, folds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dgbench.plan.search import scheme_of
from dgbench.plan.studies import Planner, grid_lists

Axes = dict[str, list[Any]]  #: key -> values; a job is their product
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")


def axes_of(planner: Planner, words: Sequence[str]) -> Axes:
    """The lists that a job can be split along. Folds come last: those of one study train fastest together.

    A search that trains its chosen draw again chooses among all draws of a fold: it is split by folds alone.

    Raises:
        ConfigError, DataError, WeightsError: the job cannot work.
    """
    composed = planner.compose(words)
    found: Axes = {f"++grid.{key}": list(values) for key, values in grid_lists(composed["grid"]).items()}
    scheme = scheme_of(composed)
    if scheme is not None:
        found |= {f"hparams.scheme.{key}": numbers for key, numbers in scheme.independent().items()}
    folds = {tuple(fold.name for fold in study.folds) for study in planner.studies(words)}
    if len(folds) == 1:
        found["protocol.folds"] = [int(name) if name.isdigit() else name for name in folds.pop()]
    return {key: values for key, values in found.items() if len(values) > 1}


def split(axes: Axes, seconds: Callable[[Sequence[str]], float | None], most: float) -> list[list[str]]:
    """What each part adds to the words of its job; one part without words where the job is short enough.

    Args:
        axes: of the job.
        seconds: expected of the job with more words; None where that is not known.
        most: seconds that a part should take; one that trains a single model may take more.
    """

    def parts(chosen: Mapping[str, list[Any]]) -> list[list[str]]:
        words = [f"{key}={_listed(values)}" for key, values in chosen.items()]
        expected = seconds(words)
        longer = [key for key, values in axes.items() if len(chosen.get(key, values)) > 1]
        if expected is None or expected <= most or not longer:
            return [words]
        values = chosen.get(longer[0], axes[longer[0]])
        n = min(len(values), math.ceil(expected / most))
        ends = [round(i * len(values) / n) for i in range(n + 1)]
        chunks = [values[first:end] for first, end in pairwise(ends)]
        return [words for chunk in chunks for words in parts({**chosen, longer[0]: chunk})]

    return parts({})


def _listed(values: Sequence[Any]) -> str:
    """A list as Hydra reads it."""
    plain = [value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value) for value in values]
    return f"[{','.join(plain)}]"
