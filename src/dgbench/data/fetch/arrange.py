"""Bringing unpacked archives into environment/class/image, if their makers lay them out otherwise.

A row of a table of the Hugging Face hub is one image: ``image`` holds its file in ``bytes``, which
is written as it is; other columns say what it shows.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import DataError
from dgbench.records.files import check_expansion
from dgbench.records.predictions import parquet_size

if TYPE_CHECKING:
    import pyarrow.parquet

TERRA_PLACES = ("38", "43", "46", "100")
TERRA_CLASSES = (
    "bird",
    "bobcat",
    "cat",
    "coyote",
    "dog",
    "empty",
    "opossum",
    "rabbit",
    "raccoon",
    "squirrel",
)


def mnist(folder: Path) -> None:
    """Unpack MNIST's four files into ``raw``.

    Raises:
        DataError: one cannot be unpacked.
    """
    (folder / "raw").mkdir()
    for packed in sorted(folder.glob("*.gz")):
        try:
            (folder / "raw" / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{packed.name} cannot be unpacked ({error}); fetch MNIST again"
            ) from error
        packed.unlink()


def terra_incognita(folder: Path) -> None:
    """Arrange Terra Incognita from Caltech Camera Traps' ECCV 2018 archives, as DomainBed does.

    Images of four places and ten classes go to ``location_38/bird/...``, one entry per annotated
    class; the rest is left out.

    Args:
        folder: holds ``eccv_18_all_images_sm`` and ``eccv_18_annotation_files``; afterwards the
            four places.

    Raises:
        DataError: annotations or images are missing.
    """
    images = folder / "eccv_18_all_images_sm"
    annotations = folder / "eccv_18_annotation_files"
    lists = sorted(annotations.glob("*.json"))
    if not lists or not images.is_dir():
        raise DataError(
            f"{folder} lacks {images.name} or {annotations.name}/*.json; fetch terra_incognita "
            "again"
        )
    chosen: set[tuple[str, str, str]] = set()  # place, class, file
    for file in lists:
        content = json.loads(file.read_text())
        classes = {entry["id"]: entry["name"] for entry in content["categories"]}
        places = {}
        for entry in content["images"]:
            places[entry["id"]] = (str(entry["location"]), entry["file_name"])
        for entry in content["annotations"]:
            place, name = places.get(entry["image_id"], ("", ""))
            label = classes[entry["category_id"]]
            if place in TERRA_PLACES and label in TERRA_CLASSES:
                chosen.add((place, label, name))
    for place, label, name in sorted(chosen):
        source = images / Path(name).name
        link = folder / f"location_{place}" / label / Path(name).name
        if not source.is_file():
            raise DataError(f"{source} is missing; fetch terra_incognita again")
        link_or_copy(source, link)
    for unpacked in (images, annotations):
        shutil.rmtree(unpacked)


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file under a second name, or copy it if there are no links.

    Its folder is made if need be.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # not every file system has links
        shutil.copyfile(source, target)


BATCH_ROWS = 1000
PNG_SIGNATURE = b"\x89PNG"
#: value of WILDS's column ``split``: 0 train, 1 validation in the training hospitals, 2 test, 3
#: validation elsewhere
CAMELYON_SPLITS = {"train": 0, "validation": 1, "test": 2}
CAMELYON_COLUMNS = ("image", "patient", "node", "x_coord", "y_coord", "label", "slide", "center")
VALIDATION_HOSPITAL = 1


def domains(folder: Path) -> None:
    """Write images with the columns ``domain`` and ``label`` to ``DOMAIN/CLASS/00000.jpg`` or png.

    They are numbered by row.

    Args:
        folder: holds the tables, ``*.parquet``; afterwards one folder for each domain.

    Raises:
        DataError: a table is missing, cut short, or has other columns.
    """
    number = 0
    for file in _tables(folder):
        opened = _opened(file, ("image", "domain", "label"))
        domain_names = _class_names(opened, "domain")
        label_names = _class_names(opened, "label")
        for row in _rows(file, opened, ("image", "domain", "label")):
            domain = _plain(domain_names.get(row["domain"], row["domain"]), file)
            label = _plain(label_names.get(row["label"], row["label"]), file)
            content = row["image"]["bytes"]
            ending = "png" if content.startswith(PNG_SIGNATURE) else "jpg"
            path = folder / domain / label / f"{number:05d}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            number += 1
        file.unlink()


def camelyon17(folder: Path) -> None:
    """Arrange Camelyon17-WILDS as WILDS lays it out.

    That is ``metadata.csv`` and ``patches/patient_004_node_4/...png``.

    Args:
        folder: holds ``train-*.parquet``, ``validation-*.parquet`` and ``test-*.parquet``, with the
            hospital as a number in ``center``.

    Raises:
        DataError: a table is missing, cut short, or has other columns.
    """
    number = 0
    with (folder / "metadata.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(
            ["", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
        )
        for file in _tables(folder):
            for row in _rows(file, _opened(file, CAMELYON_COLUMNS), CAMELYON_COLUMNS):
                numbers = [int(row[column]) for column in CAMELYON_COLUMNS[2:]]
                node, x, y, tumor, slide, center = numbers
                patient = f"{int(row['patient']):03d}"
                split = CAMELYON_SPLITS[file.name.split("-")[0]]
                if center == VALIDATION_HOSPITAL:
                    split = 3
                table.writerow([number, patient, node, x, y, tumor, slide, center, split])
                place = f"patient_{patient}_node_{node}"
                path = folder / "patches" / place / f"patch_{place}_x_{x}_y_{y}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(row["image"]["bytes"])
                number += 1
            file.unlink()


def _tables(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise DataError(f"{folder} holds no table (*.parquet); fetch the dataset again")
    return files


def _opened(file: Path, columns: Sequence[str]) -> pyarrow.parquet.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise _broken(file, error) from error
    check_expansion(file, parquet_size(opened))
    lacking = [column for column in columns if column not in opened.schema_arrow.names]
    if lacking:
        raise DataError(
            f"{file.name} has no column {lacking[0]}; it is another table than expected"
        )
    return opened


def _rows(
    file: Path, opened: pyarrow.parquet.ParquetFile, columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    try:
        for batch in opened.iter_batches(BATCH_ROWS, columns=list(columns)):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise _broken(file, error) from error


def _broken(file: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())
    return DataError(
        f"{file.name} is cut short or corrupt ({reason}); delete it and fetch it again"
    )


def _class_names(opened: pyarrow.parquet.ParquetFile, column: str) -> dict[Any, str]:
    """Read each class's name by its number, as the hub's library notes it in a table.

    A column of names has no such note.
    """
    metadata = json.loads((opened.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
    features = metadata.get("info", {}).get("features", {})
    names = features.get(column, {}).get("names") or []
    return dict(enumerate(names))


def _plain(name: Any, file: Path) -> str:
    """Check that a name may become that of a folder, and return it."""
    is_text = isinstance(name, str) and name != ""
    if not is_text or name.startswith(".") or {"/", "\\", "\0"} & set(name):
        raise DataError(
            f"{file.name} calls a domain or class {name!r}, which is no name of a folder; do not "
            "trust it"
        )
    return str(name)
