"""Logs of SWAD's code family, made up in their published form, against numbers computed from the
logs directly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.analysis.selection import Last, Oracle, Selection, TrainVal
from dgbench.errors import RecordError
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.reading.selected import select_runs

Record = dict[str, Any]
STEPS = range(0, 501, 100)
HPARAMS = {
    "lr": 5e-5,
    "resnet18": False,
    "swad": False,
    "swad_kwargs": {"n_converge": 3},
    "extra_search_end": None,
}


def records(algorithm: str, seed: int, dice: random.Random, **args: Any) -> list[Record]:
    """The records of three folds, one after the other."""
    lines = []
    for fold in range(3):
        for step in STEPS:
            outs = [round(0.5 + 0.2 * dice.random(), 6) for _ in range(3)]
            test_in = round(0.5 + 0.2 * dice.random(), 6)
            record: Record = {
                "args": {"algorithm": algorithm, "dataset": "HTP", "name": f"{algorithm}_{seed}",
                    "seed": seed,
                         "real_test_envs": [fold], "test_envs": [[0], [1], [2]], "trial_seed": seed,
                         "steps": 501, "checkpoint_freq": 100, "evalmode": "fast",
                         "model_save": None, **args},
                f"env{fold}_in": test_in,
                **{f"env{env}_out": outs[env] for env in range(3)},
                "hparams": HPARAMS, "step": step, "loss": 0.6, "test_in": test_in,
                "test_out": outs[fold], "train_in": 0.0, "train_out": (sum(outs) - outs[fold]) / 2,
            }  # fmt: skip
            lines.append(record)
    return lines


def write(folder: Path, lines: list[Record]) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text(
        "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
    )
    return folder


@pytest.fixture
def logs() -> dict[str, list[Record]]:
    """The logs of two algorithms and three seeds, by folder."""
    dice = random.Random(5)
    return {
        f"{name}_seed{seed}": records(name, seed, dice)
        for name in ("ERM", "GGA")
        for seed in range(3)
    }


@pytest.fixture
def sweep(tmp_path: Path, logs: dict[str, list[Record]]) -> Path:
    for name, lines in logs.items():
        write(tmp_path / "sweep" / name, lines)
    return tmp_path / "sweep"


def best(lines: list[Record], key: str) -> Record:
    """The first record with the highest value."""
    return max(lines, key=lambda record: float(record[key]))


EXPECTED: list[tuple[Selection, Callable[[list[Record]], float]]] = [
    (TrainVal(), lambda lines: best(lines, "train_out")["test_in"]),
    (
        Oracle(),
        lambda lines: lines[-1]["test_in"],
    ),  # DomainBed's oracle takes the last step of every run
    (Last(), lambda lines: lines[-1]["test_in"]),
]


@pytest.mark.parametrize(("selection", "expected"), EXPECTED)
def test_what_papers_report(
    sweep: Path,
    logs: dict[str, list[Record]],
    selection: Selection,
    expected: Callable[[list[Record]], float],
) -> None:
    collection = read_domainbed(sweep)
    assert not collection.problems
    assert len(collection.runs) == 18
    tests = select_runs(collection, selection).tests
    found = {(line.algorithm, line.seed, line.fold): line.accuracy for line in tests.itertuples()}
    names = {"ERM": "erm", "GGA": "GGA"}
    wanted = {}
    for lines in logs.values():
        for fold in range(3):
            of_fold = [line for line in lines if line["args"]["real_test_envs"] == [fold]]
            args = lines[0]["args"]
            wanted[names[args["algorithm"]], args["seed"], str(fold)] = pytest.approx(
                expected(of_fold), abs=1e-12
            )
    assert found == wanted
    assert set(tests["env"]) == {"env0", "env1", "env2"}


def test_hyperparameters_are_flat_and_the_training_accuracies_absent(sweep: Path) -> None:
    collection = read_domainbed(sweep)
    hparams = collection.runs[0].identity["hparams"]
    assert hparams["swad_kwargs.n_converge"] == 3
    assert hparams["extra_search_end"] is None
    assert set(collection.rows["subset"]) == {"val", "test"}


def changed(sweep: Path, name: str, change: Callable[[list[Record]], list[Record]]) -> None:
    file = sweep / name / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def test_a_fold_that_ended_early_is_left_out_and_named(sweep: Path) -> None:
    changed(sweep, "ERM_seed1", lambda lines: lines[:-2])
    collection = read_domainbed(sweep)
    [problem] = collection.problems
    assert problem.kind == "not trained to the end"
    assert problem.where.endswith("ERM_seed1/results.jsonl, fold 2")
    assert "step 300, others of the same schedule go to 500; left out" in problem.reason
    assert len(select_runs(collection, Last()).tests) == 17
    taken = read_domainbed(sweep, require_done=False)
    assert len(select_runs(taken, Last()).tests) == 18


def test_other_metrics_stand_beside_the_accuracy(sweep: Path) -> None:
    for name in ("ERM_seed0", "GGA_seed0"):
        changed(sweep, name, lambda lines: [{**line, "env1_out_auc": 0.875} for line in lines])
    collection = read_domainbed(sweep)
    frame = collection.rows
    with_auc = frame[frame["auc"].notna()]
    assert set(with_auc["env"]) == {"env1"}
    assert set(with_auc["auc"]) == {0.875}
    assert not (with_auc["accuracy"] == 0.875).any()


def test_averaged_weights_are_not_in_the_log(sweep: Path) -> None:
    averaged = {**HPARAMS, "swad": True}
    for seed in range(3):
        changed(
            sweep,
            f"GGA_seed{seed}",
            lambda lines: [{**line, "hparams": averaged} for line in lines],
        )
    [problem] = read_domainbed(sweep).problems
    assert problem.kind == "not averaged"
    assert "before averaging alone" in problem.reason
    assert problem.where.endswith("and 2 more")


def test_several_sets_of_hyperparameters_are_no_seeds(sweep: Path) -> None:
    changed(
        sweep,
        "GGA_seed1",
        lambda lines: [{**line, "hparams": {**HPARAMS, "lr": 1e-4}} for line in lines],
    )
    with pytest.raises(
        RecordError,
        match=r"GGA on HTP has 2 sets of hyperparameters, which differ in lr .*import\.path",
    ):
        read_domainbed(sweep)


def test_the_seed_is_what_varies(tmp_path: Path) -> None:
    for trial in range(3):
        write(tmp_path / f"{trial}", records("ERM", 0, random.Random(trial), trial_seed=trial))
    collection = read_domainbed(tmp_path)
    assert {run.identity["seed"] for run in collection.runs} == {0, 1, 2}
    for seed in (1, 2):
        write(tmp_path / f"more{seed}", records("ERM", seed, random.Random(seed), trial_seed=0))
    collection = read_domainbed(tmp_path)
    assert len({run.identity["seed"] for run in collection.runs}) == 5
    assert [problem.kind for problem in collection.problems] == ["assumed"]


def test_a_restarted_run_counts_once(sweep: Path, logs: dict[str, list[Record]]) -> None:
    write(sweep / "again", logs["ERM_seed0"][:8])
    collection = read_domainbed(sweep)
    assert len(collection.runs) == 18
    assert {problem.kind for problem in collection.problems} == {
        "duplicate",
        "not trained to the end",
    }


Change = Callable[[Record], Record]
DAMAGES: dict[str, Change] = {
    "lacks env0_in": lambda line: {key: value for key, value in line.items() if key != "env0_in"},
    "env1_out is 54.3, no fraction": lambda line: {**line, "env1_out": 54.3},
    "test_in is 0.9, and the mean": lambda line: {**line, "test_in": 0.9},
    "train_out is 0.1, and the mean": lambda line: {**line, "train_out": 0.1},
    "step is": lambda line: {**line, "step": -1},
    "lacks step": lambda line: {key: value for key, value in line.items() if key != "step"},
    "real_test_envs is [7], with 3": lambda line: {
        **line,
        "args": {**line["args"], "real_test_envs": [7]},
    },
    "lacks args.real_test_envs": lambda line: {
        **line,
        "args": {"dataset": "HTP", "algorithm": "ERM"},
    },
    "hparams is no mapping": lambda line: {**line, "hparams": [1]},
}


@pytest.mark.parametrize("said", DAMAGES)
def test_a_wrong_line_is_named_with_its_place(sweep: Path, said: str) -> None:
    changed(sweep, "ERM_seed0", lambda lines: [lines[0], DAMAGES[said](lines[1]), *lines[2:]])
    collection = read_domainbed(sweep)
    [problem] = collection.problems
    assert problem.where.endswith("ERM_seed0/results.jsonl:2")
    assert said in problem.reason


def test_the_first_fault_is_quoted_where_nothing_can_be_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", records("ERM", 0, random.Random(0)))
    changed(tmp_path, "a", lambda lines: [{**line, "env0_out": 71.5} for line in lines])
    with pytest.raises(RecordError) as refusal:
        read_domainbed(tmp_path)
    message = str(refusal.value)
    assert f"{folder}/results.jsonl:1: env0_out is 71.5, no fraction in [0, 1]" in message
    assert "whole" not in message


def test_the_frame_has_the_types_of_others(sweep: Path) -> None:
    frame = read_domainbed(sweep).rows
    assert isinstance(frame["env"].dtype, pd.CategoricalDtype)
    assert frame["seen"].eq(1).all()
