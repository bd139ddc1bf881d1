"""Files that went wrong: valid content, changed at random as disks, editors, kills and other
programs change it.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Codec = Callable[[bytes], bytes]

#: values in the place of others
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 1.5, -0.5, 1e30, -1e308, float("nan"), float("inf"), 10**30, "",
    "zero", "full", "7", "\x1b[31mred", "\ud800", "a\nb", "_x", "$x", "a$b$\\frac{", "=1+1",
    "|`*<b>", "../../x", "9" * 2000, "é",
    [], [1], ["a"], [["a"]], [None], {}, {"a": 1}, {"a": [[[{}]]]}, {"": None},
)  # fmt: skip


def odd_json(dice: random.Random, content: bytes) -> bytes:
    """One value of one line replaced, removed, renamed or joined by another; or the same in every
    line.
    """
    lines = content.splitlines()
    chosen = (
        range(len(lines)) if dice.random() < 0.3 else [dice.randrange(len(lines))] if lines else []
    )
    path, value, what = (
        None,
        dice.choice(ODD),
        dice.choice(("replace", "replace", "replace", "remove", "rename", "add")),
    )
    for at in chosen:
        try:
            document = json.loads(lines[at])
        except ValueError:
            continue
        places = list(_places(document))
        if path is None and places:
            path = dice.choice(places)
        with suppress(KeyError, IndexError, TypeError, AttributeError):
            _change(document, path or (), value, what)
        lines[at] = json.dumps(document).encode()
    return b"\n".join(lines) + b"\n"


def _places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _change(document: Any, path: tuple[Any, ...], value: Any, what: str) -> None:
    for key in path[:-1]:
        document = document[key]
    old = document.pop(path[-1]) if isinstance(document, dict) else document[path[-1]]
    if what == "replace":
        document[path[-1]] = value
    elif what == "rename":
        document[f"{path[-1]}s"] = old
    elif what == "add":
        document[path[-1]], document["added"] = old, value


def torn(dice: random.Random, content: bytes) -> bytes:
    """Bytes flipped, cut, doubled, inserted or moved; lines removed, doubled or swapped; or nothing
    but garbage.
    """
    start = dice.randrange(len(content) + 1)
    end = min(len(content), start + dice.choice((1, 1, 3, 40, 1000)))
    lines = content.splitlines(keepends=True) or [b""]
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: content[:start] + dice.randbytes(end - start) + content[end:],
        lambda: content[:start] + content[end:],
        lambda: content[:end] + content[start:],
        lambda: content[:start],
        lambda: (
            content[:start]
            + dice.choice((b"\n", b"\0", b"{", b"[" * 5000, b"\xff", b'"', b"#"))
            + content[start:]
        ),
        lambda: b"".join([*lines[:at], *lines[at + 1 :]]),
        lambda: b"".join([*lines, lines[at]]),
        lambda: b"".join([*lines[:at], lines[other], *lines[at + 1 :]]),
        lambda: dice.choice(
            (b"", b"\n", b"null\n", b"[]\n", b"{}\n", b"3", dice.randbytes(300), b"\xff\xfe" * 50)
        ),
    )
    return dice.choice(ways)()


def replaced(dice: random.Random, path: Path) -> None:
    """Something that is no ordinary file in the place of one, or nothing."""
    path.unlink()
    kind = dice.choice(("gone", "pipe", "folder", "circle", "dangling", "device", "socket"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        _socket(path)
    elif kind != "gone":
        path.symlink_to({"circle": path.name, "dangling": "nowhere", "device": "/dev/zero"}[kind])


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@contextmanager
def mutated(
    dice: random.Random, path: Path, unpack: Codec = bytes, pack: Codec = bytes
) -> Iterator[None]:
    """A file, changed inside the context.

    Args:
        dice: decides how.
        path: of the file.
        unpack: gives the text of a compressed file, of which half of the changes are made.
        pack: compresses it again.
    """
    content = path.read_bytes()
    try:
        way = dice.choice((odd_json, odd_json, odd_json, torn, torn, replaced))
        if way is replaced:
            replaced(dice, path)
        elif way is torn and dice.random() < 0.5:
            path.write_bytes(torn(dice, content))
        else:
            path.write_bytes(pack(way(dice, unpack(content))))
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(content)
