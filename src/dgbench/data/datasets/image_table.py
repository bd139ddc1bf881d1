"""Which images a dataset of files has: their paths, environments and classes, from folders or from a list."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dgbench.data.datasets.folder_listing import SUFFIXES, folders_in, images_below, unreadable
from dgbench.data.datasets.table_checks import check_classes, chosen_environments
from dgbench.data.option_checks import check_list
from dgbench.errors import ConfigError, DataError

SUBSETS = ("train", "val", "test")
SAMPLED, SAMPLED_BYTES = 128, 2**20  # files that `content` reads, and bytes of each
#: path -> name -> what is known of an image besides its environment, class and subset
Attributes = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class ImageTable:
    """Images by file, in the order of their names; the store keeps them in this order.

    Args:
        root: folder that the paths are below.
        paths: (n,) paths below ``root``, with forward slashes.
        environments, classes: names; positions in them are what ``env`` and ``label`` hold.
        env: (n,) int64.
        label: (n,) int64.
        listed: (n,) subset that a list gives each image, an index of ``SUBSETS``, or -1 where it gives none.
        sizes: (n,) bytes of each file.
        mtimes: (n,) nanoseconds of each file's last change.
        attributes: what a list says besides: name -> n values. No hash holds them, they change nothing that is trained.
    """

    root: Path
    paths: list[str]
    environments: list[str]
    classes: list[str]
    env: np.ndarray
    label: np.ndarray
    listed: np.ndarray
    sizes: np.ndarray
    mtimes: np.ndarray
    attributes: Mapping[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def fingerprint(self, kept: np.ndarray | None = None) -> str:
        """12 hexadecimal digits of names, environments, classes, listed subsets and file sizes: equal in every copy.

        Args:
            kept: (n,) bool, the images that count; None is all.
        """
        chosen = range(len(self)) if kept is None else np.flatnonzero(kept)
        return _sha256(
            f"{self.paths[i]}\t{self.environments[self.env[i]]}\t{self.classes[self.label[i]]}\t{self.listed[i]}\t"
            f"{self.sizes[i]}"
            for i in chosen
        )[:12]

    def content(self) -> str:
        """16 hexadecimal digits of :meth:`fingerprint` and the bytes of a sample of files, whatever their times."""
        digest = hashlib.sha256(self.fingerprint().encode())
        for i in dict.fromkeys(np.linspace(0, len(self) - 1, SAMPLED).astype(int).tolist()):
            try:
                with open(self.root / self.paths[i], "rb") as file:
                    digest.update(file.read(SAMPLED_BYTES))
            except OSError as error:
                unreadable(error, self.root / self.paths[i])
        return digest.hexdigest()[:16]

    def state(self, *more: Any) -> str:
        """16 hexadecimal digits that change when a file is added, removed or written anew, or ``more`` changes."""
        entries = (f"{p}\t{s}\t{m}" for p, s, m in zip(self.paths, self.sizes, self.mtimes, strict=True))
        return _sha256([*map(str, more), *entries])[:16]


def table_of_folders(
    root: Path, environments: Sequence[str] | None, classes: str, bad_files: Sequence[str], name: str
) -> ImageTable:
    """The images of a tree ``root/environment/class/image``.

    Args:
        root: folder of the dataset.
        environments: names of the environments to take, in order; None takes all, sorted.
        classes: ``same`` refuses environments with different classes, ``union`` allows them.
        bad_files: paths below ``root`` to leave out.
        name: of the dataset, for messages.

    Raises:
        ConfigError, DataError: see :func:`table_of`.
    """
    need_folder(root, name)
    found = folders_in(root)
    if not found:
        raise DataError(f"dataset.root={root} holds no environment folders; lay images out as environment/class/image")
    rows, chosen = [], chosen_environments(found, environments)
    for env in chosen:
        for label in folders_in(root / env):
            rows += [(path, env, label, None) for path in images_below(root, f"{env}/{label}")]
    return table_of(root, rows, chosen, classes, bad_files)


def table_of_rows(
    rows: Sequence[tuple[str, str, str, str | None]],
    root: Path,
    environments: Sequence[str] | None,
    classes: str,
    bad_files: Sequence[str],
    attributes: Attributes | None = None,
) -> ImageTable:
    """The images of (path below ``root``, environment, class, subset or None), of the chosen environments.

    Args:
        attributes: path -> what else is known of the image.

    Raises:
        ConfigError, DataError: see :func:`table_of`.
    """
    chosen = chosen_environments(sorted({env for _, env, _, _ in rows}), environments)
    return table_of(root, [row for row in rows if row[1] in chosen], chosen, classes, bad_files, attributes)


def table_of(
    root: Path,
    rows: Iterable[tuple[str, str, str, str | None]],
    environments: Sequence[str],
    classes: str,
    bad_files: Sequence[str] = (),
    attributes: Attributes | None = None,
) -> ImageTable:
    """A table from (path below ``root``, environment, class, subset or None), sorted by path.

    Raises:
        ConfigError: ``classes`` is unknown.
        DataError: a file is missing or named twice, an unknown subset, no images, environments whose classes differ.
    """
    rows = list(rows)
    left_out = _left_out(root, {row[0] for row in rows}, bad_files)
    kept = sorted(row for row in rows if row[0] not in left_out)
    if not kept:
        raise DataError(
            f"dataset.root={root} holds no images ({', '.join(sorted(SUFFIXES))}); fill it or correct the key"
        )
    paths = [row[0] for row in kept]
    for one, next_ in pairwise(paths):
        if one == next_:
            raise DataError(f"{one} is listed twice; list each image once")
    for path, _, _, subset in kept:
        if subset is not None and subset not in SUBSETS:
            raise DataError(f"{path} is listed in subset {subset}; use train, val, test or leave it empty")
    names = list(environments)
    labels = sorted({row[2] for row in kept})
    if len(labels) < 2:
        raise DataError(f"the images have one class, {labels[0]}; lay them out as environment/class/image")
    check_classes(names, labels, {(row[1], row[2]) for row in kept}, classes)
    sizes, mtimes = _stats(root, paths)
    env_of, label_of = {e: i for i, e in enumerate(names)}, {c: i for i, c in enumerate(labels)}
    return ImageTable(
        root=root,
        paths=paths,
        environments=names,
        classes=labels,
        env=np.array([env_of[row[1]] for row in kept]),
        label=np.array([label_of[row[2]] for row in kept]),
        listed=np.array([-1 if row[3] is None else SUBSETS.index(row[3]) for row in kept]),
        sizes=sizes,
        mtimes=mtimes,
        attributes=_columns(paths, attributes or {}),
    )


def _columns(paths: Sequence[str], attributes: Attributes) -> dict[str, list[str]]:
    """Attributes in the order of the images; an image that lacks one has the empty text."""
    own = [attributes.get(path, {}) for path in paths]
    return {name: [each.get(name, "") for each in own] for name in dict.fromkeys(n for each in own for n in each)}


def _left_out(root: Path, listed: set[str], bad_files: Sequence[str]) -> set[str]:
    """The files to leave out; those of environments that are not chosen may be among them."""
    example = (
        f"write paths below dataset.root={root}, e.g. dataset.bad_files=[{min(listed, default='ENV/CLASS/1.jpg')}]"
    )
    names = check_list("bad_files", bad_files, example)
    for name in names:
        outside = Path(name).is_absolute() or ".." in Path(name).parts
        if outside or not (name in listed or (root / name).is_file()):
            raise ConfigError(f"dataset.bad_files names {name}, which is no file below dataset.root={root}; {example}")
    return set(names)


def need_folder(root: Path, name: str) -> None:
    """Refuse a dataset that is not there, with the command that fetches it."""
    if not root.is_dir():
        raise DataError(
            f"dataset.root={root} is no folder; set dataset.root to where the images are, or download them where "
            f"they can be had: python -m dgbench.data.fetch {name}"
        )


def _stats(root: Path, paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    sizes, mtimes = np.empty(len(paths), np.int64), np.empty(len(paths), np.int64)
    for i, path in enumerate(paths):
        try:
            stat = (root / path).stat()
        except OSError as error:
            unreadable(error, root / path)
        sizes[i], mtimes[i] = stat.st_size, stat.st_mtime_ns
    return sizes, mtimes


def _sha256(entries: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(entry.encode() + b"\n")
    return digest.hexdigest()
