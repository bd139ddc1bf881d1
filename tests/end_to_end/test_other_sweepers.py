"""Sweepers that optimize get a validation error; whatever Hydra moves, runs lie where the command
looks for them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TINY, Command, rows_in

SWEEPER = """
from pathlib import Path
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class Minimizer(BasicSweeper):
    def __init__(self):
        super().__init__(max_batch_size=None, params=None)

    def sweep(self, arguments):
        overrides = self._words(arguments)
        ended = self.launcher.launch(overrides, initial_job_idx=0)
        Path("values.txt").write_text("\\n".join(str(float(job.return_value)) for job in ended))
        return ended

    def _words(self, arguments):
        seeds = [word for word in arguments if word.startswith("seed=")]
        others = [word for word in arguments if word not in seeds]
        return [[*others, f"seed={seed}"] for seed in seeds[0][5:].split(",")]
"""
REGISTER = """
import sys
import hydra_plugins
from hydra.core.plugins import Plugins
hydra_plugins.__path__.append({folder!r})
import hydra_plugins.minimizer
Plugins.instance().register(hydra_plugins.minimizer.Minimizer)
"""


@pytest.fixture
def minimizer(tmp_path: Path) -> tuple[str, list[str]]:
    """Code that makes a sweeper known to Hydra, and the words that choose it."""
    plugins, conf = tmp_path / "plugins", tmp_path / "conf"
    plugins.mkdir()
    (conf / "hydra/sweeper").mkdir(parents=True)
    (plugins / "minimizer.py").write_text(SWEEPER)
    (conf / "hydra/sweeper/minimizer.yaml").write_text(
        "_target_: hydra_plugins.minimizer.Minimizer\n"
    )
    return REGISTER.format(folder=str(plugins)), [
        "--config-dir",
        str(conf),
        "hydra/sweeper=minimizer",
    ]


def test_a_sweeper_gets_the_validation_error(
    command: Command, tmp_path: Path, minimizer: tuple[str, list[str]]
) -> None:
    before, words = minimizer
    ended = command(
        "train.py",
        "-m",
        *TINY,
        *words,
        "seed=0,1",
        "protocol.folds=[0]",
        cwd=tmp_path,
        before=before,
    )
    assert ended.code == 0, ended.err
    values = [float(line) for line in (tmp_path / "values.txt").read_text().splitlines()]
    expected = []
    for seed in (0, 1):
        rows = [
            row
            for row in rows_in(tmp_path / "multirun")
            if row["seed"] == seed and row["subset"] == "val"
        ]
        last = [row for row in rows if row["step"] == rows[-1]["step"] and not row["env_held_out"]]
        expected.append(sum(row["wrong"] / row["seen"] for row in last) / len(last))
    assert values == pytest.approx(expected)
    assert "folds together" not in ended.err


def test_a_choice_over_folds_is_named(
    command: Command, tmp_path: Path, minimizer: tuple[str, list[str]]
) -> None:
    before, words = minimizer
    ended = command("train.py", "-m", *TINY, *words, "seed=0", cwd=tmp_path, before=before)
    assert ended.code == 0, ended.err
    assert "chooses for 4 folds together" in ended.err


@pytest.mark.parametrize(
    ("word", "said"), [("plan=true", "plan=true"), ("hydra/launcher=local", "no values")]
)
def test_what_gives_a_sweeper_no_value_is_refused(
    word: str, said: str, command: Command, tmp_path: Path, minimizer: tuple[str, list[str]]
) -> None:
    before, words = minimizer
    ended = command("train.py", "-m", *TINY, *words, "seed=0", word, cwd=tmp_path, before=before)
    assert ended.code == 1
    assert said in ended.complaints[0]
    assert not list(tmp_path.rglob("errors.jsonl"))


@pytest.mark.parametrize("launcher", ["basic", "local"])
def test_folders_are_those_of_the_command_wherever_hydra_moves(
    launcher: str, command: Command, tmp_path: Path
) -> None:
    """They were ``multirun/multirun``, and the command said that nothing was done and ended
    with 0.
    """
    words = [
        *TINY,
        "-m",
        "hydra.job.chdir=true",
        f"hydra/launcher={launcher}",
        "protocol.folds=[0]",
    ]
    ended = command("train.py", *words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "1 of 1 job done: 1 of their 1 models" in ended.out
    assert len(list(tmp_path.glob("multirun/*/*/errors.jsonl"))) == 1
    single = command("train.py", *TINY, "hydra.job.chdir=true", "hydra.run.dir=moved", cwd=tmp_path)
    assert single.code == 0
    (place,) = [
        line.removeprefix("rows: ") for line in single.out.splitlines() if line.startswith("rows: ")
    ]
    assert (tmp_path / place).is_dir()


def test_jobs_whose_runs_are_not_there_end_with_1(command: Command, tmp_path: Path) -> None:
    """Of Hydra's own launcher too: a job may have ended well and its runs be gone."""
    before = (
        "import shutil, dgbench.cli.train as train\n"
        "run = train.run_command\n"
        "def lose(command):\n"
        "    ended = run(command)\n"
        "    shutil.rmtree('multirun')\n"
        "    return ended\n"
        "train.run_command = lose\n"
    )
    ended = command("train.py", *TINY, "-m", "protocol.folds=[0]", cwd=tmp_path, before=before)
    assert ended.code == 1
    assert "1 of 1 jobs came to no end" in ended.complaints[-1]
