"""Files of a finished study are damaged by chance: the same command mends the rows, or their run is named.

Before it and after it no report has another number than the undisturbed study without a word on that run. Each damage
has a seed, and a failure tells it: ``CHAOS_SEED=117 CHAOS_DAMAGES=1`` makes that one again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgbench
from dgbench.errors import RecordError
from tests.damage import EVERYTHING, ROWS, damage

pytestmark = pytest.mark.chaos

DAMAGES = int(os.environ.get("CHAOS_DAMAGES", "200"))
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
SMALL = (
    "dataset.base=digits", "backbone.width=8", "hparams.batch_size=8", "trainer.device=cpu", "trainer.steps=20",
    "trainer.eval_every=6",
)  # fmt: skip
STUDIES = {
    "single": ("execution=single", "trainer.predictions=last", "logger=csv", "trainer.eval_subsets=[train,val,test]"),
    "stacked": ("execution=stacked", "algorithm=irm", "protocol.folds=[0,1,2]"),
    "one evaluation": ("execution=single", "algorithm=vrex", "trainer.eval_every=500", "protocol.folds=[1,full]"),
    "test at best": ("trainer.eval_test=best", "algorithm=irm", "protocol.folds=[0,1]"),
    "averaged": ("averaging=swad", "trainer.eval_every=2", "protocol.folds=[0,1]"),
    "moving average": ("averaging=eoa", "averaging.rule.start=5", "protocol.folds=[0,1]"),
    "ends early": (
        "callbacks=early_stopping", "callbacks.early_stopping.patience=1", "hparams.lr=1e-30", "trainer.eval_every=5",
        "protocol.folds=[0,full]",
    ),
}  # fmt: skip
#: the version of the code is the same when somebody commits between two commands
STEADY = "import dgbench.records.spec\ndgbench.records.spec._git = lambda *_: None\n"
KEYS = ["step", "env", "subset"]
Rows = dict[str, bytes]


def numbers(root: Path) -> tuple[dict[str, list[tuple[Any, ...]]], str]:
    """Run -> the errors that count, under each of two selections; and all that is said of problems."""
    errors: dict[str, list[tuple[Any, ...]]] = {}
    said = ""
    for selection in ("last", "train_val"):
        try:
            frame = dgbench.results(root, selection)
        except RecordError as error:
            return errors, f"{said}\n{error}"
        said += "\n".join(frame.attrs["problems"])
        for (folder, _), lines in frame.groupby(["folder", "run"]):
            found = lines.sort_values(KEYS)[[*KEYS, "wrong", "seen", "loss"]]
            errors.setdefault(Path(str(folder)).name, []).extend(found.itertuples(index=False, name=None))
    return errors, said


def unsaid(root: Path, whole: Path) -> list[str]:
    """Runs whose numbers in a report are others than they should be, or absent, and that it does not name."""
    there, said = numbers(root)
    if not there and said:  # no report at all, and one line that says so
        return []
    return [run for run, errors in numbers(whole)[0].items() if there.get(run) != errors and run not in said]


def test_damage_is_mended_or_named(
    command: Any, rows_of: Callable[[Path], Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wholes = {name: tmp_path / "whole" / name for name in STUDIES}
    for name, whole in wholes.items():
        whole.mkdir(parents=True)
        assert command("train.py", *SMALL, *STUDIES[name], cwd=whole, before=STEADY).code == 0
    failures, mended = [], 0
    for seed in range(FIRST, FIRST + DAMAGES):
        chance = random.Random(seed)
        name = chance.choice(sorted(STUDIES))
        root, whole = tmp_path / str(seed), wholes[name]
        shutil.copytree(whole, root)
        times = chance.choice((1, 1, 1, 2, 3))
        done = [damage(root / "outputs", chance, chance.choice((ROWS, EVERYTHING))) for _ in range(times)]
        failures += [f"seed {seed}, {name}: {done}: report is silent on {run}" for run in unsaid(root, whole)]
        was_other = rows_of(root) != rows_of(whole)
        ended = command("train.py", *SMALL, *STUDIES[name], cwd=root, before=STEADY)
        said = ended.err + numbers(root)[1]
        expected, now = rows_of(whole), rows_of(root)
        other = [Path(file).parent.name for file in expected if now.get(file) != expected[file]]
        mended += was_other and not other
        failures += [f"seed {seed}, {name}: {done}: rows of {run} differ" for run in other if run not in said]
        failures += [
            f"seed {seed}, {name}: {done}: report is silent on {run} at the end" for run in unsaid(root, whole)
        ]
        failures += (
            [] if ended.code == 0 else [f"seed {seed}, {name}: {done}: exit code {ended.code}: {ended.err[-300:]}"]
        )
        shutil.rmtree(root)
    with capsys.disabled():
        print(f"{DAMAGES} damages from seed {FIRST} on, {mended} to rows and mended")
    assert not failures, "\n".join(failures)
