"""Seeds: stable over versions and machines, one for each purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.training.groups import plan_groups
from tests.studies import SMALL, make_plan, make_study


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((0, "init"), 4659744837173112029), ((3, "order", "0.80", 7), 4795332754427431597)],
)
def test_values_never_change(arguments: tuple[Any, ...], expected: int) -> None:
    """The first 8 bytes of BLAKE2b of the words joined by the unit separator, as a big-endian
    number, halved.
    """
    assert derive(*arguments) == expected


def test_each_purpose_and_each_base_has_its_own() -> None:
    """Words do not run together: ("a", "bc") and ("ab", "c") differ, and so do (1,
    "2") and (12,).
    """
    asked: list[tuple[Any, ...]] = [
        (0, "a"),
        (1, "a"),
        (0, "b"),
        (0, "a", "bc"),
        (0, "ab", "c"),
        (0, "abc"),
        (1, "2"),
        (12,),
    ]
    seeds = [derive(*arguments) for arguments in asked]
    assert len(set(seeds)) == len(asked)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_number_and_its_text_are_the_same_word() -> None:
    assert derive(5, "split", 3) == derive(5, "split", "3")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_study(tmp_path_factory.mktemp("digits"), *SMALL).source


def moved_by(digits: Any, folder: Path, moves: str) -> set[str]:
    """What differs between the runs of two seeds."""
    parts = []
    for seed in (0, 1):
        study = make_study(
            folder, *SMALL, "algorithm=mixup", f"seed={seed}", f"seed_moves={moves}", source=digits
        )
        module = study.module(study.folds[0])
        weights = torch.cat([p.flatten() for p in module.networks.parameters()])
        parts.append(
            (study.runs[0].data.runs[0].order(0).tolist(), weights.tolist(), module.draws.seed)
        )
    names = ("order", "weights", "inputs")
    return {name for name, first, second in zip(names, *parts, strict=True) if first != second}


@pytest.mark.parametrize(
    ("moves", "parts"),
    [
        ("all", {"order", "weights", "inputs"}),
        ("order", {"order"}),
        ("weights", {"weights"}),
        ("inputs", {"inputs"}),
        ("nothing", set()),
    ],
)
def test_a_seed_moves_one_part_alone(
    digits: Any, tmp_path: Path, moves: str, parts: set[str]
) -> None:
    assert moved_by(digits, tmp_path, moves) == parts


def test_each_choice_is_another_study_and_the_usual_one_is_the_study_before_the_key(
    tmp_path: Path,
) -> None:
    plans = {
        moves: make_plan(tmp_path, *SMALL, f"seed_moves={moves}").spec
        for moves in ("all", "order", "nothing")
    }
    assert len({spec.digest for spec in plans.values()}) == 3
    assert "seed_moves" not in plans["all"].training
    with pytest.raises(ConfigError, match=r"^seed_moves=ordr .*order"):
        make_plan(tmp_path, *SMALL, "seed_moves=ordr")


def test_runs_stack_whatever_their_seeds_move(digits: Any, tmp_path: Path) -> None:
    words = (*SMALL, "protocol=multi_test", "protocol.k=1")
    studies = [
        make_study(tmp_path, *words, f"seed_moves={moves}", source=digits)
        for moves in ("all", "order")
    ]
    [group] = plan_groups(
        [run for study in studies for run in study.runs], studies[0].config["execution"]
    )
    assert len(group.runs) == 8
