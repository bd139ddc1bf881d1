"""Code in a run's identity: classes of dgbench by the name that ``conf/`` has for them, a user's
own by its text.

A path like ``dgbench.networks.small.MLPFeaturizer`` says where a class stands in this version, so a
hash that held it would change with every move. The text of a module of a user's own is what is
trained: an edited objective is another one, though its path is the same.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dgbench.configuration import CONF, PACKAGE
from dgbench.errors import RecordError
from dgbench.records.checks import shown

HASH_DIGITS = 12
#: keys whose value is the import path of code
CODE_KEYS = ("_target_", "objective")
#: packages that dgbench needs itself: like its own classes they count by name, whatever version is
#: installed
LIBRARIES = frozenset(
    {
        "builtins",
        "dgbench",
        "hydra",
        "hydra_plugins",
        "numpy",
        "pytorch_lightning",
        "scipy",
        "sklearn",
        "timm",
        "torch",
        "torchvision",
    }
)
#: functions of dgbench that a received file may name: they read lists of images and paint, and
#: import nothing
FUNCTIONS = ("dgbench.data.datasets.", "dgbench.data.transforms.")
#: class of today -> the name it had when runs were first named after it; a class that is renamed
#: gets a line here
FORMER_NAMES: Mapping[str, str] = {}

_PATH = re.compile(rf"\b(?:{'|'.join(CODE_KEYS)}): *(\w+(?:\.\w+)+)")


def named(content: Any) -> Any:
    """Replace import paths of dgbench's own classes by their names, anywhere in plain values."""
    return _replaced(content, class_name)


def user_code(content: Any) -> dict[str, str]:
    """Find the code of a user's own that a configuration names.

    Returns:
        Import path -> 12 digits of its module's text, in which comments, docstrings and layout do
        not count; empty digits where the module has no file, e.g. in a notebook.
    """
    named_paths = {
        item for key, item in _items(content) if key in CODE_KEYS and isinstance(item, str)
    }
    paths = {path for path in named_paths if path.partition(".")[0] not in LIBRARIES}
    return {path: _text_digest(path) for path in sorted(paths)}


def present_paths(content: Any) -> Any:
    """Replace import paths of an earlier version, which run folders may hold, by today's."""
    return _replaced(content, present_path)


def _replaced(content: Any, replace: Callable[[Any], Any]) -> Any:
    if isinstance(content, list):
        return [_replaced(item, replace) for item in content]
    if not isinstance(content, Mapping):
        return content
    replaced = {}
    for key, item in content.items():
        replaced[key] = replace(item) if key in CODE_KEYS else _replaced(item, replace)
    return replaced


def present_path(path: Any) -> Any:
    """Map a former import path of a class of dgbench to the one it has today.

    Any other value is returned as it is.
    """
    if not isinstance(path, str) or not path.startswith("dgbench.") or path in _registered("**"):
        return path
    name = _last_name(path)
    for present in _registered("**"):
        if present.startswith("dgbench.") and _last_name(present) == name:
            return present
    return path


def raised_at(error: BaseException) -> str:
    """Find ``FILE, line N`` of the innermost line of an algorithm, or of a user's own code, that
    led to an error.

    Empty where only lines of Python, of installed packages and of the rest of dgbench did.
    """
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    lines = [
        (Path(line.filename), line.lineno) for line in traceback.extract_tb(error.__traceback__)
    ]
    users = [
        f"{file}, line {number}"
        for file, number in lines
        if file.is_absolute() and not _is_library(file)
    ]
    return users[-1] if users else ""


def _is_library(file: Path) -> bool:
    """Return whether a file is part of Python, of an installed package, or of dgbench without its
    algorithms.
    """
    if file.is_relative_to(PACKAGE):
        return not file.is_relative_to(PACKAGE / "algorithms")
    installed = {"site-packages", "dist-packages"} & {*file.parts}
    return bool(installed) or file.is_relative_to(sysconfig.get_path("stdlib"))


def refuse_code(content: Any, place: str, *groups: str) -> None:
    """Refuse import paths by which a file's author could run code of their choice, before anything
    is imported.

    Args:
        content: plain values of a file.
        place: file and key that hold them.
        groups: of ``conf/``; what their files name of dgbench may stand in the content, see
            :func:`allowed_code`.

    Raises:
        RecordError: an import path that no file of the groups names, or an interpolation, which may
            read the environment.
    """
    allowed = frozenset().union(*map(allowed_code, groups))
    for key, item in _items(content):
        if isinstance(item, str) and (item not in allowed if key in CODE_KEYS else "${" in item):
            raise RecordError(
                f"{place}: {ascii(key)[1:-1]}={shown(item)} is no class of dgbench that "
                f"conf/{groups[0]} names, and would run; if you trust whoever made it, add "
                "trust=true"
            )


@cache
def allowed_code(group: str) -> frozenset[str]:
    """Find what a received file may name for a group of ``conf/``: dgbench's own code that its
    files name.

    That are classes, and the functions of :data:`FUNCTIONS`, none of which imports what an argument
    names.
    """
    return frozenset(
        path for path in _registered(group) if _is_class(path) or path.startswith(FUNCTIONS)
    )


def _is_class(path: str) -> bool:
    return path.startswith("dgbench.") and path.rpartition(".")[2][:1].isupper()


@cache
def _registered(group: str) -> frozenset[str]:
    """Find the import paths of classes and functions that files of a group of ``conf/`` name.

    Group ``**`` is all groups.
    """
    paths: set[str] = set()
    for file in CONF.glob(f"{group}/*.yaml"):
        text = re.sub("#.*", "", file.read_text(encoding="utf-8"))
        paths.update(_PATH.findall(text))
    return frozenset(paths)


@cache
def _objectives() -> Mapping[str, str]:
    """Map the import path of each objective to the name of its file in ``conf/algorithm``."""
    names = {}
    for file in sorted((CONF / "algorithm").glob("*.yaml")):
        objective = re.search(r"^objective: *(\S+)", file.read_text(encoding="utf-8"), re.M)
        if objective:
            names[objective[1]] = file.stem
    return names


def class_name(path: Any) -> Any:
    """Return the name of code: ``vrex`` for dgbench's objectives, ``MLPFeaturizer`` for its
    classes, else the path.
    """
    if not isinstance(path, str) or not path.startswith("dgbench."):
        return path
    return _objectives().get(path) or _last_name(path)


def _last_name(path: str) -> str:
    name = path.rpartition(".")[2]
    return FORMER_NAMES.get(name, name)


def _items(content: Any) -> Iterator[tuple[Any, Any]]:
    """Iterate over all keys of plain values, at any depth, with their values.

    The key in a list is the position.
    """
    for key, item in content.items() if isinstance(content, Mapping) else enumerate(content):
        yield key, item
        if isinstance(item, (Mapping, list)):
            yield from _items(item)


@cache  # of the text that this process imports: a module is loaded once
def _text_digest(path: str) -> str:
    file = _module_file(path)
    if file is None:
        return ""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # whoever imports it says what is wrong
        return ""
    return tree_digest(tree)


def tree_digest(tree: ast.AST) -> str:
    """Hash a syntax tree to 12 digits; comments, docstrings and layout do not count."""
    text = "\n".join(_lines(tree, 0))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def _module_file(path: str) -> Path | None:
    """Find the file that an import path such as ``package.module.Class.method`` stands in, without
    running it.
    """
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:length]))
        except (ImportError, AttributeError, ValueError):  # the parent is no package
            continue
        except (
            Exception
        ):  # a package of the user's own that fails as it is imported: whoever builds it says why
            return None
        if spec is not None:
            return Path(spec.origin) if spec.origin and spec.has_location else None
    return None


def _lines(node: ast.AST, depth: int) -> Iterator[str]:
    """Write a syntax tree out so that every version of Python writes it alike: what is empty is
    left out.
    """
    yield f"{depth} {type(node).__name__}"
    for field, value in ast.iter_fields(node):
        items = value if isinstance(value, list) else [value]
        if field == "body" and items and _is_docstring(items[0]):
            items = items[1:]
        for item in items:
            if isinstance(item, ast.AST):
                yield f"{depth} .{field}"
                yield from _lines(item, depth + 1)
            elif item is not None and field not in ("kind", "type_comment"):
                yield f"{depth} .{field} {item!r}"


def _is_docstring(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
