"""The rules that no compiler checks: who imports whom, and what must stand in no file."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dgbench"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Imports point to a greater number only; packages of one line do not import one another, but for
# ALLOWED.
LAYERS = (
    ("cli",),
    ("shift",),
    ("trained", "reports", "sweeps"),
    ("training",),
    ("callbacks",),
    ("algorithms",),
    ("analysis", "data", "networks", "objectives", "plan"),
    (
        "batches", "configuration", "containers", "downloads", "errors", "interruption",
        "network_specs", "phases", "records", "seeding", "validation", "version",
    ),
)  # fmt: skip
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
#: what a package may import of its own line
ALLOWED = {
    "containers": {"batches"},
    "downloads": {"errors"},
    "phases": {"records"},
    "records": {"errors", "version"},
    "validation": {"errors"},
    "plan": {"analysis", "data"},
}
WITHOUT_TORCH = (
    "analysis", "configuration", "downloads", "errors", "phases", "plan", "records", "reports",
    "seeding", "validation", "version",
)  # fmt: skip
#: of the estimators of shift, functions of arrays; and their report
SHIFT_WITHOUT_TORCH = (
    "cells",
    "concept_tables",
    "density",
    "distances",
    "estimators",
    "figures",
    "pairs",
    "report",
    "tables",
    "verdicts",
)


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or anywhere inside; relative imports are made
    absolute.
    """
    package = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


def packages_imported(path: Path) -> set[str]:
    found = {name.split(".")[1] for name in imported(path) if name.startswith("dgbench.")}
    return found & (LAYER.keys() | {each.name.removesuffix(".py") for each in PACKAGE.iterdir()})


def test_every_package_has_a_layer() -> None:
    assert {package_of(path) for path in SOURCES} - {"__init__"} <= LAYER.keys()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path: Path) -> None:
    """A package imports itself and the layers below."""
    own = package_of(path)
    if own == "__init__":  # the public names are loaded when they are used; test_api.py holds that
        return
    found = packages_imported(path) - {own} - ALLOWED.get(own, set())
    upward = {package for package in found if LAYER[package] <= LAYER[own]}
    assert not upward, f"{own} may import {[p for p in LAYER if LAYER[p] > LAYER[own]]} only"


def is_light(path: Path) -> bool:
    """Whether a file imports no torch, nor anything that does."""
    package = package_of(path)
    return package in WITHOUT_TORCH or (package == "shift" and path.stem in SHIFT_WITHOUT_TORCH)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def import_graph() -> dict[str, set[str]]:
    """Module -> the modules of dgbench that it imports: at the top, in a function, or for types
    alone.
    """
    modules = {module_of(path) for path in SOURCES}
    return {
        module_of(path): {name for name in imported(path) if name in modules} for path in SOURCES
    }


def cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Sets of two or more modules each of which imports all others, directly or through others
    (Tarjan 1972).
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in sorted(graph[module] - {module}):
            if other not in number:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            own = path[path.index(module) :]
            del path[path.index(module) :]
            if len(own) > 1:
                found.add(frozenset(own))

    for module in graph:
        if module not in number:
            visit(module)
    return found


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, ["ab"]),
        (
            {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}},
            ["abc", "de"],
        ),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
    ],
)
def test_what_a_cycle_is(graph: dict[str, set[str]], found: list[str]) -> None:
    assert cycles(graph) == {frozenset(names) for names in found}


def test_no_files_import_one_another_in_a_circle() -> None:
    graph = import_graph()
    assert "dgbench.reports.reading.collect" in graph["dgbench.reports.frames"]
    assert cycles(graph) == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_lightning_has_one_name_and_light_packages_no_torch(path: Path) -> None:
    packages = {name.split(".")[0] for name in imported(path)}
    assert not packages & {"lightning", "lightning_fabric"}
    if is_light(path):
        assert not packages & {"torch", "torchvision", "timm", "pytorch_lightning"}


def test_light_packages_load_no_torch() -> None:
    """All their modules in one fresh process: nor may a third package bring torch in, or a report
    is slow.
    """
    names = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if is_light(path)
    ]
    assert len(names) > 10
    load = f"for name in {names}: importlib.import_module(name)"
    program = f"import sys, importlib\n{load}\nprint('torch' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout.strip(), ended.returncode) == ("False", 0), ended.stderr


def test_only_the_configuration_names_concrete_classes() -> None:
    """No algorithm and no dataset is imported; whoever trains sees the contract."""
    for path in SOURCES:
        if package_of(path) in ("training", "callbacks", "sweeps", "reports", "cli"):
            concrete = ("dgbench.algorithms.", "dgbench.data.datasets.")
            assert not [name for name in imported(path) if name.startswith(concrete)], path


TEXTS = sorted(
    path
    for place in ("src", "conf", "docs", "benchmarks", "tests")
    for path in (ROOT / place).rglob("*")
    if path.suffix in {".py", ".yaml", ".md", ".j2", ".json", ".svg"}
    and "egg-info" not in str(path)
) + [
    ROOT / name
    for name in (
        "README.md",
        "Makefile",
        "pyproject.toml",
        "train.py",
        "report.py",
        "shift.py",
        "multirun/README.md",
    )
]
MACHINE_PATH = re.compile(
    r"(?<![\w.:/-])/(?:home|work|root|mnt|data|scratch|Users|opt|var|srv)/\w|[A-Z]:\\\\?Users"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /home/ann/data", True),
        ('"/work/main"', True),
        ("C:\\Users\\ann", True),
        ("https://x.org/home/page", False),
        ("conf/data/x", False),
        ("PYTHON=/path/to/it", False),
    ],
)
def test_what_a_machine_path_is(text: str, found: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is found


def test_no_file_holds_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for path in TEXTS
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not found


def test_the_lock_file_holds_exact_versions_and_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []


SLICES = PACKAGE / "reports" / "slices"


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if not path.is_relative_to(SLICES)],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_nothing_imports_a_report_beside_the_core(path: Path) -> None:
    """A report under ``slices`` can be added and removed without an edit anywhere else."""
    slices = {name for name in imported(path) if name.startswith("dgbench.reports.slices")}
    assert not slices
