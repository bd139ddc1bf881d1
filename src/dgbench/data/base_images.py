"""Real digits to build environments from: MNIST, or the 1,797 digits that scikit-learn carries."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgbench.data.download import PROBE_SECONDS, any_answers
from dgbench.errors import ConfigError, DataError

log = logging.getLogger(__name__)

_PARTS = {"train": 60_000, "t10k": 10_000}


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
    if resolution not in (14, 28):
        raise ConfigError(f"dataset.resolution={resolution} is not 28 or 14; choose one of them")
    folder = Path(data_dir)
    if base == "auto":
        base = "mnist" if _mnist_present(folder) or _mnist_fetched(folder) else "digits"
        log.warning("base images: %s (dataset.base=auto; set dataset.base=mnist or digits to insist)", base)
    makers = {"mnist": _mnist, "mnist_train": _mnist_train, "digits": _digits}
    if base not in makers:
        raise ConfigError(f"dataset.base={base} is unknown; choose auto, mnist, mnist_train or digits")
    return makers[base](folder, resolution)


def _digits(folder: Path, resolution: int) -> BaseImages:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(np.uint8))[:, None]
    return BaseImages("digits", images, torch.from_numpy(bunch.target.astype(np.int64)), peak=16)


def _mnist(folder: Path, resolution: int) -> BaseImages:
    if not _mnist_present(folder) and not _mnist_fetched(folder):
        raise DataError(
            f"MNIST is not in {_raw(folder)} and cannot be downloaded; "
            "set paths.data_dir to a folder that holds MNIST/raw, or use dataset.base=digits"
        )
    images = torch.cat([_read_idx(folder, part, "images-idx3-ubyte", (n, 28, 28)) for part, n in _PARTS.items()])
    classes = torch.cat([_read_idx(folder, part, "labels-idx1-ubyte", (n,)) for part, n in _PARTS.items()])
    step = 28 // resolution
    return BaseImages("mnist", images[:, None, ::step, ::step].contiguous(), classes.long(), peak=255)


def _mnist_train(folder: Path, resolution: int) -> BaseImages:
    whole, n = _mnist(folder, resolution), _PARTS["train"]
    return BaseImages("mnist_train", whole.images[:n].clone(), whole.classes[:n].clone(), peak=255)


def _raw(folder: Path) -> Path:
    return folder / "MNIST" / "raw"


def _mnist_present(folder: Path) -> bool:
    names = [f"{part}-{kind}" for part in _PARTS for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    return all((_raw(folder) / name).is_file() for name in names)


def _read_idx(folder: Path, part: str, kind: str, shape: tuple[int, ...]) -> Tensor:
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    path = _raw(folder) / f"{part}-{kind}"
    try:
        tensor: Tensor = read_sn3_pascalvincent_tensor(str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except Exception as error:  # torchvision asserts, divides and indexes its way through a broken header
        raise DataError(f"{path} is cut short or corrupt; delete it and fetch MNIST again") from error
    if tuple(tensor.shape) != shape:
        raise DataError(f"{path} holds {tuple(tensor.shape)}, not {shape}; delete it and fetch MNIST again")
    return tensor


def _mnist_fetched(folder: Path) -> bool:
    """Download MNIST through torchvision if a mirror answers at once; False when none does."""
    from torchvision.datasets import MNIST

    if not any_answers(MNIST.mirrors, PROBE_SECONDS):
        return False
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        MNIST(str(folder), download=True)
    except (OSError, RuntimeError) as error:
        log.warning("MNIST could not be downloaded: %s", error)
        return False
    finally:
        socket.setdefaulttimeout(before)
    return True
