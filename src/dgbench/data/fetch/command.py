"""``python -m dgbench.data.fetch pacs``: download datasets to where their configuration looks, and verify them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dgbench.data.fetch.fetching import fetch
from dgbench.data.fetch.sources import Source, sources
from dgbench.errors import ConfigError, DgbenchError

ABOUT = """Download datasets, and look what is there.

  NAME ...           download datasets of conf/dataset
  list               what there is, what is on disk, what can be downloaded
  verify [NAME ...]  compare what is on disk with what was published; without names, all that is there
"""


def table(data: Path, known: Mapping[str, Source]) -> str:
    """One line per dataset: is it there, can it be downloaded, its license."""
    rows = [("dataset", "folder", "there", "download", "license")]
    for name, source in known.items():
        how = "yes" if source.files else "by hand"
        rows.append((name, source.folder, "yes" if _there(source, data) else "no", how, source.license))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0, or 1 with one line of explanation per dataset that could not be got, or is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m dgbench.data.fetch",
        usage="%(prog)s NAME ... | list | verify [NAME ...] [options]",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="datasets, after the word verify where they are there")
    default = os.environ.get("DGBENCH_DATA_DIR") or "data"
    parser.add_argument("--to", type=Path, default=default, help=f"folder of datasets, as paths.data_dir ({default})")
    parser.add_argument("--keep", action="store_true", help="keep the archives, in .fetch/NAME")
    parser.add_argument("--decode", action="store_true", help="verify: also decode every image")
    taken = parser.parse_args(words)
    try:
        known = sources()
    except DgbenchError as error:
        return _refused(error)
    if taken.names == ["list"]:
        print(table(taken.to, known))
        return 0
    if taken.names[0] == "verify":
        there = [name for name, source in known.items() if name == source.name and _there(source, taken.to)]
        names = taken.names[1:] or there
        return max((_verify(name, known, taken.to, taken.decode) for name in names), default=0)
    return max(_fetch(name, known, taken.to, taken.keep) for name in taken.names)


def _fetch(name: str, known: Mapping[str, Source], data: Path, keep: bool) -> int:
    try:
        fetch(_source(name, known), data, keep=keep)
    except (DgbenchError, OSError) as error:
        return _refused(error)
    return 0


def _verify(name: str, known: Mapping[str, Source], data: Path, decode: bool) -> int:
    from dgbench.data.fetch.verify import shown, verify  # Hydra's import takes its time

    try:
        return int(not shown(verify(_source(name, known), data, decode=decode), name))
    except (DgbenchError, OSError) as error:
        return _refused(error)


def _source(name: str, known: Mapping[str, Source]) -> Source:
    if name not in known:
        raise ConfigError(f"{name} has nothing to fetch; choose from {', '.join(known)}, or list")
    return known[name]


def _there(source: Source, data: Path) -> bool:
    folder = data / source.folder
    return folder.is_dir() and any(folder.iterdir())


def _refused(error: Exception) -> int:
    print(f"dgbench: {error}", file=sys.stderr)
    return 1
