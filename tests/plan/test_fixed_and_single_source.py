"""One fixed split, and one training environment at a time."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.errors import ConfigError
from dgbench.plan.folds import Fold, SingleSource
from dgbench.plan.protocols import Fixed

GIVEN = ["a", "b", "c", "d"]


def test_train_val_and_test() -> None:
    """d is in no list: never trained on, never scored."""
    (fold,) = Fixed(train=["b", "a"], val="c", test=["d"])([*GIVEN, "e"])
    assert fold == Fold("0", ("a", "b"), ("c", "d", "e"), (("d",),), ("c",))
    assert (fold.tested, fold.scored) == (("d",), ("a", "b", "d", "c"))


def test_the_rest_is_trained_on() -> None:
    (fold,) = Fixed(test=["d"])(GIVEN)
    assert (fold.training, fold.held_out, fold.tested) == (("a", "b", "c"), ("d",), ("d",))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, r"protocol\.test.*dataset.*split.*b, c.*e\.g\..*\[d\]"),
        ({"test": ["x"]}, r"protocol\.test.*x.*b, c"),
        ({"test": ["d"], "train": ["d"]}, r"protocol\.train and protocol\.test both name d"),
        ({"test": ["d"], "val": ["d"]}, r"protocol\.val and protocol\.test both name d"),
        (
            {"test": ["d"], "val": ["a"], "train": ["a"]},
            r"protocol\.train and protocol\.val both name a",
        ),
        (
            {"test": ["a", "b"], "val": ["c", "d"]},
            r"hold.*given environments.*nothing.*left.*train",
        ),
        ({"test": ["d"], "train": []}, r"nothing.*left.*train"),
    ],
)
def test_one_clear_line(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Fixed(**keys)(GIVEN)


def test_single_source() -> None:
    assert SingleSource()(["a", "b", "c"]) == [
        Fold("0", ("a",), ("b", "c")),
        Fold("1", ("b",), ("a", "c")),
        Fold("2", ("c",), ("a", "b")),
    ]
    assert SingleSource()(["a", "b", "c"])[1].title == "train on b alone"
    with pytest.raises(ConfigError, match=r"least 2 given environments.*1"):
        SingleSource()(["a"])
