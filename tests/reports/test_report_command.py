"""``python report.py`` as a user has it: one table alone, W&B that breaks, and the benchmark of its
speed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "report_speed.py"


@pytest.mark.thorough
def test_one_table_by_the_command_of_its_caption(
    command: Any, small_study: Path, tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    ended = command("report.py", f"runs=[{small_study}]", f"output={whole}", cwd=tmp_path)
    assert ended.code == 0, ended.err
    caption = f"python report.py 'runs=[{small_study}]' 'only=[correlation]'"
    assert caption in (whole / "report.md").read_text()
    ended = command(
        "report.py", f"runs=[{small_study}]", "only=[correlation]", f"output={part}", cwd=tmp_path
    )
    assert ended.code == 0, ended.err
    assert (part / "correlation.csv").read_text() == (whole / "correlation.csv").read_text()
    assert not (part / "measures.csv").exists()
    ended = command("report.py", f"runs=[{small_study}]", "only=corelation", cwd=tmp_path)
    assert (ended.code, len(ended.complaints)) == (1, 1)
    assert "did you mean correlation?" in ended.complaints[0]


def test_only_a_folder_that_was_named_is_missed(
    command: Any, small_study: Path, tmp_path: Path
) -> None:
    """Of the two default folders one may not be there yet."""
    shutil.copytree(small_study, tmp_path / "outputs")
    words = ("report.py", "only=measures", f"output={tmp_path / 'out'}")
    ended = command(*words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "no such folder" not in ended.out
    ended = command(*words, "runs=[nowhere,outputs]", cwd=tmp_path)
    assert re.search("no such folder +nowhere", ended.out)
    nothing = tmp_path / "empty"
    nothing.mkdir()
    assert "no runs under multirun, outputs" in command("report.py", cwd=nothing).err


def test_code_versions_share_a_table_where_they_are_declared_the_same(
    command: Any, make: Any, small_study: Path, tmp_path: Path
) -> None:
    code = make.identity("erm", "0", 0).code
    for fold in ("0", "1", "2", "full"):
        make.write_run(small_study, make.identity("newer", fold, 0, code="0.2.0"))
    words = ("report.py", f"runs=[{small_study}]", f"output={tmp_path / 'out'}")
    refused = command(*words, cwd=tmp_path)
    assert (refused.code, len(refused.complaints)) == (1, 1)
    same = f"same_code=[{code},0.2.0]"
    assert same in refused.complaints[0]  # to be typed as it stands
    ended = command(*words, same, cwd=tmp_path)
    assert ended.code == 0, ended.err
    page = (tmp_path / "out" / "report.md").read_text()
    assert " and ".join(sorted([code, "0.2.0"])) in page
    assert "newer" in (tmp_path / "out" / "measures.csv").read_text()
    ended = command(*words, "same_code=[other]", cwd=tmp_path)
    assert (ended.code, len(ended.complaints)) == (1, 1)
    assert "same_code names other" in ended.complaints[0]


def test_several_reports_by_one_command_leave_their_outputs_alone(
    command: Any, small_study: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    words = (f"runs=[{small_study}]", "report=hparams,curves", "cache=false")
    ended = command("report.py", "-m", *words, cwd=folder)
    assert ended.code == 0, ended.err
    pages = sorted(str(page.relative_to(folder)) for page in folder.rglob("report.html"))
    assert pages == ["reports/curves/report.html", "reports/hparams/report.html"]
    assert [path.name for path in folder.iterdir()] == ["reports"]
    assert sorted(path.name for path in (folder / "reports").iterdir()) == [
        "curves",
        "hparams",
        "multirun.yaml",
    ]


def test_a_broken_wandb_breaks_no_report(command: Any, small_study: Path, tmp_path: Path) -> None:
    before = (
        "import wandb\ndef broken(**options): raise RuntimeError('no disk')\nwandb.init = broken"
    )
    words = (f"runs=[{small_study}]", "report.wandb=true", f"output={tmp_path / 'out'}")
    ended = command("report.py", *words, cwd=tmp_path, before=before)
    assert ended.code == 0, ended.err
    assert "RuntimeError: no disk" in ended.out
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_the_speed_benchmark_runs(tmp_path: Path) -> None:
    """Few rows: 2 settings are begun, so that the whole path is walked.

    The exit code tells how fast the machine is.
    """
    command = [sys.executable, str(BENCHMARK), "--rows", "60000", "--keep", str(tmp_path / "rows")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=100
    )
    assert ended.returncode in (0, 1), ended.stderr
    # a slow machine says more: how far phases of more than two seconds are
    assert "reading runs ..." in ended.stderr.splitlines() and "Traceback" not in ended.stderr
    assert "made 60,000 rows" in ended.stdout
    figures = (
        r"{} +[\d.]+ s of {} s, peak memory 0\.\d\d of 1 GB, page 0\.[1-9]\d MB: (met|MISSED)\n"
    )
    for what, seconds in (("all", 40), ("again, 10 runs new", 8), ("100 runs", 4)):
        assert re.search(figures.format(what, seconds), ended.stdout), ended.stdout
