"""Algorithms stay short, and nothing else knows their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALGORITHMS = sorted((ROOT / "src" / "dgbench" / "algorithms").glob("*.py"))
NAMES = {path.stem for path in (ROOT / "conf" / "algorithm").glob("*.yaml")}
LONGEST = 150


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_every_algorithm_has_a_yaml_and_every_yaml_a_file() -> None:
    files = {
        path.stem
        for path in ALGORITHMS
        if any(isinstance(node, ast.ClassDef) and _is_algorithm(node) for node in ast.parse(path.read_text()).body)
    }
    assert files - {"base"} == NAMES


def _is_algorithm(node: ast.ClassDef) -> bool:
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
    return bool(bases & {"Algorithm", "DANN", "SharpnessAware"})


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
