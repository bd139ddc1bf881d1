"""Readers of the layouts behind OoD-Bench's fixed environments (Ye et al., 2022, appendix G).

Tables 9 and 10 list how many images each environment has.

A reader takes the folder of a dataset and returns rows (path below it, environment, class, None),
which :class:`~dgbench.data.datasets.image_folders.ImageFolders` makes environments of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from dgbench.data.datasets.file_tree import SUFFIXES
from dgbench.data.datasets.image_table import PlainRow, cells_of, lines_of, text_of
from dgbench.errors import ConfigError, DataError
from dgbench.seeding import derive

Counts = Mapping[str, Mapping[str, Sequence[int]]]  # environment -> class -> images in each context
Group = tuple[str, str, str]  # part of the dataset, class, context

# Table 9: images of each class in contexts (on snow, in forest, on beach, on grass), by
# environment.
NICO_CONTEXTS = ("on snow", "in forest", "on beach", "on grass")
NICO: Counts = {
    "train1": {"animal": (10, 400, 10, 400), "vehicle": (400, 10, 400, 10)},
    "train2": {"animal": (20, 390, 20, 390), "vehicle": (390, 20, 390, 20)},
    "val": {"animal": (50, 50, 50, 50), "vehicle": (50, 50, 50, 50)},
    "test": {"animal": (90, 10, 90, 10), "vehicle": (10, 90, 10, 90)},
}
# Table 10: images of each class with (male, female), by environment. They add up to 49,980, as
# OoD-Bench's lists do; the paper's text says 27,040.
CELEBA_CONTEXTS = ("male", "female")
CELEBA: Counts = {
    "train1": {"blond": (462, 11_671), "not blond": (11_671, 462)},
    "train2": {"blond": (924, 11_209), "not blond": (11_209, 924)},
    "test": {"blond": (362, 362), "not blond": (362, 362)},
}


def camelyon17(root: Path) -> list[PlainRow]:
    """List every patch of Camelyon17-WILDS' ``metadata.csv``.

    The environments are the five hospitals.

    Args:
        root: holds ``metadata.csv`` and ``patches``, as WILDS publishes them (version 1.0).

    Raises:
        DataError: the list is missing or has other columns.
    """
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center")
    rows: list[PlainRow] = []
    for line in lines_of(root / "metadata.csv", columns):
        place = f"patient_{line['patient']}_node_{line['node']}"
        path = f"patches/{place}/patch_{place}_x_{line['x_coord']}_y_{line['y_coord']}.png"
        label = "tumor" if line["tumor"] == "1" else "normal"
        rows.append((path, f"hospital_{line['center']}", label, None))
    return rows


def nico_mixed(root: Path, lists: str, data_seed: int, counts: Counts = NICO) -> list[PlainRow]:
    """List NICO's animals and vehicles in four contexts that correlate with the class.

    Their numbers are those of Table 9.

    Args:
        root: holds ``animal/images`` and ``vehicle/images`` with CLASS/CONTEXT/IMAGE below.
        lists: ``published``, OoD-Bench's ``mixed_split_corrected/env_*.csv`` (no heading; path,
            category, context, class), or ``drawn`` anew.
        data_seed: of the draw.
        counts: images by environment, class and context.

    Raises:
        ConfigError: ``lists`` is unknown.
        DataError: a list or a folder is missing, or a group has too few images.
    """
    if _published(lists):
        folder = root / "mixed_split_corrected"
        rows: list[PlainRow] = []
        for env in counts:
            for line in cells_of(folder / f"env_{env}.csv"):
                if len(line) != 4 or line[3] not in ("animal", "vehicle"):
                    raise DataError(
                        f"{folder}/env_{env}.csv has a line {','.join(line)[:60]!r}, not path, "
                        "category, context and animal or vehicle; get OoD-Bench's list, or use "
                        "dataset.reader.lists=drawn"
                    )
                path = f"{line[3]}/images/{line[0]}".replace("\\", "/")
                rows.append((path, env, line[3], None))
        return rows
    groups: dict[Group, list[str]] = defaultdict(list)
    for label in ("animal", "vehicle"):
        for file in sorted((root / label / "images").glob("*/*/*")):
            if file.suffix.lower() in SUFFIXES:
                context = file.parent.name.replace("_", " ")
                groups["", label, context].append(file.relative_to(root).as_posix())
    return _drawn(root, groups, dict.fromkeys(counts, ""), counts, NICO_CONTEXTS, data_seed)


def celeba_blond(root: Path, lists: str, data_seed: int, counts: Counts = CELEBA) -> list[PlainRow]:
    """List CelebA's images with hair color as class and gender as spurious feature.

    Their numbers are those of Table 10.

    A deviation: the whole picture of 178 x 218 pixels is resized to a square, while OoD-Bench
    evaluates on the central 178 x 178.

    Args:
        root: holds ``img_align_celeba`` and the lists.
        lists: ``published``, OoD-Bench's ``blond_split/tr_env1.csv``, ``tr_env2.csv``,
            ``te_env.csv`` (file and 40 attributes, 0 or 1), or ``drawn`` anew from CelebA's
            ``list_attr_celeba.txt`` and ``list_eval_partition.txt``: training environments from its
            training part, the test environment from its validation and test parts, as the published
            lists do.
        data_seed: of the draw.
        counts: images by environment, class and gender.

    Raises:
        ConfigError: ``lists`` is unknown.
        DataError: a list is missing or has other columns, or a group has too few images.
    """
    if _published(lists):
        return _published_celeba(root, counts)
    parts = dict(line.split() for line in text_of(root / "list_eval_partition.txt"))
    _, heading, *lines = text_of(root / "list_attr_celeba.txt")
    names = heading.split()
    if not {"Blond_Hair", "Male"} <= set(names):
        raise DataError(
            f"{root}/list_attr_celeba.txt names no Blond_Hair and Male in its second line; get "
            "CelebA's list"
        )
    blond = names.index("Blond_Hair")
    male = names.index("Male")
    groups: dict[Group, list[str]] = defaultdict(list)
    for line in lines:
        file, *cells = line.split()
        part = "training part" if parts.get(file) == "0" else "other parts"
        label = "blond" if cells[blond] == "1" else "not blond"
        gender = "male" if cells[male] == "1" else "female"
        groups[part, label, gender].append(f"img_align_celeba/{file}")
    part_of = {env: "other parts" if env == "test" else "training part" for env in counts}
    return _drawn(root, groups, part_of, counts, CELEBA_CONTEXTS, data_seed)


def _published_celeba(root: Path, counts: Counts) -> list[PlainRow]:
    """List the images of OoD-Bench's own lists."""
    files = {"train1": "tr_env1", "train2": "tr_env2", "test": "te_env"}
    rows: list[PlainRow] = []
    for env in counts:
        for line in lines_of(root / "blond_split" / f"{files[env]}.csv", ("", "9")):
            label = "blond" if line["9"] == "1" else "not blond"
            rows.append((f"img_align_celeba/{line['']}", env, label, None))
    return rows


def _drawn(
    root: Path,
    groups: Mapping[Group, list[str]],
    part_of: Mapping[str, str],
    counts: Counts,
    contexts: Sequence[str],
    data_seed: int,
) -> list[PlainRow]:
    """Draw rows in the numbers of ``counts``, no image twice.

    Each group is shuffled, and dealt to environments in order.
    """
    decks: dict[Group, Iterator[str]] = {}
    for group, paths in groups.items():
        rng = np.random.default_rng(derive(data_seed, "draw", *group))
        order = rng.permutation(len(paths))
        decks[group] = iter([paths[i] for i in order])
    rows: list[PlainRow] = []
    for env, classes in counts.items():
        for label, numbers in classes.items():
            for context, number in zip(contexts, numbers, strict=True):
                group = (part_of[env], label, context)
                images = list(islice(decks.get(group, iter(())), number))
                if len(images) < number:
                    raise DataError(
                        f"{root} has {len(groups.get(group, []))} images of {label}, {context}: "
                        f"too few for {number} of them in environment {env}; complete the folder, "
                        "or use dataset.reader.lists=published"
                    )
                rows += [(path, env, label, None) for path in images]
    return rows


def _published(lists: str) -> bool:
    if lists not in ("published", "drawn"):
        raise ConfigError(f"dataset.reader.lists={lists} is unknown; choose published or drawn")
    return lists == "published"
