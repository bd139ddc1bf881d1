"""What a plan worked out with torch is kept: another plan of the same reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dgbench.plan.studies import PlannedStudy
from dgbench.sweeps import remembered
from dgbench.sweeps.costs import cost_of
from dgbench.sweeps.plan import Judged
from dgbench.training.cost import count
from tests.studies import make_plan


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedStudy:
    monkeypatch.setattr(remembered, "code_version", lambda: "1.0+abc")
    remembered._surroundings.cache_clear()
    words = [
        "dataset.base=digits",
        "backbone.width=8",
        "tuning=lp",
        f"paths.cache_dir={tmp_path / 'cache'}",
    ]
    return make_plan(tmp_path, *words)


def fail(*_: Any) -> Any:
    raise AssertionError("worked out again")


def test_costs_are_counted_once(study: PlannedStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cost_of(study, {})
    monkeypatch.setattr("dgbench.training.cost.count", fail)
    assert cost_of(study, {}) == first
    monkeypatch.setattr(remembered, "code_version", lambda: "1.0+abd")
    remembered._surroundings.cache_clear()
    with pytest.raises(AssertionError, match="again"):
        cost_of(study, {})


@pytest.mark.parametrize("algorithm", ["erm", "mldg"])  # mldg computes with it
def test_a_learning_rate_costs_nothing(
    algorithm: str, study: PlannedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = f"paths.cache_dir={tmp_path / 'cache'}"
    words = [
        "dataset.base=digits",
        "backbone.width=8",
        "tuning=lp",
        cache,
        f"algorithm={algorithm}",
    ]
    costs = [count(make_plan(tmp_path, *words, f"hparams.lr={rate}")) for rate in (0.01, 0.0001)]
    assert costs[0] == costs[1]
    assert cost_of(make_plan(tmp_path, *words, "hparams.lr=0.01"), {}) == costs[0]
    monkeypatch.setattr("dgbench.training.cost.count", fail)
    assert cost_of(make_plan(tmp_path, *words, "hparams.lr=0.0001"), {}) == costs[0]
    with pytest.raises(AssertionError, match="again"):
        cost_of(make_plan(tmp_path, *words, "hparams.batch_size=7"), {})


def test_a_file_that_is_no_cost_is_counted_anew(study: PlannedStudy, tmp_path: Path) -> None:
    first = cost_of(study, {})
    (file,) = (tmp_path / "cache" / remembered.FOLDER).glob("cost-*.json")
    for text in ("", "[]", '{"step": 1}'):
        file.write_text(text)
        assert cost_of(study, {}) == first


def test_code_that_no_version_names_keeps_nothing(
    study: PlannedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "code_version", lambda: "1.0+abc-dirty")
    remembered._surroundings.cache_clear()
    cost_of(study, {})
    assert not (tmp_path / "cache" / remembered.FOLDER).exists()


def test_what_passed_is_judged_again_before_jobs_start(
    study: PlannedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    Judged(remembers=True).add(study)
    monkeypatch.setattr("dgbench.training.blueprint.Blueprint", fail)
    Judged(remembers=True).add(study)
    with pytest.raises(AssertionError, match="again"):
        Judged().add(study)
