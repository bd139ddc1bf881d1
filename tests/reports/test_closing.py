"""The table that ends a training run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dgbench.analysis.selection import Last, Oracle
from dgbench.cli.closing import study_table
from dgbench.errors import RecordError
from dgbench.records.run_identity import DEFAULTS


def rows(make: Any, folds: str, **changes: Any) -> list[dict[str, Any]]:
    """Folds err .1 .2 .3 .4 in order where they are held out; the full run errs 1 - e."""
    found = []
    for fold in folds.split():
        who = make.identity("erm", fold, **changes)
        error = (
            (lambda e, s: 1 - float(e))
            if fold == "full"
            else (lambda e, s, f=fold: (int(f) + 1) / 10)
        )
        found += [{**DEFAULTS, **json.loads(row.to_json())} for row in make.run_rows(who, error)]
    return found


def lines(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}


def test_complete_study(make: Any) -> None:
    """average .25, worst .4, gap .3, worst+gap .4 + .3/2 = .55, ideal 1 - 0 at e = 0.00."""
    found = lines(study_table(rows(make, "0 1 2 3 full"), Last()))
    assert found["2"] == ["2", "0.80", "200", "30.0"]
    assert [found[name][-1] for name in ("average", "worst", "gap", "worst+gap")] == [
        "25.0",
        "40.0",
        "30.0",
        "55.0",
    ]
    assert found["ideal"] == ["ideal", "at", "0.00", "200", "100.0"]


def test_part_of_the_folds_says_why(make: Any) -> None:
    text = study_table(rows(make, "0 1 3"), Last(), {"2": "failed: loss became nan at step 40"})
    found = lines(text)
    assert found["2"] == ["2", "0.80", "-", "-"]
    assert found["worst+gap"][-1] == "-"
    assert "average, worst, gap, worst+gap: fold 2: failed: loss became" in text
    assert "ideal: fold full (trained on all given environments):" in text


def test_rows_of_a_failed_fold_do_not_count(make: Any) -> None:
    found = lines(study_table(rows(make, "0 1 2 3"), Last(), {"2": "failed: out of memory"}))
    assert found["2"][-1] == "-"


def test_two_environments_have_no_worst_gap(make: Any) -> None:
    text = study_table(rows(make, "0 1 full", given=["0.90", "0.85"]), Last())
    assert lines(text)["average"][-1] == "15.0"
    assert "with 1/(N-2)" in text


def test_only_the_full_fold(make: Any) -> None:
    found = lines(study_table(rows(make, "full"), Last()))
    assert found["ideal"][-1] == "100.0"
    assert found["average"][-1] == "-"


def test_oracle_is_marked(make: Any) -> None:
    assert "ORACLE" in study_table(rows(make, "0 full"), Oracle())


def test_no_rows() -> None:
    with pytest.raises(RecordError, match="fold 0: failed: x"):
        study_table([], Last(), {"0": "failed: x"})
