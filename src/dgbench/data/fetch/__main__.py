"""``dgbench fetch pacs``: download datasets to where their configuration looks, and verify them."""

from __future__ import annotations

import argparse
import inspect
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dgbench.configuration import CONF
from dgbench.data.datasets.file_tree import images_below
from dgbench.data.description import DatasetInfo, unlike_published
from dgbench.data.fetch.checksums import NOTES, SUFFIX, ChangedFile, Checksums, read_checksums
from dgbench.data.fetch.fetching import (
    Archive,
    DatasetSource,
    Fetched,
    fetch,
    fetching_command,
    listing,
    noted,
    sources,
)
from dgbench.downloads import checksum
from dgbench.errors import ConfigError, DgbenchError, one_line

ABOUT = """Download datasets, and list those that are on disk.

  NAME ...           download datasets of conf/dataset
  list               what there is, what is on disk, what can be downloaded
  verify [NAME ...]  compare what is on disk with what was published; without names, \
all that is there
"""


def table(data: Path, datasets: Mapping[str, DatasetSource]) -> str:
    """Format one line per dataset: whether it is there, how it can be had, and its license."""
    rows = [("dataset", "folder", "there", "download", "license")]
    for name, source in datasets.items():
        there = "yes" if _is_present(source, data) else "no"
        download = "yes" if source.files else "by hand"
        rows.append((name, source.folder, there, download, source.license))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return its code.

    Returns:
        0, or 1 with one line of explanation for each dataset that cannot be fetched or is wrong.
    """
    options = _parser().parse_args(words)
    unread = _unread(options)
    if unread:
        print(
            f"dgbench: {unread} changes nothing here, see dgbench fetch --help; leave it out",
            file=sys.stderr,
        )
        return 1
    try:
        datasets = sources()
    except DgbenchError as error:
        print(f"dgbench: {error}", file=sys.stderr)
        return 1
    if options.names[0] == "list":
        print(table(options.to, datasets))
        return 0
    names = options.names
    if names[0] == "verify":
        names = names[1:] or _present(datasets, options.to)
    if not names:
        print(
            f"dgbench: {options.to} holds nothing to verify; name the folder of datasets with --to",
            file=sys.stderr,
        )
        return 1
    done = [_fetch_or_verify(name, datasets, options) for name in names]
    return 0 if all(done) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dgbench fetch",
        usage="%(prog)s NAME ... | list | verify [NAME ...] [options]",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="datasets, after the word verify where they are there",
    )
    default = os.environ.get("DGBENCH_DATA_DIR") or "data"
    parser.add_argument(
        "--to",
        type=Path,
        default=default,
        help=f"folder of datasets, as paths.data_dir ({default})",
    )
    parser.add_argument("--keep", action="store_true", help="keep the archives, in .fetch/NAME")
    parser.add_argument("--decode", action="store_true", help="verify: also decode every image")
    return parser


def _unread(options: argparse.Namespace) -> str:
    """Find a typed word that changes nothing, or return no text."""
    verifies = options.names[0] == "verify"
    lists = options.names[0] == "list"
    if options.keep and (verifies or lists):
        return "--keep"
    if options.decode and not verifies:
        return "--decode"
    return " ".join(options.names[1:]) if lists else ""


def _present(datasets: Mapping[str, DatasetSource], data: Path) -> list[str]:
    """List the datasets on disk that have a source under their own name."""
    names = []
    for name, source in datasets.items():
        if name == source.name and _is_present(source, data):
            names.append(name)
    return names


def _fetch_or_verify(
    name: str, datasets: Mapping[str, DatasetSource], options: argparse.Namespace
) -> bool:
    """Fetch or verify a dataset as the command asks; return whether nothing went wrong."""
    try:
        if name not in datasets:
            raise ConfigError(
                f"{name} has nothing to fetch; choose from {', '.join(datasets)}, or list"
            )
        if options.names[0] == "verify":
            return shown(verify(datasets[name], options.to, decode=options.decode), name)
        fetch(datasets[name], options.to, keep=options.keep)
    except (DgbenchError, OSError) as error:
        print(f"dgbench: {error}", file=sys.stderr)
        return False
    return True


def _is_present(source: DatasetSource, data: Path) -> bool:
    folder = data / source.folder
    return folder.is_dir() and any(folder.iterdir())


MOST_NAMED = 10  #: files of one kind that are named; the others are counted


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    verdict: str  #: ``ok``, ``wrong``, or ``unverified`` if nothing is known to compare it with
    text: str  #: what was found, in one line


def verify(source: DatasetSource, data: Path, *, decode: bool = False) -> Iterator[Finding]:
    """Verify a dataset on disk as far as possible: its counts, files, and archives.

    Args:
        source: the dataset.
        data: folder of datasets.
        decode: whether to decode every image; else only empty ones are found.
    """
    folder = data / source.folder
    if not _is_present(source, data):
        yield Finding("wrong", f"{folder} is not there; {fetching_command(source.name, data)}")
        return
    keys = dataset_keys(source.name, data)
    yield from _counts(keys, f"conf/dataset/{source.name}.yaml")
    yield from _images(folder, decode, skipped=keys.get("on_bad_image") == "skip")
    yield from _names_and_sizes(source, data)


def _names_and_sizes(source: DatasetSource, data: Path) -> Iterator[Finding]:
    """Compare the files and archives of a dataset with what was noted when it was downloaded."""
    note, fetched = noted(source, data)
    listed = listing(data / source.folder)
    text = f"{listed.files} files, listing {listed.sha256}"
    if note is None:
        yield Finding(
            "unverified", f"{text}: no note of a download; compare it with that of another machine"
        )
    elif note == listed:
        yield Finding("ok", f"{text}: as downloaded")
    else:
        yield Finding(
            "wrong",
            f"{text}: other names or sizes than the {note.files} files that were downloaded",
        )
    checksums = read_checksums(data / NOTES / f"{source.name}{SUFFIX}")
    if checksums:
        yield from _contents(checksums, source)
    elif note is not None:
        yield Finding(
            "unverified", "no note of the checksums of its files: a changed byte cannot be seen"
        )
    for archive in chain.from_iterable(form.files for form in source.forms):
        file = data / ".fetch" / source.name / archive.name
        if file.is_file():
            yield _check_archive(archive, file)
        elif archive.name in fetched:
            yield _noted(archive, fetched[archive.name])
    if not fetched and source.files:
        yield Finding("unverified", "no note of its archives: their checksums cannot be compared")


def dataset_keys(name: str, data: Path) -> dict[str, Any]:
    """Compose the configuration of a dataset in this folder of datasets, and return its keys."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [f"dataset={name}"])
    config.paths.data_dir = str(data)
    keys: Any = OmegaConf.to_container(config.dataset, resolve=True)
    return {str(key): value for key, value in keys.items()}


def _counts(keys: Mapping[str, Any], file: str) -> Iterator[Finding]:
    from hydra.utils import get_class, instantiate

    published = keys.get("published") or {}
    try:
        # without an image decoded; keys that others read are left out
        names = {*inspect.signature(get_class(keys["_target_"])).parameters, "_target_"}
        options = {key: value for key, value in keys.items() if key in names}
        if "published" in keys:
            options["published"] = None
        info: DatasetInfo = instantiate(options, _recursive_=False, _convert_="all").describe()
    except ChangedFile:  # all such files are named below
        yield Finding("unverified", "files were changed: their counts are not compared")
        return
    except DgbenchError as error:
        yield Finding("wrong", str(error))
        return
    if not published:
        yield Finding("unverified", f"{file} states no published counts")
        return
    images = sum(sum(counts.values()) for counts in info.counts.values())
    differences = unlike_published(published, images, info.n_classes, info.given)
    for key, actual, expected in differences:
        yield Finding("wrong", f"{key} {actual}, published {expected}")
    if not differences:
        counted = f"{images} images, {info.n_classes} classes, {len(info.given)} environments"
        yield Finding("ok", f"{counted}: as published")


def _images(folder: Path, decode: bool, skipped: bool) -> Iterator[Finding]:
    paths = sorted(images_below(folder))
    empty = [path for path in paths if (folder / path).stat().st_size == 0]
    broken: dict[str, str] = dict.fromkeys(empty, "empty")
    if decode:
        reasons = _decoded(folder, [path for path in paths if path not in broken])
        broken |= {path: reason for path, reason in reasons if reason}
    verdict = "ok" if skipped else "wrong"
    note = "; left out of training" if skipped else ""
    for path, reason in list(broken.items())[:MOST_NAMED]:
        yield Finding(verdict, f"{path}: {reason}{note}")
    if len(broken) > MOST_NAMED:
        more = len(broken) - MOST_NAMED
        text = f"... and {more} more of {len(broken)} images that cannot be read{note}"
        yield Finding(verdict, text)
    if not decode and paths:
        yield Finding("unverified", f"{len(paths)} images are not decoded; --decode does")
    elif not broken and paths:
        yield Finding("ok", f"{len(paths)} images can be decoded")


def _decoded(folder: Path, paths: list[str]) -> list[tuple[str, str]]:
    """Decode every image, and pair its path with why it cannot be decoded, empty if it can."""
    from dgbench.data.store.decoding import rgb

    def reason(path: str) -> tuple[str, str]:
        try:
            rgb(folder / path)
        except Exception as error:  # whatever PIL raises over a broken file
            return path, one_line(error, None)
        return path, ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = pool.map(reason, paths)
        return list(tqdm(reasons, total=len(paths), unit="image", disable=None, leave=False))


def _contents(checksums: Checksums, source: DatasetSource) -> Iterator[Finding]:
    """Read every file, and compare it with its checksum of the download."""
    faults = checksums.faults()
    for path, fault in list(faults.items())[:MOST_NAMED]:
        yield Finding("wrong", f"{path} {fault}; dgbench fetch {source.name} gets it again")
    if len(faults) > MOST_NAMED:
        yield Finding("wrong", f"... and {len(faults) - MOST_NAMED} more of {len(faults)} files")
    if not faults:
        yield Finding("ok", f"{len(checksums.digests)} files have the checksums of the download")


def _check_archive(archive: Archive, file: Path) -> Finding:
    checksums = {algorithm: checksum(file, algorithm) for algorithm in archive.published}
    for algorithm, expected in archive.published.items():
        if checksums[algorithm] != expected:
            return Finding(
                "wrong", f"{archive.name}: {algorithm} is {checksums[algorithm]}, not {expected}"
            )
    if not checksums:
        return Finding(
            "unverified", f"{archive.name}: no checksum is published; sha256 {checksum(file)}"
        )
    return Finding("ok", f"{archive.name}: {' and '.join(checksums)} as published")


def _noted(archive: Archive, fetched: Fetched) -> Finding:
    if archive.sha256 is not None and fetched.sha256 != archive.sha256:
        return Finding(
            "wrong", f"{archive.name}: came with sha256 {fetched.sha256}, not {archive.sha256}"
        )
    if fetched.compared is None:
        return Finding(
            "unverified",
            f"{archive.name}: no checksum is published; it came with sha256 {fetched.sha256}",
        )
    return Finding(
        "ok", f"{archive.name}: {fetched.compared} was as published; the archive was not kept"
    )


def shown(findings: Iterator[Finding], name: str) -> bool:
    """Print findings, one line each; return whether none is wrong."""
    well = True
    for finding in findings:
        print(f"{finding.verdict:10}  {name}: {finding.text}")
        well = well and finding.verdict != "wrong"
    return well


def command() -> None:
    """Run the words of the command line, and exit with their code.

    Ctrl-C and SIGTERM print one line.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print(
            "dgbench: interrupted; the same command continues where this one stopped",
            file=sys.stderr,
        )
        sys.exit(130)


if __name__ == "__main__":
    command()
