"""What is on disk, compared with what was published: ``python -m dgbench.data.fetch verify pacs``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dgbench.configuration import CONF
from dgbench.data.datasets.folder_listing import images_below
from dgbench.data.description import DatasetInfo, unlike_published
from dgbench.data.fetch.download import checksum
from dgbench.data.fetch.fetched import Fetched, listing, noted
from dgbench.data.fetch.sources import Archive, Source
from dgbench.errors import DgbenchError

SHOWN = 10  # files of one kind that are named; the others are counted


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        verdict: ``ok``, ``wrong``, or ``unverified`` where nothing is known to compare it with.
        text: what was found, in one line.
    """

    verdict: str
    text: str


def verify(source: Source, data: Path, *, decode: bool = False) -> Iterator[Finding]:
    """Everything that can be said of a dataset on disk: its counts, its files, and the archives that it came in.

    Args:
        source: the dataset.
        data: folder of datasets.
        decode: whether to decode every image; else only empty ones are found.
    """
    folder = data / source.folder
    if not folder.is_dir() or not any(folder.iterdir()):
        yield Finding("wrong", f"{folder} is not there; python -m dgbench.data.fetch {source.name}")
        return
    keys = dataset_keys(source.name, data)
    yield from _counts(keys, f"conf/dataset/{source.name}.yaml")
    yield from _images(folder, decode, skipped=keys.get("on_bad_image") == "skip")
    note, came = noted(source, data)
    found = listing(folder)
    text = f"{found.files} files, listing {found.sha256}"
    if note is None:
        yield Finding("unverified", f"{text}: no note of a download; compare it with that of another machine")
    elif note == found:
        yield Finding("ok", f"{text}: as downloaded")
    else:
        yield Finding("wrong", f"{text}: other names or sizes than the {note.files} files that were downloaded")
    for archive in (archive for form in source.forms for archive in form.files):
        kept = data / ".fetch" / source.name / archive.name
        if kept.is_file():
            yield _kept(archive, kept)
        elif archive.name in came:
            yield _noted(archive, came[archive.name])
    if not came and source.files:
        yield Finding("unverified", "no note of its archives: their checksums cannot be compared")


def dataset_keys(name: str, data: Path) -> dict[str, Any]:
    """The keys of a dataset's configuration, composed and resolved, with this folder of datasets."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [f"dataset={name}"])
    config.paths.data_dir = str(data)
    keys: Any = OmegaConf.to_container(config.dataset, resolve=True)
    return {str(key): value for key, value in keys.items()}


def _counts(keys: Mapping[str, Any], file: str) -> Iterator[Finding]:
    published = keys.get("published") or {}
    try:
        info = _described({**keys, "published": None} if "published" in keys else keys)
    except DgbenchError as error:
        yield Finding("wrong", str(error))
        return
    if not published:
        yield Finding("unverified", f"{file} states no published counts")
        return
    images = sum(sum(of.values()) for of in info.counts.values())
    unlike = unlike_published(published, images, info.n_classes, info.given)
    for key, found, expected in unlike:
        yield Finding("wrong", f"{key} {found}, published {expected}")
    if not unlike:
        counted = f"{images} images, {info.n_classes} classes, {len(info.given)} environments"
        yield Finding("ok", f"{counted}: as published")


def _described(keys: Mapping[str, Any]) -> DatasetInfo:
    """The dataset without an image decoded; keys that others read are left out."""
    from hydra.utils import get_class, instantiate

    taken = {field.name for field in fields(get_class(keys["_target_"]))} | {"_target_"}
    own = {key: value for key, value in keys.items() if key in taken}
    info: DatasetInfo = instantiate(own, _recursive_=False, _convert_="all").describe()
    return info


def _images(folder: Path, decode: bool, skipped: bool) -> Iterator[Finding]:
    paths = sorted(images_below(folder))
    empty = [path for path in paths if (folder / path).stat().st_size == 0]
    broken: dict[str, str] = dict.fromkeys(empty, "empty")
    if decode:
        reasons = _decoded(folder, [path for path in paths if path not in broken])
        broken |= {path: reason for path, reason in reasons if reason}
    verdict, note = ("ok", "; left out of training") if skipped else ("wrong", "")
    for path, reason in list(broken.items())[:SHOWN]:
        yield Finding(verdict, f"{path}: {reason}{note}")
    if len(broken) > SHOWN:
        yield Finding(verdict, f"... and {len(broken) - SHOWN} more of {len(broken)} images that cannot be read{note}")
    if not decode and paths:
        yield Finding("unverified", f"{len(paths)} images are not decoded; --decode does")
    elif not broken and paths:
        yield Finding("ok", f"{len(paths)} images can be decoded")


def _decoded(folder: Path, paths: list[str]) -> list[tuple[str, str]]:
    """Each image and why it cannot be decoded; empty where it can."""
    from dgbench.data.store.decoding import rgb

    def reason(path: str) -> tuple[str, str]:
        try:
            rgb(folder / path)
        except Exception as error:  # whatever PIL raises over a broken file
            return path, f"{type(error).__name__}: {' '.join(str(error).split())}"
        return path, ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tqdm(pool.map(reason, paths), total=len(paths), unit="image", disable=None, leave=False))


def _kept(archive: Archive, file: Path) -> Finding:
    found = {algorithm: checksum(file, algorithm) for algorithm in archive.published}
    for algorithm, expected in archive.published.items():
        if found[algorithm] != expected:
            return Finding("wrong", f"{archive.name}: {algorithm} is {found[algorithm]}, not {expected}")
    if not found:
        return Finding("unverified", f"{archive.name}: no checksum is published; sha256 {checksum(file)}")
    return Finding("ok", f"{archive.name}: {' and '.join(found)} as published")


def _noted(archive: Archive, came: Fetched) -> Finding:
    if archive.sha256 is not None and came.sha256 != archive.sha256:
        return Finding("wrong", f"{archive.name}: came with sha256 {came.sha256}, not {archive.sha256}")
    if came.compared is None:
        return Finding("unverified", f"{archive.name}: no checksum is published; it came with sha256 {came.sha256}")
    return Finding("ok", f"{archive.name}: {came.compared} was as published; not kept")


def shown(findings: Iterator[Finding], name: str, say: Callable[[str], None] = print) -> bool:
    """Print findings, one line each; whether all is well."""
    well = True
    for finding in findings:
        say(f"{finding.verdict:10}  {name}: {finding.text}")
        well = well and finding.verdict != "wrong"
    return well
