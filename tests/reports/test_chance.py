"""What results must beat: a blind guess and the most frequent class, in tables, figures and
sentences.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import dgbench
from dgbench.analysis.selection import Last
from dgbench.cli.closing import study_table, sweep_table
from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.records.rows import ROW_FILE, append_rows, read_rows
from dgbench.records.run_identity import DEFAULTS
from dgbench.reports.chance import CLASSES, Chance, beaten, classes_of
from dgbench.reports.document import Document
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.importers.table import read_table
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.formats import csv_files, markdown_table, plain_table, render_html
from dgbench.reports.render.latex import latex_table
from tests.reports.long_frames import long_frame
from tests.studies import make_plan
from tools.archive.packed_runs import packed_runs, write_packed

#: of the most frequent class, in the four given environments and elsewhere
MAJORITY = {"0.90": 0.2, "0.85": 0.3, "0.80": 0.4, "0.10": 0.6}
ELSEWHERE = 0.7


def written(
    make: Any,
    root: Path,
    errors: dict[str, float],
    n_classes: int | None = 2,
    majority: Callable[[str], float] | None = None,
    seeds: int = 2,
    **changes: Any,
) -> Path:
    """Write studies with one error in all environments, more by 0.01 in each further seed."""
    for name, error in errors.items():
        for seed in range(seeds):
            for fold in (*"0123", "full"):
                who = make.identity(name, fold, seed, n_classes=n_classes, **changes)
                folder = make.write_run(
                    root, who, lambda e, s, x=error + seed / 100: x, folder=f"{name}-{seed}-{fold}"
                )
                if majority:
                    rows = make.run_rows(who, lambda e, s, x=error + seed / 100: x)
                    (folder / ROW_FILE).unlink()
                    append_rows(
                        folder / ROW_FILE,
                        [replace(r, majority_wrong=r.seen * majority(r.env)) for r in rows],
                    )
    return root


def evaluation_of(root: Path) -> Evaluation:
    return evaluate(select_runs(collect([root]), Last()))


def chance_in(root: Path) -> Chance:
    chance = evaluation_of(root).settings[0].chance
    assert chance is not None
    return chance


def report_of(root: Path) -> Document:
    return MeasuresReport()(collect([root]), Last())


def test_a_blind_guess_is_the_same_everywhere(make: Any, tmp_path: Path) -> None:
    chance = chance_in(written(make, tmp_path, {"erm": 0.3}, n_classes=4))
    (guess,) = chance.references
    assert guess.measures == {
        "average": 0.75,
        "worst": 0.75,
        "gap": 0.0,
        "worst_gap": 0.75,
        "ideal": 0.75,
    }
    assert set(guess.held_out) == set(make.GIVEN)
    assert set(guess.everywhere.values()) == {0.75}
    assert not chance.by_name


def test_the_most_frequent_class_has_measures_of_its_errors(make: Any, tmp_path: Path) -> None:
    """0.2, 0.3, 0.4, 0.6: average .375, worst .6, gap .4, worst+gap .6 + .4 / 2 = .8; .7 elsewhere
    is the ideal.
    """
    root = written(make, tmp_path, {"erm": 0.3}, majority=lambda env: MAJORITY.get(env, ELSEWHERE))
    guess, frequent = chance_in(root).references
    expected = {"average": 0.375, "worst": 0.6, "gap": 0.4, "worst_gap": 0.8, "ideal": 0.7}
    assert frequent.measures == pytest.approx(expected)
    assert frequent.held_out == pytest.approx(MAJORITY)
    assert guess.measures["ideal"] == 0.5
    table = report_of(root).sections[0].tables[0]
    assert table.frame["algorithm"].tolist() == ["erm", "blind guess", "most frequent class"]
    assert table.frame["worst_gap"].tolist() == pytest.approx([0.305, 0.5, 0.8])


def test_of_several_seeds_the_mean_counts(make: Any, tmp_path: Path) -> None:
    """Seeds with images of their own: worst+gap is .2 in both environments' worst and .4, on
    average .3.
    """
    for seed, majority in ((0, 0.2), (1, 0.4)):
        for fold in "0123":
            who = make.identity("erm", fold, seed, n_classes=2, data_seed=seed)
            folder = make.write_run(tmp_path, who, folder=f"{seed}-{fold}")
            rows = [
                replace(r, majority_wrong=r.seen * majority)
                for r in make.run_rows(who, lambda e, s: 0.3)
            ]
            (folder / ROW_FILE).unlink()
            append_rows(folder / ROW_FILE, rows)
    _, frequent = chance_in(tmp_path).references
    assert frequent.measures["worst_gap"] == pytest.approx(0.3)
    assert list(frequent.held_out.values()) == pytest.approx([0.3] * 4)


def test_where_it_is_a_blind_guess_it_has_no_line(make: Any, tmp_path: Path) -> None:
    chance = chance_in(written(make, tmp_path, {"erm": 0.3}, majority=lambda env: 0.5002))
    assert [reference.name for reference in chance.references] == ["blind guess"]


def test_a_fold_that_is_missing_leaves_its_measures_out(make: Any, tmp_path: Path) -> None:
    root = written(
        make, tmp_path, {"erm": 0.3}, majority=lambda env: MAJORITY.get(env, ELSEWHERE), seeds=1
    )
    whole = chance_in(root).references[1]
    (root / "erm-0-3" / ROW_FILE).unlink()
    chance = chance_in(root)
    assert "worst_gap" in whole.measures
    assert [list(reference.measures) for reference in chance.references] == [["ideal"], ["ideal"]]


def test_old_rows_get_the_classes_of_their_dataset_and_say_so(make: Any, tmp_path: Path) -> None:
    chance = chance_in(
        written(make, tmp_path, {"erm": 0.3}, n_classes=None, dataset="pacs", variant={})
    )
    assert (chance.n_classes, chance.by_name) == (7, True)
    assert "K by the name of the dataset" in chance.notes[0]


def test_an_unknown_dataset_has_no_reference(make: Any, tmp_path: Path) -> None:
    root = written(
        make, tmp_path, {"erm": 0.7, "vrex": 0.8}, n_classes=None, dataset="mine", variant={}
    )
    assert evaluation_of(root).settings[0].chance is None
    section = report_of(root).sections[0]
    assert "reference" not in section.tables[0].frame
    assert "guess" not in section.answer[0]


def test_classes_by_name_are_those_of_the_configuration() -> None:
    stated = {}
    for file in sorted((CONF / "dataset").glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        parents = [
            str(name)
            for name in content.get("defaults", [])
            if isinstance(name, str) and name != "_self_"
        ]
        known = [stated[name] for name in parents if name in stated]
        number = (content.get("published") or {}).get("classes", known[0] if known else None)
        if number is not None:
            stated[file.stem] = number
    for name in ("spawrious_m2m_easy", "spawrious_m2m_hard", "spawrious_m2m_medium"):
        stated[name] = yaml.safe_load((CONF / "dataset" / "spawrious_o2o_easy.yaml").read_text())[
            "published"
        ]["classes"]
    assert len(stated) > 15
    assert {name: CLASSES.get(name) for name in stated} == stated
    assert CLASSES["cmnist_irm"] == CLASSES["sr_cmnist"], "of the same code"


@pytest.mark.parametrize("name", ["sr_cmnist", "cmnist", "cmnist_domainbed", "rotated_mnist"])
def test_classes_of_digits_are_those_of_their_code(name: str, tmp_path: Path) -> None:
    planned = make_plan(tmp_path, f"dataset={name}", "dataset.base=digits")
    assert planned.dataset.describe().n_classes == CLASSES[name]


def test_a_name_in_an_imported_table_means_nothing() -> None:
    assert classes_of({"dataset": "pacs", "base": "table"}) is None
    assert classes_of({"dataset": "pacs", "base": "table", "n_classes": 3}) == 3
    assert classes_of({"dataset": "pacs", "base": "domainbed"}) == 7


def test_references_are_last_and_never_ranked_bold_or_counted(make: Any, tmp_path: Path) -> None:
    """Worse than a blind guess by every measure, yet the best of the algorithms."""
    root = written(make, tmp_path, {"erm": 0.6, "vrex": 0.7, "irm": 0.8})
    section = report_of(root).sections[0]
    measures, held_out = section.tables[:2]
    for table in (measures, held_out):
        assert len(table) == 3
        assert table.frame["algorithm"].tolist()[-1] == "blind guess"
        assert table.frame["reference"].tolist() == [False] * 3 + [True]
        best = [name for name in table.frame if name.endswith(".best")]
        assert not table.frame[best].iloc[-1].any()
    assert pd.isna(measures.frame["seeds"].iloc[-1])
    assert measures.frame["seeds"].tolist()[:3] == [2, 2, 2]
    assert measures.frame["average.best"].tolist()[0], (
        "the leader is marked as if there was no reference"
    )
    others = [table for table in section.tables[2:] if "algorithm" in table.frame]
    assert others
    assert not any("blind guess" in table.frame["algorithm"].tolist() for table in others)
    assert "1 of 2" not in section.answer[0]


def test_every_format_shows_references_apart(make: Any, tmp_path: Path) -> None:
    document = report_of(written(make, tmp_path, {"erm": 0.3, "vrex": 0.4}))
    table = document.sections[0].tables[0]
    plain = plain_table(table).splitlines()
    (place,) = [
        number for number, line in enumerate(plain) if line.startswith("  blind guess (reference)")
    ]
    assert set(plain[place - 1].strip()) == {"-"}
    assert (
        "| *blind guess (reference)* | *50.0* | *50.0* | *50.0* | *50.0* | *0.0* |"
        in markdown_table(table)
    )
    latex = latex_table(table)
    assert "\\midrule\nblind guess (reference) & 50.0" in latex
    csv = pd.read_csv(pd.io.common.StringIO(csv_files(document)["measures.csv"]))
    assert csv["reference"].tolist() == [False, False, True]
    assert csv["worst_gap"].tolist()[-1] == 0.5
    assert csv["seeds"].tolist()[:2] == [2, 2]
    long = long_frame([(table, "s")])
    assert long.loc[long["reference"], "key"].unique().tolist() == ["algorithm=blind guess"]
    page = render_html(document)
    body, foot = page.split("<tfoot>")[:2]
    assert "blind guess (reference)" in foot.split("</tfoot>")[0]
    assert "blind guess (reference)" not in body.split("<tbody>")[-1]


def test_a_leader_below_chance_is_said_first(make: Any, tmp_path: Path) -> None:
    answer = report_of(written(make, tmp_path, {"erm": 0.6, "vrex": 0.7})).sections[0].answer
    assert (
        answer[0]
        == "erm leads by worst+gap and does no better than a blind guess: 60.5% against 50.0%."
    )
    assert answer[1].startswith("Decided: erm leads by worst+gap")


def test_a_leader_above_chance_needs_no_sentence(make: Any, tmp_path: Path) -> None:
    answer = report_of(written(make, tmp_path, {"erm": 0.3, "vrex": 0.4})).sections[0].answer
    assert answer[0].startswith("Decided: erm leads")


def test_a_leaderboard_says_chance_in_its_note_and_first_where_none_beats_it(
    make: Any, tmp_path: Path
) -> None:
    root = written(make, tmp_path, {"erm": 0.6, "vrex": 0.7})
    section = LeaderboardReport()(collect([root]), Last()).sections[0]
    first = (
        "erm leads by average accuracy and does no better than a blind guess: 39.5% against 50.0%."
    )
    assert section.answer[0] == first
    notes = " ".join(section.tables[0].notes)
    assert "A blind guess has an accuracy of 50.0% on sr_cmnist" in notes
    assert "blind guess" not in section.tables[0].frame["algorithm"].tolist()
    average = section.figures[0]
    assert ">blind guess<" in average.svg
    assert average.caption.endswith("Dashed: a blind guess.")


def test_far_from_all_results_it_stands_in_the_caption(make: Any, tmp_path: Path) -> None:
    root = written(make, tmp_path, {"erm": 0.01, "vrex": 0.02}, n_classes=10)
    section = LeaderboardReport()(collect([root]), Last()).sections[0]
    assert ">blind guess<" not in section.figures[0].svg
    assert section.figures[0].caption.endswith("A blind guess (10.0%) lies beyond the picture.")
    curves = report_of(root).sections[0].figures[0]
    assert ">blind guess<" not in curves.svg


def test_curves_show_both_references(make: Any, tmp_path: Path) -> None:
    root = written(
        make, tmp_path, {"erm": 0.4, "vrex": 0.6}, majority=lambda env: MAJORITY.get(env, ELSEWHERE)
    )
    _, figure = report_of(root).sections[0].figures
    assert ">blind guess<" in figure.svg
    assert ">most frequent class<" in figure.svg
    assert "a blind guess: 50.0%" in figure.caption


GUESS = {"blind guess": 0.5}
BOTH = {**GUESS, "most frequent class": 0.4}


@pytest.mark.parametrize(
    ("level", "references", "highest", "than"),
    [
        ({"a": 0.4, "b": 0.6}, GUESS, False, ""),
        ({"a": 0.5, "b": 0.6}, GUESS, False, "a blind guess: 50.0% against 50.0%"),
        ({"a": 0.45}, BOTH, False, "always saying the most frequent class: 45.0% against 40.0%"),
        (
            {"a": 0.6},
            BOTH,
            False,
            "a blind guess or always saying the most frequent class: 60.0% against 50.0% and 40.0%",
        ),
        ({"a": 0.4, "b": 0.3}, GUESS, True, "a blind guess: 40.0% against 50.0%"),
        ({"a": 0.6, "b": 0.3}, GUESS, True, ""),
        ({}, GUESS, False, ""),
        ({"a": 0.6}, {}, False, ""),
    ],
)
def test_what_is_said_of_a_leader(
    level: dict[str, float], references: dict[str, float], highest: bool, than: str
) -> None:
    sentence = f"a leads by m and does no better than {than}." if than else ""
    assert beaten(level, references, "m", highest) == sentence


def test_of_leaders_that_tie_all_are_named() -> None:
    sentence = beaten({"a": 0.6, "c": 0.9, "b": 0.6}, GUESS, "m")
    assert sentence == "a and b lead by m and do no better than a blind guess: 60.0% against 50.0%."


def test_the_end_of_a_training_and_of_a_sweep_name_them(make: Any, tmp_path: Path) -> None:
    root = written(
        make, tmp_path, {"erm": 0.3}, majority=lambda env: MAJORITY.get(env, ELSEWHERE), seeds=1
    )
    rows = [row for file in sorted(root.rglob(ROW_FILE)) for row in read_rows(file)[0]]
    text = study_table(rows, Last())
    assert (
        "blind guess (K = 2), for comparison: average 50.0, worst 50.0, gap 0.0, worst+gap "
        "50.0, ideal 50.0"
    ) in text
    assert (
        "most frequent class (K = 2), for comparison: average 37.5, worst 60.0, gap 40.0, "
        "worst+gap 80.0"
    ) in text
    table = sweep_table([path for path in root.iterdir() if path.is_dir()], Last())
    assert "blind guess (K = 2), for comparison: 50.0 by each measure, gap 0" in table


def test_an_imported_table_has_one_where_the_user_says_the_classes() -> None:
    lines = [
        {"algorithm": name, "seed": 0, "environment": env, "accuracy": accuracy}
        for name, accuracy in (("a", 40), ("b", 60))
        for env in "pqr"
    ]
    frame = pd.DataFrame(lines)
    unknown = MeasuresReport()(read_table(frame), Last()).sections[0].tables[0]
    assert "reference" not in unknown.frame
    known = MeasuresReport()(read_table(frame, classes=2), Last()).sections[0].tables[0]
    assert known.frame["average"].tolist() == pytest.approx([0.4, 0.6, 0.5])
    with pytest.raises(ConfigError, match=r"import\.classes=1 is no number of classes from 2 on"):
        read_table(frame, classes=1)
    means = frame.drop(columns="seed").assign(standard_error=1.0)
    assert "import.classes is not used" in " ".join(
        p.reason for p in read_table(means, classes=2).problems
    )
    two = pd.concat([frame.assign(dataset="x"), frame.assign(dataset="y")])
    with pytest.raises(
        ConfigError, match=r"import\.classes=2 is for one dataset, and the table holds x, y"
    ):
        read_table(two, classes=2)


def test_frames_carry_the_facts_and_hold_algorithms_alone(make: Any, tmp_path: Path) -> None:
    root = written(make, tmp_path, {"erm": 0.3}, majority=lambda env: MAJORITY.get(env, ELSEWHERE))
    frame = dgbench.results(root)
    assert set(frame["n_classes"]) == {2}
    of_tests = frame[(frame["subset"] == "test") & (frame["env"] == "0.80")]
    assert set(of_tests["majority_wrong"] / of_tests["seen"]) == {0.4}
    measures = dgbench.reports.measures(frame)
    assert measures["algorithm"].tolist() == ["erm"]
    (levels,) = measures.attrs["chance"].values()
    assert levels["most frequent class"]["worst_gap"] == pytest.approx(0.8)
    older = frame.drop(columns=["n_classes", "majority_wrong"])
    (by_name,) = dgbench.reports.measures(older).attrs["chance"].values()
    assert list(by_name) == ["blind guess"]


def test_archives_keep_the_counts_and_older_ones_stay_readable(make: Any, tmp_path: Path) -> None:
    root = written(
        make,
        tmp_path / "new",
        {"erm": 0.3},
        majority=lambda env: MAJORITY.get(env, ELSEWHERE),
        seeds=1,
    )
    write_packed(packed_runs(collect([root])), tmp_path / "rows.jsonl.xz")
    assert chance_in(tmp_path / "rows.jsonl.xz") == chance_in(root)
    old = written(make, tmp_path / "old", {"erm": 0.3}, n_classes=None, seeds=1)
    lines = packed_runs(collect([old]))
    assert all(
        "majority_wrong" not in line["rows"] and "n_classes" not in line["run"]["identity"]
        for line in lines
    )
    write_packed(lines, tmp_path / "old.jsonl.xz")
    assert chance_in(tmp_path / "old.jsonl.xz").by_name


@pytest.mark.parametrize("value", [-1, 1001, "many", True])
def test_an_impossible_count_drops_the_row(make: Any, tmp_path: Path, value: object) -> None:
    (row, *_) = make.run_rows(make.identity(n_classes=2), lambda e, s: 0.3)
    good = json.loads(replace(row, majority_wrong=500.0).to_json())
    lines = [
        json.dumps(line, separators=(",", ":"))
        for line in (good, {**good, "step": 7, "majority_wrong": value})
    ]
    (tmp_path / ROW_FILE).write_text("\n".join(lines) + "\n")
    rows, problems = read_rows(tmp_path / ROW_FILE)
    assert [row["majority_wrong"] for row in rows] == [500.0]
    assert "majority_wrong" in problems[0].reason
    assert DEFAULTS["n_classes"] is None
