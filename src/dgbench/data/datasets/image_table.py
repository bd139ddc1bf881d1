"""Which images a dataset of files has: paths, environments and classes, from folders or a list."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from dgbench.data.datasets.class_order import in_order
from dgbench.data.datasets.file_tree import LeftOut, unreadable
from dgbench.data.datasets.labeled_rows import LabeledRows
from dgbench.data.datasets.layouts import LIST_ENDINGS, USUAL, tree_of
from dgbench.data.datasets.lists import column_of_subsets, sign_between, subset_of
from dgbench.data.datasets.splits import check_classes, chosen_environments, warn_once
from dgbench.data.description import SUBSETS
from dgbench.data.fetch.checksums import checksums_of
from dgbench.data.fetch.fetching import command_into, sources
from dgbench.data.options import known_size, list_of_names
from dgbench.data.store.array_cache import notes_of
from dgbench.errors import ConfigError, DataError
from dgbench.records.files import open_regular, read_regular, write_whole
from dgbench.validation import some_of

COLUMNS = ("path", "environment", "class", "subset")  # of a list; further ones are attributes
SAMPLED_FILES = 128  #: files that :meth:`ImageTable.content` reads
SAMPLED_BYTES = 2**20  #: of each of these files
#: version of how images are decoded, in the names of caches; 2: 16-bit gray keeps its values,
#: pictures stand upright
DECODING_VERSION = 2
NUMBER_WORDS = ("one", "two", "three", "four", "five")
NAMED = 10  #: undecodable images that a message names; more stand in the file
UNDECODABLE = "undecodable.txt"

#: path below the root, environment, class, subset or None
PlainRow = tuple[str, str, str, str | None]
#: the same, and what else is known of the image: name -> text
DescribedRow = tuple[str, str, str, str | None, Mapping[str, str]]
Row = PlainRow | DescribedRow


@dataclass(frozen=True, kw_only=True)
class ImageTable(LabeledRows):
    """Images by file, in the order of their names; the store keeps them in this order."""

    root: Path  #: folder that the paths are below
    paths: list[str]  #: (n,) paths below ``root``, with forward slashes
    sizes: np.ndarray  #: (n,) bytes of each file
    mtimes: np.ndarray  #: (n,) nanoseconds of each file's last change
    #: files below ``root`` that are not read; no hash holds them
    left_out: LeftOut = field(default_factory=LeftOut)

    def fingerprint(self, counted: np.ndarray | None = None) -> str:
        """Hash paths, environments, classes, listed subsets and sizes to 12 hexadecimal digits.

        They are equal in every copy of the dataset.

        Args:
            counted: (n,) bool, the images that count; None is all.
        """
        chosen: Iterable[int] = range(len(self)) if counted is None else np.flatnonzero(counted)
        # the order of lists alone; hashes of others are older
        numbered = self.classes != sorted(self.classes)
        order = ["\t".join(self.classes)] if numbered else []
        return _sha256(chain(order, map(self._entry, chosen)))[:12]

    def _entry(self, i: int) -> str:
        """Format what the fingerprint holds of one image."""
        env = self.environments[self.env[i]]
        label = self.classes[self.label[i]]
        return f"{self.paths[i]}\t{env}\t{label}\t{self.listed[i]}\t{self.sizes[i]}"

    def content(self) -> str:
        """Hash :meth:`fingerprint` and bytes of a sample of files to 16 hexadecimal digits.

        The files' times do not count.
        """
        digest = hashlib.sha256(self.fingerprint().encode())
        checksums = checksums_of(self.root)
        sample = np.linspace(0, len(self) - 1, SAMPLED_FILES).astype(int).tolist()
        for i in dict.fromkeys(sample):
            path = self.root / self.paths[i]
            try:
                with open_regular(path) as file:
                    if checksums:
                        checksums.check(path, file)
                    digest.update(file.read(SAMPLED_BYTES))
            except OSError as error:
                unreadable(error, path)
        return digest.hexdigest()[:16]

    def state(self, *more: Any) -> str:
        """Hash to 16 hexadecimal digits that change if a file is added, removed or rewritten.

        They change too if ``more`` changes.
        """
        files = zip(self.paths, self.sizes, self.mtimes, strict=True)
        entries = (f"{path}\t{size}\t{mtime}" for path, size, mtime in files)
        return _sha256([*map(str, more), *entries])[:16]


def table_of_folders(
    root: Path,
    environments: Sequence[str] | None,
    classes: str,
    bad_files: Sequence[str],
    name: str,
    layout: str | None = None,
) -> ImageTable:
    """List the images of a tree ``root/environment/class/image``, or of one with another layout.

    Args:
        root: folder of the dataset.
        environments: names of the environments to take, in order; None takes all, sorted.
        classes: ``same`` refuses environments with different classes, ``union`` allows them.
        bad_files: paths below ``root`` to leave out.
        name: of the dataset, for messages.
        layout: see :func:`~dgbench.data.datasets.layouts.tree_of`.

    Raises:
        ConfigError, DataError: see :func:`table_of` and
            :func:`~dgbench.data.datasets.layouts.tree_of`.
    """
    need_folder(root, name)
    tree = tree_of(root, layout, environments)
    if not tree.rows and tree.misplaced:
        read = layout or USUAL
        depth = NUMBER_WORDS[read.count("/")]
        raise DataError(
            f"dataset.root={root} holds no images {depth} folders down, as in "
            f"{read}/image, but {tree.misplaced}; lay them out so, name the folder above, or give "
            "a list of path, environment and class with dataset.manifest"
        )
    left_out = tree.left_out.line()
    if not tree.rows:
        only = f"; {left_out} are none" if left_out else ""
        raise DataError(
            f"dataset.root={root} holds no images, such as .jpg, .png, .tif{only}; fill it or "
            "correct the key"
        )
    rows = [row for row in tree.rows if row[1] in tree.environments]
    table = table_of(root, rows, tree.environments, classes, bad_files)
    if left_out:
        warn_once(f"left out below {root}: {left_out}{_about_lists(root)}")
    deeper = tree.deeper.line()
    if deeper:
        warn_once(
            f"taken below {root}: {deeper}; they count as images of the class above them, "
            "name those that are not in dataset.bad_files"
        )
    return replace(table, left_out=tree.left_out)


def _about_lists(root: Path) -> str:
    """Warn that a list beside the folders is not read, or return no text if there is none."""
    lists = sorted(file.name for file in root.iterdir() if file.suffix.lower() in LIST_ENDINGS)
    if not lists:
        return ""
    return f"; {some_of(lists)} is not read: where it lists the images, see dataset=manifest"


def table_of_rows(
    rows: Sequence[Row],
    root: Path,
    environments: Sequence[str] | None,
    classes: str,
    bad_files: Sequence[str],
) -> ImageTable:
    """List the images of the chosen environments among rows.

    Arguments and errors are those of :func:`table_of_folders`.

    Environments and classes whose names are all integers are ordered as numbers.
    """
    rows = with_slashes(rows, root)
    chosen = chosen_environments(in_order(row[1].strip() for row in rows), environments)
    used = [row for row in rows if row[1].strip() in chosen]
    return table_of(root, used, chosen, classes, bad_files, in_order)


def with_slashes(rows: Sequence[Row], root: Path) -> Sequence[Row]:
    """Write paths of a list from Windows with forward slashes.

    They stay as they are if the first is the name of a file.
    """
    first = next((row[0] for row in rows if "\\" in row[0]), None)
    if first is None or (root / first).is_file():
        return rows
    return [(row[0].replace("\\", "/"), *row[1:]) for row in rows]  # type: ignore[misc]


def table_of(
    root: Path,
    rows: Sequence[Row],
    environments: Sequence[str],
    classes: str,
    bad_files: Sequence[str] = (),
    order: Callable[[Iterable[str]], list[str]] = sorted,
) -> ImageTable:
    """Build a table of rows, sorted by path.

    Blanks around names of environments and classes do not count.

    Args:
        root, classes, bad_files: see :func:`table_of_folders`.
        rows: of the images.
        environments: their names, in order.
        order: of the names of classes.

    Raises:
        ConfigError: ``bad_files`` names one that is no file below ``root``.
        DataError: a file is missing or named twice, an unknown subset, no images, environments
            whose classes differ.
    """
    left_out = _left_out(root, {row[0] for row in rows}, bad_files)
    used_rows = sorted((row for row in rows if row[0] not in left_out), key=itemgetter(0))
    if not used_rows:
        raise DataError(
            f"dataset.root={root} holds no images, such as .jpg, .png, .tif; fill it or correct "
            "the key"
        )
    _check_rows(used_rows)
    paths = [row[0] for row in used_rows]
    names = list(environments)
    envs = [row[1].strip() for row in used_rows]
    row_labels = [row[2].strip() for row in used_rows]
    labels = order(set(row_labels))
    if len(labels) < 2:
        raise DataError(
            f"the images have one class, {labels[0]}; lay them out as environment/class/image"
        )
    check_classes(names, labels, set(zip(envs, row_labels, strict=True)))
    stats = _stats(root, paths)
    env_of = {env: i for i, env in enumerate(names)}
    label_of = {label: i for i, label in enumerate(labels)}
    return ImageTable(
        root=root,
        paths=paths,
        environments=names,
        classes=labels,
        env=np.array([env_of[env] for env in envs]),
        label=np.array([label_of[label] for label in row_labels]),
        listed=np.array([_subset_index(row[3]) for row in used_rows]),
        same_classes=classes == "same",
        sizes=np.array([stat.st_size for stat in stats]),
        mtimes=np.array([stat.st_mtime_ns for stat in stats]),
        attributes=_attributes(used_rows),
    )


def _check_rows(rows: Sequence[Row]) -> None:
    """Refuse a path that sorted rows repeat, and an unknown subset."""
    for row, following in pairwise(rows):
        if row[0] == following[0]:
            raise DataError(f"{row[0]} is listed twice; list each image once")
    for row in rows:
        if row[3] is not None and row[3] not in SUBSETS:
            raise DataError(
                f"{row[0]} is listed in subset {row[3]}; use train, val, test or leave it empty"
            )


def _subset_index(subset: str | None) -> int:
    return -1 if subset is None else SUBSETS.index(subset)


def _attributes(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Collect what rows tell besides: name -> a text for each row, empty if it tells none."""
    described: list[Mapping[str, str]] = []
    for row in rows:
        described.append(row[4] if len(row) > 4 else {})
    attributes = {}
    for name in dict.fromkeys(chain.from_iterable(described)):
        attributes[name] = [texts.get(name, "") for texts in described]
    return attributes


def _stats(root: Path, paths: Sequence[str]) -> list[os.stat_result]:
    """Look up size and time of every file.

    Raises:
        DataError: files that are not there, all counted and some named, or one that cannot be read.
    """
    stats: list[os.stat_result] = []
    absent: list[str] = []
    for path in paths:
        try:
            stats.append(os.stat(f"{root}/{path}"))
        except FileNotFoundError:
            absent.append(path)
        except OSError as error:
            unreadable(error, root / path)
    if absent:
        raise DataError(
            f"{len(absent)} of {len(paths)} files cannot be read (No such file or directory), "
            f"below dataset.root={root}: {some_of(absent)}; they are listed and not there, or "
            "links to nowhere: correct the list or dataset.root"
        )
    return stats


def _left_out(root: Path, listed: set[str], bad_files: Sequence[str]) -> set[str]:
    """Check the files to leave out, and return them.

    Files of environments that are not chosen may be among them.
    """
    first = min(listed, default="ENV/CLASS/1.jpg")
    example = f"write paths below dataset.root={root}, e.g. dataset.bad_files=[{first}]"
    names = list_of_names("bad_files", bad_files, example)
    for name in names:
        outside = Path(name).is_absolute() or ".." in Path(name).parts
        if outside or not (name in listed or (root / name).is_file()):
            raise ConfigError(
                f"dataset.bad_files names {name}, which is no file below dataset.root={root}; "
                f"{example}"
            )
    return set(names)


def need_folder(root: Path, name: str) -> None:
    """Refuse a dataset whose folder is absent, with the command that fetches it if there is one."""
    if root.is_dir():
        return
    remedy = "set dataset.root to where the images are"
    command = command_into(name, root)
    if command:
        remedy += f", or fetch it: {command}"
    elif name in sources():
        remedy += f", or leave dataset.root out and fetch it: dgbench fetch {name}"
    raise DataError(f"dataset.root={root} is no folder; {remedy}")


def _sha256(entries: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(entry.encode() + b"\n")
    return digest.hexdigest()


#: what helps if a published list is at fault
PUBLISHED = "see dgbench fetch, and dataset.reader.lists=published|drawn where the dataset has it"


def text_of(file: Path, fix: str = PUBLISHED) -> list[str]:
    """Read the lines of a text file.

    Args:
        file: in UTF-8.
        fix: what to do if something is wrong with it.

    Raises:
        DataError: it cannot be read, or was downloaded and changed since.
    """
    try:
        content = read_regular(file)
        checksums = checksums_of(file.parent)
        if checksums:
            checksums.compare(file, hashlib.sha256(content).hexdigest())
        return content.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        first = "" if isinstance(error, OSError) else "save it as UTF-8, or "
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{file} cannot be read ({reason}); {first}{fix}") from error


def cells_of(file: Path, fix: str = PUBLISHED, columns: Sequence[str] = ()) -> list[list[str]]:
    """Read the cells of a table of text, line by line, without empty lines.

    Args:
        file, fix: see :func:`text_of`; errors too.
        columns: names in its first line, which tell a semicolon or a tab from the usual comma.
    """
    text = text_of(file, fix)
    heading = next((line for line in text if line.strip()), "")
    try:
        sign = sign_between(heading, columns)
        return [line for line in csv.reader(text, delimiter=sign) if line]
    except csv.Error as error:  # a cell longer than any name
        raise DataError(f"{file} cannot be read ({error}); {fix}") from error


def lines_of(file: Path, columns: Sequence[str], fix: str = PUBLISHED) -> list[dict[str, str]]:
    """Read the lines of a CSV file with a heading, each as a mapping from column to text.

    Args:
        file, fix: see :func:`text_of`.
        columns: that must be there.

    Raises:
        DataError: it cannot be read, lacks a column, or has a line that ends before one or has more
            values than names.
    """
    first, *lines = cells_of(file, fix, columns) or [[]]
    heading = [name.strip() for name in first]
    lacking = [column for column in columns if column not in heading]
    if lacking:
        names = some_of(heading, 8) or "nothing"
        raise DataError(
            f"{file} has no column {lacking[0]!r} in its first line, only {names}; {fix}"
        )
    needed = 1 + max(map(heading.index, columns))
    for line in lines:
        fault = None
        if len(line) < needed:
            fault = "is cut short"
        elif any(line[len(heading) :]):
            fault = "has more values than the first one has names"
        if fault:
            raise DataError(f"{file} has a line that {fault}, {','.join(line)[:60]!r}; {fix}")
    return [dict(zip(heading, line, strict=False)) for line in lines]


def rows_of_list(manifest: Path, subset_column: str | None = None) -> list[Row]:
    """Read the rows of a CSV or JSON file.

    Its columns are ``path``, ``environment``, ``class`` and, optionally, ``subset``.

    CSV has these names in its first line; JSON is a list of objects. Paths are below the root. A
    subset is ``train``, ``val``, ``test`` or empty. Further columns become attributes, which
    predictions and ``report=errors`` show.

    Args:
        manifest: the file.
        subset_column: see :func:`~dgbench.data.datasets.lists.column_of_subsets`.

    Raises:
        ConfigError: it lacks the column that was asked for.
        DataError: it cannot be read, or has a column of subsets of another name.
    """
    if not manifest.is_file():
        raise DataError(
            f"dataset.manifest={manifest} is no file; give a CSV or JSON list of path, "
            "environment, class"
        )
    fix = (
        "give a CSV with a first line path,environment,class or a JSON list of objects with these "
        "keys"
    )
    try:
        entries: Any
        if manifest.suffix == ".json":
            entries = json.loads("".join(text_of(manifest, fix)))
        else:
            entries = lines_of(manifest, COLUMNS[:3], fix)
        columns: dict[str, None] = {}
        for entry in entries:
            for name in entry:
                if name:
                    columns[str(name)] = None
        chosen = column_of_subsets(
            subset_column,
            [name for name in columns if name not in COLUMNS[:3]],
            lambda column: (_text(entry.get(column)) for entry in entries),
            f"dataset.manifest={manifest}",
        )
        return [_row(entry, chosen) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"dataset.manifest={manifest} cannot be read ({type(error).__name__}: {error}); {fix}"
        ) from error


def _row(entry: Mapping[str, Any], subset_column: str | None) -> DescribedRow:
    """Build the row of an entry of a list."""
    subset = _text(entry.get(subset_column)).strip() if subset_column else ""
    named = {*COLUMNS[:3], subset_column}
    attributes = {}
    for name, value in entry.items():
        if name and name not in named:
            attributes[str(name)] = _text(value)
    path = str(entry["path"])
    env = _text(entry["environment"])
    label = _text(entry["class"])
    return path, env, label, subset_of(subset) or None, attributes


def _text(value: object) -> str:
    """Convert a value of a list to text; JSON's null is empty."""
    return "" if value is None else str(value)


def decoded_folder(table: ImageTable, side: int, cache: Path) -> Path:
    """Return the folder of the decoded images of a table; its name changes with the files."""
    return cache / "images" / f"{table.root.name}-{side}-{table.state(side, DECODING_VERSION)}"


def known_bad(table: ImageTable, side: int | None, cache: Path) -> dict[int, str]:
    """Look up why images cannot be decoded, by position.

    Nothing is known before a first decoding.
    """
    if side is None:
        return {}
    reasons: dict[int, str] = {}
    for _, _, note in notes_of(decoded_folder(table, side, cache)):
        reasons.update(note["bad"])
    return reasons


def usable(
    table: ImageTable, bad: Mapping[int, str], on_bad_image: str, side: int | None, cache: Path
) -> np.ndarray:
    """Mark the images that count, (n,) bool, and name the others.

    More than a few are named in a file beside the decoded images.

    Args:
        table: the images.
        bad: position -> why an image cannot be decoded.
        on_bad_image: ``fail`` or ``skip``.
        side, cache: as of :func:`decoded_folder`.

    Raises:
        DataError: an image that cannot be decoded, with ``fail``; no image that can.
    """
    counted = np.ones(len(table), bool)
    if not bad:
        return counted
    counted[list(bad)] = False
    lines = []
    for i, reason in sorted(bad.items()):
        lines.append(f"{table.root / table.paths[i]} cannot be decoded ({reason})")
    text = lines[0]
    others = [table.paths[i] for i in sorted(bad)[1:]]
    if len(bad) > NAMED:
        file = decoded_folder(table, known_size(side), cache) / UNDECODABLE
        if not file.is_file():
            write_whole(file, "\n".join(lines) + "\n")
        text += f", nor can {len(others)} other images, which {file} names"
    elif others:
        text += f", nor can {', '.join(others)}"
    if not counted.any():
        raise DataError(f"{text}; no image is left")
    if on_bad_image == "fail":
        raise DataError(f"{text}; fix or delete, or use dataset.on_bad_image=skip")
    warn_once(f"{text}; left out (dataset.on_bad_image=skip)")
    return counted
