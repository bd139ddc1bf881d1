"""A refused value in one line: key, value, fault and fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from dgbench.errors import ConfigError
from dgbench.validation import Checked, Number, Refusal

Probability = Annotated[Number, Field(ge=0, le=1), Refusal("is not a number in [0, 1]", "0.2 is usual")]


class Options(Checked):
    key = "dataset"

    share: Probability = 0.5
    store: Literal["auto", "ram", "file"] = "ram"
    bad: Literal["fail", "skip"] = "fail"
    given: Annotated[Sequence[Probability], Field(min_length=1)] = (1,)
    root: Annotated[str, Field(min_length=1), Refusal("is no path", "name a folder")] = "."
    sides: Mapping[str, int] = {}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"share": 2}, "dataset.share=2 is not a number in [0, 1]; 0.2 is usual"),
        ({"share": "0.5"}, "dataset.share=0.5 is not a number in [0, 1]; 0.2 is usual"),
        ({"share": True}, "dataset.share=true is not a number in [0, 1]; 0.2 is usual"),
        ({"share": float("nan")}, "dataset.share=nan is not a number in [0, 1]; 0.2 is usual"),
        ({"store": ["ram"]}, "dataset.store=[ram] is unknown; choose auto, ram, file"),
        ({"bad": None}, "dataset.bad=null is unknown; choose fail or skip"),
        ({"given": [1, None]}, "dataset.given holds null, which is not a number in [0, 1]; 0.2 is usual"),
        ({"given": []}, "dataset.given is empty; correct it"),
        ({"root": ""}, "dataset.root is empty; name a folder"),
        ({"sides": {"a": "x"}}, "dataset.sides.a=x is refused (Input should be a valid integer); correct it"),
        ({"sid": 1}, "dataset.sid is no key of dataset; remove it, or see the keys in conf/dataset"),
    ],
)
def test_a_refused_value(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as found:
        Options(**keys)
    assert str(found.value) == line


def test_a_missing_key() -> None:
    class Seeded(Checked):
        key = "tuning"
        seed: int

    with pytest.raises(ConfigError, match=r"^tuning\.seed is missing; add tuning\.seed=VALUE$"):
        Seeded()  # type: ignore[call-arg]


def test_values_are_kept_as_they_are() -> None:
    found = Options(share=1, given=[0, 0.5, 1])
    assert (repr(found.share), repr(found.given)) == ("1", "[0, 0.5, 1]")
