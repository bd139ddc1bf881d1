"""``import=table``: what others trained gives the tables that the same runs give elsewhere."""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
import yaml
from openpyxl.worksheet.datavalidation import DataValidation
from scipy.stats import t

import dgbench
from dgbench import reports
from dgbench.analysis.selection import Last, TrainVal
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.names import our_name
from dgbench.records.run_identity import identity_keys
from dgbench.reports.evaluation import evaluate
from dgbench.reports.importers.columns import ALIASES
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.importers.table import read_table
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.leaderboards import leaderboards
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.ranking.stated import standing_answer
from dgbench.reports.ranking.tables import leaderboard_table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import select_runs
from tests.complaints import one_line, refused
from tests.conftest import ROOT

ENVIRONMENTS = ("art_painting", "cartoon", "photo", "sketch")


def frame_of(envs: tuple[str, ...] = ENVIRONMENTS, seeds: int = 3, **more: Any) -> pd.DataFrame:
    dice = np.random.default_rng(1)
    lines = [
        {
            "algorithm": name,
            "seed": seed,
            "environment": env,
            "accuracy": dice.integers(600, 900) / 1000,
            **more,
        }
        for name in ("ERM", "VREx")
        for seed in range(seeds)
        for env in envs
    ]
    return pd.DataFrame(lines)


def domainbed_folder(root: Path) -> pd.DataFrame:
    """A sweep of ERM and VREx on PACS: 3 trials, 2 steps; and the same accuracies as a table, line
    by line.
    """
    dice = np.random.default_rng(2)
    lines: list[dict[str, Any]] = []
    for name in ("ERM", "VREx"):
        for trial in range(3):
            for out in range(4):
                folder = root / f"{name}_{trial}_{out}"
                folder.mkdir(parents=True)
                args = {
                    "dataset": "PACS",
                    "algorithm": name,
                    "test_envs": [out],
                    "trial_seed": trial,
                }
                records = []
                for step in (0, 300):
                    values = {
                        f"env{i}_{part}_acc": float(dice.random())
                        for i in range(4)
                        for part in ("in", "out")
                    }
                    records.append(
                        json.dumps({"args": args, "hparams": {"lr": 0.1}, "step": step, **values})
                    )
                    for i, env in enumerate(ENVIRONMENTS):
                        run = {
                            "algorithm": name,
                            "seed": trial,
                            "held_out": ENVIRONMENTS[out],
                            "step": step,
                        }
                        of_in = "test" if i == out else "train"
                        for part, subset in (("in", of_in), ("out", "val")):
                            value = {
                                "environment": env,
                                "subset": subset,
                                "accuracy": values[f"env{i}_{part}_acc"],
                            }
                            lines.append({"dataset": "pacs", **run, **value, "hparams.lr": 0.1})
                (folder / "results.jsonl").write_text("\n".join(records) + "\n")
                (folder / "done").write_text("done")
    return pd.DataFrame(lines)


def numbers(collection: Collection, selection: Any) -> list[Any]:
    """Measures of every study and the leaderboard, without what the setting is called, and with
    our names of algorithms.
    """
    selected = select_runs(collection, selection)
    selected = replace(
        selected, runs=[replace(run, label=our_name(run.label)) for run in selected.runs]
    )
    selected.tests["algorithm"] = selected.tests["algorithm"].map(our_name)
    studies = evaluate(selected).studies[
        ["algorithm", "seed", "average", "worst", "gap", "worst_gap", "steps"]
    ]
    (board,) = leaderboards(selected)[0]
    return [studies.to_numpy().tolist(), leaderboard_table(board).frame.to_numpy().tolist()]


@pytest.mark.parametrize("selection", [Last(), TrainVal()], ids=["last", "train_val"])
def test_a_sweep_its_csv_and_its_frame_give_the_same_to_the_digit(
    tmp_path: Path, selection: Any
) -> None:
    frame = domainbed_folder(tmp_path / "sweep")
    expected = numbers(read_domainbed(tmp_path / "sweep"), selection)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True, double_precision=15)
    assert numbers(read_table(frame), selection) == expected
    for name in ("a.csv", "a.tsv", "a.parquet"):
        assert numbers(read_table(tmp_path / name), selection) == expected, name
    from_python = dgbench.results(tmp_path / "a.csv", selection=selection)
    board = reports.leaderboard(from_python)
    board["algorithm"] = board["algorithm"].map(our_name)
    assert board.to_numpy().tolist() == expected[1]
    assert evaluate(select_runs(read_table(tmp_path / "a.jsonl"), selection)).studies[
        "average"
    ].tolist() == (pytest.approx([line[2] for line in expected[0]], abs=1e-14))


def test_python_takes_such_a_frame() -> None:
    frame = frame_of().rename(
        columns={"environment": "domain", "algorithm": "Method", "accuracy": "test_acc"}
    )
    measures = dgbench.measures(frame)
    assert sorted(set(measures["label"])) == ["ERM", "VREx"] and len(measures) == 6
    lines = frame[(frame["Method"] == "ERM") & (frame["seed"] == 0)]
    assert measures["average"].iloc[0] == pytest.approx(1 - lines["test_acc"].mean())
    board = reports.leaderboard(frame)
    assert board["rank"].tolist() == [1, 2]
    said = [text for text in board.attrs["problems"] if "leave-one-out" in text or "domain" in text]
    assert (
        len(said) == 2
        and len([text for text in measures.attrs["problems"] if "leave-one-out" in text]) == 1
    )
    assert len(reports.certainty(frame)) == 2


def test_wide_and_long_are_the_same() -> None:
    frame = frame_of()
    wide = frame.pivot(
        index=["algorithm", "seed"], columns="environment", values="accuracy"
    ).reset_index()
    wide["Avg."] = wide[list(ENVIRONMENTS)].mean(axis=1).round(3)
    assert numbers(read_table(wide), Last()) == numbers(read_table(frame), Last())
    percent = wide.copy()
    percent[[*ENVIRONMENTS, "Avg."]] *= 100
    percent.loc[1, "Avg."] += 3
    read = read_table(percent)
    assert [p.reason for p in read.problems if p.kind == "average" and "line 2" in p.reason]
    assert reports.leaderboard(percent)["table"].tolist() == pytest.approx(
        reports.leaderboard(wide)["table"].tolist()
    )


def test_units_and_counts_are_told_apart() -> None:
    fractions = frame_of()
    percent = fractions.assign(accuracy=[f"{100 * value:.1f} %" for value in fractions["accuracy"]])
    error = fractions.assign(error=1 - fractions["accuracy"]).drop(columns="accuracy")
    wrong = fractions.assign(n=1000, wrong=1000 - (1000 * fractions["accuracy"]).round()).drop(
        columns="accuracy"
    )
    expected = dgbench.measures(fractions)["worst_gap"].tolist()
    for other in (percent, error, wrong):
        assert dgbench.measures(other)["worst_gap"].tolist() == pytest.approx(expected)
    assert set(read_table(wrong).rows["seen"]) == {1000}


def test_a_model_of_all_environments_gives_the_ideal() -> None:
    alone = frame_of().assign(role="held out")
    everywhere = frame_of((*ENVIRONMENTS, "clipart")).assign(role="everywhere")
    measures = dgbench.measures(pd.concat([alone, everywhere]))
    worst = everywhere.groupby(["algorithm", "seed"])["accuracy"].min()
    assert measures["ideal"].tolist() == pytest.approx((1 - worst).tolist())


def test_hyperparameters_draws_and_pairs() -> None:
    frame = pd.concat([frame_of().assign(**{"hparams.lr": lr}) for lr in (0.1, 0.2)])
    assert set(dgbench.measures(frame)["label"]) == {
        f"{a} (lr={lr})" for a in ("ERM", "VREx") for lr in (0.1, 0.2)
    }
    pairs = frame_of().assign(
        test_envs=["[art_painting, cartoon]", "cartoon+art_painting", "photo,sketch"] * 8
    )
    read = read_table(pairs[pairs["test_envs"].map(lambda t: True)].iloc[[0, 1, 2 + 12]])
    assert {run.identity["protocol"] for run in read.runs} <= {"pairs"}


#: what is typed, and what the one line must say
BAD: dict[str, tuple[Any, str]] = {
    "no algorithm": (lambda f: f.drop(columns="algorithm"), "import.columns.algorithm"),
    "no environment": (lambda f: f.drop(columns="environment"), "import.columns.environment"),
    "no result": (lambda f: f.drop(columns="accuracy"), "import.columns.accuracy"),
    "two results": (lambda f: f.assign(error=0.1), "accuracy and error"),
    "two names": (
        lambda f: f.rename(columns={"algorithm": "method"}).assign(algo="x"),
        "method and algo|algo and method",
    ),
    "trained on tested": (lambda f: f.assign(held_out="nowhere"), "trained on the environment"),
    "above 100": (lambda f: f.assign(accuracy=f["accuracy"] * 1000), "above 100.*correct"),
    "below 0": (lambda f: f.assign(accuracy=-f["accuracy"]), "below 0"),
    "mixed units": (lambda f: f.assign(accuracy=[80.0, *f["accuracy"][1:]]), "import.unit=percent"),
    "no number": (lambda f: f.assign(accuracy=["good", *f["accuracy"][1:]]), "good.*line 1"),
    "infinite": (lambda f: f.assign(accuracy=[np.inf, *f["accuracy"][1:]]), "not finite"),
    "only NaN": (lambda f: f.assign(accuracy=np.nan), "no value"),
    "contradiction": (
        lambda f: pd.concat([f, f.assign(accuracy=0.5)], ignore_index=True),
        "line 25.*another value",
    ),
    "seed": (lambda f: f.assign(seed="a"), "seed.*whole number|no number"),
    "unnamed algorithm": (lambda f: f.assign(algorithm=[None, *f["algorithm"][1:]]), "line 1"),
    "role": (lambda f: f.assign(role="train"), "held out, everywhere or in distribution"),
    "subset": (lambda f: f.assign(subset="id_test"), "train, val, test"),
    "same name": (lambda f: pd.concat([f, f[["seed"]]], axis=1), "two columns seed"),
    "domainbed": (lambda f: f.assign(env0_in_acc=0.5), "import=domainbed"),
    "empty": (lambda f: f.iloc[:0], "no line"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_table_is_refused_in_one_line(what: str) -> None:
    make, said = BAD[what]
    with refused(said, (RecordError, ConfigError)):  # type: ignore[arg-type]
        read_table(make(frame_of()))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"columns": {"environment": "nowhere"}}, "import.columns.environment=nowhere"),
        ({"columns": {"place": "domain"}}, "import.columns.place"),
        ({"unit": "points"}, "import.unit=points"),
        ({"unit": "percent", "columns": {"accuracy": ["a"]}}, "import.columns.accuracy"),
        ({"values": "loss"}, "import.values=loss"),
        ({"bar": "sem"}, "import.bar=sem"),
        ({"seeds": 1}, "import.seeds=1"),
        ({"algorithm": "ERM"}, "import.algorithm=ERM"),
    ],
)
def test_wrong_keys_are_named(keys: dict[str, Any], said: str) -> None:
    with refused(said):
        read_table(frame_of(), **keys)


def test_bad_files_are_refused_in_one_line(tmp_path: Path) -> None:
    ragged = "algorithm,seed,env,acc\nerm,0,a,0.5\nerm,0,b,0.5,7,8\n"
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "nothing").mkdir()
    contents = {
        "ragged.csv": ragged,
        "empty.csv": "",
        "cut.jsonl": '{"a": 1}\n{"a"',
        "x.parquet": "PAR",
        "x.log": "1",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    for name in (*contents, "pipe.csv", "nothing", "absent.csv"):
        with pytest.raises(RecordError) as caught:
            read_table(tmp_path / name)
        one_line(str(caught.value), name.replace(".", r"\."))
    with refused("import.path", RecordError):
        read_table(None)
    domainbed_folder(tmp_path / "sweep")
    with refused("import=domainbed", RecordError):
        read_table(tmp_path / "sweep")


def test_odd_files_are_read(tmp_path: Path) -> None:
    expected = dgbench.measures(frame_of())["worst_gap"].tolist()
    frame = frame_of().rename(columns={"environment": "Domäne"})
    frame.to_csv(tmp_path / "latin.csv", index=False, encoding="latin-1")
    frame.assign(accuracy=frame["accuracy"].map(lambda v: f"{v:.3f}".replace(".", ","))).to_csv(
        tmp_path / "german.csv", sep=";", encoding="utf-8-sig"
    )
    for name in ("latin.csv", "german.csv"):
        read = read_table(tmp_path / name, columns={"environment": "Domäne"})
        assert evaluate(select_runs(read, Last())).studies["worst_gap"].tolist() == pytest.approx(
            expected
        ), name
    (tmp_path / "parts").mkdir()
    frame_of()[:12].to_csv(tmp_path / "parts" / "a.csv", index=False)
    frame_of()[12:].to_json(tmp_path / "parts" / "b.jsonl", orient="records", lines=True)
    assert dgbench.measures(
        dgbench.results([tmp_path / "parts" / "a.csv", tmp_path / "parts" / "b.jsonl"])
    )["worst_gap"].tolist() == pytest.approx(expected)
    assert len(read_table(tmp_path / "parts").runs) == 24


def test_results_of_one_algorithm_need_no_column_of_it() -> None:
    """As WILDS writes them: a file for each model, which says nothing of the algorithm."""
    one = frame_of()[lambda lines: lines["algorithm"] == "ERM"]
    read = read_table(one.drop(columns="algorithm"), algorithm="ERM")
    assert numbers(read, Last()) == numbers(read_table(one), Last())


def test_assumptions_are_no_problems() -> None:
    def lead(frame: pd.DataFrame) -> str:
        return LeaderboardReport()(read_table(frame), Last()).lead[-1]

    whole = frame_of()
    assert lead(whole).startswith("4 assumptions,")
    assert lead(pd.concat([whole, whole[:1]])).startswith("1 problem and 4 assumptions,")


def test_exports_of_trackers() -> None:
    frame = frame_of()
    mlflow = pd.DataFrame(
        {
            "run_id": range(24),
            "status": ["FINISHED"] * 23 + ["FAILED"],
            "metrics.test_acc": frame["accuracy"],
            "params.algorithm": frame["algorithm"],
            "params.seed": frame["seed"].astype(str),
            "params.test_env": frame["environment"],
        }
    )
    wandb = frame.rename(columns={"environment": "test_env", "accuracy": "summary/test_acc"})
    wandb = wandb.assign(Name="x", State="finished", Runtime=12)
    domainlab = frame.rename(
        columns={"environment": "te_d", "accuracy": "acc", "algorithm": "algo"}
    )
    domainlab = domainlab.assign(param_index=0, epos=20, precision=0.5, acc_val=0.1)
    for table in (wandb, domainlab):
        assert numbers(read_table(table), Last()) == numbers(read_table(frame), Last())
    runs = read_table(mlflow).runs
    assert [bool(run.unusable) for run in runs] == [False] * 23 + [True]


PAPER = """Method,A,C,P,S,Avg
ERM,84.7 ± 0.4,80.8 ± 0.6,97.2 (0.3),79.3 ± 1.0,85.5
IRM,84.8 ± 1.3,76.4 ± 1.1,96.7 ± 0.6,76.1 ± 1.0,83.5
CORAL,\\textbf{88.3} $\\pm$ 0.2,80.0 +/- 0.5,97.5 ± 0.3,78.8 ± 1.3,86.2
"""


def test_a_table_of_a_paper_gives_a_leaderboard_and_a_verdict(tmp_path: Path, command: Any) -> None:
    (tmp_path / "paper.csv").write_text(PAPER)
    board = reports.leaderboard(pd.read_csv(tmp_path / "paper.csv"))
    assert board["algorithm"].tolist() == ["CORAL", "ERM", "IRM"] and board["rank"].tolist() == [
        1,
        2,
        3,
    ]
    assert board["average.std"].iloc[0] == pytest.approx(
        np.sqrt(0.2**2 + 0.5**2 + 0.3**2 + 1.3**2) / 400
    )
    assert (board["P"].iloc[1], board["P.std"].iloc[1]) == (
        pytest.approx(0.972),
        pytest.approx(0.003),
    )
    words = ["import=table", "import.path=paper.csv", "import.seeds=3"]
    ended = command("report.py", *words, "report=leaderboard", "output=page", cwd=tmp_path)
    assert ended.code == 0 and (tmp_path / "page" / "leaderboard.csv").exists()
    assert "3 seeds cannot separate CORAL from ERM" in ended.out and "80% power" in ended.out
    ended = command("report.py", *words, "report=power", "output=power", cwd=tmp_path)
    assert ended.code == 0 and "over 3 seeds" in ended.out
    for report in ("measures", "curves", "hparams"):
        ended = command("report.py", *words, f"report={report}", cwd=tmp_path)
        assert ended.code == 1
        one_line(*ended.complaints, "paper.csv.*report=leaderboard")
    with refused("report=leaderboard", RecordError):
        dgbench.measures(pd.read_csv(tmp_path / "paper.csv"))


def test_printed_errors_decide_as_welch_does() -> None:
    """Two algorithms over two columns: decided exactly where the printed interval excludes 0.

    Four variances of 2 degrees of freedom each, all equal: Satterthwaite gives 8 for the
    difference.
    """
    deviation = 0.6 * np.sqrt(3)
    half = t.ppf(0.975, 8) * deviation * np.sqrt(4 / 3) / 2
    for apart in (0.5, 1.1, 1.5, 2.5, 4.0, 9.0):
        lines = [("a", "80 ± 0.6", "80 ± 0.6"), ("b", f"{80 + apart} ± 0.6", f"{80 + apart} ± 0.6")]
        (paper,) = read_table(
            pd.DataFrame(lines, columns=["algorithm", "x", "y"]), seeds=3
        ).published
        head, numbers = standing_answer(paper)[:2]
        assert head.startswith("Decided") == (apart > half)
        ends = f"([{apart - half:.1f}, {apart + half:.1f}], 95% interval)"
        assert ends.replace("-0.0", "0.0") in numbers.replace("-0.0", "0.0")


def test_a_table_of_means_stands_beside_ours(tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text(PAPER.replace("A,C,P,S", ",".join(ENVIRONMENTS)))
    document = LeaderboardReport(published=[str(tmp_path / "paper.csv")])(
        read_table(frame_of()), Last()
    )
    (beside,) = [
        table
        for section in document.sections
        for table in section.tables
        if "theirs" in str(table.columns)
    ]
    assert [column.name for column in beside.columns][1] == "art_painting ours"
    frame_of().to_csv(tmp_path / "runs.csv", index=False)
    with refused("import=table"):
        LeaderboardReport(published=[str(tmp_path / "runs.csv")])(read_table(frame_of()), Last())


def test_columns_are_named_on_the_command_line(tmp_path: Path, command: Any) -> None:
    frame = frame_of().rename(columns={"environment": "place"}).assign(lr=0.1, run=7)
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["report.py", "import=table", "import.path=a.csv", "report=leaderboard", "output=page"]
    ended = command(*words, cwd=tmp_path)
    one_line(*ended.complaints, "import.columns.environment=COLUMN")
    ended = command(
        *words, "import.columns.environment=place", "import.columns.hparams={lr: lr}", cwd=tmp_path
    )
    assert ended.code == 0, ended.err
    assert set(conf_columns()) == {*ALIASES, "hparams"}


def conf_columns() -> dict[str, Any]:
    named: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "import" / "table.yaml").read_text())[
        "columns"
    ]
    return named


DRAWN = """+-----------+-------+---------+--------+
| Selection | photo | cartoon | Avg.   |
+-----------+-------+---------+--------+
| SWAD      | 97.3% | 0.4%    | 48.85% |
+-----------+-------+---------+--------+
"""


@pytest.mark.parametrize("text", [DRAWN, DRAWN.replace("+", "|"), f"# of SWAD\n\n{DRAWN}"])
def test_drawn_tables_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.txt").write_text(text)
    rows = read_table(tmp_path / "log.txt", columns={"algorithm": "Selection"}).rows
    assert rows["accuracy"].tolist() == pytest.approx([0.973, 0.004])


def test_a_column_of_another_kind_is_named() -> None:
    wide = (
        frame_of()
        .pivot(index=["algorithm", "seed"], columns="environment", values="accuracy")
        .reset_index()
    )
    with refused("Runtime.*import.columns.environment", RecordError):
        read_table(wide.assign(Runtime=5123))
    assert (
        len(read_table(wide.assign(Runtime=5123), {"environment": list(ENVIRONMENTS)}).runs) == 24
    )
    with refused("test_envs|not one environment", RecordError):
        read_table(
            frame_of().rename(columns={"environment": "test_envs"}).assign(test_envs="[0, 1]")
        )


def test_gaps_and_repetitions_are_named() -> None:
    frame = frame_of()
    frame.loc[3, "accuracy"] = np.nan
    read = read_table(pd.concat([frame, frame[:2]], ignore_index=True))
    left_out = [problem.reason for problem in read.problems if problem.kind == "lines left out"]
    assert len(left_out) == 2 and len(read.runs) == 23
    studies = evaluate(select_runs(read, Last())).studies
    assert studies["average"].isna().tolist() == [True] + [False] * 5


@pytest.mark.parametrize("kind", ["accuracy", "error"])
def test_numbers_of_images_that_weigh_nothing_are_said_to(kind: str) -> None:
    """Only where they could: not beside equal numbers, and the averages stay as they are."""

    def read(images: list[int] | None) -> tuple[list[str], list[float]]:
        frame = frame_of().rename(columns={"accuracy": kind})
        if images:
            frame["images"] = frame["environment"].map(dict(zip(ENVIRONMENTS, images, strict=True)))
        table = read_table(frame)
        said = [problem.reason for problem in table.problems if "weight" in problem.reason]
        return said, evaluate(select_runs(table, Last())).studies["average"].tolist()

    said, averages = read([100, 900, 50, 10])
    assert said == [
        "images (images) is not used as a weight: averages weigh environments the same; a measure "
        "of class WeightedAverage weighs them"
    ]
    assert read([100] * 4) == read(None) == ([], pytest.approx(averages))


def test_one_seed_separates_nothing() -> None:
    frame = frame_of(seeds=1).drop(columns="seed")
    assert not reports.leaderboard(frame)["table.best"].any()


def calls_to_read(file: Path, steps: int) -> int:
    """Write 24 lines for each step, read them, and count the calls of functions."""
    lines = frame_of()
    table = pd.concat([lines] * steps, ignore_index=True)
    table["step"] = np.repeat(np.arange(steps), len(lines))
    table.to_csv(file, index=False)
    profile = cProfile.Profile()
    rows = profile.runcall(read_table, file).rows
    assert len(rows) == 24 * steps
    return pstats.Stats(profile).total_calls


@pytest.mark.thorough
def test_a_line_more_costs_a_few_calls(tmp_path: Path) -> None:
    """So that a million lines take seconds; a loop over lines of pandas makes hundreds."""
    few, many = (calls_to_read(tmp_path / "a.csv", steps) for steps in (100, 1100))
    assert many - few < 25 * 24 * 1000


def test_long_cells_are_read_in_linear_time_and_are_no_numbers(tmp_path: Path) -> None:
    """100,000 digits: a pattern that could part them in two ways would take hours."""
    file = tmp_path / "long.csv"
    file.write_text(f"algorithm,environment,accuracy\nerm,a,0.5\nerm,b,{'1' * 100_000}x\n")
    with pytest.raises(RecordError, match=r"accuracy is .* in line 3"):
        read_table(file)


NA_TABLE = pd.DataFrame({"algorithm": "erm", "environment": ["NA", "EU"], "accuracy": [0.5, 0.6]})
WRITERS: dict[str, Any] = {
    "csv": lambda file: NA_TABLE.to_csv(file, index=False),
    "tsv": lambda file: NA_TABLE.to_csv(file, index=False, sep="\t"),
    "jsonl": lambda file: NA_TABLE.to_json(file, orient="records", lines=True),
    "parquet": lambda file: NA_TABLE.to_parquet(file),
    "xlsx": lambda file: NA_TABLE.to_excel(file, index=False),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_an_environment_may_be_called_na(kind: str, tmp_path: Path) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    file = tmp_path / f"regions.{kind}"
    WRITERS[kind](file)
    collection = read_table(file)
    assert set(collection.rows["env"]) == {"NA", "EU"}


STYLES = "xl/styles.xml"  # in the archive that a workbook is
NO_STYLES = b'<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"/>'


@pytest.mark.parametrize("form", ["checks", "styles gone", "styles empty"])
def test_a_workbook_of_which_openpyxl_warns_is_read(form: str, tmp_path: Path) -> None:
    """Checks of its cells, which are not kept; no stylesheet, or one without a style, as other
    programs write it.
    """
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (("algorithm", "environment", "accuracy"), ("erm", "a", 0.5), ("erm", "b", 0.6)):
        sheet.append(row)
    check = DataValidation(type="list", formula1='"erm,irm"')
    sheet.add_data_validation(check)
    check.add("A2:A9")
    file = tmp_path / "sheet.xlsx"
    book.save(file)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    if form == "styles gone":
        del parts[STYLES]
    elif form == "styles empty":
        parts[STYLES] = NO_STYLES
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    if form == "styles empty":
        with pytest.warns(UserWarning, match="no (default style|stylesheet)"):
            pd.read_excel(file)
    collection = read_table(file)
    assert dict(zip(collection.rows["env"], collection.rows["accuracy"], strict=True)) == {
        "a": 0.5,
        "b": 0.6,
    }


@pytest.mark.parametrize("kind", ["parquet", "zip", "far"])
def test_a_file_that_would_fill_the_memory_is_refused(kind: str, tmp_path: Path) -> None:
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        file = tmp_path / "bomb.parquet"
        n = 20_000_000
        table = pyarrow.table({"accuracy": np.zeros(n), "algorithm": np.zeros(n, np.int8)})
        parquet.write_table(table, file, compression="zstd")
    elif kind == "zip":
        file = tmp_path / "bomb.xlsx"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("xl/worksheets/sheet1.xml", b" " * 100_000_000)
    else:
        book = openpyxl.Workbook()
        book.active["A1"] = "algorithm"
        book.active["XFD50000"] = 1
        file = tmp_path / "far.xlsx"
        book.save(file)
    with pytest.raises(RecordError, match=f"{file.name} (expands to more|has a sheet of more)"):
        read_table(file)


def test_many_environments_share_what_they_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one table share one list of environments, and its text is formatted once; nothing
    warns.
    """
    names = [f"e{number}" for number in range(150)]
    lines = []
    for algorithm in ("erm", "vrex"):
        for seed in (0, 1):
            values = {
                name: 50 + len(algorithm) + seed + 0.1 * place for place, name in enumerate(names)
            }
            lines.append({"algorithm": algorithm, "seed": seed, **values})
    collection = read_table(pd.DataFrame(lines))
    assert len(collection.runs) == 4 * len(names)
    assert len({id(run.identity["given"]) for run in collection.runs}) == 1
    formatted = []
    dumps = json.dumps
    monkeypatch.setattr(
        json, "dumps", lambda value, **more: formatted.append(value) or dumps(value, **more)
    )
    keys_of_runs = identity_keys(
        [run.identity for run in collection.runs], ["dataset", "given", "seed"]
    )
    assert (len(set(keys_of_runs)), sum(value == names for value in formatted)) == (2, 1)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document = MeasuresReport()(collection, Last())
    (table,) = [table for table in document.sections[0].tables if table.name == "held_out_errors"]
    assert [name for name in names if name not in table.frame.columns] == []
