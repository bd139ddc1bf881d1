"""Names of a table as the file spells them; near ones are asked about; what a table lacks is
lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.document import Document
from dgbench.reports.evaluation import evaluate
from dgbench.reports.importers.predictions import read_predictions_of_others
from dgbench.reports.importers.table import read_table
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import select_runs
from tests.complaints import refused

ENVIRONMENTS = ("art", "cartoon", "photo", "sketch")


def frame_of(*algorithms: str, seeds: int = 3) -> pd.DataFrame:
    dice = np.random.default_rng(5)
    lines: list[dict[str, Any]] = []
    for name in algorithms or ("ERM", "CORAL", "GroupDRO", "IRM", "VREx"):
        for seed in range(seeds):
            for env in ENVIRONMENTS:
                value = dice.integers(600, 900) / 1000
                line = {"algorithm": name, "seed": seed, "environment": env}
                lines.append({**line, "accuracy": value})
    return pd.DataFrame(lines)


def written(folder: Path, frame: pd.DataFrame, name: str = "others.csv") -> Path:
    frame.to_csv(folder / name, index=False)
    return folder / name


def environments(collection: Collection) -> set[str]:
    return set(collection.runs[0].identity["given"])


def test_one_slip_of_case_is_asked_about_with_counts_and_its_line(tmp_path: Path) -> None:
    frame = frame_of()
    frame.loc[43, "environment"] = "Sketch"
    file = written(tmp_path, frame)
    assert file.read_text().splitlines()[44].endswith(frame["accuracy"].astype(str)[43])
    with pytest.raises(RecordError) as refusal:
        read_table(file)
    text = str(refusal.value)
    assert "environment Sketch (1 line, line 45) beside sketch (14 lines) may be one" in text
    assert "'import.rename={Sketch:sketch}'" in text
    assert "'import.rename={Sketch:Sketch}'" in text
    assert "\n" not in text
    assert environments(read_table(file, rename={"Sketch": "sketch"})) == set(ENVIRONMENTS)
    assert "Sketch" in environments(read_table(file, rename={"Sketch": "Sketch"}))


def test_a_slip_in_the_name_of_a_column(tmp_path: Path) -> None:
    """Two files of which one writes Sketch make a table with a column more."""
    frames = [frame_of("ERM", "IRM"), frame_of("CORAL").replace("sketch", "Sketch")]
    for number, frame in enumerate(frames):
        wide = frame.pivot(index=["algorithm", "seed"], columns="environment", values="accuracy")
        written(tmp_path, wide.reset_index(), f"{number}.csv")
    with refused("environment Sketch .3 lines. beside sketch .6 lines. may be one", RecordError):
        read_table(tmp_path)
    renamed = read_table(tmp_path, rename={"Sketch": "sketch"})
    assert environments(renamed) == set(ENVIRONMENTS)
    assert evaluate(select_runs(renamed, Last())).studies["worst_gap"].notna().all()


@pytest.mark.parametrize("slip", ["skecth", "sktch", "skketch", "skatch", "Sketch ", "sket-ch"])
def test_slips(slip: str) -> None:
    frame = frame_of()
    frame.loc[43, "environment"] = slip
    with refused("beside sketch .14 lines. may be one", RecordError):
        read_table(frame)


def test_names_of_algorithms_and_datasets() -> None:
    frame = frame_of()
    frame.loc[43, "algorithm"] = "irm"
    with refused("algorithm irm .1 line, .* beside IRM .11 lines. may be one", RecordError):
        read_table(frame)
    whole = frame_of().assign(dataset="PACS")
    whole.loc[:3, "dataset"] = "pacs"
    with refused("dataset pacs .4 lines. beside PACS .56 lines. may be one", RecordError):
        read_table(whole)


def test_held_out_names_count() -> None:
    frame = frame_of().assign(held_out=lambda table: table["environment"].str.upper())
    with refused("environment ART .held out alone. beside art", RecordError):
        read_table(frame)
    named = {name.upper(): name for name in ENVIRONMENTS}
    assert environments(read_table(frame, rename=named)) == set(ENVIRONMENTS)


def test_what_is_no_slip_is_left_alone() -> None:
    """Numbers, names of which one model has both, short ones, and as many of each."""
    frame = frame_of("ERM", "ERM†", "ERM++", "SagNet", "SagNets", "IRM")
    degrees = {"art": "15", "cartoon": "-15", "photo": "domain1", "sketch": "domain2"}
    frame["environment"] = frame["environment"].map(degrees)
    collection = read_table(frame)
    assert environments(collection) == {*degrees.values()}
    assert len({run.identity["algorithm"] for run in collection.runs}) == 6


def test_predictions_are_asked_about_too() -> None:
    frame = pd.DataFrame({"subj": "m", "condition": ["snow"] * 5 + ["Snow"], "category": "dog"})
    frame["object_response"] = "dog"
    with refused("environment Snow .1 line. beside snow .5 lines.", RecordError):
        read_predictions_of_others(frame)
    renamed = read_predictions_of_others(frame, rename={"Snow": "snow"})
    assert environments(renamed) == {"snow"}


def test_a_renamed_name_that_is_not_there() -> None:
    with refused("names Sketsh, which no line has; did you mean sketch", ConfigError):
        read_table(frame_of(), rename={"Sketsh": "sketch"})


def measures_of(file: Path | pd.DataFrame, **keys: Any) -> Document:
    return MeasuresReport()(read_table(file, **keys), Last())


def test_names_and_titles_are_those_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, frame_of())
    document = measures_of(file)
    (section,) = document.sections
    assert section.title == "others"
    assert set(section.tables[0].frame["algorithm"]) == set(frame_of()["algorithm"])
    assert dict(section.facts)["network"] == "not known"
    assert "base images" not in dict(section.facts)
    (board,) = LeaderboardReport()(read_table(file), Last()).sections
    assert board.title == "others"
    known = LeaderboardReport()(read_table(file, backbone="ResNet-50", dataset="PACS"), Last())
    assert known.sections[0].title == "PACS, ResNet-50"
    named = measures_of(frame_of().assign(backbone=["a"] * 30 + ["b"] * 30))
    assert [section.title for section in named.sections] == ["table backbone=a", "table backbone=b"]


def test_baseline_and_reference_are_found_by_any_of_their_names() -> None:
    collection = read_table(frame_of())
    boards = LeaderboardReport(reference="group_dro", published=["domainbed2020_train_val"])
    titles = [
        table.title for section in boards(collection, Last()).sections for table in section.tables
    ]
    assert "Ranking score against GroupDRO" in titles
    with refused("report.baseline=sagnet is no algorithm with rows here", ConfigError):
        MeasuresReport(baseline="sagnet")(collection, Last())


def test_published_lines_stand_beside_those_of_the_file() -> None:
    document = LeaderboardReport(published=["domainbed2020_train_val"])(
        read_table(frame_of(), dataset="PACS"), Last()
    )
    (places,) = [
        table for section in document.sections for table in section.tables if table.name == "places"
    ]
    names = places.frame["algorithm"].tolist()
    assert "GroupDRO" in names and "group_dro" not in names
    assert places.frame.set_index("algorithm").loc["ERM"].notna()[["PACS"]].all()


def test_what_is_missing_is_lines(tmp_path: Path) -> None:
    frame = frame_of()
    lacking = frame["algorithm"].isin(["IRM", "VREx"]) & (frame["environment"] == "sketch")
    evaluation = evaluate(select_runs(read_table(written(tmp_path, frame[~lacking])), Last()))
    (problem,) = [p for p in evaluation.problems if p.kind == "missing lines"]
    assert problem.where == "others, IRM seed 0, IRM seed 1, IRM seed 2 and 3 more"
    assert problem.reason == "no line for sketch. To fill: add the lines to the table"
    reasons = evaluation.studies["worst_gap.reason"].dropna()
    assert set(reasons) == {"no line for sketch"}
    document = LeaderboardReport()(read_table(frame[~lacking]), Last())
    said = " ".join(document.problems.frame["reason"])
    assert "no line for sketch" in said and "where the sweep was made" not in said


@pytest.mark.parametrize("start", ["", "# a comment\n", "# two\n\n# comments\n"])
def test_lines_are_those_of_an_editor(start: str, tmp_path: Path) -> None:
    lines = frame_of().to_csv(index=False).splitlines()
    lines[7] = lines[7].rpartition(",")[0] + ",none at all"
    file = tmp_path / "others.csv"
    file.write_text(start + "\n".join(lines) + "\n")
    number = next(
        k for k, line in enumerate(file.read_text().split("\n"), 1) if "none at all" in line
    )
    with refused(f"accuracy is none at all in line {number}, no number", RecordError):
        read_table(file)
