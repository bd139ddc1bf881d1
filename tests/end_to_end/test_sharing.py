"""Several commands over one folder, and members that failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dgbench.callbacks.claims import Claims
from dgbench.callbacks.status import read_status, write_status

WORDS = ("protocol.folds=[0,full]", "algorithm=vrex")
DIE = "import os\nfrom dgbench.callbacks import environment_errors as e\n"
DIE += "e.append_rows = lambda *_: os.kill(os.getpid(), 9)"
NO_FIT = "import os, pytorch_lightning as pl\npl.Trainer.fit = lambda *_, **__: os._exit(9)"


def members(folder: Path) -> dict[str, Path]:
    """Member folders by fold."""
    return {path.name.split("-")[1]: path for path in folder.rglob("fold-*") if path.is_dir()}


def test_a_claimed_member_is_left_to_its_process(
    train: Any, rows_of: Callable[[Path], dict[str, bytes]], tmp_path: Path
) -> None:
    """Fold 0 is held by this process: single commands and stacks train the other one only, say so, and succeed."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    assert train(*WORDS, cwd=whole).code == 0
    assert train(*WORDS, cwd=cut, before=DIE).code == -9
    held = members(cut)["0"]
    with Claims() as claims:
        assert claims.take(held)
        for mode in ("single", "stacked"):
            ended = train(*WORDS, f"execution={mode}", cwd=cut)
            assert ended.code == 0, ended.err
            assert [line for line in ended.err.splitlines() if "left to it" in line and str(held) in line], ended.err
            assert "left alone (1): fold 0 of " in ended.out and " trained by " in ended.out
        assert read_status(members(cut)["full"]) == "DONE"
        assert read_status(held) == "RUNNING"
    assert train(*WORDS, cwd=cut).code == 0
    assert rows_of(cut) == rows_of(whole)


def test_retry_chooses_among_failed_members(train: Any, tmp_path: Path) -> None:
    """Fold 0 failed, fold full was never started."""
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    failed = members(tmp_path)["0"]
    write_status(failed, "FAILED OSError: disk full")
    both = "protocol.folds=[0,full]"
    spared = train(both, "retry=none", "protocol.folds=[0]", cwd=tmp_path, before=NO_FIT)
    assert spared.code == 1
    assert "failed before; retry=failed trains it again" in spared.err
    again = train(both, "retry=failed", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "fold full of " in again.out and "not failed (retry=failed)" in again.out
    assert read_status(failed) == "DONE" and set(members(tmp_path)) == {"0"}
    assert train(both, cwd=tmp_path).code == 0
    assert set(members(tmp_path)) == {"0", "full"}
    wrong = train(both, "retry=x", cwd=tmp_path)
    assert wrong.complaints == ["dgbench: retry=x is unknown; choose all, failed, none"]
