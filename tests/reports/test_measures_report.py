"""The measure report over small studies whose numbers are known."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last, Oracle
from dgbench.errors import ConfigError, RecordError
from dgbench.records.rows import ROW_FILE, append_rows
from dgbench.records.run_identity import DEFAULTS
from dgbench.reports.document import Document, title_of
from dgbench.reports.frames import measures, results
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import plain_document, render_html, write
from dgbench.reports.studies import evaluate_study
from dgbench.reports.tables import Cell, Table, show
from tests.studies import composed

CONF = Path(__file__).parents[2] / "conf"


def build(root: Path, **options: object):  # type: ignore[no-untyped-def]
    return MeasuresReport()(collect([root]), Last(), **options)  # type: ignore[arg-type]


def line(table: Table, key: str) -> dict[str, Cell]:
    row = next(row for row in table.cells if row[0].value == key)
    return {column.shown: cell for column, cell in zip(table.columns, row, strict=True)}


def problems(document: Any) -> dict[str, str]:
    return dict(
        zip(document.problems.frame["problem"], document.problems.frame["reason"], strict=True)
    )


def test_measures_by_hand(small_study: Path) -> None:
    """erm, seed 0: held-out errors .2 .2 .2 .8, seed 1 the same + .02.

    average .35 and .37: mean .36, std .02 / sqrt(2) = .0141; worst+gap .8 + .6/2 = 1.1 and 1.12;
    ideal .9 at e = 0 for both. vrex: average .325 and .345, worst+gap .4 + .1/2 = .45 and .47,
    ideal .4.
    """
    measures, held_out, selected, correlation, *_ = build(small_study).sections[0].tables
    erm, vrex = line(measures, "erm"), line(measures, "vrex")
    assert erm["average (%)"].value == pytest.approx(0.36)
    assert erm["average (%)"].std == pytest.approx(0.02 / 2**0.5)
    assert erm["worst+gap (%)"].value == pytest.approx(1.11)
    assert erm["ideal (%)"].value == pytest.approx(0.9)
    assert vrex["worst+gap (%)"].value == pytest.approx(0.46)
    assert vrex["worst+gap (%)"].best
    assert not erm["worst+gap (%)"].best
    assert show(erm["average (%)"], "percent") == "36.0 ± 1.4"
    assert line(held_out, "erm")["0.10 (%)"].value == pytest.approx(0.81)
    assert line(selected, "average")["mean over seeds"].value == "vrex"
    assert line(selected, "average")["cost"].value == pytest.approx(0)
    assert line(correlation, "average")["mean over seeds"].value == pytest.approx(1)


def test_a_wrong_pick_costs_its_ideal_error(make: Any, tmp_path: Path) -> None:
    """a: held-out errors .1 .1 .1 .6 (average .225), ideal .9; b: .3 all (average .3), ideal .3:
    average loses .6.
    """
    for name, errors, top in (("a", [0.1, 0.1, 0.1, 0.6], 0.9), ("b", [0.3] * 4, 0.3)):
        for fold, error in enumerate(errors):
            make.write_run(
                tmp_path, make.identity(name, str(fold)), lambda env, step, error=error: error
            )
        make.write_run(tmp_path, make.identity(name, "full"), lambda env, step, top=top: top)
    selected, correlation = build(tmp_path).sections[0].tables[2:4]
    assert line(selected, "average")["seed 0"].value == "a"
    assert line(selected, "average")["cost"].value == pytest.approx(0.6)
    assert line(selected, "worst+gap")["cost"].value == 0
    assert line(correlation, "average")["seed 0"].value == pytest.approx(-1)
    assert "can only be 1 or -1" in " ".join(correlation.notes)


def test_equal_models_are_no_lead(make: Any, tmp_path: Path) -> None:
    """b and c are one model in every fold, a is worse: trained on three environments, so no reason
    is given.
    """
    for name, more in (("a", 0.1), ("b", 0.0), ("c", 0.0)):
        for seed, fold in product(range(2), ("0", "1", "2", "3", "full")):
            who = make.identity(name, fold, seed)
            make.write_run(tmp_path, who, lambda env, step, more=more: 0.2 + more)
    section = build(tmp_path).sections[0]
    first, numbers, *_, truth = section.answer
    assert first.startswith("b and c are equal in every result")
    assert numbers.startswith("b and c: worst+gap 20.0%, 10.0 points below a")
    assert "b = c have the lowest ideal error" in truth and "(b = c) costs 0.0 points" in truth


def test_without_worst_gap_the_average_ranks_answer_table_and_note(
    make: Any, tmp_path: Path
) -> None:
    """Two given environments: no N - 2. Averages in both seeds: a .45, b .25, c .35."""
    given = make.GIVEN[:2]
    for name, errors in (("a", (0.4, 0.5)), ("b", (0.2, 0.3)), ("c", (0.3, 0.4))):
        for seed in (0, 1):
            for fold, error in enumerate(errors):
                who = make.identity(name, str(fold), seed, given=given)
                make.write_run(tmp_path, who, lambda env, step, error=error: error)
    section = build(tmp_path).sections[0]
    table = section.tables[0]
    assert section.answer[0].startswith("Decided: b leads by average error")
    assert section.answer[1].startswith("b: average error 25.0%, 10.0 points below c")
    assert list(table.frame["algorithm"]) == ["b", "c", "a", "blind guess"]
    assert line(table, "b")["worst+gap (%)"].value is None
    [lead] = [table for table in section.tables if table.name == "lead"]
    [by_average] = lead.frame.to_dict("records")
    assert (by_average["leader"], by_average["next"], by_average["wins"]) == ("b", "c", "2 of 2")


def test_algorithms_without_a_common_seed_are_counted_by_their_seeds(
    make: Any, tmp_path: Path
) -> None:
    for name, seeds in (("a", (0, 1)), ("b", (0, 1)), ("c", (2,))):
        for seed in seeds:
            for fold in range(4):
                make.write_run(tmp_path, make.identity(name, str(fold), seed))
    head, numbers, by_seeds = build(tmp_path).sections[0].answer[:3]
    assert head.startswith("a and b are equal in every result")
    assert "c (0 of 2 seeds)" in numbers
    assert " 2 in seeds 0, 1; 1 in seed 2. " in by_seeds


def test_a_headline_over_some_of_the_algorithms_says_so(make: Any, tmp_path: Path) -> None:
    """c has the lowest error, and one seed of two: it is not ruled out, and nothing is decided or
    bold.
    """
    for name, seeds, error in (("a", (0, 1), 0.3), ("b", (0, 1), 0.4), ("c", (0,), 0.1)):
        for seed in seeds:
            for fold in range(4):
                make.write_run(
                    tmp_path,
                    make.identity(name, str(fold), seed),
                    lambda env, step, error=error: error,
                )
    first, numbers, by_seeds = build(tmp_path).sections[0].answer[:3]
    assert first.startswith("Undecided: a leads the 2 of 3 with every seed")
    assert first.endswith(" cannot separate a from c (1 of 2 seeds).")
    table = build(tmp_path).sections[0].tables[0]
    assert not table.frame["worst_gap.best"].any()
    assert numbers.startswith("a: worst+gap 30.0%")
    assert " 2 in seeds 0, 1; 1 in seed 0. " in by_seeds


def test_missing_and_failed_folds_are_not_averaged_over(make: Any, tmp_path: Path) -> None:
    for fold in ("0", "1", "full"):
        make.write_run(tmp_path, make.identity("erm", fold))
    make.write_run(tmp_path, make.identity("erm", "2"), status="FAILED loss became nan at step 7")
    document = build(tmp_path)
    row = line(document.sections[0].tables[0], "erm")
    assert row["average (%)"].value is None
    assert "fold 2: failed: loss became" in row["average (%)"].reason
    assert row["ideal (%)"].value == pytest.approx(0.25)
    assert line(document.sections[0].tables[1], "erm")["0.90 (%)"].value == pytest.approx(0.25)
    assert "fold 3 (0.10 held out)" in problems(document)["missing folds"]
    assert "'protocol.folds=[2,3]'" in problems(document)["missing folds"]
    hydra = tmp_path / ".hydra"
    hydra.mkdir()
    (hydra / "overrides.yaml").write_text(
        "[algorithm=erm, 'protocol.folds=[0,1]', dataset.scale=2]"
    )
    fill = (
        "python train.py algorithm=erm dataset.scale=2 'protocol.folds=[2,3]' "
        f"paths.output_dir={tmp_path.parent}"
    )
    assert problems(build(tmp_path))["missing folds"].endswith(fill)
    assert "1 seed: " in " ".join(document.sections[0].tables[0].notes)


def test_a_fold_that_failed_before_its_first_row_says_so(make: Any, tmp_path: Path) -> None:
    for fold in ("0", "1", "3", "full"):
        make.write_run(tmp_path / "study", make.identity("erm", fold))
    failed = tmp_path / "study" / "fold-2"
    failed.mkdir()
    (failed / "status").write_text("FAILED loss became nan at step 7")
    (failed / "config.yaml").write_text("member: {name: '2'}")
    row = line(build(tmp_path).sections[0].tables[0], "erm")
    assert row["average (%)"].reason.startswith("fold 2: failed: loss became")


def test_unlike_results_never_share_a_table(make: Any, tmp_path: Path) -> None:
    for index, changes in enumerate(
        (
            {},
            {"base": "mnist"},
            {"evaluation": "sampled"},
            {"variant": {"ratio": 4, "scale": 1}},
            {"given": make.GIVEN[1:]},
        )
    ):
        who = make.identity("erm", "full", run=str(index), **changes)
        make.write_run(tmp_path, who, folder=str(index))
    sections = [section for section in build(tmp_path).sections if section.folded]
    assert len(sections) == 5
    assert len({section.name for section in sections}) == 5
    assert any("ratio=4" in section.title for section in sections)


def test_mixed_code_is_refused_and_can_be_split(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity("erm", "0", code="0.1.0+abc"))
    make.write_run(tmp_path, make.identity("irm", "0", code="0.1.0+def"))
    with pytest.raises(RecordError, match=r"0\.1\.0\+abc.*0\.1\.0\+def.*split_by=code"):
        build(tmp_path)
    assert len(build(tmp_path, split_by="code").sections) == 2
    with pytest.raises(ConfigError, match="split_by=cod "):
        build(tmp_path, split_by="cod")


def test_hyperparameter_sets_get_names_of_their_own(make: Any, tmp_path: Path) -> None:
    for weight in (1, 10):
        who = make.identity("vrex", "0", run=str(weight), hparams={"lr": 0.001, "penalty": weight})
        make.write_run(tmp_path, who, folder=str(weight))
    names = build(tmp_path).sections[0].tables[1].frame["algorithm"].tolist()
    assert names == ["vrex (penalty=1)", "vrex (penalty=10)", "blind guess"]


def test_every_title_names_the_selection(small_study: Path) -> None:
    document = MeasuresReport()(collect([small_study]), Oracle())
    for section in document.sections:
        assert all(
            "ORACLE SELECTION" in title_of(item, document)
            for item in [*section.tables, *section.figures]
        )


def test_no_environment_beyond_the_given_means_no_ideal(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity("erm", "full"), grid=[])
    tables = {table.name: table for table in build(tmp_path).sections[0].tables}
    row = line(tables["measures"], "erm")
    assert "ideal (%)" not in row and "average (%)" in row
    assert "No ideal: only the given environments exist" in " ".join(tables["measures"].notes)
    assert "ideal" in tables["measures"].frame and "correlation" not in tables
    assert "ideal at" not in [column.title for column in tables["seeds"].columns]


def test_the_ideal_is_refused_where_an_environment_is_missing(make: Any, tmp_path: Path) -> None:
    """erm is tested in all 21 environments and the given ones; vrex lacks three that erm has, irm a
    given one.
    """
    make.write_run(tmp_path, make.identity("erm", "full"))
    make.write_run(
        tmp_path,
        make.identity("vrex", "full"),
        grid=[e for e in make.GRID if not "0.00" <= e < "0.15"],
    )
    rows = [
        row
        for row in make.run_rows(make.identity("irm", "full"), lambda e, s: 0.2)
        if row.env != "0.90"
    ]
    (tmp_path / "irm").mkdir()
    (tmp_path / "irm" / "status").write_text("DONE")
    append_rows(tmp_path / "irm" / ROW_FILE, rows)
    document = build(tmp_path)
    table = document.sections[0].tables[0]
    assert line(table, "erm")["ideal (%)"].value == pytest.approx(0.25)
    assert line(table, "vrex")["ideal (%)"].value is None
    assert line(table, "vrex")["ideal (%)"].reason.endswith(" row of 0.00, 0.05 at step 200")
    assert line(table, "irm")["ideal (%)"].reason.endswith(" row of 0.90 at step 200")
    [told] = document.problems.frame.query("problem == 'environments differ'").to_dict("records")
    assert told["where"] == "irm, vrex"
    found = measures(results(tmp_path)).set_index("label")["ideal"]
    assert found.isna().to_dict() == {"erm": False, "vrex": True, "irm": True}


def test_an_environment_that_only_another_step_has_is_missing(make: Any) -> None:
    rows = make.run_rows(make.identity("erm", "full"), lambda e, s: 0.2)
    raw = [
        {**DEFAULTS, **json.loads(row.to_json())}
        for row in rows
        if (row.step, row.env) != (200, "0.50")
    ]
    study = evaluate_study(raw, Last())
    assert "ideal" not in study.measures.values
    assert study.measures.reasons["ideal"].startswith(
        "fold full (trained on all given environments): "
    )


def test_a_fold_that_lacks_one_of_its_tested_environments_gives_no_average(make: Any) -> None:
    """multi_test holds out two environments a fold; fold 1 was tested in one of its two alone."""
    folds = [["0.90", "0.85"], ["0.80", "0.10"]]
    rows: list[Any] = []
    for number, tested in enumerate(folds):
        who = make.identity("erm", str(number), protocol="multi_test", folds=folds, held_out=tested)
        rows += [
            {**DEFAULTS, **json.loads(row.to_json())}
            for row in make.run_rows(who, lambda e, s: 0.2)
        ]
    assert evaluate_study(rows, Last()).measures.values["average"] == pytest.approx(0.2)
    study = evaluate_study(
        [row for row in rows if (row["fold"], row["env"]) != ("1", "0.10")], Last()
    )
    assert "average" not in study.measures.values
    assert study.measures.reasons["average"].endswith(" row of 0.10 at step 200")
    assert study.held_out == pytest.approx({"0.90": 0.2, "0.85": 0.2, "0.80": 0.2})


def test_the_lead_is_judged_by_a_test_of_the_two_that_the_data_chose(
    small_study: Path, make: Any
) -> None:
    """worst+gap of vrex is lower by .65 in both of 2 seeds: 2 of 4 relabelings lead by so much."""
    line = lead_of(build(small_study))
    assert (line["leader"], line["next"], line["wins"], line["p"]) == ("vrex", "erm", "2 of 2", 0.5)
    assert line["in words"] == "1 of 2 cases (permutation test), the fewest that 2 seeds can show"


def lead_of(document: Document) -> dict[str, Any]:
    """The line of worst+gap in the table that tests the lead."""
    [table] = [table for table in document.sections[0].tables if table.name == "lead"]
    lead: dict[str, Any] = table.frame.to_dict("records")[0]
    return lead


@pytest.mark.parametrize(
    ("last", "counts"),
    [
        (0.5, ("6 of 6", "1 of 32 cases")),
        (0.1, ("5 of 6", "7 of 32 cases")),
    ],
)
def test_what_six_seeds_say_of_a_lead(
    make: Any, tmp_path: Path, last: float, counts: tuple[str, str]
) -> None:
    """b is higher by .2 in 5 seeds, and by .2 or -.2 in the last: 2 or 14 of 64 relabelings reach
    it.
    """
    for seed in range(6):
        for name, error in (("a", 0.3), ("b", 0.5 if seed < 5 else last)):
            for fold in range(4):
                make.write_run(
                    tmp_path, make.identity(name, str(fold), seed), lambda e, s, error=error: error
                )
    line = lead_of(build(tmp_path))
    assert line["wins"] == counts[0] and str(line["in words"]).startswith(counts[1])


def test_a_curve_over_seeds_does_not_peak_at_the_ideal(
    small_study: Path, make: Any, tmp_path_factory: Any
) -> None:
    _, figure = build(small_study).sections[0].figures
    assert "each seed's highest point" in figure.caption
    one = tmp_path_factory.mktemp("one")
    make.write_run(one, make.identity("erm", "full"))
    [figure] = build(one).sections[0].figures
    assert "is its ideal error." in figure.caption


def test_written_files(small_study: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out")
    document = build(small_study)
    names = {path.name for path in write(document, out)}
    assert {"report.html", "report.md", "measures.csv", "selected.csv", "problems.csv"} <= names
    assert len([name for name in names if name.endswith(".png")]) == 2
    with open(out / "measures.csv", newline="") as handle:
        lines = list(csv.DictReader(handle))
    erm = next(line for line in lines if line["algorithm"] == "erm")
    assert float(erm["worst_gap"]) == pytest.approx(1.11)
    assert erm["worst_gap.n"] == "2"
    assert "| **46.0 ± 1.4** |" in (out / "report.md").read_text()
    assert "46.0 ± 1.4*" in plain_document(document)
    with pytest.raises(RecordError, match="choose output="):
        write(document, out / "report.md")


def test_page_loads_nothing(small_study: Path) -> None:
    page = render_html(build(small_study))
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)
    assert "<svg" in page
    assert "<strong>46.0 <small>± 1.4</small></strong>" in page


def test_names_are_escaped(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity("<script>x", "0"), folder="a")
    assert "<script>x" not in render_html(build(tmp_path))


@pytest.mark.thorough
def test_a_report_never_imports_torch(make: Any, tmp_path: Path) -> None:
    """In a fresh process, from the rows to the page; `make bench-report` times it."""
    for seed in range(2):
        for algorithm in "ab":
            for fold in ("0", "1", "2", "3", "full"):
                make.write_run(tmp_path, make.identity(algorithm, fold, seed), lambda e, s: 0.2)
    code = (
        "import sys\nfrom dgbench.reports.reading.collect import collect\nfrom "
        "dgbench.reports.measuring.report import MeasuresReport\nfrom "
        "dgbench.reports.render.formats import write\nfrom dgbench.analysis.selection import "
        f"TrainVal\nwrite(MeasuresReport()(collect([{str(tmp_path)!r}]), TrainVal()), "
        f"{str(tmp_path / 'out')!r})\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "selection", sorted(path.stem for path in (CONF / "selection").glob("*.yaml"))
)
def test_config_composes(selection: str) -> None:
    cfg = composed(f"selection={selection}", name="report", hydra=True)
    assert cfg.output == "reports/measures"
    assert cfg.runs == ["multirun", "outputs"]
    assert (cfg.hydra.output_subdir, cfg.hydra.job.chdir) == (None, False)
