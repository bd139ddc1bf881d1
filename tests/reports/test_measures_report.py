"""The measure report over small studies whose numbers are known."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from dgbench.errors import ConfigError, RecordError
from dgbench.protocols.selection import Last, Oracle
from dgbench.reports.collect import collect
from dgbench.reports.document import Cell, Table, show
from dgbench.reports.measures_report import MeasuresReport
from dgbench.reports.renderers import write
from dgbench.reports.renderers.page import render_html
from dgbench.reports.renderers.terminal import plain_document

CONF = Path(__file__).parents[2] / "conf"


def build(root: Path, **options: object):  # type: ignore[no-untyped-def]
    return MeasuresReport()(collect([root]), Last(), **options)  # type: ignore[arg-type]


def cells(table: Table, key: str) -> dict[str, Cell]:
    row = next(row for row in table.rows if row[0].value == key)
    return {column.title: cell for column, cell in zip(table.columns, row, strict=True)}


def test_measures_by_hand(small_study: Path) -> None:
    """erm, seed 0: held-out errors .2 .2 .2 .8, seed 1 the same + .02.

    average .35 and .37: mean .36, std .02 / sqrt(2) = .0141; worst+gap .8 + .6/2 = 1.1 and 1.12;
    ideal .9 at e = 0 for both. vrex: average .325 and .345, worst+gap .4 + .1/2 = .45 and .47, ideal .4.
    """
    measures, held_out, selected, correlation, *_ = build(small_study).sections[0].tables
    erm, vrex = cells(measures, "erm"), cells(measures, "vrex")
    assert erm["average (%)"].value == pytest.approx(0.36)
    assert erm["average (%)"].std == pytest.approx(0.02 / 2**0.5)
    assert erm["worst+gap (%)"].value == pytest.approx(1.11)
    assert erm["ideal (%)"].value == pytest.approx(0.9)
    assert vrex["worst+gap (%)"].value == pytest.approx(0.46)
    assert vrex["worst+gap (%)"].best
    assert not erm["worst+gap (%)"].best
    assert show(erm["average (%)"], "percent") == "36.0 ± 1.4"
    assert cells(held_out, "erm")["0.10 (%)"].value == pytest.approx(0.81)
    assert cells(selected, "average")["mean over seeds"].value == "vrex"
    assert cells(selected, "average")["degradation"].value == pytest.approx(0)
    assert cells(correlation, "average")["mean over seeds"].value == pytest.approx(1)


def test_a_wrong_pick_costs_its_ideal_error(make: Any, tmp_path: Path) -> None:
    """a: held-out errors .1 .1 .1 .6 (average .225), ideal .9; b: .3 all (average .3), ideal .3: average loses .6."""
    for name, errors, top in (("a", [0.1, 0.1, 0.1, 0.6], 0.9), ("b", [0.3] * 4, 0.3)):
        for fold, error in enumerate(errors):
            make.write_member(tmp_path, make.identity(name, str(fold)), lambda env, step, error=error: error)
        make.write_member(tmp_path, make.identity(name, "full"), lambda env, step, top=top: top)
    selected, correlation = build(tmp_path).sections[0].tables[2:4]
    assert cells(selected, "average")["seed 0"].value == "a"
    assert cells(selected, "average")["degradation"].value == pytest.approx(0.6)
    assert cells(selected, "worst+gap")["degradation"].value == 0
    assert cells(correlation, "average")["seed 0"].value == pytest.approx(-1)
    assert "2 algorithms: a rank correlation can only be 1 or -1" in " ".join(correlation.notes)


def test_missing_and_failed_folds_are_not_averaged_over(make: Any, tmp_path: Path) -> None:
    for fold in ("0", "1", "full"):
        make.write_member(tmp_path, make.identity("erm", fold))
    make.write_member(tmp_path, make.identity("erm", "2"), status="FAILED loss became nan at step 7")
    document = build(tmp_path)
    row = cells(document.sections[0].tables[0], "erm")
    assert row["average (%)"].value is None
    assert "fold 2: failed: loss became nan at step 7" in row["average (%)"].reason
    assert row["ideal (%)"].value == pytest.approx(0.25)
    assert cells(document.sections[0].tables[1], "erm")["0.90 (%)"].value == pytest.approx(0.25)
    problem = next(row for row in document.problems.rows if row[0].value == "missing folds")
    assert "fold 3 (0.10 held out): no rows" in str(problem[2].value)
    assert "'protocol.folds=[2,3]'" in str(problem[2].value)
    hydra = tmp_path / ".hydra"
    hydra.mkdir()
    (hydra / "overrides.yaml").write_text("[algorithm=erm, 'protocol.folds=[0,1]', dataset.scale=2]")
    problem = next(row for row in build(tmp_path).problems.rows if row[0].value == "missing folds")
    fill = "python train.py algorithm=erm dataset.scale=2 'protocol.folds=[2,3]'"
    assert str(problem[2].value).endswith(fill)
    assert "1 seed: no standard deviation" in " ".join(document.sections[0].tables[0].notes)


def test_a_fold_that_failed_before_its_first_row_says_so(make: Any, tmp_path: Path) -> None:
    for fold in ("0", "1", "3", "full"):
        make.write_member(tmp_path / "study", make.identity("erm", fold))
    failed = tmp_path / "study" / "fold-2"
    failed.mkdir()
    (failed / "status").write_text("FAILED loss became nan at step 7")
    (failed / "config.yaml").write_text("member: {name: '2'}")
    row = cells(build(tmp_path).sections[0].tables[0], "erm")
    assert row["average (%)"].reason == "fold 2: failed: loss became nan at step 7"


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
        make.write_member(tmp_path, who, folder=str(index))
    sections = [section for section in build(tmp_path).sections if section.folded]
    assert len(sections) == 5
    assert len({section.name for section in sections}) == 5
    assert any("ratio=4" in section.title for section in sections)


def test_mixed_code_is_refused_and_can_be_split(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity("erm", "0", code="0.1.0+abc"))
    make.write_member(tmp_path, make.identity("irm", "0", code="0.1.0+def"))
    with pytest.raises(RecordError, match=r"0\.1\.0\+abc.*0\.1\.0\+def.*split_by=code"):
        build(tmp_path)
    assert len(build(tmp_path, split_by="code").sections) == 2
    with pytest.raises(ConfigError, match="split_by=cod is no identity key"):
        build(tmp_path, split_by="cod")


def test_hyperparameter_sets_get_names_of_their_own(make: Any, tmp_path: Path) -> None:
    for weight in (1, 10):
        who = make.identity("vrex", "0", run=str(weight), hparams={"lr": 0.001, "penalty": weight})
        make.write_member(tmp_path, who, folder=str(weight))
    names = [row[0].value for row in build(tmp_path).sections[0].tables[1].rows]
    assert names == ["vrex (penalty=1)", "vrex (penalty=10)"]


def test_every_title_names_the_selection(small_study: Path) -> None:
    document = MeasuresReport()(collect([small_study]), Oracle())
    for section in document.sections:
        assert all("ORACLE SELECTION" in item.title for item in [*section.tables, *section.figures])


def test_no_environment_beyond_the_given_means_no_ideal(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity("erm", "full"), grid=[])
    row = cells(build(tmp_path).sections[0].tables[0], "erm")
    assert row["ideal (%)"].value is None
    assert "ideal is not known" in row["ideal (%)"].reason


def test_written_files(small_study: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out")
    document = build(small_study)
    names = {path.name for path in write(document, out)}
    assert {"report.html", "report.md", "measures.csv", "selected.csv", "problems.csv"} <= names
    assert len([name for name in names if name.endswith(".png")]) == 1
    with open(out / "measures.csv", newline="") as handle:
        lines = list(csv.DictReader(handle))
    line = next(line for line in lines if line["algorithm"] == "erm" and line["quantity"] == "worst+gap")
    assert float(line["value"]) == pytest.approx(1.11)
    assert line["n"] == "2"
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
    assert "<strong>46.0 ± 1.4</strong>" in page


def test_names_are_escaped(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity("<script>x", "0"), folder="a")
    assert "<script>x" not in render_html(build(tmp_path))


def test_a_report_never_imports_torch(make: Any, tmp_path: Path) -> None:
    """In a fresh process, from the rows to the page; `make bench-report` times it."""
    for seed in range(2):
        for algorithm in "ab":
            for fold in ("0", "1", "2", "3", "full"):
                make.write_member(tmp_path, make.identity(algorithm, fold, seed), lambda e, s: 0.2)
    code = (
        "import sys\n"
        "from dgbench.reports.collect import collect\n"
        "from dgbench.reports.measures_report import MeasuresReport\n"
        "from dgbench.reports.renderers import write\n"
        "from dgbench.protocols.selection import TrainVal\n"
        f"write(MeasuresReport()(collect([{str(tmp_path)!r}]), TrainVal()), {str(tmp_path / 'out')!r})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("selection", sorted(path.stem for path in (CONF / "selection").glob("*.yaml")))
def test_config_composes(selection: str) -> None:
    with initialize_config_dir(str(CONF), version_base=None):
        cfg = compose("report", overrides=[f"selection={selection}"], return_hydra_config=True)
        assert cfg.output == "reports/measures"
        assert cfg.runs == ["multirun", "outputs"]
        assert (cfg.hydra.output_subdir, cfg.hydra.job.chdir) == (None, False)
