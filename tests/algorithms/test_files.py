"""Algorithms stay short, and nothing else knows their names."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from dgbench.objectives.contract import Algorithm

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALGORITHMS = sorted((ROOT / "src" / "dgbench" / "algorithms").glob("*.py"))
NAMES = {path.stem for path in (ROOT / "conf" / "algorithm").glob("*.yaml")}
LONGEST = 240


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_every_algorithm_has_a_yaml_and_every_yaml_a_file() -> None:
    modules = [importlib.import_module(f"dgbench.algorithms.{path.stem}") for path in ALGORITHMS]
    files = {
        module.__name__.rpartition(".")[2]
        for module in modules
        if any(
            isinstance(each, type)
            and issubclass(each, Algorithm)
            and each.__module__ == module.__name__
            for each in vars(module).values()
        )
    }
    assert files == NAMES


def test_nothing_branches_on_an_algorithms_name() -> None:
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            tests = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else []
            cases = [case.pattern for case in node.cases] if isinstance(node, ast.Match) else []
            for inner in (inner for test in [*tests, *cases] for inner in ast.walk(test)):
                if isinstance(inner, ast.Constant) and inner.value in NAMES:
                    found.append(f"{path.name}:{inner.lineno} {inner.value}")
    assert not found
