"""A refused value in one line: key, value, fault and fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from dgbench.errors import ConfigError
from dgbench.validation import Checked, Number, Refusal
from tests.complaints import refused

Probability = Annotated[
    Number, Field(ge=0, le=1), Refusal("is not a number in [0, 1]", "0.2 is usual")
]


class Options(Checked):
    key = "dataset"

    share: Probability = 0.5
    store: Literal["auto", "ram", "file"] = "ram"
    bad: Literal["fail", "skip"] = "fail"
    given: Annotated[Sequence[Probability], Field(min_length=1)] = (1,)
    root: Annotated[str, Field(min_length=1), Refusal("is no path", "name a folder")] = "."
    sides: Mapping[str, int] = {}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"share": 2}, r"dataset\.share=2.*number.*\[0, 1\]; 0\.2.*usual"),
        (
            {"share": "0.5"},
            (
                r"dataset\.share='0\.5'.*text.*number.*\[0, 1\]; write 0\.5 without "
                r"quotes.*oc\.decode.*oc\.env"
            ),
        ),
        ({"share": "half"}, r"dataset\.share=half.*number.*\[0, 1\]; 0\.2.*usual"),
        ({"share": True}, r"dataset\.share=true.*number.*\[0, 1\]; 0\.2.*usual"),
        ({"share": float("nan")}, r"dataset\.share=nan.*number.*\[0, 1\]; 0\.2.*usual"),
        ({"store": ["ram"]}, r"dataset\.store=\[ram\].*unknown.*auto, ram"),
        ({"bad": None}, r"dataset\.bad=null.*unknown.*fail.*skip"),
        ({"given": [1, None]}, r"dataset\.given.*null.*number.*\[0, 1\]; 0\.2.*usual"),
        ({"given": [1, "0"]}, r"dataset\.given.*'0'.*text.*number.*; write 0 without quotes"),
        ({"given": []}, r"dataset\.given.*empty; correct"),
        ({"root": ""}, r"dataset\.root.*empty.*folder"),
        ({"sides": {"a": "x"}}, r"dataset\.sides\.a=x.*integer"),
        ({"sid": 1}, r"dataset\.sid.*dataset; remove.*see.*conf/dataset"),
    ],
)
def test_a_refused_value(keys: dict[str, Any], said: str) -> None:
    with refused(said):
        Options(**keys)


def test_a_missing_key() -> None:
    class Seeded(Checked):
        key = "tuning"
        seed: int

    with pytest.raises(ConfigError, match=r"^tuning\.seed is missing; add tuning\.seed=VALUE$"):
        Seeded()  # type: ignore[call-arg]


def test_values_are_kept_as_they_are() -> None:
    found = Options(share=1, given=[0, 0.5, 1])
    assert (repr(found.share), repr(found.given)) == ("1", "[0, 0.5, 1]")
