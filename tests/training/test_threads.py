"""The number of CPU threads: chosen once, kept with the run, and never against the user."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgbench.callbacks.progress import StudyProgress
from dgbench.errors import ConfigError
from dgbench.training import threads
from dgbench.training.study import ReadyStudy
from dgbench.training.train_runs import train_runs
from tests.studies import groups_of, small_study, stopping_at

WORDS = (
    "protocol.folds=[0]",
    "trainer.steps=12",
    "trainer.eval_every=4",
    "trainer.checkpoint_seconds=0",
)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine of two cores whose user has said nothing."""
    for name in threads.EXPLICIT:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def clocks(monkeypatch: pytest.MonkeyPatch, one: float, more: float) -> list[Any]:
    """Clocking tells these seconds; what is clocked is appended to the list."""
    seen: list[Any] = []
    monkeypatch.setattr(threads, "step_seconds", lambda group, n: seen.append(group) or (one, more))
    return seen


def train(study: ReadyStudy, chooses: bool = True) -> None:
    progress = StudyProgress(len(study.runs), study.settings.steps, "test")
    train_runs([study], study.config["execution"], progress, None, chooses_threads=chooses)
    assert torch.get_num_threads() == 2, "as it was before"


def recorded(folder: Path) -> list[int]:
    """Threads of every start of the only run."""
    (file,) = folder.rglob("identity.json")
    return [session["threads"] for session in json.loads(file.read_text())["sessions"]]


@pytest.mark.parametrize(("one", "more", "used"), [(1.0, 3.0, 1), (3.0, 1.0, 2), (1.0, 1.05, 2)])
def test_the_faster_number_is_used_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: float, more: float, used: int
) -> None:
    """One thread must be clearly faster."""
    clocks(monkeypatch, one, more)
    train(small_study(tmp_path, *WORDS))
    assert recorded(tmp_path) == [used]
    (log,) = tmp_path.rglob("log.txt")
    assert f"threads: {used} of 2 (a step took" in log.read_text()


def test_a_resumed_run_takes_the_number_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_of: Any
) -> None:
    """It stops after its first checkpoint and resumes where two would be chosen: the rows of one
    that never stopped.
    """
    clocks(monkeypatch, 1.0, 3.0)
    with stopping_at(8):
        train(small_study(tmp_path / "cut", *WORDS))
    seen = clocks(monkeypatch, 3.0, 1.0)
    train(small_study(tmp_path / "cut", *WORDS))
    assert recorded(tmp_path / "cut") == [1, 1] and seen == []
    clocks(monkeypatch, 1.0, 3.0)
    train(small_study(tmp_path / "whole", *WORDS))
    assert list(rows_of(tmp_path / "cut").values()) == list(rows_of(tmp_path / "whole").values())


@pytest.mark.parametrize("who", [*threads.EXPLICIT, "a caller"])
def test_what_the_user_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    if who != "a caller":
        monkeypatch.setenv(who, "2")
    seen = clocks(monkeypatch, 1.0, 3.0)
    train(small_study(tmp_path, *WORDS), chooses=who != "a caller")
    assert recorded(tmp_path) == [2] and seen == []


def test_what_the_user_sets_wins_over_what_a_run_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks(monkeypatch, 1.0, 3.0)
    with stopping_at(8):
        train(small_study(tmp_path, *WORDS))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    train(small_study(tmp_path, *WORDS))
    assert recorded(tmp_path) == [1, 2]
    (log,) = tmp_path.rglob("log.txt")
    assert "it began with 1 and may round" in log.read_text()


def test_groups_of_one_kind_are_clocked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folds 0 and 1 train on three environments, ``full`` on four."""
    seen = clocks(monkeypatch, 1.0, 3.0)
    train(small_study(tmp_path, "execution=single", "protocol.folds=[0,1,full]", "trainer.steps=1"))
    assert [group.runs[0].fold.name for group in seen] == ["0", "full"]


@pytest.mark.thorough
@pytest.mark.parametrize("words", [("algorithm=dann",), ("algorithm=irm", "execution=stacked")])
def test_clocking_leaves_runs_and_generators_as_they_are(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    study = small_study(tmp_path, "protocol.folds=[0,1]", "trainer.steps=8", *words)
    group = groups_of(study)[-1]
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    chosen, why = threads._faster(group, 2)
    assert chosen in (1, 2) and why.startswith("a step took ")
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # type: ignore[index]
    torch.set_num_threads(1)
    train_runs([study], study.config["execution"], StudyProgress(2, 8, "test"), None)
    fresh = small_study(tmp_path / "fresh", "protocol.folds=[0,1]", "trainer.steps=8", *words)
    train_runs([fresh], fresh.config["execution"], StudyProgress(2, 8, "test"), None)
    torch.set_num_threads(2)
    own, other = (sorted(folder.rglob("errors.jsonl")) for folder in (study.folder, fresh.folder))
    assert [file.read_bytes() for file in own] == [file.read_bytes() for file in other]


def test_what_cannot_be_clocked_keeps_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ConfigError("no")

    monkeypatch.setattr(threads, "step_seconds", refuse)
    train(small_study(tmp_path, *WORDS))
    assert recorded(tmp_path) == [2]


@pytest.mark.parametrize(
    ("one", "more", "used"),
    [
        (
            0.06,
            1.2,
            1,
        ),  # of small operations, beside others who compute: threads wait for each other
        (0.06, 0.04, 2),
        (0.6, 1.2, 2),  # of large operations, which are not clocked
    ],
)
def test_a_busy_machine_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: float, more: float, used: int
) -> None:
    """A step that is slow because threads wait is no step that needs them; the clock here is moved
    by the steps.
    """
    group = groups_of(small_study(tmp_path, *WORDS))[0]
    now, steps = [0.0], []

    class Steps:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: {}

        def train_steps(self, batches: Sequence[Any], _: object) -> None:
            assert len(batches) == 1
            steps.append(torch.get_num_threads())
            now[0] += one if steps[-1] == 1 else more

    monkeypatch.setattr(threads, "group_module", lambda _: Steps())
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    assert threads._faster(group, 2)[0] == used
    assert now[0] < 3, "seconds, after which the choice is clear"
