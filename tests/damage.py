"""Damage to what a command left on disk, as a failing disk, a full one or a slip of a hand does it.

How to use it, on a finished study and on one that was killed alike::

    chance = random.Random(seed)
    done = damage(folder_of_studies, chance)         # one file, one way, both by chance
    done = damage(folder_of_studies, chance, ROWS)   # of these kinds only
    cut_at_line_end(run_folder / "errors.jsonl", chance)    # one way, one file

``damage`` returns what it did and where, for the message of a test that fails. A way that does not
fit a file (the last of several lines, where there is one) leaves the file alone and returns False;
``damage`` then takes another. None of them changes the number of a row: nothing on disk tells a
wrong number from a right one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Way = Callable[[Path, random.Random], bool]  # changes a file; False where it cannot


def cut_at_line_end(file: Path, chance: random.Random) -> bool:
    """Lose some of the last lines, and nothing else: what a disk does that was full for a while."""
    lines = _lines(file)
    return _replace(file, lines[: chance.randrange(1, len(lines))]) if len(lines) > 1 else False


def cut_within_line(file: Path, chance: random.Random) -> bool:
    """Lose the end of a line and all that follows."""
    lines = _lines(file)
    if not lines:
        return False
    at = chance.randrange(len(lines))
    return _replace(file, [*lines[:at], lines[at][: chance.randrange(max(1, len(lines[at]) - 1))]])


def lose_lines(file: Path, chance: random.Random) -> bool:
    """Lose some lines anywhere."""
    lines = _lines(file)
    if len(lines) < 2:
        return False
    lost = set(chance.sample(range(len(lines)), chance.randint(1, min(5, len(lines) - 1))))
    return _replace(file, [line for number, line in enumerate(lines) if number not in lost])


def lose_first_lines(file: Path, chance: random.Random) -> bool:
    """Lose some of the first lines."""
    lines = _lines(file)
    return _replace(file, lines[chance.randrange(1, len(lines)) :]) if len(lines) > 1 else False


def lose_evaluation(file: Path, chance: random.Random) -> bool:
    """Lose all rows of one step."""
    lines = _lines(file)
    steps = [_step(line) for line in lines]
    if len(set(steps)) < 2:
        return False
    lost = chance.choice(sorted(set(steps)))
    return _replace(file, [line for line, step in zip(lines, steps, strict=True) if step != lost])


def repeat_line(file: Path, chance: random.Random) -> bool:
    """Write a line once more, at the end."""
    lines = _lines(file)
    return _replace(file, [*lines, chance.choice(lines)]) if lines else False


def disagreeing_line(file: Path, chance: random.Random) -> bool:
    """Write a row once more with another error, anywhere after the first."""
    lines = _lines(file)
    if not lines:
        return False
    at = chance.randrange(len(lines))
    if _step(lines[at]) < 0:
        return False
    row = json.loads(lines[at])
    row["wrong"] = row["seen"] - row["wrong"] if 2 * row["wrong"] != row["seen"] else 0.0
    again = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    place = chance.randint(at + 1, len(lines))
    return _replace(file, [*lines[:place], again, *lines[place:]])


def garbage_line(file: Path, chance: random.Random) -> bool:
    """Overwrite a line by what is no row, of the same length."""
    lines = _lines(file)
    if not lines:
        return False
    at = chance.randrange(len(lines))
    return _replace(file, [*lines[:at], b"\0" * (len(lines[at]) - 1) + b"\n", *lines[at + 1 :]])


def remove(file: Path, chance: random.Random) -> bool:
    """Remove the file."""
    file.unlink()
    return True


def empty(file: Path, chance: random.Random) -> bool:
    """Leave nothing in the file, as a power cut does to what was not synced."""
    return _replace(file, [])


def cut(file: Path, chance: random.Random) -> bool:
    """Leave the beginning of the file."""
    content = file.read_bytes()
    return (
        _replace(file, [content[: chance.randrange(1, len(content))]])
        if len(content) > 1
        else False
    )


def overwrite(file: Path, chance: random.Random) -> bool:
    """Overwrite a part of the file by random bytes."""
    content = file.read_bytes()
    if not content:
        return False
    start = chance.randrange(len(content))
    size = min(len(content) - start, chance.randint(1, 4096))
    return _replace(file, [content[:start], chance.randbytes(size), content[start + size :]])


def flip(file: Path, chance: random.Random) -> bool:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    if not content:
        return False
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return _replace(file, [bytes(content)])


def zero(file: Path, chance: random.Random) -> bool:
    """Leave the size of the file, and nothing in it, as a power cut does to what was not synced."""
    size = file.stat().st_size
    return _replace(file, [bytes(size)]) if size else False


def grow(file: Path, chance: random.Random) -> bool:
    """Write something behind the end."""
    return _replace(file, [file.read_bytes(), chance.randbytes(chance.randint(1, 600))])


#: of row files
ROWS: Mapping[str, Sequence[Way]] = {
    "fold-*/errors.jsonl": (
        cut_at_line_end, cut_within_line, lose_lines, lose_first_lines, lose_evaluation,
        repeat_line, disagreeing_line, garbage_line, remove, empty,
    )
}  # fmt: skip
_WAYS = (remove, empty, cut, overwrite)
#: of checkpoints, and of what says where one lies
CHECKPOINTS: Mapping[str, Sequence[Way]] = dict.fromkeys(
    (
        "fold-*/checkpoints/last.ckpt",
        "fold-*/checkpoints/best.ckpt",
        "fold-*/stack.json",
        ".stacks/*.ckpt",
    ),
    _WAYS,
)
#: of everything else that a run, a study or a command leaves
RECORDS: Mapping[str, Sequence[Way]] = dict.fromkeys(
    (
        "fold-*/status", "fold-*/identity.json", "fold-*/config.yaml", "fold-*/model.json",
        "fold-*/progress.json", "fold-*/predictions.parquet", "fold-*/metrics.csv", "planned.json",
        ".jobs/*.json",
    ),
    _WAYS,
)  # fmt: skip
EVERYTHING = {**ROWS, **CHECKPOINTS, **RECORDS}
#: of caches: decoded and corrupted images, features, downloads, rows of reports
CACHES: Mapping[str, Sequence[Way]] = dict.fromkeys(
    ("data.uint8", "complete.jsonl", "weights/*.pth", ".dgbench-rows.npz"),
    (*_WAYS, flip, grow, zero),
)


def damage(
    root: Path, chance: random.Random, ways: Mapping[str, Sequence[Way]] = EVERYTHING
) -> str:
    """Damage one file somewhere below a folder.

    Args:
        root: folder of studies, e.g. ``outputs``.
        chance: chooses the file, its kind first, and the way.
        ways: end of a file's path -> ways to damage it.

    Returns:
        what was done to which file.
    """
    present = {name: files for name in ways if (files := sorted(root.rglob(name)))}
    while True:
        name = chance.choice(sorted(present))
        file, way = chance.choice(present[name]), chance.choice(ways[name])
        if way(file, chance):
            return f"{way.__name__} {file.relative_to(root)}"


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def _step(line: bytes) -> int:
    """The step of a row; -1 of a line that is damaged already."""
    try:
        return int(json.loads(line)["step"])
    except ValueError:
        return -1


def _replace(file: Path, parts: Sequence[bytes]) -> bool:
    file.write_bytes(b"".join(parts))
    return True
