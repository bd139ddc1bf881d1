"""Base images from files: any tree of class folders, or CIFAR-10's batches."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dgbench.data.base_images import BaseImages
from dgbench.data.folder_environments import usable
from dgbench.data.image_store import ResidentStore, image_store
from dgbench.data.image_table import SUFFIXES, table_of
from dgbench.errors import ConfigError, DataError

CIFAR_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


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
        ConfigError: a bad size or choice.
        DataError: no such folder, no images, fewer than two classes, or an image that cannot be decoded.
    """
    if not isinstance(image_size, int) or isinstance(image_size, bool) or image_size < 1:
        raise ConfigError(f"dataset.image_size={image_size} is not a positive number of pixels; 32, 64, 224 are usual")
    if on_bad_image not in ("fail", "skip"):
        raise ConfigError(f"dataset.on_bad_image={on_bad_image} is unknown; choose fail or skip")
    folder = Path(root).expanduser().resolve()
    if not folder.is_dir():
        raise DataError(
            f"dataset.root={root} is no folder; name one that holds CLASS/IMAGE.png, or download the images "
            "(python -m dgbench.data.fetch list)"
        )
    for inner in (folder, folder / "cifar-10-batches-py"):
        if (inner / CIFAR_BATCHES[0]).is_file():
            return _cifar(inner, image_size)
    return _class_folders(folder, image_size, on_bad_image, Path(cache_dir), workers)


def _class_folders(folder: Path, size: int, on_bad_image: str, cache: Path, workers: int | None) -> BaseImages:
    rows = [
        ((Path(where) / file).relative_to(folder).as_posix(), "all", Path(where).name, None)
        for where, _, files in os.walk(folder)
        for file in files
        if Path(where) != folder and Path(file).suffix.lower() in SUFFIXES and not file.startswith(".")
    ]
    table = table_of(folder, rows, ["all"], "same")
    store = image_store(table, side=size, kind="auto", cache=cache, workers=workers, device_share=0)
    assert isinstance(store, ResidentStore)
    kept = usable(table, store, on_bad_image)
    images = store.images if kept.all() else store.images[torch.from_numpy(kept)]
    return BaseImages(f"{folder.name}-{table.fingerprint(kept)}", images, torch.from_numpy(table.label[kept]), 255)


def _cifar(folder: Path, size: int) -> BaseImages:
    """CIFAR-10 in its makers' Python batches: 60,000 images, training batches first."""
    images, classes, listing = [], [], []
    for name in CIFAR_BATCHES:
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing; fetch CIFAR-10 again: python -m dgbench.data.fetch l_cifar10")
        try:
            with path.open("rb") as file:
                batch = _Plain(file, encoding="bytes").load()
            pixels = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
            labels = np.asarray(batch[b"labels"])
        except (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
            raise DataError(f"{path} is cut short or corrupt; fetch CIFAR-10 again") from error
        if labels.shape != (len(pixels),) or not ((labels >= 0) & (labels < 10)).all():
            raise DataError(f"{path} has {len(pixels)} images and other labels than 0..9; fetch CIFAR-10 again")
        images.append(pixels)
        classes.append(labels)
        listing.append(f"{name}:{path.stat().st_size}")
    stacked = np.concatenate(images)
    if size != 32:
        pictures = (Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in stacked)
        resized = [picture.resize((size, size), Image.Resampling.BILINEAR) for picture in pictures]
        stacked = np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in resized])
    name = "cifar10-" + hashlib.sha256("\n".join(listing).encode()).hexdigest()[:12]
    return BaseImages(name, torch.from_numpy(stacked), torch.from_numpy(np.concatenate(classes)).long(), 255)


class _Plain(pickle.Unpickler):
    """Reads arrays and plain values only: a pickle may otherwise run any code."""

    def find_class(self, module: str, name: str) -> object:
        plain = module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype")
        if plain or (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into CIFAR-10")
