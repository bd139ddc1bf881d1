"""Cells of tables of others are read as they are meant, or asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest

from dgbench.errors import RecordError
from dgbench.reports.importers.cells import parsed
from dgbench.reports.importers.table import read_table
from dgbench.reports.reading.collect import Collection
from tests.complaints import refused

ENVIRONMENTS = ("a", "b", "c")


def long_frame(algorithms: tuple[str, ...] = ("erm", "irm"), **more: Any) -> pd.DataFrame:
    lines = [
        {"algorithm": name, "environment": env, "seed": seed, **more}
        for name in algorithms
        for env in ENVIRONMENTS
        for seed in (0, 1)
    ]
    return pd.DataFrame(lines)


def said(collection: Collection) -> str:
    return "; ".join(f"{problem.kind}: {problem.reason}" for problem in collection.problems)


def algorithms(collection: Collection) -> list[str]:
    return sorted({run.identity["algorithm"] for run in collection.runs})


@pytest.mark.parametrize("n", ["10,000", "10000", "10,000.0"])
def test_a_comma_in_a_count_separates_thousands(n: str) -> None:
    rows = read_table(long_frame(wrong="1,005", n=n)).rows
    assert set(rows["seen"]) == {10_000} and set(rows["wrong"]) == {1005}


@pytest.mark.parametrize("key", ["seed", "step", "draw"])
def test_so_does_one_in_a_seed_a_step_or_a_draw(key: str) -> None:
    frame = long_frame(accuracy=0.5).assign(**{key: ["1,000", "2,000"] * 6})
    collection = read_table(frame)
    values = (
        collection.rows["step"] if key == "step" else [run.identity[key] for run in collection.runs]
    )
    assert set(values) == {1000, 2000}


@pytest.mark.parametrize(
    ("n", "file"),
    [
        ("10.000", "algorithm,environment,n,accuracy\nerm,a,10.000,0.5\nerm,b,12.000,0.6\n"),
        ("10,000", "algorithm;environment;n;accuracy\nerm;a;10,000;84,7\nerm;b;12,000;80,1\n"),
        ("1.5", "algorithm,environment,n,accuracy\nerm,a,1.5,0.5\n"),
    ],
)
def test_a_count_that_may_be_two_numbers_is_asked_about(n: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(file)
    with refused(rf"a\.csv: n is {n} in line 2.*(10 or 10000|whole number)", RecordError):
        read_table(tmp_path / "a.csv")


def test_numbers_with_marks() -> None:
    texts = ["**84.7**", "84,7 %", "\\textbf{84.7}", "84.7†", "<b>84.7</b>", "84.7*", " 84.7 (0.4)"]
    assert parsed(pd.Series(texts)).tolist() == [84.7] * len(texts)
    assert parsed(pd.Series(["1,013.01", "1.013,01", "\u22120.5"])).tolist() == [
        1013.01,
        1013.01,
        -0.5,
    ]
    assert pd.isna(parsed(pd.Series(["84.7^{1}", "84.7 0.4", "8*4"]))).all()


def book_of_two_sheets(file: Path) -> None:
    book = openpyxl.Workbook()
    for number, name in enumerate(("PACS", "VLCS", "empty")):
        sheet = book.active if not number else book.create_sheet()
        sheet.title = name
        if name == "empty":
            continue
        sheet.append(["algorithm", "environment", "accuracy"])
        for env in ENVIRONMENTS:
            sheet.append(["erm", env, 60.5 + 10 * number])
    book.save(file)


def test_no_sheet_is_read_for_another(tmp_path: Path) -> None:
    file = tmp_path / "book.xlsx"
    book_of_two_sheets(file)
    with refused(r"book\.xlsx holds 2 tables \(1 PACS, 2 VLCS\).*import\.part", RecordError):
        read_table(file)
    for part, accuracy in (("VLCS", 0.705), (1, 0.605)):
        collection = read_table(file, part=part)
        assert set(collection.rows["accuracy"]) == {accuracy}
        assert "not read: " in said(collection)
    both = read_table(file, dataset_from="part")
    assert sorted({run.identity["dataset"] for run in both.runs}) == ["PACS", "VLCS"]
    with refused("import.part=NICO.*1 PACS, 2 VLCS"):
        read_table(file, part="NICO")
    with refused("import.dataset_from=sheet.*file or part"):
        read_table(file, dataset_from="sheet")


def test_names_that_the_source_tells_apart_stay_apart() -> None:
    frame = long_frame(("ERM", "ERM†", "IRM"), accuracy=0.5)
    collection = read_table(frame)
    assert algorithms(collection) == ["ERM", "ERM†", "IRM"]
    assert len({run.identity["run"] for run in collection.runs}) == 18
    spelled = read_table(long_frame(("GroupDRO", "Group DRO", "IRM"), accuracy=0.5))
    assert algorithms(spelled) == ["Group DRO", "GroupDRO", "IRM"]


WIDE = pd.DataFrame(
    {
        "algorithm": ["erm", "coral", "vrex"],
        "A": [84.7, 88.3, 86.1],
        "C": [80.8, 80.1, 79.1],
        "P": [97.2, 97.5, 96.9],
    }
)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("params", [25.6, 25.6, 25.7]),
        ("GFLOPs", [4.1, 8.2, 4.1]),
        ("train_time", [3.5, 7.2, 3.6]),
        ("Year", [20.1, 16.2, 21.3]),
        ("Rank", [3.1, 1.2, 2.3]),
        ("A_std", [0.4, 0.2, 1.6]),
        ("place", [3, 1, 2]),
        ("K", [5.5, 5.5, 5.5]),
        ("tokens", [2020, 2016, 2021]),
    ],
)
def test_a_column_that_is_no_environment_is_asked_about(name: str, values: list[float]) -> None:
    frame = WIDE.assign(**{name: values})
    with refused(rf"{name} \(.*import\.ignore=\[{name}\].*environment=\[A,C,P\]", RecordError):
        read_table(frame)
    for keys in ({"ignore": [name]}, {"columns": {"environment": ["A", "C", "P"]}}):
        collection = read_table(frame, **keys)  # type: ignore[arg-type]
        assert set(collection.rows["env"]) == {"A", "C", "P"}
        assert name in said(collection)
    with refused(r"import\.ignore=\[nothing\]"):
        read_table(frame, ignore=["nothing"])


def test_a_column_that_holds_the_average_is_none_whatever_it_is_called() -> None:
    overall = WIDE[["A", "C", "P"]].mean(axis=1).round(1)
    collection = read_table(WIDE.assign(Overall=overall))
    assert set(collection.rows["env"]) == {"A", "C", "P"} and "Overall is not read" in said(
        collection
    )
    with refused(r"Overall \(without the error bars", RecordError):
        bars = WIDE.assign(**{name: WIDE[name].astype(str) + " ± 0.5" for name in ("A", "C", "P")})
        read_table(bars.assign(Overall=overall + 3))


def means(bar: float, scale: float = 1.0) -> pd.DataFrame:
    frame = long_frame(standard_error=bar).drop_duplicates(["algorithm", "environment"])
    accuracies = [80.5, 81.5, 82.5, 84.5, 85.5, 86.5]
    return frame.drop(columns="seed").assign(accuracy=[scale * value for value in accuracies])


@pytest.mark.parametrize(
    ("frame", "bars"),
    [
        (means(0.4), 0.4),
        (means(1.1), 1.1),
        (means(0.004, 0.01), 0.4),
        (means(1.1, 0.01), 1.1),
        (means(0.0), 0.0),
    ],
)
def test_bars_have_a_unit_of_their_own(frame: pd.DataFrame, bars: float) -> None:
    (paper,) = read_table(frame, seeds=3).published
    assert paper.values["erm"]["a"].mean == pytest.approx(80.5)
    assert paper.values["erm"]["a"].error == pytest.approx(bars)


@pytest.mark.parametrize(
    ("frame", "unit"), [(means(0.012), "percent"), (means(0.4, 0.01), "fraction")]
)
def test_bars_that_may_be_in_two_units_are_asked_about(frame: pd.DataFrame, unit: str) -> None:
    with refused(r"standard_error is .* in line 1.*import\.bar_unit=percent", RecordError):
        read_table(frame)
    collection = read_table(frame, bar_unit="fraction")
    error = collection.published[0].values["erm"]["a"].error
    assert error == pytest.approx(1.2 if unit == "percent" else 40)
    with refused("import.bar_unit=points"):
        read_table(frame, bar_unit="points")


def test_a_bar_below_zero_is_refused() -> None:
    with refused("standard_error is -0.4 in line 1.*below 0", RecordError):
        read_table(means(-0.4))
    with refused(r"line 2.*below 0", RecordError):
        read_table(
            WIDE.assign(A=["84.7 ± 0.4", "88.3 ± -0.2", "86.1 ± 1.6"], algorithm=list("xyz")),
            columns={"environment": ["A", "C", "P"]},
        )


def test_lines_are_chosen_by_what_a_column_holds() -> None:
    """As a file of two versions of a test set, whose column no name tells."""
    plain = long_frame(accuracy=0.9, corrected_labels=False)
    corrected = long_frame(accuracy=0.7, corrected_labels=True)
    frame = pd.concat([plain, corrected], ignore_index=True)
    with refused(r"line 13.*line 1 .*another value.*differ in corrected_labels", RecordError):
        read_table(frame)
    collection = read_table(frame, where={"corrected_labels": True})
    assert set(collection.rows["accuracy"]) == {0.7}
    assert "12 of 24 lines, where corrected_labels is not true" in said(collection)
    with refused("import.where=.*holds false, true"):
        read_table(frame, where={"corrected_labels": "maybe"})
    with refused("import.where=.*no column"):
        read_table(frame, where={"nothing": 1})


def three_lines(*algorithms: str) -> str:
    lines = ["Method,seed,A,C,P,S"]
    for place, name in enumerate(algorithms):
        lines.append(f"{name},0,{60 + place}.5,71.{place},85.{place},58.{place}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("ERM", '"IRM', "CORAL"), "in line 3 is never closed; close or drop it"),
        (("ERM", '"IRM', '"CORAL'), "in line 3 holds 2 whole lines; drop it and the one that"),
    ],
)
def test_a_quotation_mark_too_many_swallows_no_lines(
    names: tuple[str, ...], fault: str, tmp_path: Path
) -> None:
    """Those behind it were left out as a footnote, or made one name of three."""
    (tmp_path / "a.csv").write_text(three_lines(*names))
    with refused(rf"a\.csv: the quotation mark {fault}", RecordError):
        read_table(tmp_path / "a.csv")


def test_a_footnote_in_quotation_marks_may_have_several_lines(tmp_path: Path) -> None:
    text = three_lines("ERM", "IRM", "CORAL") + '"CORAL is ours,\nsee the appendix"\n'
    (tmp_path / "a.csv").write_text(text)
    table = read_table(tmp_path / "a.csv")
    assert len(table.rows) == 12
    assert any("line 5, a footnote" in problem.reason for problem in table.problems)


def test_a_title_merged_over_all_columns_is_no_name_of_theirs(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["PACS, accuracy (%)"])
    sheet.merge_cells("A1:F1")
    sheet.append(["Method", "seed", *"ACPS"])
    sheet.append(["ERM", 0, 60.5, 71.2, 85.3, 58.1])
    sheet.append(["IRM", 0, 61.5, 71.4, 85.1, 58.3])
    book.save(tmp_path / "a.xlsx")
    table = read_table(tmp_path / "a.xlsx")
    assert set(table.rows["env"].astype(str)) == set("ACPS")
    assert any("line 1, a title: PACS, accuracy" in problem.reason for problem in table.problems)


def test_a_line_of_a_wide_table_is_counted_once(tmp_path: Path) -> None:
    """Names that stand again in the middle of a file."""
    text = three_lines("ERM", "IRM")
    (tmp_path / "a.csv").write_text(text + text)
    with refused(r"seed is seed in line 4, no number", RecordError):
        read_table(tmp_path / "a.csv")
