"""Real digits to build environments from: MNIST, or the 1,797 digits that scikit-learn carries."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgbench.data.datasets.base_files import (
    MNIST_KINDS,
    MNIST_PARTS,
    base_name,
    check_base,
    mnist_folder,
    need_mnist,
)
from dgbench.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BaseImages:
    """Images that environments are made from.

    Args:
        name: where they come from; part of every row's identity.
        images: (M, C, H, W) uint8.
        classes: (M,) int64 original classes.
        peak: pixel value that becomes 1.0.
    """

    name: str
    images: Tensor
    classes: Tensor
    peak: int


def load_base_images(base: str, data_dir: str | Path, resolution: int) -> BaseImages:
    """Base images by name.

    Args:
        base: ``mnist`` (70,000 images, read from ``data_dir/MNIST/raw`` or downloaded), ``mnist_train`` (its first
            60,000), ``digits`` (1,797 images of 8 x 8 pixels, no network) or ``auto`` (MNIST when it is on disk or can
            be downloaded, else digits).
        data_dir: folder of datasets.
        resolution: 28, or 14 for every second pixel of MNIST; digits stay 8 x 8.

    Raises:
        ConfigError: unknown base or resolution.
        DataError: files missing and out of reach, cut short or corrupt.
    """
    check_base(base, resolution)
    folder = Path(data_dir)
    name = base_name(base, folder, download=True)
    if base == "auto":
        log.warning("base images: %s (dataset.base=auto; set dataset.base=mnist or digits to insist)", name)
    return {"mnist": _mnist, "mnist_train": _mnist_train, "digits": _digits}[name](folder, resolution)


def _digits(folder: Path, resolution: int) -> BaseImages:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(np.uint8))[:, None]
    return BaseImages("digits", images, torch.from_numpy(bunch.target.astype(np.int64)), peak=16)


def _mnist(folder: Path, resolution: int) -> BaseImages:
    need_mnist(folder, download=True)
    images = torch.cat([_read_idx(folder, part, MNIST_KINDS[0], (n, 28, 28)) for part, n in MNIST_PARTS.items()])
    classes = torch.cat([_read_idx(folder, part, MNIST_KINDS[1], (n,)) for part, n in MNIST_PARTS.items()])
    step = 28 // resolution
    return BaseImages("mnist", images[:, None, ::step, ::step].contiguous(), classes.long(), peak=255)


def _mnist_train(folder: Path, resolution: int) -> BaseImages:
    whole, n = _mnist(folder, resolution), MNIST_PARTS["train"]
    return BaseImages("mnist_train", whole.images[:n].clone(), whole.classes[:n].clone(), peak=255)


def _read_idx(folder: Path, part: str, kind: str, shape: tuple[int, ...]) -> Tensor:
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    path = mnist_folder(folder) / f"{part}-{kind}"
    try:
        tensor: Tensor = read_sn3_pascalvincent_tensor(str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except Exception as error:  # torchvision asserts, divides and indexes its way through a broken header
        raise DataError(f"{path} is cut short or corrupt; delete it and fetch MNIST again") from error
    if tuple(tensor.shape) != shape:
        raise DataError(f"{path} holds {tuple(tensor.shape)}, not {shape}; delete it and fetch MNIST again")
    return tensor
