"""Groups of held-out environments, and the oracle over the same groups."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.plan.folds import Fold
from dgbench.plan.protocols import MultiTest, TargetOracle
from tests.complaints import refused

GIVEN = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]
PAIRS = (("clipart", "infograph"), ("painting", "quickdraw"), ("real", "sketch"))


def test_pairs_by_default() -> None:
    """Six environments in three groups of two, each trained on the four others;
    no fold ``full``.
    """
    assert MultiTest()(GIVEN) == [
        Fold("0", ("painting", "quickdraw", "real", "sketch"), ("clipart", "infograph"), PAIRS),
        Fold("1", ("clipart", "infograph", "real", "sketch"), ("painting", "quickdraw"), PAIRS),
        Fold("2", ("clipart", "infograph", "painting", "quickdraw"), ("real", "sketch"), PAIRS),
    ]
    assert [fold.tested for fold in MultiTest()(GIVEN)] == list(PAIRS)


def test_what_is_typed_wins_over_the_dataset() -> None:
    own = [["real", "clipart"], ["sketch"]]
    assert MultiTest(default_groups=own).grouped(GIVEN) == (("clipart", "real"), ("sketch",))
    assert MultiTest(default_groups=own, k=3).grouped(GIVEN) == (tuple(GIVEN[:3]), tuple(GIVEN[3:]))
    assert MultiTest(default_groups=own, groups=[["painting"]]).grouped(GIVEN) == (("painting",),)


def test_an_environment_in_no_group_is_always_trained_on() -> None:
    (fold,) = MultiTest(groups=[["real", "sketch"]])(GIVEN)
    assert fold.training == ("clipart", "infograph", "painting", "quickdraw")
    assert fold.scored == ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    assert not fold.everywhere


def test_the_oracle_trains_where_it_is_tested() -> None:
    """Four environments in two groups: each model sees its own group alone and has rows of that
    group alone.
    """
    folds = TargetOracle()(["a", "b", "c", "d"])
    groups = (("a", "b"), ("c", "d"))
    assert folds == [
        Fold("0", ("a", "b"), ("c", "d"), groups),
        Fold("1", ("c", "d"), ("a", "b"), groups),
    ]
    assert [fold.scored for fold in folds] == [("a", "b"), ("c", "d")]
    assert folds[0].title == "oracle, trained on other images of a, b"
    (whole,) = TargetOracle(groups=[["a", "b"]])(["a", "b"])
    assert (whole.held_out, whole.everywhere, whole.tested) == ((), False, ("a", "b"))


def test_numbers_are_names_as_yaml_reads_them() -> None:
    """``[0.90]`` reaches the protocol as 0.9."""
    assert MultiTest(groups=[[0.9, 0.1]]).grouped(["0.90", "0.85", "0.10"]) == (("0.90", "0.10"),)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"groups": [["clipart"], ["photo"]]}, r"protocol\.groups.*photo.*clipart, infograph"),
        ({"groups": [["clipart", "real"], ["real"]]}, r"protocol\.groups.*real.*two groups"),
        ({"groups": [["clipart", "clipart"]]}, r"protocol\.groups holds clipart twice"),
        ({"groups": [GIVEN]}, r"holding.*clipart.*, sketch leaves.*environment.*train.*split"),
        ({"groups": [[]]}, r"protocol\.groups.*empty group"),
        ({"groups": []}, r"protocol\.groups is empty; name"),
        ({"groups": ["clipart", "real"]}, r"protocol\.groups=\[clipart,real\].*list.*lists"),
        ({"groups": "clipart"}, r"list.*lists"),
        ({"default_groups": [["nowhere"]]}, r"dataset\.test_groups names nowhere"),
        ({"k": 0}, r"protocol\.k=0.*integer >= 1"),
        ({"k": 6}, r"protocol\.k=6 must be 1 to 5"),
        ({"k": "two"}, r"protocol\.k=two.*integer >= 1"),
        (
            {"k": 4},
            r"k=4.*divide.*6.*groups=\[\[clipart,infograph,painting,quickdraw\],\[real,sketch\]\]",
        ),
        ({"k": 2, "groups": [["real"]]}, r"protocol\.groups and protocol\.k are both set"),
        ({"folds": [3]}, r"protocol\.folds=\[3\] has no fold \['3'\]; choose from 0, 1, 2"),
    ],
)
def test_one_clear_line(keys: dict[str, Any], said: str) -> None:
    with refused(said):
        MultiTest(**keys)(GIVEN)


def test_a_part_of_the_folds_knows_the_whole_plan() -> None:
    (fold,) = MultiTest(folds=2)(GIVEN)
    assert (fold.name, fold.tested, fold.folds) == ("2", ("real", "sketch"), PAIRS)
