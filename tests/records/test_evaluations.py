"""Which rows a finished run has follows from its steps, its evaluations and what each of them
scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dgbench.records.evaluations import Evaluations, RowKey

SCORED = {"val": ["a", "b"], "test": ["b"]}
ALL = Evaluations(steps=20, every=8, test_always=True, scored=SCORED)
AT_BEST = Evaluations(steps=20, every=8, scored=SCORED)
IDENTITY = {"run": "abc", "hparams": {"steps": 20}, "averaging": "none"}
SPEC = {"training": {"steps": 20, "eval_every": 8}, "averaging": {"name": "none"}}


def rows(*steps: int, less: Iterable[RowKey] = ()) -> set[RowKey]:
    keys = [(env, subset) for subset, environments in SCORED.items() for env in environments]
    return {(step, *key) for step in steps for key in keys} - set(less)


@pytest.mark.parametrize(
    ("evaluations", "there", "first"),
    [
        (ALL, rows(8, 16, 20), ""),
        (ALL, rows(8, 16, 20) | {(8, "c", "train")}, ""),
        (ALL, rows(8, 16), "end at step 16 of 20"),
        (ALL, rows(8, 20), "3 rows of step 16 "),
        (ALL, rows(16, 20), "3 rows of step 8 "),
        (ALL, rows(8, 16, 20, less=[(20, "b", "test")]), "1 row of step 20 missing, test of b"),
        (ALL, rows(8, 16, 20, less=[(8, "b", "test"), (20, "b", "test")]), "1 row of step 8 "),
        (ALL, [], "no rows"),
        (AT_BEST, rows(8, 16, 20, less=[(8, "b", "test")]), ""),
        (AT_BEST, rows(8, 16, 20, less=[(8, "b", "val")]), "1 row of step 8 "),
        (AT_BEST, rows(8, 16, 20, less=[(20, "b", "test")]), "1 row of step 20 "),
        (Evaluations(steps=20, every=0, test_always=True, scored=SCORED), rows(20), ""),
        (Evaluations(steps=0, every=8, test_always=True, scored=SCORED), rows(0), ""),
        (Evaluations(steps=20, every=500, test_always=True, scored=SCORED), rows(20), ""),
        # a run of an earlier version, which does not say what is scored
        (Evaluations(steps=20, every=8, test_always=True), rows(8, 16, 20), ""),
        (Evaluations(steps=20, every=8, test_always=True), rows(8, 16, 20, less=[(16, "a", "val")]),
            "1 row of step"),
        # nor how often
        (Evaluations(steps=20), rows(5, 20), ""),
        (Evaluations(steps=20), rows(5, 16), "end at step 16 of 20"),
        (Evaluations(steps=20), rows(5, 20, less=[(5, "a", "val")]), "1 row of step 5 "),
        # nor its steps
        (Evaluations(), rows(7), ""),
        # a hostile number of evaluations takes no time
        (Evaluations(steps=2**62, every=1, test_always=True), rows(*range(1, 9)),
            "end at step 8 of"),
    ],
)  # fmt: skip
def test_what_is_lacking(evaluations: Evaluations, there: Any, first: str) -> None:
    lacking = evaluations.lacking(there)
    assert first in lacking if first else not lacking


def test_a_run_that_may_end_early_lacks_what_it_came_to() -> None:
    """Its last sign of life says that it came to step 16; without one it may have ended after any
    evaluation.
    """
    ends = Evaluations(steps=40, every=8, test_always=True, may_end_early=True, scored=SCORED)
    assert not ends.lacking(rows(8, 16), reached=16)
    assert not ends.lacking(rows(8, 13), reached=13)
    assert not ends.lacking(rows(8))
    assert "end at step 8 of 16" in ends.lacking(rows(8), reached=16)


@pytest.mark.parametrize(
    ("document", "evaluations"),
    [
        ({"run": "abc", "evaluations": ALL.model_dump(), "spec": SPEC}, ALL),
        ({"run": "abc", "spec": SPEC}, Evaluations(steps=20, every=8, test_always=True)),
        ({"run": "abc", "evaluations": {**ALL.model_dump(), "every": -1}, "spec": SPEC},
         Evaluations(steps=20, every=8, test_always=True)),
        ({"run": "abc", "spec": {**SPEC, "callbacks": {"stop": {}}}},
         Evaluations(steps=20, every=8, test_always=True, may_end_early=True)),
        ({"run": "abc", "spec": {**SPEC, "averaging": {"name": "swad"}}},
         Evaluations(steps=20, every=None, test_always=True, may_end_early=True)),
        ({"run": "abc", "spec": 3}, Evaluations(steps=20)),
        ({"run": "abc", "evaluated": {"name": "a model"}}, Evaluations()),
        ({"run": "another", "evaluations": ALL.model_dump()}, Evaluations(steps=20)),
        (None, Evaluations(steps=20)),
        ([], Evaluations(steps=20)),
    ],
)  # fmt: skip
def test_what_is_known_of_a_run(document: Any, evaluations: Evaluations) -> None:
    assert Evaluations.recorded(document, IDENTITY) == evaluations
