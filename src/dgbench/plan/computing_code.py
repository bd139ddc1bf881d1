"""The text of dgbench's own code that computes on tensors, on which the numbers of it depend.

The text is that of :mod:`dgbench.plan.code`: comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from dgbench.configuration import PACKAGE
from dgbench.plan.code import tree_digest

#: packages and modules of dgbench that hold networks, objectives and the steps of training; what
#: the others decide stands in the configuration and in the description of the dataset
COMPUTING = (
    "algorithms",
    "batches",
    "containers",
    "network_specs",
    "networks",
    "objectives",
    "training",
)


def computing_code(paths: Iterable[str]) -> dict[str, str]:
    """Find modules of :data:`COMPUTING` and all of it that they import, at any depth.

    Args:
        paths: import paths of modules, classes or functions; others than dgbench's are passed over.

    Returns:
        Digests of their texts by module, 12 hexadecimal digits each.
    """
    digests: dict[str, str] = {}
    waiting = [name for path in paths for name in _computing(path)]
    while waiting:
        module = waiting.pop()
        if module not in digests:
            digests[module], imports = _read(_file(module), module)
            waiting += imports
    return digests


def _computing(path: str) -> Iterator[str]:
    """Yield the module of :data:`COMPUTING` that an import path names, if it names one."""
    parts = path.split(".")
    if len(parts) < 2 or parts[0] != PACKAGE.name or parts[1] not in COMPUTING:
        return
    for length in range(len(parts), 1, -1):
        module = ".".join(parts[:length])
        if _file(module).is_file():
            yield module
            return


def _file(module: str) -> Path:
    """Return where the file of a module of dgbench stands, or would stand."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache  # of the text that this process imports
def _read(file: Path, module: str) -> tuple[str, tuple[str, ...]]:
    """Read a module.

    Returns:
        The digest of its text, and the modules of :data:`COMPUTING` that it imports, in whatever
        line.
    """
    tree = ast.parse(file.read_bytes())
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{name.name}" for name in node.names]
    imports = {imported for name in names for imported in _computing(name)}
    return tree_digest(tree), tuple(sorted(imports - {module}))
