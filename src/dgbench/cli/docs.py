"""``python -m dgbench.cli.docs``: the pages of docs/reference/ that are written from ``conf/`` and from docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dgbench.cli.algorithm_docs import algorithms_page
from dgbench.cli.download_docs import downloads_page
from dgbench.cli.row_docs import rows_page
from dgbench.configuration import CONF

REFERENCE = CONF.parent / "docs" / "reference"
_LINE = re.compile(
    r"^(?P<indent> *)\"?(?P<key>[\w-]+)\"?:"
    r"(?P<value>(?:[^#'\"]|(?<=\S)#|'[^']*'|\"[^\"]*\")*?)(?:\s+#\s*(?P<note>.*))?$"
)
_ENTRY = re.compile(r"\{default: (?P<default>.*?)(?:, range: (?P<range>.*?))?, help: \"(?P<help>.*)\"\}")
_PACKAGE = re.compile(r"^# @package (\S+)")
# search spaces stand in docs/reference/algorithms.md, downloads in docs/reference/downloads.md
_SKIP = {"_target_", "_partial_", "defaults", "version", "hydra", "search", "fetch"}
# where defaults of hyperparameters stand -> the address that sets them
_ADDRESSES = {"algorithm.hparams.": "hparams.", "hparams.shared.hparams.": "hparams."}
_TITLES = {"train.yaml": "python train.py", "shift.yaml": "python shift.py", "report.yaml": "python report.py"}
_HEAD = """# Configuration

<!-- Written by `make docs` from the comments in conf/; edit those. -->

Choose a file of a group with `GROUP=NAME` (`algorithm=vrex`), set a single key with `GROUP.KEY=VALUE`
(`trainer.steps=1000`), sweep with `-m` and commas (`-m seed=0,1,2 algorithm=erm,vrex`). `--cfg job` prints the composed
configuration, `--help` the choices. `paths.output_dir=DIR` and, with `-m`, `hydra.sweep.dir=DIR` say where studies go.
A mistyped key is an error. Every hyperparameter has one address, `hparams.NAME=VALUE`, under which it is listed here.
"""


def configuration_page() -> str:
    """The text of docs/reference/configuration.md."""
    parts = [_HEAD, "## Commands\n"]
    for name, command in _TITLES.items():
        parts.append(_section(f"`{command}`", "", CONF / name))
    for folder in sorted(path for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"):
        parts.append(f"\n## `{folder.name}`\n")
        parts.extend(
            _section(f"`{folder.name}={file.stem}`", f"{folder.name}.", file) for file in sorted(folder.glob("*.yaml"))
        )
    return "\n".join(parts)


def _section(title: str, prefix: str, file: Path) -> str:
    lines = file.read_text().splitlines()
    about = " ".join(line.lstrip("# ") for line in _leading_comment(lines) if "@package" not in line)
    for line in lines:
        if found := _PACKAGE.match(line):
            prefix = "" if found[1] == "_global_" else f"{found[1]}."
    rows = [
        f"| `{_address(prefix + key)}` | {f'`{value}`' if value else ''} | {note} |"
        for key, value, note in _keys(lines)
    ]
    table = ["| key | default | meaning |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([f"### {title}\n", *([about, ""] if about else []), *table])


def _address(key: str) -> str:
    """The key that sets a value on the command line."""
    for place, address in _ADDRESSES.items():
        if key.startswith(place):
            return address + key.removeprefix(place)
    return key


def _leading_comment(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("#"):
            return
        yield line


def _keys(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Dotted key, value as written, comment; nested blocks by their indentation."""
    path: list[tuple[int, str]] = []
    for line in _whole(lines):
        found = _LINE.match(line)
        if not found:
            continue
        indent = len(found["indent"])
        path = [(depth, key) for depth, key in path if depth < indent]
        dotted = ".".join([*(key for _, key in path), found["key"]])
        path.append((indent, found["key"]))
        value, note = found["value"].strip(), found["note"] or ""
        if entry := _ENTRY.fullmatch(value):
            allowed = f"{entry['range']}: " if entry["range"] and "|" not in entry["range"] else ""
            value, note = entry["default"], f"{allowed}{entry['help']}"
        if not _SKIP.intersection(dotted.split(".")) and (value or note):
            yield dotted, value.replace("|", "\\|"), note.replace("|", "\\|")


def _whole(lines: list[str]) -> Iterator[str]:
    """Lines, an entry that takes two of them as one."""
    begun = ""
    for line in lines:
        begun = f"{begun} {line.strip()}" if begun else line
        if not begun.endswith(","):
            yield begun
            begun = ""


PAGES = {
    "configuration.md": configuration_page,
    "algorithms.md": algorithms_page,
    "downloads.md": downloads_page,
    "rows.md": rows_page,
}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
        print(REFERENCE / name)


if __name__ == "__main__":
    main()
