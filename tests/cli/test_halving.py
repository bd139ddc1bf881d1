"""``hparams=halving``: draws stop at rungs; those that go on are the runs of a whole search."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.status import DONE, FAILED, RUNNING, read_status, write_status
from tests.chaos.test_stack_kills import AIMED
from tests.complaints import one_line
from tests.conftest import rows_in

pytestmark = pytest.mark.slow

SEARCH = (
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.steps=16",
    "trainer.eval_every=2",
    "trainer.device=cpu",
    "protocol.folds=[0,1]",
    "hparams.scheme.draws=4",
    "hparams.scheme.trials=1",
)
HALVING = (*SEARCH, "hparams=halving", "hparams.scheme.reduction=2")  # rungs end at 4, 8 and 16
Rows = Callable[[Path], dict[str, bytes]]


@pytest.fixture(scope="module")
def halved(command: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("halved")
    return folder, command("train.py", *HALVING, cwd=folder)


def accuracy(file: Path, end: int) -> float:
    """Training-domain validation of a run, at the best of its steps up to one."""
    by_step: dict[int, list[float]] = {}
    for row in rows_in(file.parent):
        if row["subset"] == "val" and not row["env_held_out"] and row["step"] <= end:
            by_step.setdefault(row["step"], []).append(1 - row["wrong"] / row["seen"])
    return max(sum(values) / len(values) for values in by_step.values())


def test_draws_stop_where_validation_ranks_them_last(halved: tuple[Path, Any]) -> None:
    """Worked out from the rows by hand: two of four go on at step 4, one of two at step 8, by the
    mean over folds.
    """
    folder, ended = halved
    assert ended.code == 0, ended.err
    going = sorted((folder / "outputs").glob("sr_cmnist-*"))
    for end, n in ((4, 2), (8, 1)):
        mean = {
            study: sum(accuracy(f, end) for f in study.glob("*/errors.jsonl")) / 2
            for study in going
        }
        ranked = sorted(going, key=lambda study: (mean[study], draw_of(study)), reverse=True)
        for place, study in enumerate(ranked[n:], n + 1):
            for run in study.glob("fold-*"):
                status = read_status(run)
                assert status.word == "STOPPED"
                said = (
                    rf"at step {end}: .* {100 * mean[study]:.2f} %, place {place} of {len(going)}"
                )
                assert re.match(said, status.reason), status
                assert max(row["step"] for row in rows_in(run)) == end
        going = ranked[:n]
    assert [read_status(run).word for run in going[0].glob("fold-*")] == ["DONE"] * 2


def draw_of(study: Path) -> int:
    drawn = re.search(r"-draw(\d+)-", study.name)
    return int(drawn[1]) if drawn else 0


def test_what_is_trained_is_the_beginning_of_a_whole_search(
    halved: tuple[Path, Any], command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """And a whole search in the folder of a halved one trains what is left of it."""
    folder, alone = tmp_path / "halved", tmp_path / "alone"
    shutil.copytree(halved[0], folder)
    alone.mkdir()
    before = rows_of(folder)
    whole = command("train.py", *SEARCH, "hparams=search", cwd=folder)
    assert whole.code == 0, whole.err
    after = rows_of(folder)
    assert command("train.py", *SEARCH, "hparams=search", cwd=alone).code == 0
    assert after == rows_of(alone)
    assert before.keys() == after.keys() and all(
        after[file].startswith(rows) for file, rows in before.items()
    )
    assert Counter(rows == after[file] for file, rows in before.items()) == {True: 2, False: 6}


def test_a_halved_search_is_done(command: Any, rows_of: Rows, tmp_path: Path) -> None:
    """To status, to a sweep and to the same command again; what stopped is named with the reason in
    hparams.json.
    """
    sweep = ("-m", *HALVING, "algorithm=erm,sd")
    assert command("train.py", *sweep, cwd=tmp_path).code == 0
    rows = rows_of(tmp_path)
    again = command("train.py", *sweep, cwd=tmp_path)
    assert (again.code, rows_of(tmp_path)) == (0, rows)
    assert again.err.endswith("nothing to do: all 2 jobs are done (retry=all)\n")
    assert command("report.py", "report=status", cwd=tmp_path).code == 0
    report = command(
        "report.py", "report=hparams", "selection=train_val", "output=report", cwd=tmp_path
    )
    assert report.code == 0, report.err
    saved = json.loads((tmp_path / "report" / "hparams.json").read_text())
    assert report.out.count("draws that were stopped") == 1, "six of them are one problem"
    (choice, *_) = saved["choices"]
    reasons = [candidate["why"] for candidate in choice["candidates"]]
    assert (
        len([why for why in reasons if "place" in why and "go on" in why]) == 3
        and reasons.count("") == 1
    )


def test_a_run_that_failed_or_died_after_a_rung_is_no_dead_end(
    halved: tuple[Path, Any], command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """The same command continues it where it goes on, and stops it where it does not."""
    shutil.copytree(halved[0], tmp_path, dirs_exist_ok=True)
    folders = sorted((tmp_path / "outputs").glob("sr_cmnist-*/fold-*"))
    before = {folder: read_status(folder) for folder in folders}
    for folder, status in before.items():
        write_status(
            folder,
            *((FAILED, "OSError: No space left on device") if status.word == DONE else (RUNNING,)),
        )
    again = command("train.py", *HALVING, cwd=tmp_path)
    assert again.code == 0, again.err
    assert {folder: read_status(folder) for folder in folders} == before
    assert rows_of(tmp_path) == rows_of(halved[0])


@pytest.mark.chaos
def test_kills_change_no_row(
    halved: tuple[Path, Any], command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    killed = 0
    for n in (15, 30, 45, 20, 60):
        killed += (
            command("train.py", *HALVING, cwd=tmp_path, before=AIMED.format(n=n, before=n % 2)).code
            != 0
        )
    assert killed >= 3
    assert command("train.py", *HALVING, cwd=tmp_path).code == 0
    alone = tmp_path / "alone"
    alone.mkdir()
    assert command("train.py", *HALVING, cwd=alone).code == 0
    assert {file.removeprefix("alone/") for file in rows_of(tmp_path)} == rows_of(alone).keys()
    assert rows_of(tmp_path / "outputs") == rows_of(alone / "outputs")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("hparams.scheme.reduction=1", r"hparams\.scheme\.reduction=1.*integer >= 2"),
        ("hparams.scheme.rungs=1", r"hparams\.scheme\.rungs=1.*integer >= 2"),
        ("hparams.scheme.repeats=2", r"hparams\.scheme\.repeats=2.*all draws"),
        (
            "hparams.scheme.chosen_by._target_=dgbench.analysis.selection.Oracle",
            r"hparams\.scheme\.chosen_by=oracle looks at test environments",
        ),
        (
            "hparams.scheme.chosen_by._target_=dgbench.analysis.selection.LooVal",
            r"hparams\.scheme\.chosen_by=loo_val judges by runs of another protocol",
        ),
    ],
)
def test_what_cannot_be_halved(word: str, said: str, command: Any, tmp_path: Path) -> None:
    ended = command("train.py", *HALVING, word, "plan=true", cwd=tmp_path)
    assert ended.code == 1
    one_line(*ended.complaints, said)


def test_rows_that_a_stopped_draw_lost_are_trained_again(
    halved: tuple[Path, Any], command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """Else it would rank last for want of rows, and another would go on in its place."""
    folder = tmp_path / "halved"
    shutil.copytree(halved[0], folder)
    before = rows_of(folder)
    stopped = sorted(
        file for file in folder.rglob("errors.jsonl") if read_status(file.parent).word == "STOPPED"
    )
    stopped[0].unlink()
    stopped[-1].write_bytes(stopped[-1].read_bytes()[:-200])
    ended = command("train.py", *HALVING, cwd=folder)
    assert ended.code == 0, ended.err
    assert rows_of(folder) == before
    assert str(stopped[0].relative_to(folder)) in ended.err
