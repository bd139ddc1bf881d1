"""What the folders of a tree of pictures are: environments, splits and classes, in which order.

A tree that could be read in two ways is refused, with the key that says which.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from dgbench.data.datasets.file_tree import WITHOUT_PICTURES, Folder, LeftOut, folders_below
from dgbench.data.datasets.splits import chosen_environments
from dgbench.errors import DataError
from dgbench.validation import some_of

ENVIRONMENT = "environment"
SPLIT = "split"
CLASS = "class"
ANY = "*"
USUAL = f"{ENVIRONMENT}/{CLASS}"
NO_LAYOUT = "is no order of folders"
LAYOUT_FIX = (
    "write environment/class, environment/split/class or another order of these words, * for a "
    "folder that does not count, the name of a folder for one of which nothing else is taken"
)
#: how people call their splits -> subset
SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "crossval": "val",
    "test": "test",
    "testing": "test",
    "eval": "test",
}
WHOLE_SPLITS = frozenset({"full", "all", "trainval"})  #: folders that repeat what the splits hold
_DECORATION = re.compile(r"[-_ ]?(set|data|images|imgs|split)?[-_ ]?$")
_LAST_DIGITS = re.compile(r"(?<!\d)\d+$")
LIST_ENDINGS = (".csv", ".tsv", ".json")  # endings of files that may list the pictures
DEEPER = "in folders below classes that hold images themselves"
REPEATED = "that repeat the splits"
ELSEWHERE = "in folders that the layout leaves out"
TOO_HIGH = "above the classes"


def subset_of(name: str) -> str | None:
    """Tell which subset a folder's name means (``Train``, ``test_set``, ``val2017``), or None."""
    plain = name.strip().casefold()
    return SPLITS.get(plain) or SPLITS.get(_DECORATION.sub("", _LAST_DIGITS.sub("", plain)))


def _is_split(name: str) -> bool:
    return subset_of(name) is not None or name.strip().casefold() in WHOLE_SPLITS


def words_of(layout: str) -> tuple[str, ...]:
    """Split a layout into its words, from the root down.

    Nothing is returned for one that lacks an environment or a class, or names something twice.
    """
    words = tuple(word.strip() for word in layout.strip("/").split("/"))
    known = [word for word in words if word in (ENVIRONMENT, SPLIT, CLASS)]
    distinct = set(known)
    complete = {ENVIRONMENT, CLASS} <= distinct
    if not all(words) or not complete or len(distinct) < len(known):
        return ()
    return words


@dataclass
class Tree:
    """The pictures of a tree."""

    environments: list[str]  #: chosen ones, in order
    #: path below the root, environment, class, subset or None
    rows: list[tuple[str, str, str, str | None]] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    #: pictures in folders below class folders that hold pictures themselves: by the names of these
    #: folders
    deeper: LeftOut = field(default_factory=LeftOut)

    @property
    def misplaced(self) -> str:
        """Path of a picture that stands too high, empty if there is none."""
        return next(iter(self.left_out.examples.get(TOO_HIGH, [])), "")


def tree_of(root: Path, layout: str | None, environments: Sequence[str] | None) -> Tree:
    """List the pictures of a tree; those below the last folder that counts are taken at any depth.

    Args:
        root: folder of the dataset.
        layout: what the folders are, from the root down; None is ``environment/class`` unless
            something speaks against it.
        environments: names of the environments to take, in order; None takes all, sorted.

    Raises:
        ConfigError: environments that are not there.
        DataError: a tree that can be read in two ways, or has no such folders; a folder that cannot
            be read.
    """
    words = words_of(layout or USUAL)
    left_out = LeftOut()
    place = words.index(ENVIRONMENT)

    def enters(path: str) -> bool:
        parts = path.split("/")
        if len(parts) > len(words):
            return True
        if len(parts) == place + 1 and wanted is not None and parts[place].strip() not in wanted:
            return False
        word = words[len(parts) - 1]
        if word in (ENVIRONMENT, SPLIT, CLASS, ANY) or parts[-1] == word:
            return True
        left_out.add(ELSEWHERE, [path])
        return False

    wanted: set[str] | None = None  # below the first level the names are known once all is listed
    if place == 0:  # a name that is not there is refused before anything below is listed
        wanted = set(_chosen(root, _top(root), environments))
    folders = list(folders_below(root, left_out, enters=enters))
    deep = [folder for folder in folders if folder.path.count("/") == place and folder.path]
    present = [folder.path.split("/")[place] for folder in deep]
    if place == 0:  # also those without pictures
        present = _top(root)
    tree = Tree(_chosen(root, present, environments), left_out=left_out)
    if layout is None:
        shape = _Shape.of(folders)
        _refuse_unclear(root, shape, environments is not None)
        for folder in folders:
            parts = folder.path.split("/")
            if len(parts) > 2 and "/".join(parts[:2]) in shape.direct:
                tree.deeper.add(DEEPER, [f"{folder.path}/{name}" for name in folder.pictures])
    _fill(tree, root, folders, words)
    return tree


def _top(root: Path) -> list[str]:
    return next(folders_below(root, LeftOut())).folders


def _chosen(root: Path, present: Iterable[str], environments: Sequence[str] | None) -> list[str]:
    names = sorted({name.strip() for name in present})
    if not names:
        raise DataError(
            f"dataset.root={root} holds no environment folders; lay images out as "
            "environment/class/image"
        )
    return chosen_environments(names, environments)


def _fill(tree: Tree, root: Path, folders: Sequence[Folder], words: Sequence[str]) -> None:
    """Add a row for every picture, and count those that stand too high."""
    holding: set[str] = set()
    wholes = _repeated(folders, words)
    for folder in folders:
        parts = folder.path.split("/") if folder.path else []
        prefix = f"{folder.path}/" if folder.path else ""
        paths = [prefix + name for name in folder.pictures]
        if len(parts) < len(words):
            tree.left_out.add(TOO_HIGH, paths)
            continue
        named = dict(zip(words, parts, strict=False))
        env = named[ENVIRONMENT].strip()
        label = named[CLASS].strip()
        split = named.get(SPLIT)
        if split is not None and split.strip().casefold() in wholes:
            tree.left_out.add(REPEATED, paths)
            continue
        subset = None if split is None else _known_subset(root, split)
        if paths:
            holding.add(label)
        tree.rows += [(path, env, label, subset) for path in paths]
    place = words.index(CLASS)
    without: dict[str, str] = {}  # class -> the first of its folders
    for folder in folders:
        parts = folder.path.split("/")
        if folder.path and len(parts) == len(words):
            without.setdefault(parts[place].strip(), folder.path)
    barren = [path for label, path in without.items() if label not in holding]
    tree.left_out.add(WITHOUT_PICTURES, barren)


def _repeated(folders: Sequence[Folder], words: Sequence[str]) -> frozenset[str]:
    """List the splits that repeat others (``full`` beside ``train``): those are left out."""
    if SPLIT not in words:
        return frozenset()
    place = words.index(SPLIT)
    names = set()
    for folder in folders:
        parts = folder.path.split("/")
        if folder.path and len(parts) > place:
            names.add(parts[place])
    others = any(subset_of(name) for name in names)
    return WHOLE_SPLITS if others else frozenset()


def _known_subset(root: Path, split: str) -> str | None:
    """Return the subset that a split's folder means, or None for one that holds all."""
    subset = subset_of(split)
    if subset is None and split.strip().casefold() not in WHOLE_SPLITS:
        raise DataError(
            f"dataset.root={root} has a folder {split} where dataset.layout has a split; name "
            "splits train, val or test, or correct the layout"
        )
    return subset


@dataclass
class _Shape:
    """What a tree environment/class/image looks like, of folders that lead to pictures."""

    #: names of environments, of classes, and of folders in classes
    levels: tuple[set[str], set[str], set[str]] = field(
        default_factory=lambda: (set(), set(), set())
    )
    direct: set[str] = field(default_factory=set)  #: class folders that hold pictures themselves
    #: class folder -> folders in it that lead to pictures
    below: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    flat: str = ""  #: a picture in a class folder
    deep: str = ""  #: a picture below a class folder

    @staticmethod
    def of(folders: Sequence[Folder]) -> _Shape:
        """Look at the folders that hold pictures."""
        shape = _Shape()
        for folder in folders:
            if folder.pictures and "/" in folder.path:
                shape._add(folder.path.split("/"), f"{folder.path}/{folder.pictures[0]}")
        return shape

    def _add(self, parts: Sequence[str], example: str) -> None:
        for level, name in zip(self.levels, parts, strict=False):
            level.add(name)
        class_folder = "/".join(parts[:2])
        if len(parts) == 2:
            self.direct.add(class_folder)
            self.flat = self.flat or example
        elif len(parts) > 2:
            self.below[class_folder].add(parts[2])
            self.deep = self.deep or example

    @property
    def only_folders(self) -> list[str]:
        """List the class folders that hold no picture themselves."""
        return [name for name in self.below if name not in self.direct]


def _refuse_unclear(root: Path, shape: _Shape, named: bool) -> None:
    """Refuse a tree environment/class/image in which folders may be something else.

    Args:
        root: folder of the dataset.
        shape: of the tree.
        named: whether the user has named the environments.

    Raises:
        DataError: splits at any level, or class folders that hold only folders.
    """
    top, second, third = shape.levels
    deeper = bool(shape.only_folders)
    example = shape.deep or shape.flat

    def refuse(seen: str, nested: str, flat: str) -> NoReturn:
        """Suggest a layout that reads one folder more, if there is one, or the usual one."""
        _refuse(root, seen, example, nested if deeper else f"{USUAL}, {flat}", deeper)

    if not named and any(map(_is_split, top)):
        refuse(
            f"its first folders are {_names(top)}",
            f"split/environment/class, if {_names(second)} are environments",
            "if these are the environments",
        )
    if _are_splits(second):
        refuse(
            f"the folders of its environments are {_names(second)}",
            f"environment/split/class, if {_names(third)} are classes",
            "if these are the classes",
        )
    for class_folder, names in sorted(shape.below.items()):
        if _are_splits(names):
            seen = f"{class_folder} holds {_names(names)}"
            layout = "environment/class/split, if these are splits of a class"
            _refuse(root, seen, example, layout, True)
    if deeper:
        _refuse_folders_only(root, shape, example, named)


def _refuse_folders_only(root: Path, shape: _Shape, example: str, named: bool) -> NoReturn:
    """Refuse a tree whose class folders hold only folders; arguments as of _refuse_unclear."""
    top, _, third = shape.levels
    holding = {name.split("/")[0] for name in shape.direct}
    apart = {name.split("/")[0] for name in shape.only_folders} - holding
    if holding and apart and not named:
        raise DataError(
            f"dataset.root={root} has folders that are no environments: {_names(apart)} hold "
            f"no class folders with images (e.g. {shape.deep}); take the others with "
            f"dataset.environments=[{','.join(sorted(holding))}], or name another root"
        )
    number = len(shape.only_folders)
    folders = "1 class folder holds" if number == 1 else f"{number} class folders hold"
    seen = f"{folders} only folders: {_names(third)}"
    nested = ""
    if len(top) == 1:
        inner = min(top)
        nested = f" (or dataset.root={root / inner}, if {inner} is the dataset)"
    _refuse(root, seen, example, f"environment/*/class, if these are the classes{nested}", True)


def _are_splits(names: set[str]) -> bool:
    """Return whether folders are called as splits: two of them, or all.

    One of many may be a class, as a train is.
    """
    splits = sum(map(_is_split, names))
    return splits > 1 or 0 < splits == len(names)


def _names(names: Iterable[str]) -> str:
    return some_of(sorted(names), 4)


def _refuse(root: Path, seen: str, example: str, layout: str, deeper: bool) -> NoReturn:
    other = ", or name another root"
    if deeper:
        other = f", or dataset.layout={USUAL}, if all below a class belongs to it"
    raise DataError(
        f"dataset.root={root} can be read in two ways: {seen} (e.g. {example}); write "
        f"dataset.layout={layout}{other}"
    )
