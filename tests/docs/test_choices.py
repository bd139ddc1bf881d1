"""docs/reference/choices.md names every file of every group of conf/,
and none that does not exist.
"""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

CONF = ROOT / "conf"
PAGE = (ROOT / "docs" / "reference" / "choices.md").read_text()
NAMED = set(re.findall(r"`([a-z]\w*)`", PAGE))
GROUPS = sorted(
    folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name != "hydra"
)


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_is_named(group: str) -> None:
    assert {file.stem for file in (CONF / group).glob("*.yaml")} <= NAMED


def test_every_name_exists() -> None:
    exist = {file.stem for file in CONF.rglob("*.yaml")} | {*GROUPS, "basic"}
    assert exist >= NAMED
