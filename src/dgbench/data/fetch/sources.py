"""What there is to download: the ``fetch:`` blocks of ``conf/dataset``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from dgbench.configuration import CONF
from dgbench.errors import ConfigError

DATASETS = CONF / "dataset"


@dataclass(frozen=True)
class Archive:
    """One file to download.

    Args:
        urls: addresses of the same file, tried in order.
        name: its name on disk.
        sha256: its checksum; None where no public source states one.
        md5: likewise.
    """

    urls: Sequence[str]
    name: str
    sha256: str | None = None
    md5: str | None = None

    @property
    def published(self) -> Mapping[str, str]:
        """Checksums that a public source states, by algorithm."""
        return {key: value for key, value in (("sha256", self.sha256), ("md5", self.md5)) if value is not None}


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form in which a dataset is handed out.

    Args:
        files: archives, all unpacked into one place; none where it can only be had by hand.
        inner: folder in the archives that becomes the dataset's; empty for their whole content.
        arrange: function of the unpacked folder that brings it into the layout that is read; None for none.
        unpack: whether the files are archives; others are handed to ``arrange`` as they come.
        needs: module that ``arrange`` imports and that may be missing; empty for none.
    """

    files: Sequence[Archive]
    inner: str = ""
    arrange: str | None = None
    unpack: bool = True
    needs: str = ""


@dataclass(frozen=True, kw_only=True)
class Source(Form):
    """How one dataset is got: in the form described here, or in another one.

    Args:
        name: of the dataset.
        folder: what it becomes, below the data folder.
        otherwise: other forms of the same images, tried in order where a file of the one before cannot be had.
        license: what its makers allow.
        manual: what to do by hand, where that is needed or if the addresses have gone.
    """

    name: str
    folder: str
    otherwise: Sequence[Form] = ()
    license: str = "not stated"
    manual: str = ""

    @property
    def forms(self) -> tuple[Form, ...]:
        """All forms, the preferred one first."""
        return (self, *self.otherwise)


def sources(conf: Path = DATASETS) -> dict[str, Source]:
    """Every dataset that has a ``fetch:`` block in its configuration or in the one that it builds on, by name.

    Datasets that are read from one folder have one source, named as the one whose block it is.

    Raises:
        ConfigError: a block with an unknown key, or without one that it needs.
    """
    files = {file.stem: yaml.safe_load(file.read_text()) or {} for file in sorted(conf.glob("*.yaml"))}
    blocks = {name: file["fetch"] for name, file in files.items() if file.get("fetch")}
    own = {name: _source(conf / f"{name}.yaml", block) for name, block in blocks.items() if "like" not in block}
    found = {}
    for name, file in files.items():
        bases = [base for base in file.get("defaults") or [] if isinstance(base, str) and base in own]
        if name in own:
            found[name] = own[name]
        elif name in blocks:
            found[name] = _like(conf / f"{name}.yaml", blocks[name], own)
        elif bases:
            found[name] = own[bases[-1]]
    return found


def _like(file: Path, block: Mapping[str, Any], own: Mapping[str, Source]) -> Source:
    if list(block) != ["like"] or block["like"] not in own:
        raise ConfigError(f"the fetch block of {file} is not {{like: NAME}} of a dataset that has one of its own")
    return own[block["like"]]


def by_hand(source: Source, data: Path) -> str:
    """What a user can do without this program, in one line."""
    steps = " ".join(source.manual.split()) or "get it from its makers"
    return f"{steps.rstrip('.')}, so that its content lies in {data / source.folder}"


def _source(file: Path, block: Mapping[str, Any]) -> Source:
    try:
        otherwise = [Form(**_keys(form, Form)) for form in block.get("otherwise") or []]
        if not all(form.files for form in otherwise):
            raise ValueError("a form in otherwise has no files")
        return Source(**{"name": file.stem, "files": [], **_keys(block, Source), "otherwise": otherwise})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the fetch block of {file} cannot be read ({error}); see docs/how_to/fetching.md") from error


def _keys(block: Mapping[str, Any], kind: type[Form]) -> dict[str, Any]:
    """The keys of a form, its files as such."""
    if unknown := block.keys() - {field.name for field in fields(kind)}:
        raise ValueError(f"key {sorted(unknown)[0]} is unknown")
    return {**block, "files": [Archive(**archive) for archive in block.get("files") or []]}
