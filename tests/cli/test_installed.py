"""The wheel: built, installed in an environment of its own, and used from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dgbench.cli.main import COMMANDS, LEFT, main
from dgbench.version import __version__
from tests.conftest import Command
from tools.fresh_environment import INSTALLERS, TINY, install, run, smoke

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from dgbench.cli.main import main\nmain()\n"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of wheel and sdist, built from a copy of the sources, where no earlier build has left
    anything.
    """
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns("*.egg-info", "__pycache__")
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    run(
        sys.executable,
        "-m",
        "uv",
        "build",
        "--offline",
        "--no-build-isolation",
        "--out-dir",
        out,
        source,
        cwd=source,
    )
    return out


@pytest.fixture(scope="module", params=INSTALLERS)
def program(
    archives: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The installed ``dgbench`` of a fresh environment that shares the dependencies, and not the
    checkout.
    """
    return install(archives, tmp_path_factory.mktemp("environment"), request.param)


@pytest.mark.wheel
def test_the_wheel_holds_every_file_of_conf_and_what_reports_need(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    conf = {f"dgbench/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert len(conf) > 50
    assert {name for name in held if name.startswith("dgbench/conf/")} == conf
    others = (
        "hydra_plugins/dgbench.py",
        "dgbench/py.typed",
        "dgbench/reports/render/templates/report.html.j2",
    )
    assert held >= set(others)


@pytest.mark.wheel
def test_train_and_report_from_an_empty_folder(program: Path, tmp_path: Path) -> None:
    """One study, then a sweep in worker processes, then the report over both."""
    smoke(program, tmp_path, __version__)
    sweep = run(program, "train", "-m", *TINY, "seed=1,2", "hydra/launcher=local", cwd=tmp_path)
    assert "[2/2" in sweep
    assert "15 finished runs in 1 setting." in run(program, "report", cwd=tmp_path)
    page = (tmp_path / "reports" / "measures" / "report.html").read_text()
    assert "dgbench report" in page
    assert "report.py" not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["multirun", "outputs", "reports"]


@pytest.mark.wheel
def test_fetch_lists_the_datasets_of_conf(program: Path, tmp_path: Path) -> None:
    assert "pacs" in run(program, "fetch", "list", cwd=tmp_path)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown and about in shown for name, (_, about) in COMMANDS.items())


@pytest.mark.parametrize("name", LEFT)
def test_a_command_that_left_names_what_to_use(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name not in COMMANDS
    with pytest.raises(SystemExit) as stop:
        main([name, "run=outputs/STUDY/RUN"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith(f"no command {name} any more: {LEFT[name]}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_of_the_program(name: str, command: Command, tmp_path: Path) -> None:
    """``dgbench train --help`` begins every example with ``dgbench``, ``python train.py --help``
    none.
    """
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = command(program, name, "--help", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert f"dgbench {name}" in ended.out
    assert (
        "train.py" not in ended.out
        and "report.py" not in ended.out
        and "python -m" not in ended.out
    )
    for script in {name} & {"train", "report", "shift"}:
        ended = command(f"{script}.py", "--help", cwd=tmp_path)
        assert f"python {script}.py" in ended.out and f"dgbench {script}" not in ended.out


def test_bash_completes_the_words_of_the_program(tmp_path: Path) -> None:
    program = tmp_path / "dgbench"
    program.write_text(f"#!/usr/bin/env -S PYTHONPATH={ROOT / 'src'} {sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    typed = (
        "dgbench tra",
        "dgbench train dataset=rot",
        "dgbench report report=leak",
        "dgbench fetch pac",
    )
    script = """
        eval "$(dgbench train --shell-completion install=bash)"
        for COMP_LINE in "$@"; do
            COMP_WORDS=($COMP_LINE) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _dgbench 2> /dev/null
            echo "${COMPREPLY[*]}"
        done
    """
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", script, "bash", *typed],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.splitlines() == ["train", "dataset=rotated_mnist", "report=leakage", ""], (
        ended.stderr
    )


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"dgbench {__version__}\n")


@pytest.mark.parametrize("words", [[], ["trian"]])
def test_no_command_and_an_unknown_one_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
