"""Files of a study are damaged by chance: the same command mends rows and predictions, or their run
is named.

Half of the studies are finished, half were killed before that. Before the command and after it no
report has another number than the undisturbed study without a word on that run. Each damage has a
seed, and a failure tells it: ``CHAOS_SEED=117 CHAOS_DAMAGES=1`` makes that one again.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgbench
from dgbench.errors import RecordError
from tests.chaos.test_method_kills import outputs
from tests.chaos.test_stack_kills import AIMED
from tests.damage import CHECKPOINTS, EVERYTHING, ROWS, damage

pytestmark = pytest.mark.chaos

DAMAGES = int(os.environ.get("CHAOS_DAMAGES", "200"))
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
SMALL = (
    "dataset.base=digits", "backbone.width=8", "hparams.batch_size=8", "trainer.device=cpu",
    "trainer.steps=20", "trainer.eval_every=6",
)  # fmt: skip
STUDIES = {
    "single": ("execution=single", "trainer.predictions=last", "logger=csv",
        "trainer.eval_subsets=[train,val,test]"),
    "stacked": ("execution=stacked", "algorithm=irm", "protocol.folds=[0,1,2]",
        "trainer.predictions=last"),
    "one evaluation": ("execution=single", "algorithm=vrex", "trainer.eval_every=500",
        "protocol.folds=[1,full]"),
    "test at best": (
        "trainer.eval_test=best", "algorithm=irm", "protocol.folds=[0,1]",
        "trainer.predictions=best",
    ),
    "averaged": ("averaging=swad", "trainer.eval_every=2", "protocol.folds=[0,1]"),
    "moving average": ("averaging=eoa", "averaging.rule.start=5", "protocol.folds=[0,1]"),
    "ends early": (
        "callbacks=early_stopping", "callbacks.early_stopping.patience=1", "hparams.lr=1e-30",
        "trainer.eval_every=5", "protocol.folds=[0,full]",
    ),
}  # fmt: skip
#: ``CHAOS_FILE=predictions.parquet`` damages files of that name alone
FILE = os.environ.get("CHAOS_FILE")
CHOICES = (
    [{kind: ways for kind, ways in EVERYTHING.items() if Path(kind).name == FILE}]
    if FILE
    else [ROWS, CHECKPOINTS, EVERYTHING]
)
#: the version of the code is the same when somebody commits between two commands
STEADY = "import dgbench.records.spec\ndgbench.records.spec._git = lambda *_: None\n"
KEYS = ["step", "env", "subset"]
Rows = dict[str, bytes]


def numbers(root: Path) -> tuple[dict[str, list[tuple[Any, ...]]], str]:
    """Run -> the errors that count, under each of two selections;
    and all that is said of problems.
    """
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
            errors.setdefault(Path(str(folder)).name, []).extend(
                found.itertuples(index=False, name=None)
            )
    return errors, said


def unsaid(root: Path, whole: Path) -> list[str]:
    """Runs whose numbers in a report are others than they should be, or absent, and that it does
    not name.
    """
    there, said = numbers(root)
    if not there and said:  # no report at all, and one line that says so
        return []
    return [
        run
        for run, errors in numbers(whole)[0].items()
        if there.get(run) != errors and run not in said
    ]


def test_damage_is_mended_or_named(
    command: Any,
    rows_of: Callable[[Path], Rows],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wholes = {name: tmp_path / "whole" / name for name in STUDIES}
    for name, whole in wholes.items():
        whole.mkdir(parents=True)
        assert command("train.py", *SMALL, *STUDIES[name], cwd=whole, before=STEADY).code == 0
    failures, mended, named, done_to = [], 0, 0, Counter[str]()
    for seed in range(FIRST, FIRST + DAMAGES):
        chance = random.Random(seed)
        name = chance.choice(sorted(STUDIES))
        root, whole = tmp_path / str(seed), wholes[name]
        words, is_finished = [*SMALL, *STUDIES[name]], chance.random() < 0.5
        if is_finished:
            shutil.copytree(whole, root)
        else:  # each file that is renamed into its place is a moment; late ones are after the end
            root.mkdir()
            words += [f"trainer.checkpoint_seconds={chance.choice((0, 0, 0, 300))}"]
            kill = AIMED.format(n=chance.randint(8, 40), before=chance.random() < 0.5)
            killed = command("train.py", *words, cwd=root, before=STEADY + kill)
            assert killed.code in (0, -signal.SIGKILL), killed.err
        done = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            there = [ways for ways in CHOICES if any(next(root.rglob(kind), None) for kind in ways)]
            if there:
                done.append(damage(root / "outputs", chance, chance.choice(there)))
        case = f"seed {seed}, {name}, {'' if is_finished else 'un'}finished: {done}"
        files = [Path(one.split()[-1]) for one in done]
        kinds = [next(kind for kind in EVERYTHING if file.match(kind)) for file in files]
        done_to.update(f"{'' if is_finished else 'un'}finished {kind}" for kind in kinds)
        begun = numbers(root)[0]
        silent = [run for run in unsaid(root, whole) if is_finished or run in begun]
        failures += [f"{case}: report is silent on {run}" for run in silent]
        was_other = outputs(root, rows_of) != outputs(whole, rows_of)
        ended = command("train.py", *words, cwd=root, before=STEADY)
        said = ended.err + numbers(root)[1]
        expected, now = outputs(whole, rows_of), outputs(root, rows_of)
        other = [Path(file).parent.name for file in expected if now.get(file) != expected[file]]
        mended += was_other and not other
        named += bool(other)
        failures += [
            f"{case}: rows or predictions of {run} differ" for run in other if run not in said
        ]
        failures += [f"{case}: report is silent on {run} at the end" for run in unsaid(root, whole)]
        failures += (
            [] if ended.code == 0 else [f"{case}: exit code {ended.code}: {ended.err[-300:]}"]
        )
        with capsys.disabled():  # a test of hours that is stopped has told what it came to
            print(case, [line for line in failures if line.startswith(case)] or "right", flush=True)
        shutil.rmtree(root)
    with capsys.disabled():
        print(f"\n{DAMAGES} damages from seed {FIRST} on, {mended} mended, {named} named")
        print(*(f"{count:4} {what}" for what, count in sorted(done_to.items())), sep="\n")
    assert not failures, "\n".join(failures)
