"""Single images: the most confident mistakes of an algorithm, and what only one of two algorithms gets right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dgbench.reports.errors.images import EnvImages, Predicted

SHOWN = 16  # images on a sheet


@dataclass
class Mistakes:
    """Images of one algorithm, collected run by run.

    Args:
        compared: keep every image, to set the algorithm beside another one.

    Attributes:
        worst: images that are wrong, the most confident of each run.
        all: every image and whether it is right, where that is asked for.
    """

    compared: bool
    worst: list[pd.DataFrame] = field(default_factory=list)
    all: list[pd.DataFrame] = field(default_factory=list)

    def add(self, images: EnvImages, run: Predicted) -> None:
        """Images of one run in one environment."""
        wrong = np.flatnonzero(~images.right & (images.weight > 0))
        worst = wrong[np.argsort(-images.confidence[wrong], kind="stable")[:SHOWN]]
        self.worst.append(_frame(images, worst, run))
        if self.compared:
            self.all.append(_frame(images, np.arange(len(images.label)), run))

    def most_confident(self) -> pd.DataFrame:
        """The images that are wrong with the highest probability of the wrong class, each once."""
        return _once(pd.concat(self.worst, ignore_index=True))


def only_first(first: Mistakes, second: Mistakes) -> tuple[pd.DataFrame, int]:
    """Images that all runs of the first algorithm get right and all runs of the second get wrong.

    Returns:
        those that the second is most confident about, as it sees them; and how many there are in all.
    """
    right = _always(first, "right")
    other = pd.concat(second.all, ignore_index=True)
    wrong = _always(second, "wrong")
    both = right.index.intersection(wrong.index)
    lines = other[pd.MultiIndex.from_frame(other[["env", "image"]]).isin(both)]
    return _once(lines), len(both)


def pair_of(runs_of: dict[str, int], asked: Sequence[str] = ()) -> tuple[str, str] | None:
    """The two algorithms to compare: those that are asked for, else the two with the most runs; None without two.

    Args:
        runs_of: algorithm -> runs, in the order of tables.
        asked: names.
    """
    known = [name for name in asked if name in runs_of]
    first = known if asked else sorted(runs_of, key=lambda name: -runs_of[name])[:2]
    return (first[0], first[1]) if len(first) == 2 else None


def _frame(images: EnvImages, rows: np.ndarray, run: Predicted) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "env": images.env,
            "image": images.image[rows],
            "label": images.label[rows],
            "predicted": images.predicted[rows],
            "confidence": images.confidence[rows],
            "right": images.right[rows],
            "root": run.about.get("root"),
            "run": run.run.identity["run"],
        }
    )


def _always(mistakes: Mistakes, kind: str) -> pd.Series:
    """Environment and image of those that every run gets right, or wrong."""
    lines = pd.concat(mistakes.all, ignore_index=True)
    share = lines.groupby(["env", "image"], sort=False)["right"].mean()
    return share[share == (1.0 if kind == "right" else 0.0)]


def _once(lines: pd.DataFrame) -> pd.DataFrame:
    ordered = lines.sort_values("confidence", ascending=False, kind="stable")
    return ordered.drop_duplicates(["env", "image"]).head(SHOWN).reset_index(drop=True)
