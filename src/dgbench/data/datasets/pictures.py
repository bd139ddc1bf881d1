"""Pictures to build environments from: any tree of class folders, or CIFAR-10's batches. Imports no torch."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dgbench.data.datasets.base_images import BaseImages
from dgbench.data.datasets.image_table import ImageTable, images_below, known_bad, table_of
from dgbench.data.datasets.splits import usable
from dgbench.errors import DataError

CIFAR_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CIFAR_SIDE = 32
SIDES = "32, 64, 224 are usual"
SAMPLED = 64  # every so manieth image of a CIFAR-10 batch is hashed


@dataclass(frozen=True)
class PictureFiles:
    """Base images as their files tell.

    Args:
        name: of the folder, with a checksum of the files' names and sizes: rows tell base images apart by it.
        classes: (M,) int64 class of every image that counts.
        content: 16 hexadecimal digits that change with the files.
    """

    name: str
    classes: np.ndarray
    content: str

    @property
    def n_classes(self) -> int:
        """K; 0 where the files are absent."""
        return int(self.classes.max(initial=-1)) + 1


def describe_pictures(root: str | Path, image_size: int | None, on_bad_image: str, cache: Path) -> PictureFiles:
    """What lies below a folder. Images that cannot be decoded are known once they were decoded.

    Args:
        root, on_bad_image: see :func:`~dgbench.data.datasets.pictures.load_pictures`.
        image_size: in pixels; None where the initial weights will say.
        cache: folder of caches.

    Raises:
        DataError: no such folder, no images, fewer than two classes, or damaged batches.
    """
    folder = picture_folder(root)
    batches = cifar_folder(folder)
    if batches is None:
        table = picture_table(folder)
        return pictures_of(table, usable(table, known_bad(table, image_size, cache), on_bad_image))
    digest, classes = hashlib.sha256(), []
    for pixels, labels in cifar_batches(batches):
        digest.update(pixels[::SAMPLED].tobytes() + labels.astype("<i8").tobytes())
        classes.append(labels)
    return PictureFiles(cifar_name(batches), np.concatenate(classes), digest.hexdigest()[:16])


def picture_folder(root: str | Path) -> Path:
    """The folder, resolved.

    Raises:
        DataError: it is not there.
    """
    folder = Path(root).expanduser().resolve()
    if not folder.is_dir():
        raise DataError(
            f"dataset.root={root} is no folder; name one that holds CLASS/IMAGE.png, or download the images "
            "(python -m dgbench.data.fetch list)"
        )
    return folder


def pictures_of(table: ImageTable, kept: np.ndarray) -> PictureFiles:
    """The images of a table that count."""
    return PictureFiles(f"{table.root.name}-{table.fingerprint(kept)}", table.label[kept], table.content())


def picture_table(folder: Path) -> ImageTable:
    """All images in class folders, at any depth; a class is the name of the folder that holds an image."""
    rows = [(path, "all", Path(path).parent.name, None) for path in images_below(folder) if "/" in path]
    return table_of(folder, rows, ["all"], "same")


def cifar_folder(folder: Path) -> Path | None:
    """Where CIFAR-10's batches lie; None where there are none."""
    for inner in (folder, folder / "cifar-10-batches-py"):
        if (inner / CIFAR_BATCHES[0]).is_file():
            return inner
    return None


def cifar_batches(folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(n, 3, 32, 32) uint8 images and (n,) labels of each of the six batches, training batches first.

    Raises:
        DataError: a file is missing, cut short or corrupt.
    """
    for name in CIFAR_BATCHES:
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing; fetch CIFAR-10 again: python -m dgbench.data.fetch l_cifar10")
        try:
            with path.open("rb") as file:
                batch = _Plain(file, encoding="bytes").load()
            pixels = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)
            labels = np.asarray(batch[b"labels"])
        except (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
            raise DataError(f"{path} is cut short or corrupt; fetch CIFAR-10 again") from error
        if labels.shape != (len(pixels),) or not ((labels >= 0) & (labels < 10)).all():
            raise DataError(f"{path} has {len(pixels)} images and other labels than 0..9; fetch CIFAR-10 again")
        yield pixels, labels


def cifar_name(folder: Path) -> str:
    """``cifar10`` with a checksum of the files' sizes."""
    listing = [f"{name}:{(folder / name).stat().st_size}" for name in CIFAR_BATCHES]
    return "cifar10-" + hashlib.sha256("\n".join(listing).encode()).hexdigest()[:12]


class _Plain(pickle.Unpickler):
    """Reads arrays and plain values only: a pickle may otherwise run any code."""

    def find_class(self, module: str, name: str) -> object:
        plain = module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype")
        if plain or (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into CIFAR-10")


def load_pictures(
    root: str | Path, image_size: int, on_bad_image: str, cache_dir: str | Path, workers: int | None = None
) -> BaseImages:
    """All images below a folder, (M, 3, S, S).

    Args:
        root: a folder with CIFAR-10's batches (as its makers and torchvision lay it out), or any tree whose images
            lie in class folders. A class is the name of the folder that holds an image, so ``root/cat/1.png`` and
            ``root/train/cat/1.png`` are both cats. Classes are numbered by name, images ordered by path.
        image_size: S; images are resized to a square without a crop (DomainBed).
        on_bad_image: ``fail`` names an image that cannot be decoded; ``skip`` leaves such images out.
        cache_dir: where images go once they are decoded.
        workers: decoding threads; None is one per core.

    The name of the result is that of the folder and a checksum of the files' names and sizes: rows tell base images
    apart by it, wherever they lie.

    Raises:
        DataError: no such folder, no images, fewer than two classes, or an image that cannot be decoded.
    """
    folder = picture_folder(root)
    batches = cifar_folder(folder)
    if batches is not None:
        return _cifar(batches, image_size)
    return _class_folders(folder, image_size, on_bad_image, Path(cache_dir), workers)


def _class_folders(folder: Path, size: int, on_bad_image: str, cache: Path, workers: int | None) -> BaseImages:
    import torch

    from dgbench.data.store.image_store import ResidentStore, image_store

    table = picture_table(folder)
    store = image_store(table, side=size, kind="auto", cache=cache, workers=workers, device_share=0)
    assert isinstance(store, ResidentStore)
    kept = usable(table, store.bad, on_bad_image)
    images = store.images if kept.all() else store.images[torch.from_numpy(kept)]
    return BaseImages(pictures_of(table, kept).name, images, torch.from_numpy(table.label[kept]), 255)


def _cifar(folder: Path, size: int) -> BaseImages:
    """CIFAR-10 in its makers' Python batches: 60,000 images, training batches first."""
    import torch
    from PIL import Image

    images, classes = zip(*cifar_batches(folder), strict=True)
    stacked = np.concatenate(images)
    if size != CIFAR_SIDE:
        pictures = (Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in stacked)
        resized = [picture.resize((size, size), Image.Resampling.BILINEAR) for picture in pictures]
        stacked = np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in resized])
    labels = torch.from_numpy(np.concatenate(classes)).long()
    return BaseImages(cifar_name(folder), torch.from_numpy(stacked), labels, 255)
