"""Seeds: stable over versions and machines, one for each purpose."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.seeding import derive


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((0, "init"), 4659744837173112029), ((3, "order", "0.80", 7), 4795332754427431597)],
)
def test_values_never_change(arguments: tuple[Any, ...], expected: int) -> None:
    """The first 8 bytes of BLAKE2b of the words joined by the unit separator, as a big-endian number, halved."""
    assert derive(*arguments) == expected


def test_each_purpose_and_each_base_has_its_own() -> None:
    """Words do not run together: ("a", "bc") and ("ab", "c") differ, and so do (1, "2") and (12,)."""
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
