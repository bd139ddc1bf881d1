"""Getting one dataset, as the ``fetch:`` block of its ``conf/dataset`` describes.

It is downloaded, unpacked, arranged and noted.

The note, ``data/.fetch/NAME.json``, shows later, or on another machine, what changed. It is what
:func:`listing` finds of the folder, and the sha256 of each archive. Names and sizes tell what is
missing or cut short; the checksums of all files in
``data/.fetch/NAME.sha256`` show a changed byte.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dgbench.configuration import CONF, command_line
from dgbench.data.fetch.archives import extract
from dgbench.data.fetch.arrange import link_or_copy
from dgbench.data.fetch.checksums import NOTES, SUFFIX, read_checksums, write_checksums
from dgbench.downloads import Unavailable, checksum, download, need_answer
from dgbench.errors import ConfigError, DataError
from dgbench.records.locks import try_exclusive
from dgbench.validation import some_of

DATASETS = CONF / "dataset"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Archive:
    """One file to download."""

    urls: Sequence[str]  #: addresses of the same file, tried in order
    name: str  #: its name on disk
    sha256: str | None = None  #: its checksum; None if no public source states one
    md5: str | None = None  #: likewise

    @property
    def published(self) -> Mapping[str, str]:
        """Checksums that a public source states, by algorithm."""
        checksums = {"sha256": self.sha256, "md5": self.md5}
        return {key: value for key, value in checksums.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form in which a dataset is handed out."""

    #: archives, all unpacked into one place; none if it can only be had by hand
    files: Sequence[Archive]
    #: folder in the archives that becomes the dataset's; empty for their whole content
    inner: str = ""
    #: function of the unpacked folder that brings it into the layout that is read; None for none
    arrange: str | None = None
    #: whether the files are archives; others are handed to ``arrange`` as they come
    unpack: bool = True
    needs: str = ""  #: module that ``arrange`` imports and that may be missing; empty for none


@dataclass(frozen=True, kw_only=True)
class DatasetSource(Form):
    """How one dataset is got: in the form described here, or in another one."""

    name: str  #: of the dataset
    folder: str  #: what it becomes, below the data folder
    #: other forms of the same images, tried in order if a file of the one before cannot be had
    otherwise: Sequence[Form] = ()
    license: str = "not stated"  #: what its makers allow
    manual: str = ""  #: what to do by hand, if that is needed or the addresses have gone

    @property
    def forms(self) -> tuple[Form, ...]:
        """All forms, the preferred one first."""
        return (self, *self.otherwise)

    def by_hand(self, data: Path) -> str:
        """Describe in one line what a user can do without this program."""
        steps = " ".join(self.manual.split()) or "get it from its makers"
        return f"{steps.rstrip('.')}, so that its content lies in {data / self.folder}"


def fetching_command(name: str, data: Path) -> str:
    """Write the command that fetches a dataset into a folder of datasets."""
    default = Path(os.environ.get("DGBENCH_DATA_DIR") or "data")
    elsewhere = [] if data.absolute() == default.absolute() else ["--to", str(data)]
    return command_line(["dgbench", "fetch", name, *elsewhere])


def command_into(name: str, root: Path) -> str | None:
    """Write the command after which a dataset's images lie in a folder; None if none does that."""
    source = sources().get(name)
    if source is None:
        return None
    parts = Path(source.folder).parts
    if root.parts[-len(parts) :] != parts:
        return None
    return fetching_command(name, Path(*root.parts[: -len(parts)]))


def sources(conf: Path = DATASETS) -> dict[str, DatasetSource]:
    """Find the source of every dataset that has one, by name.

    It is the ``fetch:`` block of its configuration, or of the one that it builds on.

    Datasets that are read from one folder share one source, named after the dataset whose block it
    is.

    Raises:
        ConfigError: a block with an unknown key, or without one that it needs.
    """
    files = {}
    for file in sorted(conf.glob("*.yaml")):
        files[file.stem] = yaml.safe_load(file.read_text()) or {}
    blocks = {name: content["fetch"] for name, content in files.items() if content.get("fetch")}
    originals = {}
    for name, block in blocks.items():
        if "like" not in block:
            originals[name] = _source(conf / f"{name}.yaml", block)
    by_name = {}
    for name, content in files.items():
        bases = [base for base in content.get("defaults") or [] if isinstance(base, str)]
        with_source = [base for base in bases if base in originals]
        block = blocks.get(name)
        if name in originals:
            by_name[name] = originals[name]
        elif block:
            if list(block) != ["like"] or block["like"] not in originals:
                raise ConfigError(
                    f"the fetch block of {conf / name}.yaml is not {{like: NAME}} of a dataset "
                    "that has one of its own"
                )
            by_name[name] = originals[block["like"]]
        elif with_source:
            by_name[name] = originals[with_source[-1]]
    return by_name


def _source(file: Path, block: Mapping[str, Any]) -> DatasetSource:
    try:
        otherwise = [Form(**_keys(form, Form)) for form in block.get("otherwise") or []]
        if not all(form.files for form in otherwise):
            raise ValueError("a form in otherwise has no files")
        keys = {"name": file.stem, "files": [], **_keys(block, DatasetSource)}
        return DatasetSource(**{**keys, "otherwise": otherwise})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the fetch block of {file} cannot be read ({error}); see docs/how_to/fetching.md"
        ) from error


def _keys(block: Mapping[str, Any], kind: type[Form]) -> dict[str, Any]:
    """Check the keys of a form, and build an :class:`Archive` of each of its files."""
    unknown = block.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"key {sorted(unknown)[0]} is unknown")
    return {**block, "files": [Archive(**archive) for archive in block.get("files") or []]}


def fetch(source: DatasetSource, data: Path, *, keep: bool = False, say: Say = print) -> Path:
    """Download and unpack one dataset, or what was changed or is missing since.

    The folder appears under its name only when it is complete. Until then everything lies in
    ``data/.fetch/NAME``, where the next call continues. What was downloaded is noted in
    ``data/.fetch/NAME.json``.

    Args:
        source: what to get.
        data: folder of datasets.
        keep: whether to keep the archives.
        say: called with a line about progress, and about each address that failed.

    Returns:
        The folder.

    Raises:
        DataError: it can only be had by hand, or something went wrong on the way.
    """
    target = data / source.folder
    stage = data / ".fetch" / source.name
    checksum_note = data / NOTES / f"{source.name}{SUFFIX}"
    is_there = target.is_dir() and any(target.iterdir())
    changed = _changed_files(source, checksum_note) if is_there else []
    if is_there and not changed:
        say(f"{source.name}: {target} is there, nothing to do")
        return target
    if changed:
        say(
            f"{source.name}: {some_of(changed)} is missing or was changed since the download; "
            "fetched again"
        )
    if not source.files:
        raise DataError(f"{source.name} cannot be downloaded by a program; {source.by_hand(data)}")
    stage.mkdir(parents=True, exist_ok=True)
    with try_exclusive(stage.parent / f"{source.name}.lock") as locked:
        if not locked:
            raise DataError(f"another process is fetching {source.name} into {stage}; wait for it")
        archives = _installed(source, data, changed, say)
        if not keep:
            shutil.rmtree(stage, ignore_errors=True)
        listed = note(source, data, archives)
        say(f"{source.name}: {listed.files} files in {target} (license: {source.license})")
    return target


def _installed(
    source: DatasetSource, data: Path, changed: Sequence[str], say: Say
) -> dict[str, Fetched]:
    """Put a dataset into its folder, or only its changed files, and return its archives by name."""
    target = data / source.folder
    stage = data / ".fetch" / source.name
    checksum_note = data / NOTES / f"{source.name}{SUFFIX}"
    unpacked = stage / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        form, checksums = _downloaded(source, stage, say)
        inner = _arranged(form, source.name, stage, unpacked)
        if changed:
            _put_back(changed, inner, target, checksum_note)
        else:
            write_checksums(checksum_note, inner, source.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():  # an empty one
                target.rmdir()
            inner.rename(target)
    except DataError as error:
        if not source.manual:
            raise
        raise DataError(f"{error}. Otherwise: {source.by_hand(data)}") from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
        with suppress(OSError):  # unless something is left to continue with
            stage.rmdir()
    archives = {}
    for archive in form.files:
        compared = next(iter(archive.published), None)
        archives[archive.name] = Fetched(checksums[archive.name], compared)
    return archives


def _arranged(form: Form, name: str, stage: Path, unpacked: Path) -> Path:
    """Unpack the archives of a dataset, arrange their content, and return its folder."""
    unpacked.mkdir()
    for archive in form.files:
        if form.unpack:
            extract(stage / archive.name, unpacked)
        else:
            link_or_copy(stage / archive.name, unpacked / archive.name)
    inner = unpacked / form.inner
    if not inner.is_dir():
        raise DataError(f"the archives of {name} hold no folder {form.inner}; correct fetch.inner")
    if form.arrange:
        module, _, function = form.arrange.rpartition(".")
        getattr(importlib.import_module(module), function)(inner)
    return inner


def _changed_files(source: DatasetSource, checksum_note: Path) -> list[str]:
    """List the files that are not as they were downloaded, by path below the dataset's folder."""
    checksums = read_checksums(checksum_note)
    if checksums is None:
        return []
    return [path.removeprefix(f"{source.folder}/") for path in checksums.faults()]


def _put_back(changed: Sequence[str], arrived: Path, target: Path, checksum_note: Path) -> None:
    """Replace files by those of a second download.

    Raises:
        DataError: one of these is another than in the first download; nothing was replaced.
    """
    checksums = read_checksums(checksum_note)
    for path in changed:
        digest = checksum(arrived / path) if (arrived / path).is_file() else None
        if checksums and digest != checksums.digests.get(f"{target.name}/{path}"):
            raise DataError(
                f"{path} has changed there since it was downloaded; move {target} away "
                "and fetch the dataset again"
            )
    for path in changed:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(arrived / path, target / path)


def _downloaded(source: DatasetSource, stage: Path, say: Say) -> tuple[Form, Mapping[str, str]]:
    """Download the first form all of whose files can be had.

    The form is returned, and the sha256 of each file by its name.
    """
    if source.otherwise:  # or each would be waited for without a network
        first_files = [form.files[0] for form in source.forms]
        addresses = list(chain.from_iterable(file.urls for file in first_files))
        need_answer(source.name, addresses)
    *earlier, last = source.forms
    for form in earlier:
        try:
            return form, _files(form, stage, say)
        except Unavailable as error:
            say(f"{source.name}: {str(error).split(';')[0]}; trying another form of it")
    return last, _files(last, stage, say)


def _files(form: Form, stage: Path, say: Say) -> dict[str, str]:
    if form.needs and importlib.util.find_spec(form.needs) is None:
        raise Unavailable(
            f"{form.files[0].name} needs {form.needs}, which is not installed; pip install "
            f"{form.needs}"
        )
    checksums = {}
    for archive in form.files:
        checksums[archive.name] = download(
            archive.urls, stage / archive.name, archive.sha256, archive.md5, say=say
        )
        if archive.sha256 is None:
            otherwise = "; the md5 is as published" if archive.md5 else " to compare it with"
            say(f"{archive.name}: sha256 {checksums[archive.name]} (none is published{otherwise})")
    return checksums


class Fetched(NamedTuple):
    """One downloaded file.

    Args:
        sha256: its checksum.
        compared: the published checksum that it was compared with, ``sha256`` or ``md5``, or None
            if none is published.
    """

    sha256: str
    compared: str | None


@dataclass(frozen=True)
class Listing:
    """The files below a folder."""

    files: int  #: how many
    bytes: int  #: in all
    sha256: str  #: of their paths and sizes, sorted: one line ``SIZE PATH`` each


def listing(folder: Path) -> Listing:
    """Count the files below a folder, and hash their paths and sizes; links are not followed."""
    sizes = {}
    for subfolder, _, names in os.walk(folder):
        for name in names:
            path = Path(subfolder, name)
            sizes[path.relative_to(folder).as_posix()] = path.lstat().st_size
    lines = "".join(f"{sizes[name]} {name}\n" for name in sorted(sizes))
    digest = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
    return Listing(len(sizes), sum(sizes.values()), digest)


def note(source: DatasetSource, data: Path, archives: Mapping[str, Fetched]) -> Listing:
    """Write a note of what was downloaded, and return the listing of the dataset's folder."""
    listed = listing(data / source.folder)
    content = {
        "listing": asdict(listed),
        "archives": {name: fetched._asdict() for name, fetched in archives.items()},
    }
    (data / ".fetch" / f"{source.name}.json").write_text(json.dumps(content, indent=2) + "\n")
    return listed


def noted(source: DatasetSource, data: Path) -> tuple[Listing | None, Mapping[str, Fetched]]:
    """Read what :func:`note` wrote.

    None and no archives are returned if it was fetched by hand, or the note cannot be read.
    """
    try:
        content = json.loads((data / ".fetch" / f"{source.name}.json").read_text())
        archives = {name: Fetched(**facts) for name, facts in content["archives"].items()}
        return Listing(**content["listing"]), archives
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, {}
