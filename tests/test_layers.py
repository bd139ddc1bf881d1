"""The house rules that no compiler checks: who imports whom, and what must stand in no file."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "src" / "dgbench"
SOURCES = sorted(HOUSE.rglob("*.py"))

# Imports point to a greater number only; within `reports`, `cli`, ... modules may import each other.
FLOORS = (
    ("cli",),
    ("reports", "callbacks", "training", "shifts"),
    ("data", "backbones", "algorithms", "protocols", "measures"),
    ("types", "records", "errors", "seeding"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
WITHOUT_TORCH = ("records", "errors", "seeding", "protocols", "measures", "reports")


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or anywhere inside; relative imports are made absolute."""
    package = ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


def rooms_imported(path: Path) -> set[str]:
    found = {name.split(".")[1] for name in imported(path) if name.startswith("dgbench.")}
    return found & (FLOOR.keys() | {each.name.removesuffix(".py") for each in HOUSE.iterdir()})


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in SOURCES} - {"__init__"} <= FLOOR.keys()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_imports_point_down_only(path: Path) -> None:
    """A room imports itself and the floors below; rooms of one floor do not know each other."""
    own = room_of(path)
    if own == "__init__":  # the package itself holds the version and nothing else
        assert rooms_imported(path) == set()
        return
    upward = {room for room in rooms_imported(path) if room != own and FLOOR[room] <= FLOOR[own]}
    assert not upward, f"{own} may import {[r for r in FLOOR if FLOOR[r] > FLOOR[own]]} only"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_lightning_has_one_name_and_light_rooms_no_torch(path: Path) -> None:
    packages = {name.split(".")[0] for name in imported(path)}
    assert not packages & {"lightning", "lightning_fabric"}
    if room_of(path) in WITHOUT_TORCH:
        assert not packages & {"torch", "torchvision", "timm", "pytorch_lightning"}


def test_light_rooms_load_no_torch() -> None:
    """All their modules in one fresh process: nor may a third package bring torch in, or a report is slow."""
    names = [
        ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if room_of(path) in WITHOUT_TORCH
    ]
    assert len(names) > 10
    load = f"for name in {names}: importlib.import_module(name)"
    program = f"import sys, importlib\n{load}\nprint('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.stdout.strip(), ended.returncode) == ("False", 0), ended.stderr


def test_only_the_command_line_names_concrete_classes() -> None:
    """No algorithm, backbone or dataset is imported by `training` or `callbacks`; they see the contract."""
    allowed = {f"dgbench.algorithms.{name}" for name in ("base", "contract", "updates")} | {
        "dgbench.backbones.batchnorm"
    }
    for path in SOURCES:
        if room_of(path) in ("training", "callbacks"):
            rooms = ("dgbench.algorithms", "dgbench.backbones", "dgbench.data")
            modules = {".".join(name.split(".")[:3]) for name in imported(path) if name.startswith(rooms)}
            assert {name for name in modules if name.count(".") == 2} <= allowed, path


TEXTS = sorted(
    path
    for place in ("src", "conf", "docs", "benchmarks", "tests")
    for path in (ROOT / place).rglob("*")
    if path.suffix in {".py", ".yaml", ".md", ".j2", ".json", ".svg"} and "egg-info" not in str(path)
) + [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", "train.py", "report.py", "multirun/README.md")]
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:home|work|root|mnt|data|scratch|Users|opt|var|srv)/\w|[A-Z]:\\\\?Users")


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
