"""``python -m dgbench.data.fetch pacs``: download a dataset to where its configuration looks for it.

What there is to download stands in the ``fetch:`` block of ``conf/dataset/NAME.yaml``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dgbench.configuration import CONF
from dgbench.data.fetch.download import download
from dgbench.data.fetch.extract import extract
from dgbench.errors import ConfigError, DataError, DgbenchError
from dgbench.records.locks import try_alone

DATASETS = CONF / "dataset"
KEYS = {"folder", "files", "inner", "arrange", "license", "manual"}


@dataclass(frozen=True)
class Archive:
    """One file to download.

    Args:
        urls: addresses of the same file, tried in order.
        name: its name on disk.
        sha256: its checksum; None where none was published.
    """

    urls: Sequence[str]
    name: str
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """How one dataset is got.

    Args:
        name: of the dataset.
        folder: what it becomes, below the data folder.
        files: archives, all unpacked into one place; none where it can only be had by hand.
        inner: folder in the archives that becomes ``folder``; empty for their whole content.
        arrange: function of the unpacked folder that brings it into environment/class/image; None for none.
        license: what its makers allow.
        manual: what to do by hand, where that is needed or if the addresses have gone.
    """

    name: str
    folder: str
    files: Sequence[Archive]
    inner: str = ""
    arrange: str | None = None
    license: str = "not stated"
    manual: str = ""


def sources(conf: Path = DATASETS) -> dict[str, Source]:
    """All datasets whose configuration has a ``fetch:`` block, by name.

    Raises:
        ConfigError: a block with an unknown key, or without one that it needs.
    """
    found = {}
    for file in sorted(conf.glob("*.yaml")):
        block = (yaml.safe_load(file.read_text()) or {}).get("fetch")
        if block is not None:
            found[file.stem] = _source(file, block)
    return found


def _source(file: Path, block: dict[str, Any]) -> Source:
    try:
        if unknown := block.keys() - KEYS:
            raise ValueError(f"key {sorted(unknown)[0]} is unknown")
        archives = [Archive(**archive) for archive in block.get("files") or []]
        return Source(name=file.stem, **{**block, "files": archives})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the fetch block of {file} cannot be read ({error}); see docs/fetching.md") from error


def fetch(source: Source, data: Path, *, keep: bool = False, say: Callable[[str], None] = print) -> Path:
    """Download and unpack one dataset; do nothing if its folder is there.

    The folder appears under its name only when it is complete. Until then everything lies in ``data/.fetch/NAME``,
    where the next call continues.

    Args:
        source: what to get.
        data: folder of datasets.
        keep: whether to keep the archives.
        say: where to tell of progress.

    Returns:
        The folder.

    Raises:
        DataError: it can only be had by hand, or something went wrong on the way.
    """
    target, stage = data / source.folder, data / ".fetch" / source.name
    if target.is_dir() and any(target.iterdir()):
        say(f"{source.name}: {target} is there, nothing to do")
        return target
    if not source.files:
        raise DataError(f"{source.name} cannot be downloaded by a program; {by_hand(source, data)}")
    stage.mkdir(parents=True, exist_ok=True)
    with try_alone(stage.parent / f"{source.name}.lock") as mine:
        if not mine:
            raise DataError(f"another process is fetching {source.name} into {stage}; wait for it")
        unpacked = stage / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        try:
            for archive in source.files:
                found = download(archive.urls, stage / archive.name, archive.sha256)
                if archive.sha256 is None:
                    say(f"{archive.name}: sha256 {found} (none is published to compare it with)")
            files = sum(extract(stage / archive.name, unpacked) for archive in source.files)
        except DataError as error:
            if not source.manual:
                raise
            raise DataError(f"{error}. Otherwise: {by_hand(source, data)}") from error
        inner = unpacked / source.inner
        if not inner.is_dir():
            raise DataError(f"the archives of {source.name} hold no folder {source.inner}; {by_hand(source, data)}")
        if source.arrange:
            module, _, name = source.arrange.rpartition(".")
            getattr(importlib.import_module(module), name)(inner)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            target.rmdir()
        inner.rename(target)
        if keep:
            shutil.rmtree(unpacked, ignore_errors=True)
        else:
            shutil.rmtree(stage)
        say(f"{source.name}: {files} files in {target} (license: {source.license})")
    return target


def by_hand(source: Source, data: Path) -> str:
    """What a user can do without this program, in one line."""
    steps = " ".join(source.manual.split()) or "get it from its makers"
    return f"{steps.rstrip('.')}, so that its content lies in {data / source.folder}"


def table(data: Path, known: dict[str, Source]) -> str:
    """One line per dataset: is it there, can it be downloaded, its license."""
    rows = [("dataset", "folder", "there", "download", "license")]
    for name, source in known.items():
        there = (data / source.folder).is_dir() and any((data / source.folder).iterdir())
        how = "yes" if source.files else "by hand"
        rows.append((name, source.folder, "yes" if there else "no", how, source.license))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0, or 1 with one line of explanation per dataset that could not be got."""
    parser = argparse.ArgumentParser(prog="python -m dgbench.data.fetch", description="Download datasets.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="datasets of conf/dataset, or: list")
    default = os.environ.get("DGBENCH_DATA_DIR") or "data"
    parser.add_argument("--to", type=Path, default=default, help=f"folder of datasets, as paths.data_dir ({default})")
    parser.add_argument("--keep", action="store_true", help="keep the archives, in .fetch/NAME")
    taken = parser.parse_args(words)
    failed = False
    try:
        known = sources()
    except DgbenchError as error:
        print(f"dgbench: {error}", file=sys.stderr)
        return 1
    for name in taken.names:
        try:
            if name == "list":
                print(table(taken.to, known))
            elif name not in known:
                raise ConfigError(f"{name} has nothing to fetch; choose from {', '.join(known)}, or list")
            else:
                fetch(known[name], taken.to, keep=taken.keep)
        except (DgbenchError, OSError) as error:
            print(f"dgbench: {error}", file=sys.stderr)
            failed = True
    return int(failed)
