"""What is trained after memory ran out: parts of a group, at once where it is known to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dgbench.training import train_runs
from dgbench.training.groups import RunGroup
from tests.studies import small_study, train_study

WORDS = ("execution=stacked", "trainer.steps=2", "trainer.eval_every=2", "protocol.folds=[0,1,2,3]")


def short_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fitting: int) -> list[int]:
    """Let a function of a group find too little memory for more runs than ``fitting``.

    Returns:
        a list that receives how many runs each call was for.
    """
    function = getattr(owner, name)
    sizes: list[int] = []

    def limited(*arguments: Any) -> Any:
        (group,) = [argument for argument in arguments if isinstance(argument, RunGroup)]
        sizes.append(len(group.runs))
        if len(group.runs) > fitting:
            raise MemoryError
        return function(*arguments)

    monkeypatch.setattr(owner, name, limited)
    return sizes


@pytest.mark.parametrize(("fitting", "sizes"), [(2, [4, 2, 2]), (1, [4, 2, 1, 1, 1, 1])])
def test_a_size_that_was_too_large_is_tried_once(
    fitting: int, sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(tmp_path, *WORDS)
    tried = short_of(monkeypatch, train_runs._Trainer, "_fit", fitting)
    assert set(train_study(study).values()) == {True}
    assert tried == sizes


def test_later_stacks_begin_with_the_size_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(tmp_path, *WORDS, "execution.max_runs=2")
    tried = short_of(monkeypatch, train_runs._Trainer, "_fit", 1)
    assert set(train_study(study).values()) == {True}
    assert tried == [2, 1, 1, 1, 1]


def test_memory_that_ends_while_checkpoints_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then too a group is trained in halves; a run that does not fit alone fails."""
    study = small_study(tmp_path, *WORDS)
    tried = short_of(monkeypatch, train_runs, "resumable", 2)
    assert set(train_study(study).values()) == {True}
    assert tried == [4, 2, 2]

    alone = small_study(tmp_path / "alone", *WORDS, "seed=1", "protocol.folds=[0]")
    short_of(monkeypatch, train_runs, "resumable", 0)
    assert list(train_study(alone).values()) == [False]
    (status,) = (tmp_path / "alone").rglob("status")
    assert status.read_text().startswith("FAILED out of memory")
