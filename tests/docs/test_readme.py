"""What the README shows was printed: cheap commands print it now, and of the others it is known which code did."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHEAP = ("trainer.stepz", "runs=[results/")  # parts of commands that end within seconds


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_outputs", ROOT / "docs" / "readme_outputs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["readme_outputs"] = module  # a dataclass looks there for its module
    spec.loader.exec_module(module)
    return module


OUTPUTS = load()
README = (ROOT / "README.md").read_text()
BLOCKS = list(OUTPUTS.blocks(README))


def name(block: Any) -> str:
    words: str = block.command
    return words[:60]


def test_every_output_names_its_command() -> None:
    """A block without a language is an output; those of Python sessions are checked with docs/reference/python.md."""
    fences = re.findall(r"^```(\w*)$", README, re.MULTILINE)[::2]
    assert fences.count("") == len(BLOCKS) >= 4
    assert {block.command for block in BLOCKS} == set(OUTPUTS.kept())


@pytest.mark.parametrize("block", [b for b in BLOCKS if any(part in b.command for part in CHEAP)], ids=name)
def test_a_cheap_command_prints_what_is_shown(block: Any, tmp_path: Path) -> None:
    assert OUTPUTS.run(block.command, tmp_path) == block.output


@pytest.mark.parametrize("block", BLOCKS, ids=name)
def test_an_output_is_as_old_as_the_code(block: Any) -> None:
    if OUTPUTS.kept()[block.command]["code"] != block.depends_on:
        pytest.skip(f"shown by older code, renew it with make readme: {block.command}")
