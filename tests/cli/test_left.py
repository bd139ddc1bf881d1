"""What an earlier version had is answered with what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.cli.main import main
from tests.conftest import Command


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        (
            "report.py",
            ("report=reproduce",),
            "report=reproduce is no choice any more: identity.json of a run",
        ),
        ("train.py", ("plan=probe",), "plan=probe is of an earlier version: write plan=true"),
        (
            "train.py",
            ("-m", "hydra/launcher=slurm", "sweep.hours_per_job=1"),
            "sweep.hours_per_job=1 is of an earlier version: sweep.runs_per_job=N packs",
        ),
    ],
)
def test_a_choice_that_left(
    script: str, words: tuple[str, ...], said: str, command: Command, tmp_path: Path
) -> None:
    ended = command(script, *words, cwd=tmp_path)
    assert ended.code == 1
    assert said in ended.err
    assert len(ended.complaints) == 1


def test_a_command_that_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["results", "check"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "any more" in line]
    assert "there is no command results any more: in a checkout, python tools/results.py" in line
