"""A measure from a folder of one's own: it appears wherever those of dgbench do, by two files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dgbench
import dgbench.reports as tables
from dgbench.analysis import Measure, Statistics
from dgbench.analysis.selection import Last
from dgbench.configuration import CONF
from dgbench.plan import measures
from dgbench.plan.measures import choose
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.slices.power import PowerReport
from tests.conftest import ROOT, Command
from tools.archive.checking import check_entry

CLASS = """
from dgbench.analysis import Measure


class TopTwo(Measure):
    def value(self, errors):
        return sum(sorted(errors)[-2:]) / 2
"""
FILE = """
_target_: top_two.TopTwo
title: top two
formula: mean of the two largest errors over the held-out environments
"""
ALGORITHMS = {"erm": 0.0, "irm": 0.1, "vrex": 0.05}


class TopTwo(Measure):
    """The same from Python."""

    name: str = "top_two"
    title: str = "top two"
    formula: str = "mean of the two largest errors over the held-out environments"

    def value(self, errors: Any) -> float:
        return float(sum(sorted(errors)[-2:]) / 2)


@pytest.fixture
def settings(make: Any, tmp_path: Path) -> Path:
    """Three algorithms, two seeds and two ratios; the two largest errors are 0.8 and 0.3 of erm."""
    for ratio in (3, 4):
        for algorithm, offset in ALGORITHMS.items():
            for seed in (0, 1):
                variant = {"ratio": ratio, "scale": 1}
                more = offset + 0.01 * seed * (1 + 3 * offset)
                for fold, level in enumerate((0.1, 0.2, 0.3, 0.8)):
                    run = f"{algorithm}-{fold}-{seed}-{ratio}"
                    who = make.identity(algorithm, str(fold), seed, run=run, variant=variant)
                    _write(make, tmp_path, who, lambda e, s, level=level, more=more: level + more)
                run = f"{algorithm}-full-{seed}-{ratio}"
                who = make.identity(algorithm, "full", seed, run=run, variant=variant)
                _write(make, tmp_path, who, lambda e, s, more=more: (1 - more) * (1 - float(e)))
    return tmp_path


def _write(make: Any, root: Path, who: Any, error: Any) -> None:
    folder = f"runs/{who.variant['ratio']}/{who.algorithm}{who.seed}/fold{who.fold}"
    make.write_run(root, who, error, folder=folder, grid=["0.00", "0.50"])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two files of a user's own."""
    (tmp_path / "own" / "measure").mkdir(parents=True)
    (tmp_path / "own" / "measure" / "top_two.yaml").write_text(FILE)
    (tmp_path / "top_two.py").write_text(CLASS)
    return tmp_path / "own"


def of(document: Any) -> dict[str, pd.DataFrame]:
    """Tables by name, the first of each."""
    named: dict[str, pd.DataFrame] = {}
    for section in document.sections:
        for table in section.tables:
            named.setdefault(table.name, table.frame)
    return named


def test_every_table_and_figure_of_the_report_takes_it(settings: Path) -> None:
    report = MeasuresReport(
        name="measures",
        measures=[TopTwo(), "worst_gap", "ideal"],
        compared=[TopTwo(), "worst_gap"],
        statistics=Statistics(draws=20),
    )
    document = report(collect([settings]), Last())
    found = of(document)
    erm = found["measures"].set_index("algorithm").loc["erm"]
    assert erm["top_two"] == pytest.approx(0.555) and erm["top_two.n"] == 2
    assert "average" not in found["measures"]  # it was not asked for
    assert {"top two: to the leader", "top two: verdict"} <= {*found["certainty"]}
    assert {"top two", "top two.low"} <= {*found["differences"]}
    assert {"top two: rank"} <= {*found["resampled"]}
    assert "top two" in found["lead"]["measure"].tolist()
    assert found["seeds"]["top_two"].notna().all()
    for name in ("selected", "correlation", "expected", "suite_hits"):
        assert "top two" in found[name]["measure"].tolist(), name
    assert {"Spearman top two", "Kendall top two"} <= {*found["suite_correlation"]}
    assert {"Spearman top two"} <= {*found["suite_correlation_seeds"]} & {*found["overview"]}
    assert {"seed 0: top two", "mean: top two"} <= {*found["suite_selected"]}
    assert {"top two", "difference", "P(best) top two"} <= {*found["suite_intervals"]}
    assert "top_two" in found["suite_ranks"]
    figures = {figure.name: figure for section in document.sections for figure in section.figures}
    assert any(name.startswith("ranks_top_two") for name in figures)
    drawn = [figure for name, figure in figures.items() if name.startswith(("scatter", "baseline"))]
    assert len(drawn) == 2 and all("top two" in figure.svg for figure in drawn)
    answers = " ".join(line for section in document.sections for line in section.answer)
    assert "by top two" in answers
    assert document.words["top two"] == TopTwo().formula


def test_seeds_are_planned_for_it(settings: Path) -> None:
    report = PowerReport(name="power", compared=[TopTwo()], measures=[TopTwo(), "average"])
    found = of(report(collect([settings]), Last()))
    assert found["seeds_needed"]["quantity"].tolist() == ["top two", "average"]
    assert found["cost"]["difference"].tolist()[0] == "5 points of top two"


def test_functions_of_python_take_it(settings: Path) -> None:
    frame = dgbench.results(settings)
    studies = dgbench.measures(frame, measures=[TopTwo(), "ideal"])
    assert [name for name in studies if name in ("top_two", "ideal", "worst")] == [
        "top_two",
        "ideal",
    ]
    assert studies.loc[studies["label"] == "irm", "top_two"].iloc[0] == pytest.approx(0.65)
    shown = tables.measures(frame, measures=[TopTwo()])
    assert shown["top_two"].notna().all()
    assert shown.attrs["chance"]  # a blind guess among two classes is wrong in half of the cases
    assert all(
        of_setting["blind guess"]["top_two"] == pytest.approx(0.5)
        for of_setting in shown.attrs["chance"].values()
    )
    assert "top two" in tables.selected(frame, measures=[TopTwo()])["measure"].tolist()
    assert "top two" in tables.correlation(frame, measures=[TopTwo()])["measure"].tolist()
    assert "top_two" in tables.seeds(frame, measures=[TopTwo()])
    assert "top two: verdict" in tables.certainty(frame, compared=[TopTwo()])
    differences = tables.differences(frame, Statistics(draws=20), compared=[TopTwo()])
    assert "top two" in differences


def test_predictions_are_scored_by_it() -> None:
    scored = dgbench.score(
        [0, 0, 0, 0], [0, 1, 1, 1], ["a", "a", "b", "c"], measures=[TopTwo(), "worst"]
    )
    assert scored.loc[("measure", "top_two"), "error"] == 1.0
    assert scored.loc["measure"].index.tolist() == ["overall", "top_two", "worst"]


def test_a_file_beside_the_command_is_enough(settings: Path, own: Path, command: Command) -> None:
    """No key names it: `null` takes whatever is there."""
    words = ("--config-dir", own, f"runs=[{settings}]", f"output={settings / 'out'}")
    ended = command("report.py", *words, "only=[measures]", cwd=settings)
    assert ended.code == 0, ended.err
    (table,) = (settings / "out").glob("measures*.csv")
    assert "top_two" in pd.read_csv(table)
    assert "top two (%)" in ended.out


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("top_two.py", "sum(", "nothing("), r"measure top_two failed \(top_two.py, line 7: NameE"),
        (("own/measure/top_two.yaml", "TopTwo", "Three"), "measure._target_=top_two.Three cannot"),
    ],
)
def test_a_fault_ends_train_and_report_with_one_line(
    change: tuple[str, str, str], line: str, own: Path, tmp_path: Path, command: Command
) -> None:
    name, old, new = change
    file = tmp_path / name
    file.write_text(file.read_text().replace(old, new))
    for words in (
        ["train.py", "dataset.base=digits"],
        ["train.py", "-m", "seed=0,1"],
        ["report.py"],
    ):
        ended = command(words[0], "--config-dir", own, *words[1:], cwd=tmp_path)
        (complaint,) = ended.complaints[-1:]
        assert (
            ended.code == 1
            and "jobs done" not in ended.err
            and pd.Series([complaint]).str.contains(line).all()
        ), ended.err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.thorough
def test_closing_tables_and_wandb_take_it(own: Path, tmp_path: Path, train: Command) -> None:
    ended = train("--config-dir", own, "backbone.width=8", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "  top two " in ended.out
    words = ("--config-dir", own, "-m", "backbone.width=8", "seed=0,1")
    ended = train(*words, cwd=tmp_path)
    assert "top two (%)" in ended.out
    words = ("--config-dir", own, "backbone.width=8", "logger=wandb", "seed=2")
    ended = train(*words, cwd=tmp_path, env={"WANDB_MODE": "offline"})
    assert ended.code == 0, ended.err
    summaries = [file.read_bytes() for file in tmp_path.rglob("run-*.wandb")]
    assert any(b"top_two" in content for content in summaries)


def test_entries_of_the_archive_stay_valid_beside_a_new_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of conf/measure that an entry is older than changes nothing of what it says."""
    conf = tmp_path / "conf"
    shutil.copytree(CONF / "measure", conf / "measure")
    keys = {"_target_": f"{__name__}.TopTwo"}
    (conf / "measure" / "top_two.yaml").write_text(json.dumps(keys))
    monkeypatch.setattr(measures, "CONF", conf)
    measures._of_dgbench.cache_clear()
    try:
        assert "top_two" in {measure.name for measure in choose().shown}
        assert check_entry(ROOT / "results" / "hwang2024_scale2_ratio3") == []
    finally:
        measures._of_dgbench.cache_clear()
