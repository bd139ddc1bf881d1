"""docs/tutorials/own_report.md works as written: its files in a folder outside, in all formats."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "tutorials" / "own_report.md").read_text()
RUNS = f"runs=[{ROOT / 'results' / 'pacs_lp'}]"
DRAWN = """
from dgbench.reports.document import Document, Section, problem_table
from hardest import HardestReport


class DrawnReport(HardestReport):
    def section(self, evaluation, setting):
        section = super().section(evaluation, setting)
        BLOCK
        return Section(section.name, section.title, section.tables, [figure], section.answer)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page, and a report with the page's figure."""
    shown = re.findall(
        r"^`([\w/.]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in shown] == ["hardest.py", "my_configs/report/hardest.yaml"]
    (tmp_path / "my_configs" / "report").mkdir(parents=True)
    for name, content in shown:
        (tmp_path / name).write_text(content)
    figure = re.search(r"^```python\n(from \S+drawing.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert figure
    (tmp_path / "drawn.py").write_text(
        DRAWN.replace("BLOCK", figure[1].replace("\n", "\n        "))
    )
    target = "_target_: drawn.DrawnReport\nname: drawn\nmost: 5\n"
    (tmp_path / "my_configs" / "report" / "drawn.yaml").write_text(target)
    return tmp_path


def test_the_page_s_table_is_what_its_command_prints(command: Any, folder: Path) -> None:
    ended = command(
        "report.py", "--config-dir", "my_configs", "report=hardest", RUNS, "cache=false", cwd=folder
    )
    assert ended.code == 0, ended.err
    (printed,) = re.findall(r"^```\n(== pacs.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert printed in ended.out
    # a frame with what no format shows, in full precision
    lines = pd.read_csv(folder / "reports" / "hardest" / "hardest.csv")
    assert {"env", "mean", "best", "least", "section"} < {*lines} and "mldg" in lines
    assert lines["mean"].is_monotonic_decreasing and lines["mean"].between(0.28, 0.6).all()


@pytest.mark.thorough
def test_it_appears_in_every_format(command: Any, folder: Path) -> None:
    words = ("--config-dir", "my_configs", "report=drawn", RUNS, "cache=false", "report.most=2")
    offline = {"WANDB_MODE": "offline", "WANDB_DATA_DIR": str(folder)}
    ended = command("report.py", *words, "report.wandb=true", cwd=folder, env=offline)
    assert ended.code == 0, ended.err
    out = folder / "reports" / "drawn"
    place = "art_painting"
    assert place in ended.out and "sketch" not in ended.out.partition("written:")[0]
    for name in ("report.html", "report.md", "hardest.csv"):
        assert place in (out / name).read_text(), name
    (tex,) = out.glob("tex/*.tex")
    assert r"art\_painting" in tex.read_text()
    assert rf"\input{{tex/{tex.stem}.tex}}" in (out / "report.tex").read_text()
    figures = sorted(file.suffix for file in out.glob("bars.*"))
    assert figures == [".pdf", ".png", ".svg"]
    assert "Two environments" in (out / "report.html").read_text()
    assert (
        "python report.py --config-dir my_configs report=drawn" in (out / "report.md").read_text()
    )
    [file] = out.glob("wandb/offline-run-*/*.wandb")
    inspect: list[str | Path] = [
        Path(sys.executable).with_name("wandb"),
        "leet",
        "inspect",
        "--json",
        file,
    ]
    text = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
    records = [json.loads(line) for line in text.splitlines()]
    items = next(record["history"]["item"] for record in records if record["type"] == "history")
    logged = {name.partition("/")[2].partition(".")[0] for name in items if "/" in name}
    assert {"hardest", "bars"} <= logged


@pytest.mark.thorough
def test_one_of_its_tables_alone(command: Any, folder: Path) -> None:
    words = ("--config-dir", "my_configs", "report=drawn", RUNS, "cache=false", "output=part")
    ended = command("report.py", *words, "only=[hardest]", cwd=folder)
    assert ended.code == 0, ended.err
    assert (folder / "part" / "hardest.csv").exists()
    assert not (folder / "part" / "bars.png").exists()
