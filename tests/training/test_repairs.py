"""What is damaged in the folder of a finished run is named,
and repaired where the run tells how.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dgbench.errors import RecordError
from dgbench.records.predictions import PREDICTION_FILE, read_predictions
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


def flipped(content: bytes, at: float) -> bytes:
    """Content with one bit changed at a share of its length."""
    damaged = bytearray(content)
    damaged[int(at * (len(damaged) - 1))] ^= 8
    return bytes(damaged)


DAMAGES = {
    "page": lambda content: flipped(content, 0.3),
    "footer": lambda content: flipped(content, 0.9),
    "end": lambda content: flipped(content, 1.0),
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "lost": lambda content: None,
}


@pytest.mark.parametrize("which", ["last", "best"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_predictions_are_made_again(
    damage: str, which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte as they were, by the same command, which says so."""
    words = (*SHORT, "execution=single", f"trainer.predictions={which}")
    study = small_study(tmp_path, *words)
    train_study(study)
    file = study.runs[0].folder / PREDICTION_FILE
    whole = file.read_bytes()
    content = DAMAGES[damage](whole)
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    capsys.readouterr()
    assert all(train_study(small_study(tmp_path, *words)).values())
    shown = capsys.readouterr().err
    fault = "lost" if damage == "lost" else "damaged"
    assert f"{file} is {fault}; it is made again" in shown and "was set" not in shown
    assert file.read_bytes() == whole
    train_study(small_study(tmp_path, *words))
    assert str(file) not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("execution=stacked",), ("averaging=eoa", "averaging.rule.start=1")], ids=str
)
def test_predictions_of_stacks_and_of_averages(words: tuple[str, ...], tmp_path: Path) -> None:
    """What is made again counts the errors that the rows say."""
    words = (*SHORT, *words, "trainer.predictions=last")
    study = small_study(tmp_path, *words)
    train_study(study)
    run = study.runs[0]
    file = run.folder / PREDICTION_FILE
    whole = read_predictions(file)
    file.write_bytes(b"")
    train_study(small_study(tmp_path, *words))
    if not file.stat().st_size:  # the average of the last step was not the best, and was not kept
        assert words[-2].startswith("averaging")
        return
    again = read_predictions(file)
    assert again.column("predicted").equals(whole.column("predicted"))


@pytest.mark.parametrize(("which", "gone"), [("best", "best.ckpt"), ("last", "last.ckpt")])
def test_predictions_that_cannot_be_made_again(
    which: str, gone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says which weights are gone; the run stays complete."""
    words = (*SHORT, "trainer.eval_every=1", "execution=single", f"trainer.predictions={which}")
    study = small_study(tmp_path, *words)
    train_study(study)
    run = study.runs[0]
    for checkpoint in (run.folder / "checkpoints").iterdir():
        if which == "last" or checkpoint.name == gone:
            checkpoint.unlink()
    file = run.folder / PREDICTION_FILE
    file.write_bytes(b"PAR1")
    capsys.readouterr()
    assert all(train_study(small_study(tmp_path, *words)).values())
    shown = capsys.readouterr().err
    assert f"{file} is damaged and cannot be made again" in shown
    assert (gone if which == "best" else "no checkpoint of step 4") in shown


def test_every_changed_byte_of_predictions_is_noticed(tmp_path: Path) -> None:
    """Also in the footer and in the headers of pages, which Parquet's own checksums leave out."""
    study = small_study(tmp_path, *SHORT, "protocol.folds=[0]", "trainer.predictions=last")
    train_study(study)
    file = study.runs[0].folder / PREDICTION_FILE
    whole = file.read_bytes()
    seal = whole.rindex(b"\ndgbench crc32 ")
    chance = random.Random(3)
    for place in chance.sample(range(len(whole)), 200):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        if seal <= place < seal + 15:
            continue  # the mark of the seal itself: nothing else is changed
        with pytest.raises(RecordError):
            read_predictions(file)
