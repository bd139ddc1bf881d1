"""A byte of a downloaded file that changes is noticed where the file is read, and named with what
gets it again.
"""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dgbench.data.datasets import base_images
from dgbench.data.datasets.base_images import describe_pictures, load_base_images, load_pictures
from dgbench.data.datasets.image_table import table_of_folders, text_of
from dgbench.data.fetch.checksums import ChangedFile, checksums_of, read_checksums, write_checksums
from dgbench.data.store.photographs import image_store
from dgbench.errors import DataError
from tests.complaints import one_line

SIDE = 8


def flip(file: Path, at: int) -> None:
    """Change one byte as a failing disk does: the size and the time stay."""
    stat = file.stat()
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def downloaded(folder: Path, name: str) -> Path:
    """Note the checksums of a folder of datasets as a download does."""
    note = folder.parent / ".fetch" / f"{name}.sha256"
    note.parent.mkdir(exist_ok=True)
    write_checksums(note, folder, folder.name)
    return note


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three hundred uncompressed pictures: a changed byte of most is a changed pixel.

    Not all are sampled by hashes.
    """
    rng = np.random.default_rng(0)
    for env in "ab":
        for label in ("cat", "dog"):
            folder = tmp_path / "Pictures" / env / label
            folder.mkdir(parents=True)
            for i in range(75):
                pixels = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:02}.bmp")
    return tmp_path / "Pictures"


def read(root: Path, kind: str, cache: Path) -> None:
    """Read all pictures as training does."""
    table = table_of_folders(root, None, "same", [], "pictures")
    store = image_store(table, side=SIDE, kind=kind, cache=cache, workers=1, device_share=0)
    store.rows(torch.arange(len(table)))


@pytest.mark.parametrize("kind", ["ram", "file", "none"])
def test_a_changed_picture_is_named(pictures: Path, kind: str, tmp_path: Path) -> None:
    note = downloaded(pictures, "pacs")
    cache = tmp_path / "cache"
    picture = pictures / "b/dog/74.bmp"
    flip(picture, -5)
    for _ in range(2):  # nothing of the first try is believed by the second
        with pytest.raises(DataError) as raised:
            read(pictures, kind, cache)
        one_line(
            str(raised.value),
            rf"^{picture} was changed .*dgbench fetch pacs --to {tmp_path}.*{note}",
        )
    flip(picture, -5)  # back again, with the same time
    read(pictures, kind, cache)


def test_files_without_a_note_and_changes_on_purpose_are_taken_as_they_are(
    pictures: Path, tmp_path: Path
) -> None:
    flip(pictures / "b/dog/74.bmp", -5)
    read(pictures, "ram", tmp_path / "cache")
    note = downloaded(pictures, "pacs")
    (pictures / "a/cat/new.bmp").write_bytes((pictures / "a/cat/00.bmp").read_bytes())
    read(pictures, "ram", tmp_path / "cache")
    flip(pictures / "b/dog/74.bmp", -5)
    note.unlink()
    read(pictures, "ram", tmp_path / "cache2")


def test_the_hash_of_a_dataset_is_of_files_as_downloaded(pictures: Path) -> None:
    table = table_of_folders(pictures, None, "same", [], "pictures")
    downloaded(pictures, "pacs")
    assert table.content()
    flip(pictures / table.paths[0], -5)
    with pytest.raises(ChangedFile, match="was changed"):
        table.content()


def test_a_changed_list_is_named(tmp_path: Path) -> None:
    file = tmp_path / "waterbirds" / "metadata.csv"
    file.parent.mkdir()
    file.write_text("img_filename,y\na.jpg,0\n")
    downloaded(file.parent, "waterbirds")
    assert len(text_of(file)) == 2
    flip(file, -2)
    with pytest.raises(ChangedFile, match="dgbench fetch waterbirds"):
        text_of(file)


def test_a_changed_file_of_mnist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_images, "MNIST_PARTS", {"train": 5, "t10k": 3})
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in base_images.MNIST_PARTS.items():
        shapes = dict(zip(base_images.MNIST_KINDS, ((n, 28, 28), (n,)), strict=True))
        for kind, shape in shapes.items():
            heading = bytes([0, 0, 8, len(shape)]) + b"".join(side.to_bytes(4) for side in shape)
            (raw / f"{part}-{kind}").write_bytes(heading + bytes(int(np.prod(shape))))
    downloaded(tmp_path / "MNIST", "sr_cmnist")
    load_base_images("mnist", tmp_path, 28)
    flip(raw / "t10k-labels-idx1-ubyte", -1)
    # this process has hashed it, and trusts size and time since
    os.utime(raw / "t10k-labels-idx1-ubyte")
    for use in (
        lambda: load_base_images("mnist", tmp_path, 28),
        lambda: base_images.base_facts("mnist", tmp_path, 28, absent_ok=False, download=False),
    ):
        with pytest.raises(ChangedFile, match=r"t10k-labels.*dgbench fetch sr_cmnist"):
            use()
    load_base_images("mnist_train", tmp_path, 28)


def test_a_changed_batch_of_cifar_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in base_images.CIFAR_BATCHES:
        batch = {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(batch))
    downloaded(folder, "l_cifar10")
    uses: list[Callable[[], object]] = [
        lambda: describe_pictures(folder, 32, "fail", tmp_path),
        lambda: load_pictures(folder, 32, "fail", tmp_path),
    ]
    for use in uses:
        use()
    flip(folder / "data_batch_3", 6000)
    for use in uses:
        with pytest.raises(ChangedFile, match=r"data_batch_3.*dgbench fetch l_cifar10"):
            use()


def test_the_note_is_one_that_sha256sum_checks(pictures: Path, tmp_path: Path) -> None:
    note = downloaded(pictures, "pacs")
    checked = subprocess.run(["sha256sum", "-c", "--quiet", note], cwd=tmp_path, check=False)
    assert checked.returncode == 0
    (pictures / "a/dog/03.bmp").unlink()
    flip(pictures / "a/cat/07.bmp", 60)
    checksums = read_checksums(note)
    assert checksums is not None
    assert checksums.faults() == {
        "Pictures/a/cat/07.bmp": "was changed since it was downloaded",
        "Pictures/a/dog/03.bmp": "is missing or cannot be read",
    }


def test_a_note_belongs_to_its_folder_and_what_lies_below(tmp_path: Path) -> None:
    for name in ("PACS", "PACS_64"):
        (tmp_path / name / "art").mkdir(parents=True)
        (tmp_path / name / "art" / "1.png").write_bytes(gzip.compress(b"1"))
    note = downloaded(tmp_path / "PACS", "pacs")
    below = checksums_of(tmp_path / "PACS" / "art")
    assert below is not None and below.note == note
    assert checksums_of(tmp_path / "PACS_64") is None
    assert checksums_of(tmp_path) is None
    note.write_bytes(b"\xff\x00 damaged\n")  # nothing is known, nothing is refused
    assert checksums_of(tmp_path / "PACS") is None
