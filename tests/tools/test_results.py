"""``python tools/results.py`` as it is typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.conftest import fill_in, write_study
from tools.results import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = main(words)
    except SystemExit as stop:
        code = int(str(stop.code or 0))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_from_runs_to_a_checked_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(Path("multirun"))
    code, out, _ = run(capsys, "pack", "mine", "multirun")
    assert code == 0 and out.startswith("results/mine: now replace every ???")
    code, out, _ = run(capsys, "check", "--entry", "mine")
    assert code == 1 and "filled in: replace ???\n" in out and len(out.splitlines()) == 6
    fill_in(Path("results/mine"))
    assert run(capsys, "check", "--entry", "mine")[:2] == (0, "mine: nothing wrong\n")
    assert "results: LEADERBOARD.md is stale" in run(capsys, "check")[1]
    assert "written: results/README.md" in run(capsys, "index")[1]
    assert run(capsys, "index")[1] == "nothing to write\n"
    assert run(capsys, "check", "results")[:2] == (0, "results: nothing wrong\n")


@pytest.mark.parametrize(
    ("words", "why", "code"),
    [
        (["pakc"], "invalid choice: 'pakc'", 2),
        (["pack", "mine"], "following arguments.*required: RUNS", 2),
        (["check", "--entyr", "x"], "unrecognized arguments: --entyr", 2),
        (["check"], "results.*entries", 1),
        (["index"], "results.*entries", 1),
        (["pack", "mine", "absent"], "runs.*absent", 1),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str],
    why: str,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, err = run(capsys, *words)
    (line,) = [line for line in err.splitlines() if line.startswith("python tools/results.py")]
    assert ended == code and re.search(why, line)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "python tools/results.py pack NAME RUNS..." in out
