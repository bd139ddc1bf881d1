"""Memory ends in a real training under a real limit: what is too large is trained in halves, or
fails with one line.

Limits are set within the process that trains, from what it holds at that moment and from the size
of its weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.status import DONE, FAILED, read_status
from tests.conftest import Command

pytestmark = pytest.mark.slow

#: a process that may take only so many bytes more than it has, from now on
LIMIT = """
import resource
from pathlib import Path
def limit(more):
    text = Path("/proc/self/status").read_text()
    size = 1024 * int(text.partition("VmSize:")[2].split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (size + int(more), resource.RLIM_INFINITY))
"""
#: once the first optimizers are there, so many times the weights more: gradients, Adam's moments
#: and what it computes with take five times as much
WEIGHTS = """
from dgbench.training.modules import SingleRun, StackedRuns
def limited(kind, weights, times):
    configure, begun = kind.configure_optimizers, []
    def configured(self):
        optimizers = configure(self)
        if not begun:
            begun.append(True)
            limit(times * sum(tensor.nbytes for tensor in weights(self)))
        return optimizers
    kind.configure_optimizers = configured
"""
LARGE = ("backbone.width=2048", "hparams.batch_size=8", "trainer.steps=2", "trainer.eval_every=1")


def statuses(folder: Path) -> list[str]:
    return [read_status(file.parent).word for file in sorted(folder.rglob("status"))]


def errors(folder: Path) -> dict[tuple[Any, ...], tuple[float, float]]:
    """What was measured where: images that are wrong, and loss."""
    rows = [
        json.loads(line)
        for file in folder.rglob("errors.jsonl")
        for line in file.read_text().splitlines()
    ]
    return {
        (row["run"], row["step"], row["env"], row["subset"]): (row["wrong"], row["loss"])
        for row in rows
    }


def test_a_stack_that_is_too_large_is_trained_in_halves(train: Command, tmp_path: Path) -> None:
    """Four runs end within their first step; each two of them have memory enough, once that of the
    four is free.

    Where memory came back in pieces a half may be halved again: single runs round otherwise, and
    Adam enlarges that.
    """
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    words = (
        *LARGE,
        "backbone.width=4096",
        "execution=stacked",
        "protocol.folds=[0,1,2,3]",
        "trainer.checkpoint_seconds=300",
    )
    whole.mkdir()
    halved.mkdir()
    assert train(*words, "execution.max_runs=2", cwd=whole).code == 0
    limit = LIMIT + WEIGHTS + "limited(StackedRuns, lambda stack: stack.params.values(), 3)"
    ended = train(*words, cwd=halved, before=limit)
    assert (ended.code, ended.complaints) == (0, []), ended.err
    assert "out of memory with 4 runs together, continuing with half of them" in ended.err
    assert statuses(halved) == [DONE] * 4
    assert errors(halved) == {
        place: pytest.approx(values, rel=0.02) for place, values in errors(whole).items()
    }


def test_a_run_that_is_too_large_fails_in_one_line(train: Command, tmp_path: Path) -> None:
    """It is trained once there is memory."""
    words = (*LARGE, "protocol.folds=[0]")
    limit = LIMIT + WEIGHTS + "limited(SingleRun, lambda run: run.parameters(), 0.5)"
    ended = train(*words, cwd=tmp_path, before=limit)
    assert ended.code == 1 and len(ended.complaints) == 1, ended.err
    (file,) = tmp_path.rglob("status")
    status = read_status(file.parent)
    assert status.word == FAILED and status.reason.startswith("out of memory")
    assert train(*words, cwd=tmp_path).code == 0
    assert statuses(tmp_path) == [DONE]


@pytest.mark.parametrize(
    "words",
    [
        ("dataset.base=digits", "backbone.width=100000"),
        ("dataset=pacs", "dataset.image_size=8192", "dataset.store=ram", "init=random"),
    ],
    ids=["backbone", "images"],
)
def test_what_never_fits_is_one_line(
    words: tuple[str, ...], command: Command, image_tree: Any, tmp_path: Path
) -> None:
    """A matrix of 40 GB and images of 16 GB, where 2 GB are left."""
    classes = {"cat": 10, "dog": 10}
    root = image_tree(art_painting=classes, cartoon=classes, photo=classes, sketch=classes)
    words = (
        *words,
        "hparams.batch_size=2",
        "trainer.steps=2",
        "trainer.device=cpu",
        "execution=single",
    )
    words += (f"dataset.root={root}", "dataset.published=null") if "dataset=pacs" in words else ()
    ended = command("train.py", *words, cwd=tmp_path, before=LIMIT + "limit(2e9)")
    assert ended.code == 1 and len(ended.complaints) == 1, ended.err
    reasons = [read_status(file.parent).reason for file in tmp_path.rglob("status")]
    reasons = reasons or [ended.complaints[0].removeprefix("dgbench: ")]  # nothing was begun
    assert all(reason.startswith("out of memory") for reason in reasons), ended.err
    assert set(statuses(tmp_path)) <= {FAILED} and "cannot be built" not in ended.err
