"""Bad input: one line that names the fix, exit code 1 or 2, no traceback.

Every command is a process of its own.
"""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

NO_DOWNLOAD = (
    "from dgbench.data.datasets import base_images\nbase_images.any_answers = lambda *_: False\n"
)

# what a user typed -> what the line must say: one of each kind, tests/plan/test_wrong_keys.py has
# the others; 9 is the discard port, on which nothing listens
TYPED: dict[str, tuple[list[str], str]] = {
    "misspelt key": (["trainer.step=5"], r"trainer\.step.*unknown.*trainer\.steps\?"),
    "old address": (["trainer.lr=1"], r"trainer\.lr is set by hparams\.lr; write hparams\.lr=1"),
    "old sets": (["hparams.set={lr: 1}"], r"hparams\.set is set by hparams\.NAME"),
    "not an override": (["seed"], r"seed.*read.*KEY=VALUE"),
    "unclosed list": (
        ["dataset.given=[0.1,0.9"],
        r"dataset\.given=\[0\.1,0\.9 cannot be read: .*; write KEY=VALUE",
    ),
    "ratio": (["dataset.ratio=0"], r"dataset\.ratio=0.*integer >= 1"),
    "too many environments": (["dataset.scale=300"], r"subset.*empty"),
    "hyperparameter nan": (
        ["algorithm=vrex", "hparams.vrex_lambda=nan"],
        r"vrex_lambda=nan.*number",
    ),
    "no such class": (
        ["algorithm.objective=dgbench.algorithms.erm.ERN"],
        r"algorithm\.objective=.*ERN",
    ),
    "another class": (
        ["algorithm.name=mine", "algorithm.objective=pathlib.Path"],
        r"objective=pathlib\.Path.*dgbench Algorithm",
    ),
    "no MNIST": (
        ["dataset.base=mnist", "paths.data_dir=nowhere"],
        r"MNIST.*nowhere.*paths\.data_dir",
    ),
    "endless sweep": (
        ["-m", "hparams.lr=interval(0.1,1)"],
        r"interval\(A,B\) lists no values.*search\.md",
    ),
    "bad interpolation": (["seed=${no.such.key}"], r"no\.such\.key|no\.such"),
}


#: of a word that a test types after the one of its fixture
REPLACED = r"note: .* counts for nothing: .* after it replaces it$"
#: what was understood of a dataset: said before what is wrong with its images, or with a run that
#: began
UNDERSTOOD = r"\w+( \(\w+\))?: \d+ (given )?environments|\d+ classes|validation: "


def assert_one_line(ended: Any, said: str, understood: str = "$nothing") -> None:
    """Exit code 1 or 2, one complaint that says the right thing, and nothing else but progress."""
    assert ended.code in (1, 2), ended.err
    assert "Traceback" not in ended.err
    assert len(ended.complaints) == 1, ended.err
    assert re.search(said, ended.complaints[0]), ended.complaints[0]
    assert len(ended.complaints[0]) > len("dgbench: ") + 10
    others = [line for line in ended.err.splitlines() if line not in ended.complaints]
    progress = rf"\w+ \d+/\d+: |.* \.\.\.$|{REPLACED}|{understood}"
    assert all(re.match(progress, line) for line in others), others


@pytest.mark.parametrize("kind", TYPED)
def test_one_line_that_names_the_fix(train: Any, tmp_path: Path, kind: str) -> None:
    words, said = TYPED[kind]
    ended = train(*words, cwd=tmp_path, before=NO_DOWNLOAD)
    assert_one_line(ended, said)
    assert not list(tmp_path.rglob("errors.jsonl"))
    assert not any("DONE" in status.read_text() for status in tmp_path.rglob("status"))


@pytest.mark.parametrize(
    "place", ["paths.output_dir={}/file/outputs", "hydra.run.dir={}/file/run hydra.output_subdir=x"]
)
def test_an_output_folder_that_cannot_be_made(train: Any, tmp_path: Path, place: str) -> None:
    """A file stands where the folder should go: refused for every user, also for the superuser."""
    (tmp_path / "file").write_text("")
    ended = train(*place.format(tmp_path).split(), cwd=tmp_path)
    assert_one_line(
        ended,
        (
            rf"{re.escape(str(tmp_path))}/file.*: .*; name a folder you may write with "
            rf"{re.escape(place.split('=')[0])}"
        ),
    )


def test_a_sweep_folder_that_cannot_be_made(train: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = train("-m", f"hydra.sweep.dir={tmp_path}/file/sweep", "seed=0,1", cwd=tmp_path)
    assert_one_line(ended, r"/file")


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08\x01" + struct.pack(">I", 60_000) + b"\7" * 100, b"<html>"]
)
def test_a_corrupt_idx_file(train: Any, tmp_path: Path, content: bytes) -> None:
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            (raw / f"{part}-{kind}").write_bytes(content)
    ended = train("dataset.base=mnist", "paths.data_dir=data", cwd=tmp_path, before=NO_DOWNLOAD)
    fault = (
        r"data/MNIST/raw/train-images-idx3-ubyte is cut short or corrupt; delete it and fetch MNIST"
    )
    assert_one_line(ended, fault, UNDERSTOOD)


@pytest.mark.thorough
@pytest.mark.parametrize("keep", [0, 100, 0.5])
def test_a_checkpoint_cut_in_half(train: Any, rows_of: Any, tmp_path: Path, keep: float) -> None:
    """It is named, and fold 0 starts without it; its rows are those that it had."""
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    (last,) = tmp_path.rglob("last.ckpt")
    (status,) = tmp_path.rglob("status")
    status.write_text("RUNNING\n")  # trained, yet never DONE
    rows = rows_of(tmp_path)
    data = last.read_bytes()
    last.write_bytes(data[: int(keep * len(data)) if keep < 1 else int(keep)])
    ended = train("protocol.folds=[0,full]", cwd=tmp_path)
    assert (ended.code, ended.complaints) == (0, []), ended.err
    line = rf"{re.escape(str(last.relative_to(tmp_path)))} is cut short.* starts without it"
    assert re.search(line, ended.err)
    assert [p.read_text().split()[0] for p in tmp_path.rglob("status")] == ["DONE"] * 2
    assert rows.items() <= rows_of(tmp_path).items()


@pytest.mark.thorough
def test_a_checkpoint_of_another_run(train: Any, tmp_path: Path) -> None:
    """It is refused, and fold full is trained;
    without the foreign file the same command completes.
    """
    words = ("protocol.folds=[0,full]",)
    assert train("seed=1", "protocol.folds=[0]", cwd=tmp_path).code == 0
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    own, foreign = (next(tmp_path.glob(f"outputs/*-s{seed}-*/fold-0-*")) for seed in (0, 1))
    (own / "status").write_text("RUNNING\n")
    last = own / "checkpoints" / "last.ckpt"
    shutil.copy(foreign / "checkpoints" / "last.ckpt", last)
    ended = train(*words, cwd=tmp_path)
    assert_one_line(ended, r"fold 0 of .* failed", rf"FAILED|\w+ 2/2|{UNDERSTOOD}")
    names = [folder.name.split("-")[-1] for folder in (foreign, own)]
    line = (
        rf"FAILED: {re.escape(str(last.relative_to(tmp_path)))} is the checkpoint of {names[0]}, "
        rf"not of {names[1]}"
    )
    assert re.search(line, ended.err)
    (full,) = own.parent.glob("fold-full-*/status")
    assert full.read_text().startswith("DONE ")
    assert (own / "status").read_text().startswith("FAILED")
    last.unlink()
    assert train(*words, cwd=tmp_path).code == 0


def test_a_row_file_cut_in_half(train: Any, tmp_path: Path) -> None:
    """The last of 24 rows of a finished fold is torn: the fold is named, and trained again to the
    same rows.
    """
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    (rows,) = tmp_path.rglob("errors.jsonl")
    whole = rows.read_bytes()
    assert whole.count(b"\n") == 24
    rows.write_bytes(whole[:-50])
    ended = train("protocol.folds=[0]", cwd=tmp_path)
    assert "Traceback" not in ended.err
    assert f"{rows.parent.relative_to(tmp_path)}: DONE, but 1 row of step " in ended.err
    assert ended.code == 0 and rows.read_bytes() == whole


def test_a_row_file_cut_in_half_is_completed_by_a_resume(
    train: Any, rows_of: Any, tmp_path: Path
) -> None:
    """The torn row was written after the last checkpoint, so it is written again."""
    whole = tmp_path / "whole"
    whole.mkdir()
    train("protocol.folds=[0]", cwd=whole)
    before = (
        "import os, signal\nfrom dgbench.callbacks.checkpointer import Checkpointer\nwrite = "
        "Checkpointer.write\ndef second(self, trainer, module):\n    os.kill(os.getpid(), "
        "signal.SIGKILL) if module.steps_done == 8 else write(self, trainer, "
        "module)\nCheckpointer.write = second"
    )
    cut = tmp_path / "cut"
    cut.mkdir()
    assert train("protocol.folds=[0]", cwd=cut, before=before).code == -9
    (rows,) = cut.rglob("errors.jsonl")
    rows.write_bytes(rows.read_bytes()[:-50])
    ended = train("protocol.folds=[0]", cwd=cut)
    assert ended.code == 0, ended.err
    assert rows_of(cut) == rows_of(whole)


def test_a_status_that_is_no_text_is_taken_as_unfinished(train: Any, tmp_path: Path) -> None:
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    (status,) = tmp_path.rglob("status")
    status.write_bytes(b"\xff\xfe\x00")
    ended = train("protocol.folds=[0]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert status.read_text().startswith("DONE ")


def test_a_traceback_can_be_asked_for(train: Any, tmp_path: Path) -> None:
    ended = train("dataset.ratio=0", cwd=tmp_path, env={"HYDRA_FULL_ERROR": "1"})
    assert ended.code == 1
    assert "Traceback" in ended.err
    assert "ConfigError: dataset.ratio=0" in ended.err


def test_a_report_of_nothing(command: Any, tmp_path: Path) -> None:
    ended = command("report.py", "runs=[nowhere]", cwd=tmp_path)
    assert_one_line(ended, r"no runs under nowhere; train some")
