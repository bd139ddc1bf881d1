"""Readers of published layouts: NICO++, WILDS (Koh et al., 2021), Waterbirds and Spawrious.

A reader takes the folder of a dataset and returns rows (path below it, environment, class, subset
or None and, where the list says more, attributes), which
:class:`~dgbench.data.datasets.image_folders.ImageFolders` makes environments of. Those of
OoD-Bench, and ``camelyon17`` of WILDS, are in :mod:`~dgbench.data.datasets.ood_bench`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dgbench.data.datasets.file_tree import unreadable
from dgbench.data.datasets.image_table import DescribedRow, PlainRow, lines_of, text_of
from dgbench.data.description import SUBSETS
from dgbench.errors import ConfigError, DataError


def official_lists(*, root: Path, folder: str) -> list[PlainRow]:
    """List the images of ``CONTEXT_train.txt``, ``CONTEXT_test.txt``, ... in a folder.

    A line is a path below ``root`` and a number, split at the last blank; the class is the folder
    of the image, since the numbers differ between releases.

    Returns:
        (path, context, class, subset) of every image.

    Raises:
        DataError: no such folder, no image in it, or a line that is no path and number.
    """
    lists = root / folder
    if not lists.is_dir():
        raise DataError(
            f"{lists} is no folder of CONTEXT_train.txt and CONTEXT_test.txt; put NICO++'s "
            "official lists there, or take a tree environment/class/image with dataset.reader=null"
        )
    rows: list[PlainRow] = []
    for file in sorted(lists.glob("*.txt")):
        context, _, subset = file.stem.rpartition("_")
        if subset not in SUBSETS:
            continue
        for number, line in enumerate(text_of(file), start=1):
            path, _, label = line.strip().rpartition(" ")
            if line.strip() and ("/" not in path or not label.isdecimal()):
                raise DataError(
                    f"{file} line {number} is no path and number: {line.strip()[:60]}; correct "
                    "the list"
                )
            if path:
                rows.append((path.removeprefix("./"), context, Path(path).parent.name, subset))
    if not rows:
        raise DataError(f"{lists} lists no image; put CONTEXT_train.txt and CONTEXT_test.txt there")
    return rows


SEQUESTERED = "seq"  #: images of FMoW that no benchmark uses
WATERBIRD_SPLITS = {"0": "train", "1": "val", "2": "test"}
PLACES = {"0": "land", "1": "water"}
BIRDS = {"0": "landbird", "1": "waterbird"}
#: split of iWildCam -> environment and subset there: three of the splits have the cameras of train
#: in common
WILDCAM_SUBSETS = {
    "train": ("train", "train"),
    "id_val": ("train", "val"),
    "id_test": ("train", "test"),
    "val": ("val", "val"),
    "test": ("test", "test"),
}


def fmow(root: Path) -> list[DescribedRow]:
    """List FMoW-WILDS as DomainBed takes it, by region.

    That is every image but the sequestered, of any year and split.

    Environments ``region_0``, ``region_1``, ... are numbered as the regions appear in the list,
    sequestered images included. Attributes: ``region`` in words, and ``year``.

    Args:
        root: holds ``rgb_metadata.csv``, ``country_code_mapping.csv`` and ``images``, as WILDS
            publishes them (1.1).

    Raises:
        DataError: a list is missing or has other columns.
    """
    countries = lines_of(root / "country_code_mapping.csv", ("alpha-3", "region"))
    region_of = {line["alpha-3"]: line["region"] for line in countries}
    lines = lines_of(root / "rgb_metadata.csv", ("split", "category", "country_code", "timestamp"))
    regions = [region_of.get(line["country_code"], "Other") for line in lines]
    number = {region: i for i, region in enumerate(dict.fromkeys(regions))}
    rows: list[DescribedRow] = []
    for i, (line, region) in enumerate(zip(lines, regions, strict=True)):
        if line["split"] != SEQUESTERED:
            path = f"images/rgb_img_{i}.png"
            attributes = {"region": region, "year": line["timestamp"][:4]}
            rows.append((path, f"region_{number[region]}", line["category"], None, attributes))
    return rows


def iwildcam(root: Path, environment: str) -> list[DescribedRow]:
    """List iWildCam2020-WILDS: animals (or none) in pictures of camera traps.

    Args:
        root: holds ``metadata.csv`` and ``train``, where all images lie, as WILDS publishes them
            (2.0).
        environment: ``split``, for the environments ``train``, ``val`` and ``test`` of WILDS, whose
            cameras differ: ``train`` is validated and tested on its own cameras too (WILDS'
            ``id_val`` and ``id_test``), the other two are never trained on. Or ``location``, for
            one environment ``location_N`` per camera, of any split.

    Returns:
        Rows with the attributes ``location`` and ``split``. A class is WILDS' label in three
        digits.

    Raises:
        ConfigError: ``environment`` is unknown.
        DataError: the list is missing, has other columns or other values.
    """
    if environment not in ("split", "location"):
        raise ConfigError(
            f"dataset.reader.environment={environment} is unknown; choose split or location"
        )
    file = root / "metadata.csv"
    rows: list[DescribedRow] = []
    for line in lines_of(file, ("split", "filename", "y", "location_remapped")):
        split = line["split"]
        location = line["location_remapped"]
        if split not in WILDCAM_SUBSETS or not line["y"].isdecimal():
            _refuse_values(file, f"split {split!r} and y {line['y']!r}")
        env, subset = (
            WILDCAM_SUBSETS[split] if environment == "split" else (f"location_{location}", None)
        )
        label = f"{int(line['y']):03}"
        attributes = {"location": location, "split": split}
        rows.append((f"train/{line['filename']}", env, label, subset, attributes))
    return rows


def waterbirds(root: Path) -> list[DescribedRow]:
    """List Waterbirds (Sagawa et al., 2020): birds of land and water before both backgrounds.

    The background mostly matches the bird.

    Environments ``land`` and ``water``, by background, hold the published training images as
    ``train`` and the published validation images as ``val``; ``test_land`` and ``test_water`` hold
    the published test images.

    Args:
        root: ``waterbird_complete95_forest2water2`` as published, or WILDS' copy: ``metadata.csv``
            and the images.

    Returns:
        Rows with the attribute ``place``.

    Raises:
        DataError: the list is missing, has other columns or other values.
    """
    file = root / "metadata.csv"
    rows: list[DescribedRow] = []
    for line in lines_of(file, ("img_filename", "y", "split", "place")):
        y = line["y"]
        split = WATERBIRD_SPLITS.get(line["split"])
        place = PLACES.get(line["place"])
        if y not in BIRDS or split is None or place is None:
            _refuse_values(file, f"y {y!r}, split {line['split']!r} and place {line['place']!r}")
        env = f"test_{place}" if split == "test" else place
        rows.append((line["img_filename"], env, BIRDS[y], split, {"place": place}))
    return rows


def _refuse_values(file: Path, values: str) -> NoReturn:
    raise DataError(
        f"{file} has a line with {values}, which the published list does not have; get that list"
    )


BREEDS = ("bulldog", "dachshund", "labrador", "corgi")  #: the order of the locations below
PER_CLASS = 3168  #: images of a class in a group
#: share of these in the location of the class, in groups 1 and 2 of one-to-one; rounded down
GROUP_SHARES = (0.97, 0.87)
SWAPPED_LOCATIONS = (
    1,
    0,
    3,
    2,
)  #: many-to-many: in group 2 a class has the other location of its pair
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class Locations:
    """Where the breeds are."""

    #: location of each breed, in the order of ``BREEDS``
    train: Sequence[str]
    test: Sequence[str]
    #: location of the other images of a group, of any breed; None is many-to-many, which has none
    filler: str | None = None


SPAWRIOUS_VARIANTS: Mapping[str, Locations] = {
    "o2o_easy": Locations(
        ("desert", "jungle", "dirt", "snow"), ("dirt", "snow", "desert", "jungle"), "beach"
    ),
    "o2o_medium": Locations(
        ("mountain", "beach", "dirt", "jungle"), ("jungle", "dirt", "beach", "snow"), "desert"
    ),
    "o2o_hard": Locations(
        ("jungle", "mountain", "snow", "desert"), ("mountain", "snow", "desert", "jungle"), "beach"
    ),
    "m2m_easy": Locations(
        ("desert", "mountain", "dirt", "jungle"), ("dirt", "jungle", "mountain", "desert")
    ),
    "m2m_medium": Locations(
        ("beach", "snow", "mountain", "desert"), ("desert", "mountain", "beach", "snow")
    ),
    "m2m_hard": Locations(("dirt", "jungle", "snow", "beach"), ("snow", "beach", "dirt", "jungle")),
}


def spawrious(root: Path, variant: str, per_class: int = PER_CLASS) -> list[PlainRow]:
    """List the images of the environments ``Test``, ``SC_group_1`` and ``SC_group_2`` of a variant.

    One-to-one: each breed has a location of its own in both groups, with 97 % of its images in the
    first group and 87 % in the second, the others in one location for all breeds; it is tested in
    another location. Many-to-many: two breeds swap their two locations between the groups, and are
    tested in two others.

    If a folder holds more images than are taken, these are the first by name. The reference
    takes the first as the file system lists them, which differs from machine to machine.

    Args:
        root: the unpacked folder ``spawrious224``, with 0 and 1 in it, each LOCATION/BREED/IMAGE.
        variant: ``o2o_easy``, ``o2o_medium``, ``o2o_hard``, ``m2m_easy``, ``m2m_medium`` or
            ``m2m_hard``.
        per_class: images of a breed in a group.

    Raises:
        ConfigError: an unknown variant.
        DataError: a folder is missing or holds too few images.
    """
    if variant not in SPAWRIOUS_VARIANTS:
        raise ConfigError(
            f"dataset.reader.variant={variant} is unknown; choose {', '.join(SPAWRIOUS_VARIANTS)}"
        )
    locations = SPAWRIOUS_VARIANTS[variant]
    if locations.filler is None:
        listed = _many_to_many(locations, per_class)
    else:
        listed = _one_to_one(locations, locations.filler, per_class)
    rows: list[PlainRow] = []
    for env, folder, location, breed, count in listed:
        paths = _first(root, f"{folder}/{location}/{breed}", count)
        rows += [(path, env, breed, None) for path in paths]
    return rows


# environment, folder 0 or 1, location, breed, images; None is all
Part = tuple[str, int, str, str, int | None]


def _one_to_one(locations: Locations, filler: str, per_class: int) -> Iterator[Part]:
    for breed, train, test in zip(BREEDS, locations.train, locations.test, strict=True):
        for folder, share in enumerate(GROUP_SHARES):
            count = int(share * per_class)
            yield f"SC_group_{folder + 1}", folder, train, breed, count
            yield f"SC_group_{folder + 1}", folder, filler, breed, per_class - count
            yield "Test", folder, test, breed, None


def _many_to_many(locations: Locations, per_class: int) -> Iterator[Part]:
    for i, (breed, swapped) in enumerate(zip(BREEDS, SWAPPED_LOCATIONS, strict=True)):
        for group, place in enumerate((i, swapped)):
            yield f"SC_group_{group + 1}", 0, locations.train[place], breed, per_class
            yield "Test", 0, locations.test[place], breed, None


def _first(root: Path, below: str, count: int | None) -> list[str]:
    """List the first ``count`` images of a folder by name, all for None, by path below ``root``."""
    try:
        files = [file.name for file in (root / below).iterdir()]
    except OSError as error:
        unreadable(error, root / below)
    names = sorted(name for name in files if name.endswith(PICTURE_ENDINGS))
    if len(names) < (count or 1):
        raise DataError(
            f"{root / below} holds {len(names)} images, fewer than the {count or 1} of this "
            "variant; unpack Spawrious again, and let dataset.root be the folder that holds 0 and "
            "1"
        )
    return [f"{below}/{name}" for name in names[:count]]
