"""Readers of WILDS' layouts (Koh et al., 2021), and of Waterbirds, which WILDS carries too.

A reader takes the folder of a dataset and returns rows (path below it, environment, class, subset or None, attributes),
which :class:`~dgbench.data.datasets.image_folders.ImageFolders` makes environments of. ``camelyon17`` is in
:mod:`~dgbench.data.datasets.ood_bench`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from dgbench.data.datasets.list_files import lines_of
from dgbench.errors import ConfigError, DataError

Row = tuple[str, str, str, str | None, Mapping[str, str]]

SEQUESTERED = "seq"  # images of FMoW that no benchmark uses
SPLITS = {"0": "train", "1": "val", "2": "test"}  # of Waterbirds
PLACES = {"0": "land", "1": "water"}
BIRDS = {"0": "landbird", "1": "waterbird"}
#: split of iWildCam -> environment and subset there: three of the splits have the cameras of train in common
WILDCAM = {
    "train": ("train", "train"),
    "id_val": ("train", "val"),
    "id_test": ("train", "test"),
    "val": ("val", "val"),
    "test": ("test", "test"),
}


def fmow(root: Path) -> list[Row]:
    """FMoW-WILDS as DomainBed takes it: every image but the sequestered, of any year and split, by region.

    Environments ``region_0``, ``region_1``, ... are numbered as the regions appear in the list, sequestered images
    included. Attributes: ``region`` in words, and ``year``.

    Args:
        root: holds ``rgb_metadata.csv``, ``country_code_mapping.csv`` and ``images``, as WILDS publishes them (1.1).

    Raises:
        DataError: a list is missing or has other columns.
    """
    countries = lines_of(root / "country_code_mapping.csv", ("alpha-3", "region"))
    region_of = {line["alpha-3"]: line["region"] for line in countries}
    lines = lines_of(root / "rgb_metadata.csv", ("split", "category", "country_code", "timestamp"))
    regions = [region_of.get(line["country_code"], "Other") for line in lines]
    number = {region: i for i, region in enumerate(dict.fromkeys(regions))}
    return [
        (
            f"images/rgb_img_{i}.png",
            f"region_{number[region]}",
            line["category"],
            None,
            {"region": region, "year": line["timestamp"][:4]},
        )
        for i, (line, region) in enumerate(zip(lines, regions, strict=True))
        if line["split"] != SEQUESTERED
    ]


def iwildcam(root: Path, environment: str) -> list[Row]:
    """iWildCam2020-WILDS: animals (or none) in pictures of camera traps.

    Args:
        root: holds ``metadata.csv`` and ``train``, where all images lie, as WILDS publishes them (2.0).
        environment: ``split``, for the environments ``train``, ``val`` and ``test`` of WILDS, whose cameras differ:
            ``train`` is validated and tested on its own cameras too (WILDS' ``id_val`` and ``id_test``), the other two
            are never trained on. Or ``location``, for one environment ``location_N`` per camera, of any split.

    Returns:
        Rows with the attributes ``location`` and ``split``. A class is WILDS' label in three digits.

    Raises:
        ConfigError: ``environment`` is unknown.
        DataError: the list is missing, has other columns or other values.
    """
    if environment not in ("split", "location"):
        raise ConfigError(f"dataset.reader.environment={environment} is unknown; choose split or location")
    file = root / "metadata.csv"
    rows: list[Row] = []
    for line in lines_of(file, ("split", "filename", "y", "location_remapped")):
        split, location = line["split"], line["location_remapped"]
        if split not in WILDCAM or not line["y"].isdecimal():
            _odd(file, f"split {split!r} and y {line['y']!r}")
        env, subset = WILDCAM[split] if environment == "split" else (f"location_{location}", None)
        about = {"location": location, "split": split}
        rows.append((f"train/{line['filename']}", env, f"{int(line['y']):03}", subset, about))
    return rows


def waterbirds(root: Path) -> list[Row]:
    """Waterbirds (Sagawa et al., 2020): birds of land and water before backgrounds that mostly go with them.

    Environments ``land`` and ``water``, by background, hold the published training images as ``train`` and the
    published validation images as ``val``; ``test_land`` and ``test_water`` hold the published test images.

    Args:
        root: ``waterbird_complete95_forest2water2`` as published, or WILDS' copy: ``metadata.csv`` and the images.

    Returns:
        Rows with the attribute ``place``.

    Raises:
        DataError: the list is missing, has other columns or other values.
    """
    file = root / "metadata.csv"
    rows: list[Row] = []
    for line in lines_of(file, ("img_filename", "y", "split", "place")):
        y, split, place = line["y"], SPLITS.get(line["split"]), PLACES.get(line["place"])
        if y not in BIRDS or split is None or place is None:
            _odd(file, f"y {y!r}, split {line['split']!r} and place {line['place']!r}")
        env = f"test_{place}" if split == "test" else place
        rows.append((line["img_filename"], env, BIRDS[y], split, {"place": place}))
    return rows


def _odd(file: Path, values: str) -> NoReturn:
    raise DataError(f"{file} has a line with {values}, which the published list has not; get that")
