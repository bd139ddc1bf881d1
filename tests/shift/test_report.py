"""``report=shift``: tables, figures and sentences from rows with known values."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from dgbench.errors import ConfigError, RecordError
from dgbench.records.shift_rows import ShiftRow
from dgbench.reports.document import Document
from dgbench.reports.published import published
from dgbench.reports.render.drawing import canvas
from dgbench.reports.render.formats import plain_document, write
from dgbench.reports.tables import show
from dgbench.shift.figures import PointLabel, label_points
from dgbench.shift.report import ShiftReport
from dgbench.shift.tables import nearest
from tests.shift.synthetic import estimates, shift_identity, shift_row, write_shifts
from tests.tables import line, table

HALVES = [0.02, -0.02] * 4
NULL = {"div": 0.02, "cor": 0.03}


def joint(dataset: str, div: float, cor: float, **changes: Any) -> list[ShiftRow]:
    who = shift_identity(dataset, **changes.pop("who", {}))
    return estimates(who,
        {str(fold): {"div": div, "cor": cor, "div_0.02": div} for fold in range(3)},
                     null=NULL, halves=HALVES, **changes)  # fmt: skip


def report(root: Path, *rows: list[ShiftRow], **keys: Any) -> Document:
    for at, own in enumerate(rows):
        write_shifts(root, own, f"{at}-{own[0].identity.dataset}")
    return ShiftReport(roots=[str(root)], **keys)(None, None)


def test_the_table_of_shifts(tmp_path: Path) -> None:
    document = report(
        tmp_path,
        joint("pacs", 0.5, 0.02, flags=["few images"]),
        joint("cmnist_irm", 0.01, 0.6, exact={"div": 0.0, "cor": 0.60733}),
        joint("my_data", 0.1, 0.1, labels={"cor": 0.05}),
    )
    assert [section.title for section in document.sections] == [
        "Joint classifier, resnet18/supervised, frozen features"
    ]
    found = table(document, "shift")
    assert found.title == "Diversity and correlation shift, mean over pairs [95%, half-sampling]"
    pacs, digits, mine = (line(found, name) for name in ("pacs", "cmnist_irm", "my_data"))
    assert pacs["div"].value == pytest.approx(0.5)
    assert pacs["div"].high == pytest.approx(0.5 + 2.3646242510 * 0.02 * math.sqrt(8 / 7))
    assert (pacs["div null"].value, pacs["cor null"].value) == (
        pytest.approx(0.02),
        pytest.approx(0.03),
    )
    assert show(pacs["div published"], "distance") == "0.810 ± 0.050 (other features)"
    assert (pacs["pairs"].value, pacs["classes"].value, pacs["flags"].value) == (
        "3 folds",
        "2 of 2",
        "few images",
    )
    assert (digits["cor exact"].value, pacs["cor exact"].value) == (pytest.approx(0.60733), None)
    assert (pacs["verdict"].value, digits["verdict"].value) == ("diversity", "correlation")
    assert mine["cor labels"].value == pytest.approx(0.05)
    assert mine["div published"].value is None
    notes = " ".join(found.notes)
    assert "another estimator" in notes and "here frozen ones" in notes
    headline, *sentences = document.sections[0].answer
    assert headline == (
        "Undecided: which shift dominates 1 of 3 datasets; diversity shift dominates pacs; "
        "correlation shift dominates cmnist_irm."
    )
    assert [sentence.split(":")[0] for sentence in sentences] == ["cmnist_irm", "my_data", "pacs"]


def test_published_values_are_of_the_source_and_marked_for_frozen_features_alone(
    tmp_path: Path,
) -> None:
    who = {"estimator": "ood_bench", "settings": {"formula": "ye2022"}, "features": "trained"}
    document = report(tmp_path, joint("pacs", 0.6, 0.02, who=who), published="ye2022_code_plus")
    found = table(document, "shift")
    assert show(line(found, "pacs")["div published"], "distance") == "0.660 ± 0.050"
    assert "formulas (hellinger, here ye2022)" in " ".join(found.notes)
    alone = report(tmp_path, published=None)
    assert "div published" not in [column.name for column in table(alone, "shift").columns]
    assert "Gray" not in alone.sections[0].figures[0].caption
    with pytest.raises(ConfigError, match=r"report\.published=ye2022_table1 .*; .*ye"):
        ShiftReport(published="ye2022_table1")(None, None)


def test_folds_are_compared_with_printed_values_and_pairs_of_environments_are_not(
    tmp_path: Path,
) -> None:
    rows = estimates(
        shift_identity(),
        {"a|b": {"div": 0.5, "cor": 0.1}, "a|c": {"div": 0.3, "cor": 0.1}},
        null=NULL,
    )
    found = table(report(tmp_path, rows), "shift")
    assert line(found, "pacs")["pairs"].value == "2 pairs"
    assert "div published" not in [column.name for column in found.columns]


def test_the_pairs_of_colored_digits_beside_exact_and_printed_values(tmp_path: Path) -> None:
    """Ye et al., Table 3, prints e = 0.1 against 0.9; a pair in the other order is the same one."""
    who = shift_identity("cmnist", given=["0.90", "0.10"])
    rows = estimates(
        who,
        {"0.90|0.10": {"div": 0.0, "cor": 0.64}},
        null=NULL,
        exact={"cor": 0.654654},
        n=[700, 700],
    )
    pair = line(table(report(tmp_path, rows), "pairs_cmnist"), "0.90|0.10")
    assert show(pair["cor published"], "distance") == "0.670 ± 0.040 (other features)"
    assert pair["cor exact"].value == pytest.approx(0.654654)
    assert (pair["p"].value, pair["q"].value, pair["n"].value) == ("0.90", "0.10", 700)
    assert pair["cor null"].value == pytest.approx(0.03)


def test_refused_and_missing_estimates_say_why(tmp_path: Path) -> None:
    rows = [
        *joint("pacs", 0.5, 0.02)[:14],
        shift_row(shift_identity(), "1", refused="failed fit; use more steps"),
    ]
    gone = [shift_row(shift_identity("vlcs"), refused="no common classes; give other environments")]
    document = report(tmp_path, rows, gone)
    found = table(document, "shift")
    assert line(found, "vlcs")["div"].value is None
    assert line(found, "vlcs")["div"].reason == "no common classes; give other environments"
    assert line(found, "pacs")["div"].flag == "(1 of 2 pairs)"
    assert line(found, "pacs")["verdict"].value == "none"
    assert line(found, "pacs")["verdict"].reason == "only 1 of 2 pairs have a value"
    refused = table(document, "refused").frame
    assert refused["refused"].tolist() == [
        "failed fit; use more steps",
        "no common classes; give other environments",
    ]
    assert "vlcs: no verdict" in " ".join(document.sections[0].answer)


def test_every_value_and_every_diagnostic_has_a_line(tmp_path: Path) -> None:
    document = report(tmp_path, joint("pacs", 0.5, 0.02, labels={"div": 0.5, "cor": 0.04}))
    values = table(document, "values")
    assert values.frame["name"].tolist() == ["div", "cor", "div_0.02"]
    assert line(values, "pacs", "cor")["labels"].value == pytest.approx(0.04)
    assert line(table(document, "diagnostics"), "pacs", "accuracy")["value"].value == pytest.approx(
        0.8
    )


def test_distances(tmp_path: Path) -> None:
    """p is the largest of the pairs: a mean of p-values means nothing."""
    who = shift_identity(estimator="distances", settings={})
    rows = [shift_row(who, "a|b",
            {"emd": 3.0, "mmd2": -0.001, "mmd2_p": 0.4, "ni": 1.0, "emd:dog": 2.0}),
            shift_row(who, "a|c",
                {"emd": 5.0, "mmd2": 0.101, "mmd2_p": 0.1, "ni": 2.0, "emd:dog": 4.0})]  # fmt: skip
    document = report(tmp_path, rows)
    own = line(table(document, "distances"), "pacs")
    assert [own[name].value for name in ("emd", "mmd2", "mmd2_p", "ni")] == pytest.approx(
        [4.0, 0.05, 0.4, 1.5]
    )
    assert "distances_by_class" not in {table.name for table in document.sections[0].tables}
    assert document.sections[0].answer == [
        "EMD has no null or no interval here: estimate with null=true and trials=5."
    ]
    told = estimates(
        shift_identity("vlcs", estimator="distances", settings={}),
        {"a|b": {"emd": 3.1}},
        null={"emd": 3},
    )
    assert (
        "EMD tells from no shift: vlcs (95% intervals apart)."
        in report(tmp_path / "b", told).sections[0].answer
    )


def test_covariate_and_concept_shift(tmp_path: Path) -> None:
    """Over pairs: .2 and .4 have mean .3 and deviation .1414; max - min .15 is above M_cov .1."""
    who = shift_identity(estimator="concept", settings={})
    rows = [shift_row(who, pair,
            {"tv": 0.1, "disc": 0.05, "min": low, "max": low + 0.15, "noise": 0.05})
            for pair, low in (("a|b", 0.2), ("a|c", 0.4))]  # fmt: skip
    document = report(tmp_path, rows)
    found = table(document, "concept")
    own = line(found, "pacs")
    assert (own["min"].value, own["min"].std) == (
        pytest.approx(0.3),
        pytest.approx(math.sqrt(0.02)),
    )
    assert show(own["tv published"], "distance") == "0.325 ± 0.053 (other features)"
    assert show(own["max published"], "distance") == "0.537 ± 0.054 (other features)"
    notes = " ".join(found.notes)
    assert "class of hypotheses" in notes
    assert "pacs: M_cpt max - min exceeds" in notes


def test_concept_shift_is_told_from_estimation_error(tmp_path: Path) -> None:
    who = shift_identity(estimator="concept", settings={})
    values = {"tv": 0.9, "disc": 0.2, "min": 0.3, "max": 0.4, "noise": 0.1}
    sentence = report(tmp_path, estimates(who, {"a|b": values})).sections[0].answer[0]
    assert sentence.endswith("so there is concept shift besides estimation error.")
    near = estimates(
        shift_identity("vlcs", estimator="concept", settings={}), {"a|b": {**values, "noise": 0.29}}
    )
    assert (
        report(tmp_path / "b", near)
        .sections[0]
        .answer[0]
        .endswith("cannot be told from estimation error.")
    )


def test_distances_to_pretraining_images(tmp_path: Path) -> None:
    """Ordered photo, art, cartoon, sketch as in Yu et al., Table 2: rank correlation with the gap
    -1.
    """
    envs = ["photo", "art_painting", "cartoon", "sketch"]
    who = shift_identity(given=envs, estimator="frechet", settings={"n": 500})
    rows = [
        row
        for at, env in enumerate(envs)
        for row in estimates(
            who, {env: {"d2": 100.0 - at, "d2_inf": 50.0 + at}}, null={"d2": 2.0}, n=[900, 500]
        )
    ]
    document = report(tmp_path, rows)
    found = table(document, "frechet")
    assert found.title == "Frechet distance, resnet18/supervised"
    own = line(found, "pacs", "sketch")
    assert (own["d2_inf"].value, own["d2"].value, own["d2 null"].value) == pytest.approx(
        (53.0, 97.0, 2.0)
    )
    assert (own["n"].value, own["gap published"].value) == (500, pytest.approx(-0.405))
    (sentence,) = document.sections[0].answer
    assert "nearest to the pretraining images is photo (50.0), farthest sketch (53.0)" in sentence
    assert "printed in Yu et al. 2024, Table 2: -1.00 (n=4)" in sentence
    folder = tmp_path / "written"
    write(document, folder)
    said = [text for text in (folder / "report.md").read_text().splitlines() if "FID" in text]
    assert len(said) == 1 and "This is no FID" in said[0]


def test_the_plane_names_the_nearest_printed_point(tmp_path: Path) -> None:
    """pacs at (.5, .02): DomainNet (.43, .08) is .0922 away, PACS (.81, 0) .31."""
    document = report(tmp_path, joint("pacs", 0.5, 0.02))
    (figure,) = document.sections[0].figures
    assert figure.name == "shift_plane_joint_classifier_resnet18_supervised_frozen_features"
    assert "pacs: domain_net (0.09)" in figure.caption
    assert "of other features, Ye et al. 2022, OoD-Bench, Table 8" in figure.caption
    assert nearest(0.5, 0.02, published("ye2022_table8")) == (
        "domain_net",
        pytest.approx(math.hypot(0.07, 0.06)),
    )


def test_every_two_environments_make_a_matrix_and_each_estimator_its_own_plane(
    tmp_path: Path,
) -> None:
    values = {f"{a}|{b}": {"div": 0.5, "cor": 0.1} for a, b in combinations("abc", 2)}
    other = shift_identity(estimator="ood_bench", settings={"formula": "ye2022"})
    document = report(
        tmp_path, estimates(shift_identity(), values), estimates(other, {"a|b": values["a|b"]})
    )
    names = [
        [figure.name.split("_resnet18")[0] for figure in section.figures]
        for section in document.sections
    ]
    assert names == [
        ["shift_plane_joint_classifier", "shift_matrix_joint_classifier"],
        ["shift_plane_ood_bench_estimator"],
    ]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_names_in_the_plane_do_not_overlap(count: int) -> None:
    """As many datasets about the origin and on the axes as a table may have, with one long name."""
    places = [(0.02, 0.02), (0.5, 0.02), (0.12, 0.03), (0.01, 0.6), (0.03, 0.25), (0.1, 0.2),
        (0.4, 0.05), (0.9, 0.0),
              (0.45, 0.1)]  # fmt: skip
    names = [
        "a_dataset_of_mine_with_a_very_long_name",
        "pacs",
        "_private",
        "cmnist",
        "a$b",
        "nico",
        "vlcs",
        "terra",
        "d",
    ]
    labels = [
        PointLabel(n, p, {"color": "k", "fontsize": 10}) for n, p in zip(names, places, strict=True)
    ][:count]
    with canvas("labels", 6.4, 5.0) as drawn:
        axes = drawn.add_subplot(xlim=(-0.05, 1.2), ylim=(-0.05, 0.7))
        texts = label_points(axes, labels, places)
        boxes = [Text.get_window_extent(text) for text in texts]
        inside = axes.get_window_extent()
        spots = [axes.transData.transform(place) for place in places]
    assert len(boxes) == count
    assert all(
        a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
        for a, b in combinations(boxes, 2)
    )
    assert all(box.x0 >= inside.x0 - 1 and box.x1 <= inside.x1 + 1 for box in boxes)
    assert not any(box.contains(*spot) for box in boxes for spot in spots)


def test_every_format_is_written_and_the_terminal_shows_the_answer(tmp_path: Path) -> None:
    document = report(
        tmp_path, joint("pacs", 0.5, 0.02), [shift_row(shift_identity("odd|name_$x"), values=NULL)]
    )
    paths = write(document, tmp_path / "out")
    assert {path.suffix for path in paths} >= {".html", ".md", ".csv", ".png", ".svg", ".tex"}
    text = plain_document(document)
    assert "pacs: dominated by diversity shift" in text
    assert "odd|name_$x: no verdict" in text
    assert "28 estimates" not in text and "estimates of 2 datasets in 2 folders." in text


def test_an_estimator_of_another_version_is_a_problem(tmp_path: Path) -> None:
    document = report(
        tmp_path, [shift_row(shift_identity(estimator="later", settings={}), values={"x": 1.0})]
    )
    assert document.sections == []
    assert document.problems.frame["problem"].tolist() == ["unknown estimator"]


def test_the_command(command: Any, tmp_path: Path) -> None:
    write_shifts(tmp_path / "outputs", joint("pacs", 0.5, 0.02))
    words = ("report.py", "report=shift", "runs=[outputs]", "only=[shift]", "output=out")
    ended = command(*words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "pacs: dominated by" in ended.out
    assert (tmp_path / "out" / "shift.csv").exists()
    nothing = command("report.py", "report=shift", "runs=[elsewhere]", cwd=tmp_path)
    assert (nothing.code, len(nothing.complaints)) == (1, 1)
    assert "`python shift.py dataset=pacs`" in nothing.complaints[0]


def test_nothing_found() -> None:
    with pytest.raises(RecordError, match="folder with runs="):
        ShiftReport(roots=[])(None, None)


def test_networks_of_papers_stand_beside_ours(tmp_path: Path) -> None:
    """Table 4 of Ye et al., perceptron of width 16: mean of .8280 .7838 .7752 .8004 .7727; of no
    other estimator.
    """
    keys = {
        "estimator": "ood_bench",
        "settings": {"formula": "ye2022"},
        "features": "trained",
        "backbone": "mlp-390",
    }
    ours = joint("cmnist_irm", 0.01, 0.6, who=keys)
    document = report(
        tmp_path, ours, joint("cmnist_irm", 0.01, 0.6), joint("pacs", 0.9, 0.0, who=keys)
    )
    by_name = [
        [item for item in section.tables if item.name == "networks"]
        for section in document.sections
    ]
    (found,) = [item for items in by_name for item in items]
    assert sorted(map(len, by_name)) == [0, 1]
    first = found.frame.iloc[0]
    assert (first["network"], first["source"], first["cor"]) == (
        "mlp-390",
        "ours",
        pytest.approx(0.6),
    )
    of_paper = found.frame.set_index(["dataset", "network"])["cor"]
    assert of_paper["cmnist_irm", "mlp-16"] == pytest.approx(0.79202)
    assert of_paper["cmnist_irm", "efficientnet_b0@4000"] == pytest.approx(0.89884)
    # of ResNet-18 on PACS two numbers of one environment are readable: no mean over environments
    resnet = line(found, "pacs", "resnet18")
    assert (resnet["div"].value, resnet["cor"].value) == (None, pytest.approx(0.0006, abs=0.0001))


def test_what_takes_long_is_counted(
    tmp_path: Path, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    report(tmp_path, joint("sr_cmnist", 0.1, 0.2))
    said = capsys.readouterr().err
    assert "reading estimates: 1 of 1 folders" in said
    assert "statistics: 1 of 1 settings" in said
