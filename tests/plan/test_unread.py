"""Every typed word is read or refused: what only a sweep reads, only a single command, or only the
command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dgbench
from dgbench.errors import ConfigError
from dgbench.plan.unread import (
    UNREAD_ALONE,
    UNREAD_IN_PYTHON,
    UNREAD_IN_SWEEPS,
    key_of,
    refuse_unread,
    replaced,
)
from tests.complaints import refused
from tests.conftest import TINY

ALL = {"sweeps": UNREAD_IN_SWEEPS, "alone": UNREAD_ALONE, "python": UNREAD_IN_PYTHON}
SHORT = [*TINY, "trainer.steps=0", "protocol.folds=[0]"]


@pytest.mark.parametrize(
    ("where", "key"), [(where, key) for where, unread in ALL.items() for key in unread]
)
def test_each_is_refused_in_one_line(where: str, key: str) -> None:
    for word in (f"{key}=X", f"++{key}=X", f"{key}.more=X"):
        with refused(f"{key}.*=X changes nothing here: ", ConfigError):
            refuse_unread(["seed=1", word], ALL[where])
    refuse_unread(["seed=1", f"{key}_x=X", f"trainer.{key}=X"], ALL[where])


def test_keys_of_words() -> None:
    words = ["+a.b=1", "~a.b", "hydra/launcher=local", "backbone@x.backbone=mlp"]
    assert [key_of(word) for word in words] == ["a.b", "a.b", "hydra.launcher", "backbone"]


@pytest.mark.thorough
def test_python_writes_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly a typed paths.output_dir was not read, and the studies went to ``outputs``."""
    monkeypatch.chdir(tmp_path)
    typed = dgbench.train([*SHORT, "paths.output_dir=typed"])
    assert [folder.parent.parent for folder in typed.folders] == [tmp_path / "typed"]
    both = dgbench.train([*SHORT, "paths.output_dir=typed"], output=tmp_path / "typed")
    assert both.folders == typed.folders
    with refused("output=other and paths.output_dir=typed name two folders"):
        dgbench.train([*SHORT, "paths.output_dir=typed"], output="other")
    assert [path.name for path in tmp_path.iterdir()] == ["typed"]


def test_python_refuses_words_of_the_command_line() -> None:
    for word in ("hydra.sweep.dir=X", "hydra/launcher=local", "sweep.runs_per_job=2"):
        with refused(f"{word} changes nothing here"):
            dgbench.train([*SHORT, word])


def test_a_word_that_a_later_one_replaces_is_named(command: Any, tmp_path: Path) -> None:
    words = [
        "seed=1",
        "hparams.lr=0.1",
        "+seed=2",
        "seed=2",
        "callbacks={a:1}",
        "callbacks={b:2}",
        "hparams.lr=0.1",
    ]
    assert replaced(words) == [
        "seed=1 counts for nothing: +seed=2 after it replaces it",
        "+seed=2 counts for nothing: seed=2 after it replaces it",
    ]
    typed = ("dataset.base=digits", "trainer.device=cpu", "seed=1", "seed=2", "plan=true")
    ended = command("train.py", *typed, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "note: seed=1 counts for nothing: seed=2 after it replaces it\n" in ended.err
