"""The studies of a search, and searches that cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.analysis.selection import Last, TrainVal, Yu2024
from dgbench.errors import ConfigError
from dgbench.plan.search import Scheme

VARIES = ["seed", "dataset.split_seed"]
BASE = {"seed": 5, "dataset.split_seed": 0}


def test_domainbeds_draws_times_trials() -> None:
    """Draw 0 is the default set; trial t is added to the seeds."""
    scheme = Scheme(draws=2, trials=3, repeats=0, varies=VARIES, chosen_by=TrainVal())
    assert scheme.studies(BASE) == [
        {"hparams.draw": k, "hparams.trial": t, "seed": 5 + t, "dataset.split_seed": t}
        for t in range(3)
        for k in (0, 1)
    ]
    assert scheme.again(BASE, 1) == []


def test_the_chosen_draw_with_more_seeds() -> None:
    scheme = Scheme(draws=[1, 2, 3], trials=1, repeats=2, varies=VARIES, chosen_by=Yu2024())
    assert [settings["hparams.draw"] for settings in scheme.studies(BASE)] == [1, 2, 3]
    assert scheme.again(BASE, 3) == [
        {"hparams.draw": 3, "hparams.trial": 0, "seed": 5 + n, "dataset.split_seed": n}
        for n in (1, 2)
    ]


def test_named_trials_keep_their_numbers() -> None:
    """A part of a search trains what the whole would have trained."""
    part = Scheme(draws=[7], trials=[2], repeats=0, varies=VARIES, chosen_by=TrainVal()).studies(
        BASE
    )
    assert part == [{"hparams.draw": 7, "hparams.trial": 2, "seed": 7, "dataset.split_seed": 2}]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"draws": 0}, "hparams.scheme.draws=0 is neither"),
        ({"draws": [1, 1]}, r"hparams.scheme.draws=\[1,1\] is neither"),
        ({"trials": "3"}, "hparams.scheme.trials='3' is text and is neither"),
        ({"trials": [-1]}, r"hparams.scheme.trials=\[-1\] is neither"),
        ({"draws": True}, "hparams.scheme.draws=true is neither"),
        ({"repeats": -1}, "hparams.scheme.repeats=-1.*integer >= 0"),
        ({"repeats": 2, "trials": 3}, "needs.*search.*trial"),
        ({"chosen_by": Last()}, "chosen_by=last cannot choose"),
    ],
)
def test_what_cannot_be_meant(changes: dict[str, Any], match: str) -> None:
    words: dict[str, Any] = {
        "draws": 2,
        "trials": 1,
        "repeats": 0,
        "varies": VARIES,
        "chosen_by": TrainVal(),
    }
    with pytest.raises(ConfigError, match=match):
        Scheme(**{**words, **changes})
