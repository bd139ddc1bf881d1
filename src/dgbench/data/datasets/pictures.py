"""Base images from files: any tree of class folders, or CIFAR-10's batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dgbench.data.datasets.base_images import BaseImages
from dgbench.data.datasets.image_split import usable
from dgbench.data.datasets.picture_files import (
    CIFAR_SIDE,
    SIDES,
    check_pictures,
    cifar_batches,
    cifar_folder,
    cifar_name,
    picture_folder,
    picture_table,
    pictures_of,
)
from dgbench.data.option_checks import check_side
from dgbench.data.store.image_store import ResidentStore, image_store


def load_pictures(
    root: str | Path, image_size: int | None, on_bad_image: str, cache_dir: str | Path, workers: int | None = None
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
    check_side(image_size, SIDES)
    check_pictures(image_size, on_bad_image)
    assert image_size is not None
    folder = picture_folder(root)
    batches = cifar_folder(folder)
    if batches is not None:
        return _cifar(batches, image_size)
    return _class_folders(folder, image_size, on_bad_image, Path(cache_dir), workers)


def _class_folders(folder: Path, size: int, on_bad_image: str, cache: Path, workers: int | None) -> BaseImages:
    table = picture_table(folder)
    store = image_store(table, side=size, kind="auto", cache=cache, workers=workers, device_share=0)
    assert isinstance(store, ResidentStore)
    kept = usable(table, store.bad, on_bad_image)
    images = store.images if kept.all() else store.images[torch.from_numpy(kept)]
    return BaseImages(pictures_of(table, kept).name, images, torch.from_numpy(table.label[kept]), 255)


def _cifar(folder: Path, size: int) -> BaseImages:
    """CIFAR-10 in its makers' Python batches: 60,000 images, training batches first."""
    images, classes = zip(*cifar_batches(folder), strict=True)
    stacked = np.concatenate(images)
    if size != CIFAR_SIDE:
        pictures = (Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in stacked)
        resized = [picture.resize((size, size), Image.Resampling.BILINEAR) for picture in pictures]
        stacked = np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in resized])
    labels = torch.from_numpy(np.concatenate(classes)).long()
    return BaseImages(cifar_name(folder), torch.from_numpy(stacked), labels, 255)
