"""``dgbench compare FILE A B``: one sentence a measure, or one line that says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dgbench.cli.compare import parted
from dgbench.errors import ConfigError
from tests.conftest import ROOT, Command

PROGRAM = ROOT / "src/dgbench/cli/main.py"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    dice = np.random.default_rng(2)
    lines = ["algorithm,seed,environment,accuracy"]
    for name, level in (("CORAL", 80.0), ("ERM", 60.0)):
        for seed in range(3):
            for env in ("art", "photo", "sketch"):
                lines.append(f"{name},{seed},{env},{level + dice.random():.2f}")
    file = tmp_path / "others.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_answer_what_was_understood_and_the_report(table: Path, command: Command) -> None:
    ended = command(PROGRAM, "compare", table.name, "erm", "CORAL", cwd=table.parent)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert " beats " in lines[0] and "points of worst+gap [" in lines[0]
    assert "points of average error [" in lines[1] and lines[1].endswith("3 seeds.")
    assert lines[-2].startswith("Assumed: ")
    assert lines[-1].startswith("report: ") and "import.path=others.csv" in lines[-1]
    assert not [file for file in table.parent.iterdir() if file != table]  # nothing is written


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("others.csv", "ERM"), "takes FILE A B"),
        (("others.csv", "ERM", "CORRAL"), "did you mean CORAL?"),
        (("none.csv", "ERM", "CORAL"), "none.csv is not there"),
        (("others.csv", "ERM", "CORAL", "seed=3"), "seed=3 is none of these"),
        (("others.csv", "ERM", "CORAL", "report.wandb=true"), "report.wandb=true has no effect"),
        (("others.csv", "ERM", "CORAL", "import.unt=percent"), "did you mean import.unit?"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: tuple[str, ...], said: str, table: Path, command: Command
) -> None:
    ended = command(PROGRAM, "compare", *words, cwd=table.parent)
    assert ended.code == 1
    (line,) = ended.complaints
    assert said in line


def test_words_are_parted() -> None:
    name = "erm (lr=0.1)"
    words = ["a.csv", "import.unit=percent", name, "vrex", "split_by=code"]
    assert parted(words) == ("a.csv", name, "vrex", ["import.unit=percent", "split_by=code"])
    with pytest.raises(ConfigError, match=r"reads import, selection"):
        parted(["a.csv", "a", "b", "report=leaderboard"])


def test_help_loads_no_pandas(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv[:] = ['dgbench compare', '--help']\n"
        "from dgbench.cli.compare import compare_command\n"
        "compare_command()\n"
        "assert not {'pandas', 'torch', 'scipy'} & {*sys.modules}, 'loaded'\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "dgbench compare FILE A B" in ended.stdout
