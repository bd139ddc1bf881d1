"""``dgbench results`` as it is typed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dgbench.cli.main import main
from tests.reports.archive.conftest import fill_in, write_study


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    typed, code = sys.argv, 0
    try:
        main(["results", *words])
    except SystemExit as stop:
        code = int(str(stop.code or 0))
    finally:
        sys.argv = typed
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_from_runs_to_a_checked_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(Path("multirun"))
    code, out, _ = run(capsys, "pack", "mine", "multirun")
    assert code == 0 and out.startswith("results/mine: ") and "now replace every ???" in out
    code, out, err = run(capsys, "check", "--entry", "mine")
    assert code == 1 and "filled in: replace ???\n" in out and "dgbench: 6 problems" in err
    fill_in(Path("results/mine"))
    assert run(capsys, "check", "--entry", "mine")[:2] == (0, "mine: nothing wrong\n")
    assert "results: LEADERBOARD.md is stale" in run(capsys, "check")[1]
    assert "written: results/README.md" in run(capsys, "index")[1]
    assert run(capsys, "index")[1] == "nothing to write\n"
    assert run(capsys, "check", "results")[:2] == (0, "results: nothing wrong\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["pakc"], "invalid choice: 'pakc'"),
        (["pack", "mine"], "following arguments.*required: RUNS; see dgbench.*--help"),
        (["check", "--entyr", "x"], "unrecognized arguments: --entyr"),
        (["check"], "results.*entries"),
        (["index"], "results.*entries"),
        (["pack", "mine", "absent"], "runs.*absent"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *words)
    (line,) = [line for line in err.splitlines() if line.startswith("dgbench: ")]
    assert code == 1 and re.search(why, line) and "Traceback" not in err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert "dgbench results pack NAME RUNS..." in run(capsys, "--help")[1] == run(capsys)[1]
