"""A synthetic DomainBed sweep, imported, against a straight re-computation of DomainBed's tables.

The re-computation below follows the words of the specification, record by record, and shares no
code with dgbench.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgbench.analysis.selection import LooVal, Oracle, TrainVal
from dgbench.errors import RecordError
from dgbench.reports.evaluation import evaluate
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.ranking.leaderboards import leaderboards
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.tables import Cell, Table

Record = dict[str, Any]
ENVIRONMENTS = 4
STEPS = (0, 300, 600)
ALGORITHMS = {"ERM": "erm", "VREx": "vrex"}


def record(step: int, accuracies: list[float], **args: Any) -> Record:
    """One line of results.jsonl; accuracies are in, out of environment 0, in, out of environment 1,
    ...
    """
    keys = [f"env{i}_{part}_acc" for i in range(len(accuracies) // 2) for part in ("in", "out")]
    base = {
        "dataset": "PACS",
        "algorithm": "ERM",
        "test_envs": [0],
        "hparams_seed": 0,
        "trial_seed": 0,
        "seed": 5,
    }
    return {"args": {**base, **args}, "hparams": {"lr": 1e-4 * (1 + args.get("hparams_seed", 0))},
        "step": step,
            "epoch": step / 10, "loss": 0.5,
            **dict(zip(keys, accuracies, strict=True))}  # fmt: skip


def write_run(folder: Path, records: list[Record], done: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text(
        "".join(json.dumps(line, sort_keys=True) + "\n" for line in records)
    )
    if done:
        (folder / "done").write_text("done")
    return folder


def make_sweep(root: Path, datasets: tuple[str, ...] = ("PACS", "VLCS")) -> list[Record]:
    """3 trials x 3 draws x all single and pair test sets, with coarse accuracies (many ties), NaN
    and missing runs.
    """
    dice = random.Random(7)
    records = []
    sets = [[e] for e in range(ENVIRONMENTS)] + [
        list(pair) for pair in combinations(range(ENVIRONMENTS), 2)
    ]
    for dataset in datasets:
        for algorithm in ALGORITHMS:
            for trial in range(3):
                for draw in range(3):
                    for planned in sets:
                        test_envs = sorted(planned)
                        if (dataset, algorithm, trial, draw, test_envs) in MISSING:
                            continue
                        run = []
                        # their order does not matter
                        written = dice.sample(test_envs, len(test_envs))
                        for step in STEPS:
                            values = [
                                dice.randint(3, 9) / 10 + 0.003 for _ in range(2 * ENVIRONMENTS)
                            ]
                            if (trial, draw, test_envs) == (1, 2, [0]) and step > 0:
                                # training env 1, out: its mean over environments is NaN
                                values[3] = math.nan
                            if (trial, draw, test_envs) == (2, 1, [1]):
                                # held-out env 1, out: the oracle's accuracy is NaN
                                values[3] = math.nan
                            if (trial, draw, test_envs) == (0, 0, [2, 3]) and step == 600:
                                continue  # a pair that lacks a step
                            run.append(record(step, values, dataset=dataset, algorithm=algorithm,
                                    trial_seed=trial,
                                              hparams_seed=draw, test_envs=written))  # fmt: skip
                        write_run(root / f"{len(records):05d}_{dice.random():.6f}", run)
                        records += run
    return records


MISSING = [("PACS", "VREx", 0, 1, [2]), ("PACS", "VREx", 0, 1, [0, 3])]
MISSING += [("VLCS", "VREx", 2, draw, [3]) for draw in range(3)]
MISSING += [("PACS", "ERM", 1, draw, [1, 2]) for draw in range(3)]


# ---- the specification, section 8, in plain Python ----


def train_val(records: list[Record], e: int) -> tuple[float, float] | None:
    single = [r for r in records if r["args"]["test_envs"] == [e]]
    best = None
    for r in single:
        values = [r[f"env{i}_out_acc"] for i in range(ENVIRONMENTS) if i != e]
        val = float(np.mean(values))
        if best is None or val > best[0]:
            best = (val, r[f"env{e}_in_acc"])
    return best


def loo_val(records: list[Record], e: int) -> tuple[float, float] | None:
    best = None
    for step in sorted({r["step"] for r in records}):
        here = [r for r in records if r["step"] == step]
        single = [r for r in here if r["args"]["test_envs"] == [e]]
        values = []
        for v in range(ENVIRONMENTS):
            pair = [r for r in here if set(r["args"]["test_envs"]) == {e, v} and v != e]
            values += [r[f"env{v}_in_acc"] for r in pair]
        if len(single) == 1 and len(values) == ENVIRONMENTS - 1:
            val = float(np.sum(values)) / (ENVIRONMENTS - 1)
            if best is None or val > best[0]:
                best = (val, single[0][f"env{e}_in_acc"])
    return best


def oracle(records: list[Record], e: int) -> tuple[float, float] | None:
    single = sorted((r for r in records if r["args"]["test_envs"] == [e]), key=lambda r: r["step"])
    return (single[-1][f"env{e}_out_acc"], single[-1][f"env{e}_in_acc"]) if single else None


Way = Callable[[list[Record], int], tuple[float, float] | None]


def sweep_accuracy(records: list[Record], e: int, way: Way) -> float | None:
    """Runs by hparams_seed, ascending stable sort by validation accuracy with NaN lowest, reversed:
    the first.
    """
    runs = []
    for draw in sorted({r["args"]["hparams_seed"] for r in records}):
        found = way([r for r in records if r["args"]["hparams_seed"] == draw], e)
        if found is not None:
            runs.append(found)
    ordered = sorted(runs, key=lambda run: -math.inf if math.isnan(run[0]) else run[0])[::-1]
    return ordered[0][1] if ordered else None


def accuracies(
    records: list[Record], dataset: str, algorithm: str, way: Way
) -> dict[int, dict[int, float]]:
    """trial -> environment -> the accuracy that the search reports."""
    table: dict[int, dict[int, float]] = {}
    mine = [
        r for r in records if (r["args"]["dataset"], r["args"]["algorithm"]) == (dataset, algorithm)
    ]
    for trial in range(3):
        for e in range(ENVIRONMENTS):
            group = [
                r for r in mine if r["args"]["trial_seed"] == trial and e in r["args"]["test_envs"]
            ]
            found = sweep_accuracy(group, e, way)
            if found is not None:
                table.setdefault(trial, {})[e] = found
    return table


def printed(values: list[float]) -> tuple[float, float]:
    """Mean over trials of 100 x accuracy, and population standard deviation / sqrt(trials)."""
    return 100 * float(np.mean(values)), 100 * float(np.std(values)) / math.sqrt(len(values))


# ---- the tests ----


def row(table: Table, algorithm: str) -> list[Cell]:
    (line,) = (line for line in table.cells if line[0].value == algorithm)
    return line


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    root = tmp_path_factory.mktemp("sweep")
    return root, make_sweep(root)


WAYS = [(TrainVal(), train_val), (LooVal(), loo_val), (Oracle(), oracle)]


@pytest.mark.thorough
@pytest.mark.parametrize(("selection", "way"), WAYS, ids=[selection.name for selection, _ in WAYS])
def test_every_search_reports_what_domainbed_reports(sweep: Any, selection: Any, way: Way) -> None:
    root, records = sweep
    collection = read_domainbed(root)
    found, _ = leaderboards(select_runs(collection, selection))
    (board,) = [board for board in found if board.identity["protocol"] == "loo"]
    ours = {dataset.identity["dataset"]: dataset for dataset in board.datasets}
    compared = 0
    for name, dataset in (("PACS", ours["pacs"]), ("VLCS", ours["vlcs"])):
        for algorithm, label in ALGORITHMS.items():
            theirs = accuracies(records, name, algorithm, way)
            lines = dataset.accuracies
            known = lines[(lines["algorithm"] == label) & lines["accuracy"].notna()]
            mine: dict[int, dict[int, float]] = {}
            for trial, env, value in zip(
                known["seed"], known["env"], known["accuracy"], strict=True
            ):
                mine.setdefault(trial, {})[dataset.environments.index(env)] = value
            assert mine == theirs  # exactly, not approximately
            compared += sum(map(len, theirs.values()))
    assert compared > 40


@pytest.mark.thorough
@pytest.mark.parametrize(("selection", "way"), WAYS, ids=[selection.name for selection, _ in WAYS])
def test_tables_equal_domainbeds(sweep: Any, selection: Any, way: Way) -> None:
    """Cells: mean ± population std / sqrt(trials).

    Averages: per trial first. ERM is whole but for loo_val on PACS.
    """
    root, records = sweep
    document = LeaderboardReport()(read_domainbed(root), selection)
    section = next(s for s in document.sections if s.title.endswith("loo"))
    tables = {table.name: table for table in section.tables}
    for dataset, title in (("PACS", "dataset_pacs"), ("VLCS", "dataset_vlcs")):
        line = row(tables[title], "erm")
        theirs = accuracies(records, dataset, "ERM", way)
        means = []
        for e in range(ENVIRONMENTS):
            values = [theirs[trial][e] for trial in theirs if e in theirs[trial]]
            mean, error = printed(values)
            means.append(mean)
            cell = line[1 + e]
            assert cell.n == len(values)
            assert 100 * float(cell.value) == pytest.approx(mean, abs=1e-9)  # type: ignore[arg-type]
            assert 100 * cell.std == pytest.approx(error, abs=1e-9)  # type: ignore[operator]
        average = line[1 + ENVIRONMENTS].value
        assert 100 * float(average) == pytest.approx(sum(means) / ENVIRONMENTS, abs=1e-9)  # type: ignore[arg-type]
    of_erm = row(tables["leaderboard"], "erm")
    for place, dataset in enumerate(("PACS", "VLCS"), start=3):
        theirs = accuracies(records, dataset, "ERM", way)
        whole = [found for found in theirs.values() if len(found) == ENVIRONMENTS]
        mean, error = printed([float(np.mean(list(found.values()))) for found in whole])
        assert 100 * float(of_erm[place].value) == pytest.approx(mean, abs=1e-9)  # type: ignore[arg-type]
        assert 100 * of_erm[place].std == pytest.approx(error, abs=1e-9)  # type: ignore[operator]


def test_missing_runs_are_named_with_the_fix(sweep: Any) -> None:
    root, _ = sweep
    document = LeaderboardReport()(read_domainbed(root), TrainVal())
    board = next(s for s in document.sections if s.title.endswith("loo")).tables[0]
    assert row(board, "vrex")[4].flag == "(n=2)"
    problems = document.problems.frame
    (why,) = problems.loc[problems["where"].str.contains("vlcs, vrex seed 2"), "reason"]
    assert "VOC2007" in why
    assert not problems["reason"].str.contains("train.py").any()


def test_measures_of_an_imported_sweep(sweep: Any) -> None:
    """worst+gap of ERM's chosen draws; no model of all environments, so no ideal,
    with the reason.
    """
    root, records = sweep
    collection = read_domainbed(root)
    evaluation = evaluate(select_runs(collection, TrainVal()))
    (pacs,) = (setting for setting in evaluation.settings if setting.identity["dataset"] == "pacs")
    studies = evaluation.of(pacs.title).studies.set_index(["algorithm", "seed"])
    study = studies.loc[("erm", 0)]
    errors = [1 - value for value in accuracies(records, "PACS", "ERM", train_val)[0].values()]
    assert study["worst_gap"] == pytest.approx(max(errors) + (max(errors) - min(errors)) / 2)
    assert math.isnan(study["ideal"])
    assert study["ideal.reason"]
    assert {problem.kind for problem in evaluation.problems} == {"pair runs", "missing folds"}


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    lines = [record(step, [0.5] * 6) for step in (0, 100)]
    folder = write_run(tmp_path / "a", lines)
    with open(folder / "results.jsonl", "a") as handle:
        handle.write(json.dumps(record(100, [0.6] * 6)) + "\n")
        handle.write(json.dumps(record(200, [0.6] * 6, trial_seed=1)) + "\n")
        handle.write(
            json.dumps({k: v for k, v in record(300, [0.6] * 6).items() if k != "env2_out_acc"})
            + "\n"
        )
        handle.write('{"args": {"data')
    write_run(tmp_path / "b", lines)
    write_run(tmp_path / "c", [record(0, [0.5] * 6, hparams_seed=1)], done=False)
    write_run(tmp_path / "d", [])
    found = read_domainbed(tmp_path)
    assert sorted((p.kind, Path(p.where).name) for p in found.problems) == [
        ("dropped line", "results.jsonl:4"), ("dropped line", "results.jsonl:5"),
        ("dropped line", "results.jsonl:6"),
        ("duplicate", "b"), ("no done marker", "c"), ("repeated records", "results.jsonl"),
        ("run without records", "d"),
    ]  # fmt: skip
    assert [run.unusable for run in found.runs] == [
        "",
        "unfinished (status UNKNOWN), last row at step 0",
    ]
    assert (
        found.rows["accuracy"].tolist()[6:12] == [0.6] * 6
    )  # the later of two records of step 100
    assert [run.unusable for run in read_domainbed(tmp_path, require_done=False).runs] == ["", ""]


def test_subsets_keep_domainbeds_meaning(tmp_path: Path) -> None:
    """Environment 1 is held out: its in part is reported (test), its out part is the oracle's
    (val).
    """
    write_run(
        tmp_path / "a", [record(0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], test_envs=[1], dataset="Own")]
    )
    rows = read_domainbed(tmp_path).rows
    assert rows[["env", "subset", "env_held_out", "accuracy"]].to_numpy().tolist() == [
        ["env0", "train", False, 0.1], ["env0", "val", False, 0.2], ["env1", "test", True, 0.3],
        ["env1", "val", True, 0.4], ["env2", "train", False, 0.5], ["env2", "val", False, 0.6],
    ]  # fmt: skip


def test_validation_environments_are_held_out_too(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [record(0, [0.5] * 6, test_envs=[2], val_envs=[1], dataset="Own")])
    identity = read_domainbed(tmp_path).runs[0].identity
    assert (identity["held_out"], identity["protocol"], identity["fold"]) == (
        ["env1", "env2"],
        "multi_test",
        "1-2",
    )


def second_training(step: int, accuracies: list[float], **args: Any) -> Record:
    """What train_autolr.py appends when it trains again, on all images: no out part, keys of their
    own.
    """
    line = record(step, [], **{**args, "auto_lr": True, "holdout_fraction": 0.0})
    return {
        **line,
        "lr": 5e-5,
        **{f"fd_env{i}_in_acc": value for i, value in enumerate(accuracies)},
    }


def auto_lr_sweep(root: Path) -> list[list[Record]]:
    """2 trials x 3 draws x 4 test environments of ERM++; both trainings end where their learning
    rate says.
    """
    dice, runs = random.Random(3), []
    for trial in range(2):
        for draw in range(3):
            for env in range(ENVIRONMENTS):
                args: Any = {
                    "algorithm": "ERMPlusPlus",
                    "trial_seed": trial,
                    "hparams_seed": draw,
                    "test_envs": [env],
                }
                first = range(0, 300 * dice.randint(2, 5), 300)
                args |= {"auto_lr": True, "holdout_fraction": 0.2}
                run = [
                    {**record(step, [dice.random() for _ in range(8)], **args), "lr": 5e-5}
                    for step in first
                ]
                run += [
                    second_training(step, [dice.random() for _ in range(4)], **args)
                    for step in first[:-1]
                ]
                runs.append(run)
                write_run(root / f"{trial}{draw}{env}", run)
    return runs


def merged(run: list[Record]) -> Record:
    """``collect_results --auto_lr`` makes one record of a run: a key has the value of the last line
    that has it.
    """
    return {key: value for line in run for key, value in line.items()}


def test_the_second_training_of_train_autolr_is_the_result(tmp_path: Path) -> None:
    """Of three draws the one counts whose first training ended with the best validation
    accuracy.
    """
    runs = auto_lr_sweep(tmp_path)
    collection = read_domainbed(tmp_path)
    assert collection.problems == []
    assert [run.last_step for run in collection.runs] == [run[-1]["step"] for run in runs]
    (board,), _ = leaderboards(select_runs(collection, TrainVal()))
    (dataset,) = board.datasets
    for trial, env, value in zip(
        *(dataset.accuracies[key] for key in ("seed", "env", "accuracy")), strict=True
    ):
        test = dataset.environments.index(env)
        draws = [merged(run) for run in runs if merged(run)["args"]["test_envs"] == [test]]
        vals = {
            float(
                np.mean([draw[f"env{i}_out_acc"] for i in range(ENVIRONMENTS) if i != test])
            ): draw
            for draw in draws
            if draw["args"]["trial_seed"] == trial
        }
        assert len(vals) == 3
        assert value == vals[max(vals)][f"fd_env{test}_in_acc"]


def test_what_cannot_be_used_of_a_second_training_is_named(tmp_path: Path) -> None:
    first = [record(step, [0.5] * 6, holdout_fraction=0.2, auto_lr=True) for step in (0, 100)]
    lines = [
        second_training(
            0, [0.6] * 3
        ),  # before the first training: of what it validates nothing is known
        *first,
        second_training(0, [0.7, 0.8, 0.9]),
        second_training(100, [0.6] * 2),
        second_training(100, [0.6] * 3, trial_seed=1),
        record(100, [0.5] * 6, holdout_fraction=0.0, auto_lr=True),
    ]
    write_run(tmp_path / "a", lines)
    write_run(
        tmp_path / "b", [{**line, "args": {**line["args"], "hparams_seed": 1}} for line in first]
    )
    collection = read_domainbed(tmp_path)
    assert [(p.kind, Path(p.where).name) for p in collection.problems] == [
        *[("dropped line", f"results.jsonl:{number}") for number in (1, 5, 6, 7)],
        ("folder left out", "b"),
    ]  # fmt: skip
    assert collection.rows["accuracy"].tolist() == [0.7, 0.5, 0.8, 0.5, 0.9, 0.5]


def test_every_used_line_says_who_wrote_it(tmp_path: Path) -> None:
    """The first line lacks its step: what the second one lacks is not taken from it."""
    lines = [record(step, [0.5] * 6) for step in (0, 100, 200)]
    del lines[0]["step"], lines[1]["args"]
    write_run(tmp_path / "a", lines)
    collection = read_domainbed(tmp_path)
    assert [Path(p.where).name for p in collection.problems] == [
        "results.jsonl:1",
        "results.jsonl:2",
    ]
    assert set(collection.rows["step"]) == {200}


def test_names_that_do_not_fit_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no results.jsonl under .* import.path=DIR"):
        read_domainbed(tmp_path)
    write_run(tmp_path / "a", [record(0, [0.5] * 6)])
    with pytest.raises(RecordError, match="3 environments"):
        read_domainbed(tmp_path, environments=["x", "y"])
    assert read_domainbed(tmp_path, environments=["x", "y", "z"]).runs[0].identity["given"] == [
        "x",
        "y",
        "z",
    ]


def test_accuracies_that_are_none_are_named_and_reach_no_table(tmp_path: Path) -> None:
    """Environment 0 is held out: what is reported of it and what the oracle looks at, and a
    training accuracy.
    """
    values = [
        [78.3, -0.1, 0.5, 0.5, 0.5, 0.5],
        [0.5, math.nan, math.inf, 0.5, 0.5, 0.5],
        [0.0, 1.0, 0.5, 0.5, 1, 0],
    ]
    folder = write_run(
        tmp_path / "a", [record(step, accuracies) for step, accuracies in enumerate(values)]
    )
    found = read_domainbed(tmp_path, environments=["x", "y", "z"])
    rows = found.rows
    assert len(rows) == 18 - 2
    gone = rows[rows["accuracy"].isna()]
    assert gone[["step", "env", "subset"]].to_numpy().tolist() == [[0, "x", "val"], [1, "x", "val"]]
    assert rows["accuracy"].dropna().between(0, 1).all()
    assert [(p.kind, p.where, p.reason.partition(",")[0]) for p in found.problems] == [
        ("dropped accuracy", f"{folder}/results.jsonl:1", "env0_in_acc is 78.3"),
        ("dropped accuracy", f"{folder}/results.jsonl:2", "env0_out_acc is NaN"),
    ]


def bad(folder: Path, **changes: Any) -> None:
    """One record, its keys or its args changed; `...` removes a key."""
    line = record(0, [0.5] * 6)
    for key, value in changes.items():
        place = line if key in line else line["args"]
        place[key] = value
        if value is ...:
            del place[key]
    write_run(folder, [line])


def test_a_bad_folder_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    write_run(tmp_path / "good", [record(0, [0.5] * 6)])
    write_run(tmp_path / ".hidden" / "old", [record(0, [0.5] * 6, trial_seed=1)])  # passed over
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "args": ({"args": ...}, "lacks args"),
        "algorithm": ({"algorithm": None}, "algorithm is null, not text"),
        "dataset": ({"dataset": ...}, "lacks dataset in args"),
        "outside": ({"test_envs": [3]}, "PACS has 3 environments"),
        "negative": ({"test_envs": [-1]}, "test_envs has an item"),
        "text": ({"test_envs": "0"}, 'test_envs is "0"'),
        "hparams": ({"hparams": [1]}, "hparams is [1]"),
        "trial": ({"trial_seed": "zero"}, 'trial_seed is "zero"'),
        "step": ({"step": 1.5}, "step is 1.5"),
        "alone": ({"env2_out_acc": ...}, "has env2_in_acc and lacks env2_out_acc"),
    }
    for name, (changes, _) in cases.items():
        bad(tmp_path / name, **changes)
    for name in ("pipe", "folder"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "results.jsonl")
    (tmp_path / "folder" / "results.jsonl").mkdir()
    found = read_domainbed(tmp_path)
    assert [Path(run.folder).name for run in found.runs] == ["good"] and len(found.rows) == 6
    told = {
        problem.where.removeprefix(f"{tmp_path}/").split("/")[0]: problem.reason
        for problem in reversed(found.problems)
    }
    assert told.keys() == {*cases, "pipe", "folder"}
    for name, (_, reason) in cases.items():
        assert told[name].startswith(reason), name
    assert str(tmp_path / "pipe" / "results.jsonl") in {problem.where for problem in found.problems}


def test_a_folder_that_cannot_be_searched_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "a", [record(0, [0.5] * 6)])
    write_run(tmp_path / "locked" / "b", [record(0, [0.5] * 6, trial_seed=1)])
    scandir = os.scandir

    def denied(path: str) -> Any:
        if path == str(tmp_path / "locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    found = read_domainbed(tmp_path)
    assert len(found.runs) == 1
    assert [(p.kind, p.where) for p in found.problems] == [
        ("unreadable folder", str(tmp_path / "locked"))
    ]
