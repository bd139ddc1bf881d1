"""constraints-oldest.txt holds what pyproject.toml calls the oldest versions; ``make test-oldest``
tests with them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# what one test compares with, whose own dependencies have no wheels for the oldest numpy; tools of
# make release; a launcher of others, which drags in an old cloudpickle
LEFT_OUT = {"oracle", "release", "ray"}
TESTED = [
    *PROJECT["dependencies"],
    *(
        text
        for extra, each in PROJECT["optional-dependencies"].items()
        if extra not in LEFT_OUT
        for text in each
    ),
]


def floors(texts: list[str]) -> dict[str, set[Version]]:
    """Package -> versions behind its ``>=``."""
    found: dict[str, set[Version]] = {}
    for text in texts:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:  # an extra that holds another
            continue
        lowest = {
            Version(bound.version) for bound in requirement.specifier if bound.operator == ">="
        }
        found.setdefault(canonicalize_name(requirement.name), set()).update(lowest)
    return found


def test_every_dependency_has_one_floor() -> None:
    assert {
        name: sorted(versions) for name, versions in floors(TESTED).items() if len(versions) != 1
    } == {}


def test_the_oldest_versions_are_the_floors() -> None:
    """A floor that was never published, e.g. scipy 1.11.0 for Python 3.11, is the next release:
    none is far away.
    """
    pins = [
        Requirement(line)
        for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
        if line[0] != "#"
    ]
    pinned = {
        canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("==")) for pin in pins
    }
    wrong = {
        name: (str(floor), str(pinned.get(name)))
        for name, (floor,) in floors(TESTED).items()
        if pinned.get(name) is None or pinned[name].release[: len(floor.release)] != floor.release
    }
    assert wrong == {}, "run make lock-oldest"


def test_the_files_that_make_names_are_there() -> None:
    """pytest runs nothing at all where one of its files is gone."""
    makefile = (ROOT / "Makefile").read_text()
    named = re.search(r"^OLDEST_TESTS := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert named is not None
    assert [
        file for file in named[1].replace("\\\n", " ").split() if not (ROOT / file).exists()
    ] == []
