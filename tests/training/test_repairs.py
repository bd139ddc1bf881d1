"""What is damaged in the folder of a finished run is named, and repaired where the run tells how."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import ROW_FILE
from dgbench.records.status import DONE, FAILED, read_status
from tests.studies import small_study, train_study

SHORT = ("trainer.steps=4", "trainer.eval_every=2", "protocol.folds=[0,1]")


@pytest.mark.parametrize("damage", ["doubled", "trailing", "both"])
def test_lines_that_are_no_rows_or_stand_twice_are_removed(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = small_study(tmp_path, *SHORT)
    train_study(study)
    file = study.runs[0].folder / ROW_FILE
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    content = lines[0] + whole if damage in ("doubled", "both") else whole
    file.write_bytes(content + b"\x00\xff{" * (damage != "doubled"))
    train_study(small_study(tmp_path, *SHORT))
    assert file.read_bytes() == whole
    assert f"{file}: 1 lines that" in capsys.readouterr().err


def test_a_folder_in_the_place_of_rows_fails_that_run_alone(tmp_path: Path) -> None:
    study = small_study(tmp_path, *SHORT, "execution=stacked")
    blocked, other = study.runs[:2]
    (blocked.folder / ROW_FILE).mkdir(parents=True)
    train_study(study)
    status = read_status(blocked.folder)
    assert status.word == FAILED and ROW_FILE in status.reason
    assert read_status(other.folder).word == DONE


def test_damaged_predictions_are_named_with_what_writes_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*SHORT, "trainer.predictions=last")
    study = small_study(tmp_path, *words)
    train_study(study)
    file = study.runs[0].folder / PREDICTION_FILE
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 8
    file.write_bytes(bytes(content))
    capsys.readouterr()
    train_study(small_study(tmp_path, *words))
    shown = capsys.readouterr().err
    assert f"{file} is damaged" in shown and "predictions=true" in shown
    assert "was set" not in shown
