"""Bringing unpacked archives into environment/class/image, where their makers lay them out otherwise."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from dgbench.errors import DataError

TERRA_PLACES = ("38", "43", "46", "100")
TERRA_CLASSES = ("bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel")


def terra_incognita(folder: Path) -> None:
    """Terra Incognita from Caltech Camera Traps' ECCV 2018 archives, as DomainBed arranges it.

    Images of four places and ten classes go to ``location_38/bird/...``, one entry per annotated class; the rest is
    left out.

    Args:
        folder: holds ``eccv_18_all_images_sm`` and ``eccv_18_annotation_files``; afterwards the four places.

    Raises:
        DataError: annotations or images are missing.
    """
    images, annotations = folder / "eccv_18_all_images_sm", folder / "eccv_18_annotation_files"
    lists = sorted(annotations.glob("*.json"))
    if not lists or not images.is_dir():
        raise DataError(f"{folder} lacks {images.name} or {annotations.name}/*.json; fetch terra_incognita again")
    wanted: set[tuple[str, str, str]] = set()  # place, class, file
    for file in lists:
        content = json.loads(file.read_text())
        classes = {each["id"]: each["name"] for each in content["categories"]}
        places = {each["id"]: (str(each["location"]), each["file_name"]) for each in content["images"]}
        for each in content["annotations"]:
            place, name = places.get(each["image_id"], ("", ""))
            label = classes[each["category_id"]]
            if place in TERRA_PLACES and label in TERRA_CLASSES:
                wanted.add((place, label, name))
    for place, label, name in sorted(wanted):
        source, link = images / Path(name).name, folder / f"location_{place}" / label / Path(name).name
        if not source.is_file():
            raise DataError(f"{source} is missing; fetch terra_incognita again")
        link_or_copy(source, link)
    for rest in (images, annotations):
        shutil.rmtree(rest)


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under a second name, in a folder that is made if need be; a copy where there are no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # not every file system has links
        shutil.copyfile(source, target)
