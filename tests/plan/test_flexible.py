"""Environments that differ between classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dgbench.errors import ConfigError
from dgbench.plan.folds import Membership
from dgbench.plan.protocols import Flexible

GIVEN = [f"d{i}" for i in range(20)]  # NICO++ as in the paper: 20 domains
PAPER = {"dominant": 2, "minor": 12}


def membership(n_classes: int, given: list[str] = GIVEN, **keys: Any) -> Membership:
    (fold,) = Flexible(**keys)(given, n_classes)
    assert fold.membership is not None
    assert fold.training == tuple(fold.membership.training)
    assert fold.tested == fold.held_out == tuple(fold.membership.tested)
    return fold.membership


def roles(found: Membership, label: int) -> tuple[set[str], set[str], set[str]]:
    """Dominant, minor and test environments of a class."""
    training = {env: part[label] for env, part in found.training.items() if label in part}
    return (
        {env for env, limit in training.items() if limit is None},
        {env for env, limit in training.items() if limit == 50},
        {env for env, part in found.tested.items() if part.get(label) == 50},
    )


def test_random_as_in_the_paper() -> None:
    """2 dominant, 12 minor and 6 test domains for each of 30 classes, and no domain of a class in
    two roles.
    """
    found = membership(30, **PAPER, test=6)
    for label in range(30):
        dominant, minor, test = roles(found, label)
        assert (len(dominant), len(minor), len(test)) == (2, 12, 6)
        assert dominant | minor | test == set(GIVEN)
    assert any(
        found.training.get(env, {}).keys() & {0} and 0 not in found.tested[env]
        for env in found.tested
    )
    # every domain is dominant for about 30 * 2 / 20 = 3 classes: none for all, none for none of 30
    # and of its tests
    often = Counter(env for label in range(30) for env in roles(found, label)[0])
    assert max(often.values()) < 12


def test_compositional_as_in_the_paper() -> None:
    """4 exclusive domains, of which each class has 2 as dominant; 12 + 4 of the 16 shared ones for
    minor and test.
    """
    found = membership(30, **PAPER, test=4, setting="compositional", exclusive=4)
    exclusive = set().union(*(roles(found, label)[0] for label in range(30)))
    assert len(exclusive) == 4
    for label in range(30):
        dominant, minor, test = roles(found, label)
        assert (len(dominant), len(minor), len(test)) == (2, 12, 4)
        assert minor | test == set(GIVEN) - exclusive
    assert not exclusive & found.tested.keys()


def test_the_seed_decides_and_classes_do_not_disturb_one_another() -> None:
    assert membership(5, seed=1) == membership(5, seed=1)
    assert membership(5, seed=1) != membership(5, seed=2)
    few, many = membership(3), membership(9)
    assert [roles(few, label) for label in range(3)] == [roles(many, label) for label in range(3)]


def test_all_images() -> None:
    found = membership(4, minor_images=None, test_images=7)
    assert {limit for part in found.training.values() for limit in part.values()} == {None}
    assert {limit for part in found.tested.values() for limit in part.values()} == {7}


@pytest.mark.parametrize("setting", ["random", "compositional"])
def test_defaults_fit_the_public_environments_of_nico(setting: str) -> None:
    found = membership(3, GIVEN[:6], setting=setting)
    for label in range(3):
        assert [len(part) for part in roles(found, label)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"setting": "mixed"}, r"protocol\.setting=mixed.*unknown.*random.*compositional"),
        ({"dominant": 0}, r"protocol\.dominant=0.*integer >= 1"),
        ({"test": "two"}, r"protocol\.test=two.*integer >= 1"),
        ({"minor_images": 0}, r"protocol\.minor_images=0.*integer >= 1"),
        ({"minor": 3}, r"dominant \+ minor \+ test = 7.*more.*6 given environments"),
        (
            {"setting": "compositional", "exclusive": 1},
            r"protocol\.exclusive=1 must be protocol\.dominant=2 to 5",
        ),
        ({"setting": "compositional", "exclusive": 6}, r"protocol\.exclusive=6 must be"),
        (
            {"setting": "compositional", "exclusive": 3},
            r"minor \+ test = 4.*more.*3 environments.*exclusive",
        ),
    ],
)
def test_one_clear_line(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Flexible(**keys)(GIVEN[:6], 3)


def test_the_key_of_a_fold_holds_its_membership() -> None:
    """What hashes and files see: plain dictionaries, and nothing that is left at its default."""
    (fold,) = Flexible(dominant=1, minor=0, test=1)(["a", "b"], 1)
    ((dominant, _),) = fold.key()["membership"]["training"].items()
    ((test, part),) = fold.key()["membership"]["tested"].items()
    assert ({dominant, test}, part) == ({"a", "b"}, {0: 50})
    assert fold.key().keys() == {"name", "training", "held_out", "folds", "membership"}
