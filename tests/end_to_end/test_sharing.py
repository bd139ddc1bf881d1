"""Several commands over one folder, and runs that failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.locks import RunLocks
from dgbench.records.rows import ROW_FILE
from dgbench.records.status import read_status, write_status
from tests.complaints import one_line

pytestmark = pytest.mark.slow

WORDS = ("protocol.folds=[0,full]", "algorithm=vrex")
DIE = "import os\nfrom dgbench.callbacks import recorder as r\n"
DIE += "r.append_rows = lambda *_: os.kill(os.getpid(), 9)"
NO_FIT = "import os, pytorch_lightning as pl\npl.Trainer.fit = lambda *_, **__: os._exit(9)"


def runs(folder: Path) -> dict[str, Path]:
    """Run folders by fold."""
    return {path.name.split("-")[1]: path for path in folder.rglob("fold-*") if path.is_dir()}


def test_a_locked_run_is_left_to_its_process(
    train: Any, rows_of: Callable[[Path], dict[str, bytes]], tmp_path: Path
) -> None:
    """Fold 0 is held by this process: single commands and stacks train the other one only, say so,
    and succeed.
    """
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    assert train(*WORDS, cwd=whole).code == 0
    assert train(*WORDS, cwd=cut, before=DIE).code == -9
    held = runs(cut)["0"]
    with RunLocks() as locks:
        assert locks.take(held)
        for mode in ("single", "stacked"):
            ended = train(*WORDS, f"execution={mode}", cwd=cut)
            assert ended.code == 0, ended.err
            named = [line for line in ended.err.splitlines() if str(held.relative_to(cut)) in line]
            assert [line for line in named if "left to it" in line], ended.err
            assert "left alone (1): fold 0 of " in ended.out and " trained by " in ended.out
        assert read_status(runs(cut)["full"]).word == "DONE"
        assert read_status(held).word == "RUNNING"
    assert train(*WORDS, cwd=cut).code == 0
    assert rows_of(cut) == rows_of(whole)


def test_retry_chooses_among_failed_runs(train: Any, tmp_path: Path) -> None:
    """Fold 0 failed, fold full was never started."""
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    failed = runs(tmp_path)["0"]
    write_status(failed, "FAILED OSError: disk full")
    both = "protocol.folds=[0,full]"
    spared = train(both, "retry=none", "protocol.folds=[0]", cwd=tmp_path, before=NO_FIT)
    assert spared.code == 1
    assert "failed before; retry=failed trains it again" in spared.err
    again = train(both, "retry=failed", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "fold full of " in again.out and "not failed (retry=failed)" in again.out
    assert read_status(failed).word == "DONE" and set(runs(tmp_path)) == {"0"}
    assert train(both, cwd=tmp_path).code == 0
    assert set(runs(tmp_path)) == {"0", "full"}
    wrong = train(both, "retry=x", cwd=tmp_path)
    one_line(*wrong.complaints, "retry=x is unknown; ")


@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize("left", [None, b""])
def test_done_without_rows_is_trained_again(
    train: Any,
    rows_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
    left: bytes | None,
    mode: str,
) -> None:
    """From its beginning, though its last checkpoint is there; the other run is left as it is."""
    words = (*WORDS, f"execution={mode}")
    assert train(*words, cwd=tmp_path).code == 0
    before = rows_of(tmp_path)
    lost = runs(tmp_path)["0"]
    (lost / ROW_FILE).unlink()
    if left is not None:
        (lost / ROW_FILE).write_bytes(left)
    again = train(*words, cwd=tmp_path)
    assert again.code == 0, again.err
    assert f"{lost.relative_to(tmp_path)}: DONE, but errors.jsonl" in again.err
    assert again.err.count("was done before") == 1
    assert rows_of(tmp_path) == before


def test_a_process_trains_more_runs_than_it_may_have_open_files(
    command: Any, tmp_path: Path
) -> None:
    """150 runs with predictions, in one stack of 120 and one of 30, at 80 open files."""
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))\n"
    seeds = f"grid.seed=[{','.join(map(str, range(30)))}]"
    small = (
        "dataset.base=digits",
        "backbone.width=4",
        "hparams.batch_size=4",
        "trainer.steps=2",
        "trainer.device=cpu",
    )
    ended = command("train.py", *small, seeds, "trainer.predictions=last", cwd=tmp_path, before=few)
    assert ended.code == 0, ended.err
    assert [file.read_text().split()[0] for file in tmp_path.rglob("status")] == ["DONE"] * 150
    assert len(list(tmp_path.rglob("predictions.parquet"))) == 150
