"""Every protocol through real processes, on the digits; four given environments 0.80, 0.85, 0.90
and 0.10.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.complaints import one_line

pytestmark = pytest.mark.slow

GIVEN = ["0.80", "0.85", "0.90", "0.10"]


def rows_by_fold(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of the last step."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.rglob("errors.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found[rows[0]["fold"]] = [row for row in rows if row["step"] == 12]
    return found


def scored(rows: list[dict[str, Any]]) -> dict[str, dict[str, bool]]:
    """subset -> environment -> whether it was held out."""
    found: dict[str, dict[str, bool]] = {}
    for row in rows:
        found.setdefault(row["subset"], {})[row["env"]] = row["env_held_out"]
    return found


def test_groups_single_and_stacked(train: Any, tmp_path: Path) -> None:
    """Two groups; a stack leaves the rows of single runs."""
    for mode in ("single", "stacked"):
        ended = train(
            "protocol=multi_test",
            f"execution={mode}",
            f"paths.output_dir={tmp_path / mode}",
            cwd=tmp_path,
        )
        assert ended.code == 0, ended.err
    found, stacked = rows_by_fold(tmp_path / "single"), rows_by_fold(tmp_path / "stacked")
    assert {fold: rows[0]["held_out"] for fold, rows in found.items()} == {
        "0": GIVEN[:2],
        "1": GIVEN[2:],
    }
    assert found["0"][0]["folds"] == [GIVEN[:2], GIVEN[2:]]
    assert scored(found["0"])["test"] == {"0.80": True, "0.85": True, "0.90": False, "0.10": False}
    own = {"loss": 0, "together": 0}
    for fold, rows in found.items():
        assert [{**row, **own} for row in stacked[fold]] == [{**row, **own} for row in rows]
        assert [{row["together"] for row in kept} for kept in (rows, stacked[fold])] == [{1}, {2}]
    assert [line.split()[:2] for line in ended.out.splitlines()[2:6]] == [
        ["0", "0.80"], ["0", "0.85"], ["1", "0.90"], ["1", "0.10"],
    ]  # fmt: skip


def test_a_fixed_split_with_validation(train: Any, tmp_path: Path) -> None:
    """0.10 tests, 0.90 chooses, 0.80 trains, 0.85 is in no list and has no row."""
    words = ["protocol=fixed", "protocol.train=[0.8]", "protocol.val=[0.9]", "protocol.test=[0.1]"]
    ended = train(*words, "selection=ood_val", "selection.environments=['0.90']", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (rows,) = rows_by_fold(tmp_path).values()
    assert rows[0]["held_out"] == ["0.85", "0.90", "0.10"]
    assert rows[0]["folds"] == [["0.10"]]
    assert scored(rows) == {
        subset: {"0.80": False, "0.90": True, "0.10": True} for subset in ("val", "test")
    }
    assert "OoD validation on 0.90" in ended.out
    assert [line.split()[0] for line in ended.out.splitlines()[2:5]] == ["0", "average", "worst"]


def test_one_source(train: Any, tmp_path: Path) -> None:
    ended = train("protocol=single_source", "protocol.folds=[3]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (rows,) = rows_by_fold(tmp_path).values()
    assert scored(rows)["test"] == {"0.80": True, "0.85": True, "0.90": True, "0.10": False}
    assert "folds 0-2: no rows" in ended.out
    assert "(train on 0.10 alone)" in ended.err


@pytest.mark.parametrize("setting", ["random", "compositional"])
def test_environments_of_each_class(train: Any, tmp_path: Path, setting: str) -> None:
    """Every class trains in 1 + 1 environments and is tested in one: by hand from the resolved
    configuration.

    Rows of ``val`` count classes trained on, rows of ``test`` classes that were not: 20 images at
    most of each.
    """
    counts = ["protocol.dominant=1", "protocol.minor=1", "protocol.test=1"]
    counts += ["protocol.exclusive=2"] if setting == "compositional" else []
    caps = ["protocol.minor_images=30", "protocol.test_images=20"]
    words = [
        "protocol=flexible",
        f"protocol.setting={setting}",
        *counts,
        *caps,
        "hparams.batch_size=16",
    ]
    ended = train(*words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    (rows,) = rows_by_fold(tmp_path).values()
    assert rows[0]["protocol"] == f"flexible-{setting}-1-1-1-s0"
    (config,) = tmp_path.rglob("fold-*/config.yaml")
    membership = yaml.safe_load(config.read_text())["fold"]["membership"]
    tested, training = membership["tested"], membership["training"]
    classes = Counter(label for part in tested.values() for label in part)
    assert classes == {0: 1, 1: 1}
    assert Counter(label for part in training.values() for label in part) == {0: 2, 1: 2}
    assert scored(rows) == {
        "val": dict.fromkeys(training, False),
        "test": dict.fromkeys(tested, True),
    }
    assert {row["env"]: row["seen"] for row in rows if row["subset"] == "test"} == {
        env: 20 * len(part) for env, part in tested.items()
    }
    again = train(*words, "execution=stacked", "seed=1", cwd=tmp_path)
    assert again.code == 1
    assert "use execution=single" in again.complaints[0]


def test_the_oracle_trains_on_other_images_of_its_tests(train: Any, tmp_path: Path) -> None:
    ended = train("protocol=target_oracle", "protocol.groups=[[0.1,0.9]]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (rows,) = rows_by_fold(tmp_path).values()
    assert rows[0]["held_out"] == ["0.80", "0.85"]
    assert rows[0]["folds"] == [["0.90", "0.10"]]
    assert scored(rows) == {subset: {"0.90": False, "0.10": False} for subset in ("val", "test")}
    assert "TARGET ORACLE" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["protocol=multi_test", "protocol.groups=[[0.8,0.85,0.9,0.1]]"],
            "leaves.*environment.*train",
        ),
        (["protocol=multi_test", "protocol.k=3"], r"protocol\.k=3.*divide.*4 given environments"),
        (["protocol=fixed"], "protocol.test is not set"),
        (["protocol=fixed", "protocol.test=[0.8,0.85,0.9,0.1]"], "nothing.*left.*train"),
        (["protocol=flexible"], "more.*4 given environments"),
    ],
)
def test_bad_input_is_one_line(train: Any, tmp_path: Path, words: list[str], said: str) -> None:
    ended = train(*words, cwd=tmp_path)
    assert ended.code == 1
    (line,) = ended.complaints
    one_line(line, said)
    assert not list(tmp_path.rglob("errors.jsonl"))
