"""Base images from files: any tree of class folders, or CIFAR-10's batches. Decoded once per process, kept as uint8."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dgbench.data.base_images import BaseImages
from dgbench.errors import ConfigError, DataError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}
CIFAR_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def load_pictures(root: str | Path, image_size: int | None, on_bad_image: str = "fail") -> BaseImages:
    """All images below a folder, (M, 3, S, S).

    Args:
        root: a folder with CIFAR-10's batches (as torchvision and its makers lay it out), or any tree whose images
            lie in class folders. A class is the name of the folder that holds an image, so ``root/cat/1.png`` and
            ``root/train/cat/1.png`` are both cats. Classes are numbered by name, images ordered by path.
        image_size: S; the shorter side is brought to S and the center cut out. None keeps the size of the files,
            which must then agree.
        on_bad_image: ``fail`` names the first image that cannot be read; ``skip`` leaves such images out.

    The name of the result is that of the folder and a checksum of the files' relative paths and sizes: rows tell
    base images apart by it, wherever they lie.

    Raises:
        ConfigError: a bad size or choice.
        DataError: no such folder, no images, fewer than two classes, an unreadable image, or sizes that differ.
    """
    if image_size is not None and (not isinstance(image_size, int) or isinstance(image_size, bool) or image_size < 1):
        raise ConfigError(f"dataset.image_size={image_size} is no number of pixels; give e.g. 64, or null")
    if on_bad_image not in ("fail", "skip"):
        raise ConfigError(f"dataset.on_bad_image={on_bad_image} is unknown; choose fail or skip")
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise DataError(f"dataset.root={root} is no folder; name one that holds the images, CLASS/IMAGE below it")
    return _decoded(str(folder.resolve()), image_size, on_bad_image)


@functools.lru_cache(maxsize=2)
def _decoded(root: str, size: int | None, on_bad_image: str) -> BaseImages:
    folder = Path(root)
    for inner in (folder, folder / "cifar-10-batches-py"):
        if (inner / CIFAR_BATCHES[0]).is_file():
            return _cifar(inner, size)
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    paths = [path for path in paths if path.parent != folder and not path.name.startswith(".")]
    names = sorted({path.parent.name for path in paths})
    if len(names) < 2:
        raise DataError(
            f"{root} holds images of {len(names)} classes; dataset.root must hold CLASS/IMAGE.png for two or more"
        )
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # PIL decodes without the interpreter's lock
        decoded = list(pool.map(functools.partial(_read, size=size, skip=on_bad_image == "skip"), paths))
    kept = [(path, pixels) for path, pixels in zip(paths, decoded, strict=True) if pixels is not None]
    shapes = {pixels.shape for _, pixels in kept}
    if len(shapes) != 1:
        raise DataError(f"{root} holds images of {len(shapes)} sizes; set dataset.image_size, e.g. 64")
    classes = np.array([names.index(path.parent.name) for path, _ in kept])
    listing = [f"{path.relative_to(folder)}:{path.stat().st_size}" for path, _ in kept]
    return _base(folder.name, listing, np.stack([pixels for _, pixels in kept]), classes)


def _base(name: str, listing: list[str], images: np.ndarray, classes: np.ndarray) -> BaseImages:
    checksum = hashlib.sha256("\n".join(listing).encode()).hexdigest()[:8]
    return BaseImages(f"{name}-{checksum}", torch.from_numpy(images), torch.from_numpy(classes).long(), peak=255)


def _read(path: Path, size: int | None, skip: bool) -> np.ndarray | None:
    """(3, S, S) uint8, or None for a bad image to skip."""
    try:
        with Image.open(path) as image:
            if size is not None:
                image.draft("RGB", (size, size))  # JPEG: decode at a power of two below full size
            return _fitted(image.convert("RGB"), size)
    except (OSError, SyntaxError, ValueError) as error:  # what PIL raises for broken files
        if skip:
            return None
        raise DataError(
            f"{path} cannot be read as an image ({error}); replace it, or set dataset.on_bad_image=skip"
        ) from error


def _fitted(image: Image.Image, size: int | None) -> np.ndarray:
    if size is not None and image.size != (size, size):
        scale = size / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        left, top = (width - size) // 2, (height - size) // 2
        image = image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _cifar(folder: Path, size: int | None) -> BaseImages:
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
    if size not in (None, 32):
        stacked = np.stack([_fitted(Image.fromarray(pixels.transpose(1, 2, 0)), size) for pixels in stacked])
    return _base("cifar10", listing, stacked, np.concatenate(classes))


class _Plain(pickle.Unpickler):
    """Reads arrays and plain values only: a pickle may otherwise run any code."""

    def find_class(self, module: str, name: str) -> object:
        plain = module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype")
        if plain or (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into CIFAR-10")
