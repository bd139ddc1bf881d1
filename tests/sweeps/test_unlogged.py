"""A job whose runs are done is left where its logger lacks one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgbench.records.commands import JobPlace
from dgbench.records.wandb_runs import Mark, write_mark
from dgbench.sweeps.unlogged import is_unlogged

WANDB = {"_target_": "dgbench.callbacks.wandb_log.WandbLog", "mode": None}


def test_a_job_that_wandb_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = tmp_path / "study" / "fold-0"
    run.mkdir(parents=True)
    (tmp_path / ".jobs").mkdir()
    (tmp_path / ".jobs" / "key.json").write_text(json.dumps(["study/fold-0"]))
    place = JobPlace(tmp_path, "key")
    assert not is_unlogged(place, {"_target_": None})
    assert is_unlogged(place, {"_target_": "dgbench.callbacks.loggers.CsvLog"})
    assert is_unlogged(place, WANDB)
    assert not is_unlogged(place, {**WANDB, "mode": "disabled"})
    write_mark(run, Mark("run", done=True))
    assert is_unlogged(place, WANDB), "the study is not there"
    write_mark(run.parent, Mark("study", done=True))
    assert not is_unlogged(place, WANDB)
    write_mark(run, Mark("run", done=False))
    assert is_unlogged(place, WANDB)
