"""Averaged and plain weights of one algorithm are two entries of a table; rows older than averaging
stay readable.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dgbench.analysis.selection import Last
from dgbench.cli.closing import study_table
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.records.run_identity import DEFAULTS
from dgbench.reports.evaluation import evaluate
from dgbench.reports.over_seeds import algorithms_of
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs


def algorithms(root: Path) -> list[str]:
    """The algorithms of the one setting under a folder, as tables name them."""
    collection = collect([root])
    evaluation = evaluate(select_runs(collection, Last()))
    assert len(evaluation.settings) == 1
    return algorithms_of(evaluation.studies)


def test_averaged_weights_are_an_entry_of_their_own(make: Any, tmp_path: Path) -> None:
    for averaging in ("none", "swad", "eoa"):
        who = make.identity("vrex", averaging=averaging, run=averaging)
        make.write_run(tmp_path, who, folder=averaging)
    assert algorithms(tmp_path) == ["vrex", "vrex+eoa", "vrex+swad"]


def test_settings_of_an_average_tell_entries_apart(make: Any, tmp_path: Path) -> None:
    for ratio in (0.2, 0.3):
        hparams = {"lr": 0.001, "averaging.tolerance_ratio": ratio}
        who = make.identity("erm", averaging="swad", run=str(ratio), hparams=hparams)
        make.write_run(tmp_path, who, folder=str(ratio))
    assert algorithms(tmp_path) == [
        f"erm+swad (averaging.tolerance_ratio={ratio})" for ratio in (0.2, 0.3)
    ]


def test_the_closing_table_names_it(make: Any) -> None:
    rows = [
        {**DEFAULTS, **json.loads(row.to_json())}
        for row in make.run_rows(make.identity(averaging="swad"), lambda env, step: 0.1)
    ]
    assert " erm+swad seed 0" in study_table(rows, Last())


def test_rows_without_the_key_were_not_averaged(make: Any, tmp_path: Path) -> None:
    file = make.write_run(tmp_path, make.identity()) / ROW_FILE
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        del line["averaging"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows, problems = read_rows(file)
    assert problems == []
    assert {row["averaging"] for row in rows} == {"none"}
    assert len(rows) == len(lines)
