"""Getting one dataset: downloaded, unpacked, arranged, and noted in ``data/.fetch/NAME.json``.

The note shows later, or on another machine, what changed. It is what :func:`listing` finds of the folder, and the
sha256 of each archive. Names and sizes tell what is missing or cut short, not a changed byte; that no file is read
again makes it quick.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from dgbench.data.fetch.archives import extract
from dgbench.data.fetch.arrange import link_or_copy
from dgbench.data.fetch.sources import Archive, Form, Source, by_hand
from dgbench.downloads import Unavailable, download, need_answer
from dgbench.errors import DataError
from dgbench.records.locks import try_alone


class Fetched(NamedTuple):
    """One downloaded file.

    Args:
        sha256: its checksum.
        compared: the published checksum that it was compared with, ``sha256`` or ``md5``; None where none is published.
    """

    sha256: str
    compared: str | None


@dataclass(frozen=True)
class Listing:
    """The files below a folder.

    Args:
        files: how many.
        bytes: of all of them.
        sha256: of their paths and sizes, sorted: one line ``SIZE PATH`` each.
    """

    files: int
    bytes: int
    sha256: str


def listing(folder: Path) -> Listing:
    """The files below a folder by name and size; links are not followed."""
    sizes = {}
    for inside, _, names in os.walk(folder):
        for name in names:
            path = Path(inside, name)
            sizes[path.relative_to(folder).as_posix()] = path.lstat().st_size
    lines = "".join(f"{sizes[name]} {name}\n" for name in sorted(sizes))
    digest = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
    return Listing(len(sizes), sum(sizes.values()), digest)


def note(source: Source, data: Path, archives: Mapping[str, Fetched]) -> Listing:
    """Write down what came; returns the listing of the dataset's folder."""
    found = listing(data / source.folder)
    content = {"listing": asdict(found), "archives": {name: each._asdict() for name, each in archives.items()}}
    _file(source, data).write_text(json.dumps(content, indent=2) + "\n")
    return found


def noted(source: Source, data: Path) -> tuple[Listing | None, Mapping[str, Fetched]]:
    """What :func:`note` wrote; nothing where it was fetched by hand, or the note cannot be read."""
    try:
        content = json.loads(_file(source, data).read_text())
        archives = {name: Fetched(**each) for name, each in content["archives"].items()}
        return Listing(**content["listing"]), archives
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, {}


def _file(source: Source, data: Path) -> Path:
    return data / ".fetch" / f"{source.name}.json"


Say = Callable[[str], None]


def fetch(source: Source, data: Path, *, keep: bool = False, say: Say = print) -> Path:
    """Download and unpack one dataset; do nothing if its folder is there.

    The folder appears under its name only when it is complete. Until then everything lies in ``data/.fetch/NAME``,
    where the next call continues. What came is noted in ``data/.fetch/NAME.json``.

    Args:
        source: what to get.
        data: folder of datasets.
        keep: whether to keep the archives.
        say: where to tell of progress, and of each address that failed.

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
            form, checksums = _downloaded(source, stage, say)
            _unpack(form, stage, unpacked)
            _arrange(source, form, unpacked).rename(_place(target))
        except DataError as error:
            if not source.manual:
                raise
            raise DataError(f"{error}. Otherwise: {by_hand(source, data)}") from error
        finally:
            shutil.rmtree(unpacked, ignore_errors=True)
            with suppress(OSError):  # unless something is left to continue with
                stage.rmdir()
        if not keep:
            shutil.rmtree(stage, ignore_errors=True)
        came = note(source, data, {name: Fetched(checksums[name], compared) for name, compared in _compared(form)})
        say(f"{source.name}: {came.files} files in {target} (license: {source.license})")
    return target


def _downloaded(source: Source, stage: Path, say: Say) -> tuple[Form, Mapping[str, str]]:
    """The first form all of whose files can be had, and the sha256 of each file by its name."""
    if source.otherwise:  # or each would be waited for without a network
        need_answer(source.name, [url for form in source.forms for url in form.files[0].urls])
    *others, last = source.forms
    for form in others:
        try:
            return form, _files(form, stage, say)
        except Unavailable as error:
            say(f"{source.name}: {str(error).split(';')[0]}; trying another form of it")
    return last, _files(last, stage, say)


def _files(form: Form, stage: Path, say: Say) -> dict[str, str]:
    if form.needs and importlib.util.find_spec(form.needs) is None:
        raise Unavailable(f"{form.files[0].name} needs {form.needs}, which is not installed; pip install {form.needs}")
    found = {}
    for archive in form.files:
        found[archive.name] = download(archive.urls, stage / archive.name, archive.sha256, archive.md5, say=say)
        if archive.sha256 is None:
            say(f"{archive.name}: sha256 {found[archive.name]} ({_no_sha256(archive)})")
    return found


def _no_sha256(archive: Archive) -> str:
    return "none is published; the md5 is as published" if archive.md5 else "none is published to compare it with"


def _unpack(form: Form, stage: Path, unpacked: Path) -> None:
    unpacked.mkdir()
    for archive in form.files:
        if form.unpack:
            extract(stage / archive.name, unpacked)
        else:
            link_or_copy(stage / archive.name, unpacked / archive.name)


def _arrange(source: Source, form: Form, unpacked: Path) -> Path:
    inner = unpacked / form.inner
    if not inner.is_dir():
        raise DataError(f"the archives of {source.name} hold no folder {form.inner}; correct fetch.inner")
    if form.arrange:
        module, _, name = form.arrange.rpartition(".")
        getattr(importlib.import_module(module), name)(inner)
    return inner


def _place(target: Path) -> Path:
    """Room for a folder under its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        target.rmdir()
    return target


def _compared(form: Form) -> list[tuple[str, str | None]]:
    """Name of each file, and with which published checksum it was compared."""
    return [(archive.name, next(iter(archive.published), None)) for archive in form.files]
