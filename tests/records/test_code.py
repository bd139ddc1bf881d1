"""The version of the code: whatever may change a result shows in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgbench import __version__
from dgbench.records import spec as code


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one commit, which :mod:`dgbench.records.spec` takes for its own."""
    for name, text in (
        (".gitignore", "*.log\n"),
        ("src/a.py", "1"),
        ("conf/a.yaml", "1"),
        ("docs/a.md", "1"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    code.code_version.cache_clear()
    code.commit.cache_clear()


def head(repository: Path) -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def test_a_clean_commit(repository: Path) -> None:
    assert code.code_version() == f"{__version__}+{head(repository)[:7]}"
    assert code.commit() == {"commit": head(repository), "dirty": False}


@pytest.mark.parametrize(
    "file", ["src/a.py", "conf/a.yaml", "src/new.py", "src/deep/er/new.py", "conf/new.yaml"]
)
def test_changed_and_untracked_sources_are_dirty(repository: Path, file: str) -> None:
    """Adding an untracked file is the documented way to add an algorithm."""
    (repository / file).parent.mkdir(parents=True, exist_ok=True)
    (repository / file).write_text("2")
    assert code.code_version() == f"{__version__}+{head(repository)[:7]}-dirty"
    assert code.commit() == {"commit": head(repository), "dirty": True}


@pytest.mark.parametrize("file", ["src/run.log", "outputs/new.py", "new.py"])
def test_other_untracked_and_ignored_files_are_not(repository: Path, file: str) -> None:
    (repository / file).parent.mkdir(exist_ok=True)
    (repository / file).write_text("2")
    assert not code.code_version().endswith("-dirty")


def test_asked_once(repository: Path) -> None:
    before = code.code_version()
    (repository / "src" / "new.py").write_text("2")
    assert code.code_version() == before


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed into a folder that some other repository surrounds."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(code, "ROOT", tmp_path / "site-packages")
    forget()
    try:
        assert code.code_version() == __version__
        assert code.commit() == {"commit": None, "dirty": None}
    finally:
        forget()


def test_no_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert code.code_version() == __version__


def test_git_ended_by_a_signal_is_asked_again(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that cancels a job signals git too: the rows that the job still writes name the
    commit all the same.
    """
    folder, real = tmp_path_factory.mktemp("bin"), shutil.which("git")
    stand_in = folder / "git"
    again = f'[ -e "{folder}/asked" ] && exec "{real}" "$@"'
    stand_in.write_text(f'#!/bin/sh\n{again}\ntouch "{folder}/asked"\nkill -TERM $$\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    assert code.code_version() == f"{__version__}+{head(repository)[:7]}"
    assert (folder / "asked").exists()
