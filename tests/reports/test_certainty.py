"""What a setting's studies may conclude, in sentences and in the table beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import Statistics
from dgbench.analysis.selection import Last
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.measuring.tables import (
    certainty_table,
    difference_table,
    lead_table,
    resampled_table,
)
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.standing import Verdict, judge
from dgbench.reports.tables import show


def studied(root: Path) -> Evaluation:
    collection = collect([root])
    return evaluate(select_runs(collection, Last()))


def verdict_of(**lines: list[float]) -> Verdict:
    verdict = judge(pd.DataFrame.from_dict(lines, orient="index"))
    assert verdict is not None
    return verdict


def test_sentences_about_the_leader() -> None:
    noise = np.random.default_rng(0).normal(size=3)
    near, far = noise + np.array([5, 5.1, 5]), noise + np.array([6, 6, 6.1])
    clear = verdict_of(a=list(noise), b=list(near), c=list(far))
    assert clear.headline("error") == "Decided: a leads by error; 3 seeds separate a from b and c."
    assert clear.apart() == "3 seeds separate it from all 2 others."
    blurred = verdict_of(a=[0, 1, 2], b=[1, 0, 2.3], c=[50, 51, 52])
    assert blurred.headline("error") == (
        "Undecided: a leads by error; 3 seeds cannot separate a from b."
    )
    assert blurred.apart() == (
        "3 seeds do not separate it from b; they show that it is better than 1 other."
    )
    assert "1 seed separates nothing" in verdict_of(a=[0.0], b=[1.0]).apart()


def test_who_is_beaten_by_another_is_not_called_worse_than_the_leader() -> None:
    """irm leads by a mean that one lucky seed made; vrex beats erm."""
    verdict = verdict_of(
        irm=[72.2, 100.8, 45.3], vrex=[97.0, 96.4, 97.2], erm=[107.9, 105.0, 107.2]
    )
    assert verdict.leader == "irm" and not verdict.decided
    assert verdict.rivals_left == ["vrex", "erm"]
    assert verdict.apart() == (
        "3 seeds do not separate it from vrex and erm. Yet erm is not the best: vrex beats it."
    )
    assert [verdict.word(name) for name in ("irm", "vrex", "erm")] == [
        "leads",
        "not separated",
        "not the best",
    ]


def test_a_rival_without_all_seeds_or_any_is_named_and_decides_nothing() -> None:
    lines = {"a": [0.10, 0.11, 0.12], "b": [0.5, 0.51, 0.52], "c": [0.09, np.nan, np.nan]}
    values = pd.DataFrame.from_dict(lines, orient="index")
    verdict = judge(values, absent=["a", "b", "c", "d"])
    assert verdict is not None and not verdict.decided
    assert verdict.headline("error") == (
        "Undecided: a leads the 2 of 4 with every seed by error; 3 seeds cannot separate a from "
        "c (1 of 3 seeds) and d (no complete seed)."
    )


def test_a_rival_that_is_ahead_where_it_has_seeds_is_said_to_be() -> None:
    """c lacks the seed in which a is best; over the two that both have it is .01 and .02 lower."""
    verdict = verdict_of(a=[0.20, 0.21, 0.12], b=[0.5, 0.51, 0.52], c=[0.19, 0.19, np.nan])
    assert verdict.leader == "a"
    numbers = verdict.numbers("error", 0.18)
    assert numbers.startswith("a: error 18.0%, 1.5 points above c over 2 seeds ([-")


def test_differences_of_paired_seeds(small_study: Path) -> None:
    """worst+gap: vrex .45 and .47, erm 1.1 and 1.12: .65 in both seeds, so the interval has no
    width.
    """
    table = certainty_table(studied(small_study))
    erm = next(row for row in table.cells if row[0].value == "erm")
    assert show(erm[1], "points") == "65.0 [65.0, 65.0]"
    assert (erm[2].value, table.cells[0][2].value) == ("worse than the leader", "best")
    assert any(note.startswith("worst+gap: vrex leads; 2 seeds") for note in table.notes)
    drawn = resampled_table(studied(small_study), Statistics())
    erm = next(row for row in drawn.cells if row[0].value == "erm")
    assert (show(erm[1], "points"), show(erm[2], "rank")) == ("65.0 [65.0, 65.0]", "2 [2, 2]")
    [pair] = difference_table(studied(small_study), Statistics()).cells
    assert (pair[0].value, pair[1].value, pair[2].best) == ("erm", "vrex", True)


def test_the_interval_beside_a_verdict_excludes_0_where_the_verdict_says_so(
    make: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    for name in "abcd":
        for seed in range(3):
            for fold in range(4):
                error = float(rng.uniform(0.2, 0.3)) + 0.2 * (name == "d")
                who = make.identity(name, str(fold), seed)
                make.write_run(tmp_path, who, lambda e, s, error=error: error)
    words = set()
    for row in certainty_table(studied(tmp_path)).cells:
        for difference, verdict in ((row[1], row[2]), (row[3], row[4])):
            words.add(verdict.value)
            if verdict.value not in ("leads", "best"):
                assert difference.low is not None
                assert (difference.low > 0) == (verdict.value == "worse than the leader")
    assert {"leads", "not separated", "worse than the leader"} <= words


def test_one_seed_resamples_environments_alone(make: Any, tmp_path: Path) -> None:
    for name, errors in (("a", [0.1, 0.2, 0.1, 0.6]), ("b", [0.3, 0.2, 0.3, 0.5])):
        for fold, error in enumerate(errors):
            make.write_run(
                tmp_path, make.identity(name, str(fold)), lambda e, s, error=error: error
            )
    table = resampled_table(studied(tmp_path), Statistics())
    assert "1 seed: nothing" in table.cells[0][1].reason
    assert table.cells[0][3].low is not None
    assert "only environments" in table.notes[0]
    [by_gap, by_average] = lead_table(studied(tmp_path)).cells
    assert by_gap[-1].value == "every case (permutation test): no evidence that they differ"
    assert by_average[-1].value == by_gap[-1].value


def test_several_that_others_beat_are_named_with_who_beats_them() -> None:
    leader = [10.0, 60.0, 20.0]
    by_one = verdict_of(
        lead=leader, a=[40.0, 40.1, 40.2], b=[50.0, 50.2, 50.1], c=[51.0, 51.2, 51.1]
    )
    assert "Yet b and c are not the best: a beats each of them." in by_one.apart()
    by_two = verdict_of(
        lead=leader, a=[30, 40, 50], b=[31, 41, 51.1], c=[45, 45.1, 45.2], d=[46, 46.2, 46.1]
    )
    sentence = "Yet b and d are not the best: each is beaten by another one (a and c)."
    assert sentence in by_two.apart()
