"""``hparams=search``: one command trains a search, chooses, and trains the choice again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SMALL = [
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.steps=8",
    "trainer.eval_every=4",
    "trainer.device=cpu",
]
YU = [*SMALL, "hparams=search_yu2024", "hparams.scheme.draws=[1,2,3]", "protocol.folds=[0,1]"]


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of every run, by study and run folder."""
    files = sorted(folder.rglob("errors.jsonl"))
    return {
        f"{f.parent.parent.name}/{f.parent.name}": list(map(json.loads, f.read_text().splitlines()))
        for f in files
    }


@pytest.fixture(scope="module")
def yu(command: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("yu2024")
    return folder, command("train.py", *YU, cwd=folder)


def pooled(rows: list[dict[str, Any]], step: int) -> float:
    """Accuracy over all validation images of the training environments."""
    own = [r for r in rows if r["step"] == step and r["subset"] == "val" and not r["env_held_out"]]
    return 1 - sum(r["wrong"] for r in own) / sum(r["seen"] for r in own)


def test_the_best_draw_of_a_fold_is_trained_with_two_more_seeds(yu: tuple[Path, Any]) -> None:
    """The choice is worked out from the rows by hand: highest pooled accuracy over steps, first
    draw on ties.
    """
    folder, ended = yu
    assert ended.code == 0, ended.err
    (file,) = (folder / "outputs").glob("*/search.json")
    kept = json.loads(file.read_text())
    assert (kept["algorithm"], kept["space"], kept["selection"]) == ("erm", "yu2024", "yu2024")
    found = list(rows_of(folder).values())
    for fold in ("0", "1"):
        search = {
            rows[0]["draw"]: rows
            for rows in found
            if rows[0]["fold"] == fold and rows[0]["seed"] == 0
        }
        best = {draw: max(pooled(rows, 4), pooled(rows, 8)) for draw, rows in search.items()}
        chosen = min(best, key=lambda draw: (-best[draw], draw))
        choice = kept["folds"][fold]
        assert (choice["draw"], choice["validation"]) == (chosen, pytest.approx(best[chosen]))
        assert {c["draw"]: c["validation"] for c in choice["candidates"]} == {
            k: pytest.approx(v) for k, v in best.items()
        }
        again = [rows[0] for rows in found if rows[0]["fold"] == fold and rows[0]["seed"]]
        assert sorted((r["seed"], r["split_seed"], r["draw"], r["trial"]) for r in again) == [
            (1, 1, chosen, 0), (2, 2, chosen, 0),
        ]  # fmt: skip
        assert all(r["hparams"] == search[chosen][0]["hparams"] for r in again)
    assert len(found) == 2 * (3 + 2)
    table = [line.split() for line in ended.out.splitlines() if line.startswith("  erm")]
    assert [(line[2], line[3], line[6]) for line in table] == [
        (seed, fold, "3" if seed == "0" else "1") for seed in "012" for fold in "01"
    ]


def test_the_same_command_again_trains_nothing(yu: tuple[Path, Any], command: Any) -> None:
    folder, first = yu
    before = rows_of(folder)
    again = command(
        "train.py", *YU, cwd=folder, before="import pytorch_lightning as pl\npl.Trainer.fit = None"
    )
    assert again.code == 0, again.err
    assert closing(again.out) == closing(first.out)
    assert rows_of(folder) == before


def closing(out: str) -> str:
    """What is printed after the plan: its last lines tell the images of a step only while models
    are to train.
    """
    plan, rest = re.split(r"(?<=\nTime: )in one process, .*\n", out)
    assert plan and rest
    return "".join(
        line for line in rest.splitlines(True) if not line.endswith(" per model and step\n")
    )


def test_a_draw_that_failed_holds_the_choice_back(
    yu: tuple[Path, Any], command: Any, tmp_path: Path
) -> None:
    """Draw 2 meets a full disk: no choice yet.

    Fixed by the same command, which ends with the rows of the others.
    """
    full = """
from dgbench.callbacks import recorder as e
whole = e.append_rows
def disk(path, rows):
    if rows[0].identity.draw == 2:
        raise OSError(28, "No space left on device")
    return whole(path, rows)
e.append_rows = disk
"""
    ended = command("train.py", *YU, "execution=single", cwd=tmp_path, before=full)
    assert ended.code == 1
    assert "is not complete: 2 models to train" in ended.err
    assert not list(tmp_path.glob("outputs/*/search.json"))
    assert len(rows_of(tmp_path)) == 4
    fixed = command("train.py", *YU, "execution=single", cwd=tmp_path)
    assert fixed.code == 0, fixed.err
    (mine,), (theirs,) = (
        list(folder.glob("outputs/*/search.json")) for folder in (tmp_path, yu[0])
    )
    folds = [
        {k: f["draw"] for k, f in json.loads(file.read_text())["folds"].items()}
        for file in (mine, theirs)
    ]
    assert folds[0] == folds[1]
    assert rows_of(tmp_path).keys() == rows_of(yu[0]).keys()


def test_a_draw_that_diverged_has_lost(command: Any, tmp_path: Path) -> None:
    """Draw 1 of the search diverges; the others are chosen among and trained again."""
    poison = """
from dgbench.plan import studies as jobs
given = jobs.hyperparameters
def hyperparameters(config, *arguments):
    values = given(config, *arguments)
    return {**values, "lr": 1e30} if config["hparams"]["draw"] == 1 else values
jobs.hyperparameters = hyperparameters
"""
    ended = command("train.py", *YU, "protocol.folds=[0]", cwd=tmp_path, before=poison)
    assert ended.code == 1
    (file,) = (tmp_path / "outputs").glob("*/search.json")
    choice = json.loads(file.read_text())["folds"]["0"]
    assert choice["draw"] in (2, 3)
    assert {c["draw"] for c in choice["candidates"]} == {2, 3}
    statuses = [status.read_text().split()[0] for status in tmp_path.rglob("status")]
    assert sorted(statuses) == ["DONE"] * 4 + ["FAILED"]


def test_domainbeds_search_of_two_algorithms_and_its_report(command: Any, tmp_path: Path) -> None:
    """2 algorithms x 2 draws x 2 trials x 4 folds; trial t has its own seed, split and random
    values.

    Draws are chosen within a trial, and trials are repetitions: one line per algorithm with n = 2.
    """
    words = [
        *SMALL,
        "hparams=search",
        "hparams.scheme.draws=2",
        "hparams.scheme.trials=2",
        "protocol.folds=[0,1,2,3]",
    ]
    ended = command("train.py", "-m", *words, "algorithm=erm,vrex", cwd=tmp_path)
    assert ended.code == 0, ended.err
    found = {key: rows[0] for key, rows in rows_of(tmp_path / "multirun").items()}
    assert len(found) == 2 * 2 * 2 * 4
    assert {(r["trial"], r["seed"], r["split_seed"]) for r in found.values()} == {
        (0, 0, 0),
        (1, 1, 1),
    }
    drawn = {(r["trial"], r["draw"]): r["hparams"]["lr"] for r in found.values()}
    assert drawn[0, 0] == drawn[1, 0] == 0.001
    assert len(set(drawn.values())) == 3
    batches = {(r["trial"], r["draw"], r["hparams"]["batch_size"]) for r in found.values()}
    assert batches == {(0, 0, 64), (0, 1, 308), (1, 0, 64), (1, 1, 8)}, (
        "372 was drawn, environments have 308 images"
    )
    choices, _, end = ended.out.partition("2 of 2 jobs done: 32 of their 32 models\n")
    assert end.splitlines()[-1] == "report: python report.py selection=train_val 'runs=[multirun]'"
    assert [line.split()[:2] for line in end.splitlines()[2:4]] == [["erm", "2"], ["vrex", "2"]], (
        "the chosen draws"
    )
    lines = [line.split() for line in choices.splitlines() if line.startswith(("  erm", "  vrex"))]
    assert [(line[0], line[1], line[2], line[3]) for line in lines] == [
        (algorithm, trial, trial, fold)
        for algorithm in ("erm", "vrex")
        for trial in "01"
        for fold in "0123"
    ]
    report = command(
        "report.py", "report=hparams", "selection=train_val", "output=out", cwd=tmp_path
    )
    assert report.code == 0, report.err
    content = json.loads((tmp_path / "out" / "hparams.json").read_text())
    assert len(content["choices"]) == 2 * 2 * 4
    for choice in content["choices"]:
        assert [c["draw"] for c in choice["candidates"]] == [0, 1]
        best = max(choice["candidates"], key=lambda c: (c["validation"], c["draw"]))
        assert (choice["draw"], choice["run"]) == (best["draw"], best["run"])
        assert choice["hparams"] == next(
            r["hparams"] for r in found.values() if r["run"] == choice["run"]
        )
    board = command(
        "report.py", "report=leaderboard", "selection=train_val", "output=board", cwd=tmp_path
    )
    assert board.code == 0, board.err
    names = [
        line.split()[0] for line in board.out.splitlines() if line.startswith(("  erm", "  vrex"))
    ]
    assert set(names) == {"erm", "vrex"}
    assert "empty folder" not in board.out
    assert "missing cells" not in board.out


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("hparams.draw=3", "it alone with hparams=default"),
        (
            "hparams.scheme.varies=[dataset.base]",
            "hparams.scheme.varies: dataset.base=digits is no integer",
        ),
        ("hparams.scheme.repeats=1", "hparams.scheme.repeats=1 needs a search"),
    ],
)
def test_a_search_that_cannot_be_meant(
    command: Any, tmp_path: Path, word: str, complaint: str
) -> None:
    ended = command("train.py", *SMALL, "hparams=search", word, cwd=tmp_path)
    assert ended.code == 1
    (line,) = ended.complaints
    assert complaint in line
    assert not list(tmp_path.rglob("errors.jsonl"))
