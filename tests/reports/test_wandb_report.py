"""A report as a W&B run: logged offline and read back; whatever W&B does, the report stands."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.document import Document
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import write
from dgbench.reports.render.wandb import log_report


@pytest.fixture
def document(small_study: Path) -> Document:
    return replace(MeasuresReport()(collect([small_study]), Last()), command="python report.py")


def records(folder: Path) -> list[dict[str, Any]]:
    """Every record of the one offline run under a folder, by W&B's own reader."""
    [file] = folder.glob("wandb/offline-run-*/*.wandb")
    command = [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", file]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.thorough
@pytest.mark.filterwarnings("default")  # W&B's own
def test_an_offline_run_holds_tables_figures_and_files(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    paths = write(document, out)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    assert log_report(document, paths, out, name="measures", project="p") == ""
    found = records(out)
    run = next(record["run"] for record in found if record["type"] == "run")
    assert (run["project"], run["job_type"], run["display_name"]) == ("p", "report", "measures")
    items = next(record["history"]["item"] for record in found if record["type"] == "history")
    section = document.sections[0]
    for table in section.tables:
        assert items[f"{section.name}/{table.name}._type"] == "table-file"
        assert items[f"{section.name}/{table.name}.nrows"] == len(table.frame), "references too"
    for figure in section.figures:
        assert items[f"{section.name}/{figure.name}._type"] == "image-file"
    saved = list(out.glob("wandb/offline-run-*/files/media/table/*/*.table.json"))
    by_columns = {
        tuple(content["columns"]): content for content in (json.loads(p.read_text()) for p in saved)
    }
    measures = by_columns[tuple(section.tables[0].frame.columns)]
    rows = [dict(zip(measures["columns"], row, strict=True)) for row in measures["data"]]
    assert [row["algorithm"] for row in rows] == ["vrex", "erm", "blind guess"]
    assert (rows[1]["average"], rows[1]["seeds"]) == (pytest.approx(0.36), 2)
    artifacts = [record["artifact"] for record in found if record["type"] == "artifact"]
    report = next(artifact for artifact in artifacts if artifact["type"] == "report")
    assert report["name"] == "report-measures"
    names = {entry["path"] for entry in report["manifest"]["contents"]}
    assert {"report.html", "report.md", "report.tex", "measures.csv"} <= names


def test_a_failing_wandb_leaves_the_report(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def broken(**options: object) -> None:
        raise RuntimeError("no network\nat all")

    monkeypatch.setattr(wandb, "init", broken)
    paths = write(document, tmp_path)
    assert log_report(document, paths, tmp_path).endswith("RuntimeError: no network at all")
    assert (tmp_path / "report.html").exists()
