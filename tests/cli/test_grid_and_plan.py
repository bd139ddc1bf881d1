"""Several studies in one job, and the plan of a job that is not started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SMALL = ["dataset.base=digits", "backbone.width=8", "trainer.steps=20", "trainer.eval_every=10", "trainer.device=cpu"]
GRID = [*SMALL, "grid.seed=[0,1]", "grid.algorithm=[erm,vrex]"]


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by run folder, without the version of the code."""
    found = {}
    for file in sorted(folder.rglob("errors.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found[f"{file.parent.parent.name}/{file.parent.name}"] = [{**row, "code": ""} for row in rows]
    return found


def test_a_grid_leaves_what_single_studies_leave(command: Any, tmp_path: Path) -> None:
    """Two algorithms times two seeds: four studies of five members, in the folders that they would have alone."""
    ended = command("train.py", *GRID, "execution=stacked", "paths.output_dir=together", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "(8 members together)" in ended.err  # four folds times two seeds of one algorithm
    alone = [*SMALL, "algorithm=vrex", "seed=1", "execution=single", "paths.output_dir=alone"]
    assert command("train.py", *alone, cwd=tmp_path).code == 0
    together, single = rows_of(tmp_path / "together"), rows_of(tmp_path / "alone")
    assert len(together) == 20
    for folder, rows in single.items():
        assert [{**row, "loss": 0} for row in together[folder]] == [{**row, "loss": 0} for row in rows]


def test_plan_starts_nothing_and_knows_what_is_done(command: Any, tmp_path: Path) -> None:
    """Before anything ran 20 models are to train; after one study of five, 15."""
    ended = command("train.py", *GRID, "plan=true", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[3].split()[:6] == ["all", "4", "20", "0", "0", "20"]
    assert not list(tmp_path.rglob("errors.jsonl")) and not list(tmp_path.rglob("status"))
    assert command("train.py", *SMALL, cwd=tmp_path).code == 0
    after = command("train.py", *GRID, "plan=true", cwd=tmp_path)
    assert after.out.splitlines()[1].split()[:6] == ["erm", "2", "10", "5", "0", "5"]
    assert after.out.splitlines()[3].split()[:6] == ["all", "4", "20", "5", "0", "15"]


def test_a_grid_entry_that_is_no_list(command: Any, tmp_path: Path) -> None:
    ended = command("train.py", *SMALL, "grid.seed=3", cwd=tmp_path)
    assert ended.code == 1
    assert ended.complaints == ["dgbench: grid.seed=3 is no list; write grid.seed=[...]"]
