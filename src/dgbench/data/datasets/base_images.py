"""Real digits to build environments from: MNIST, or the 1,797 digits that scikit-learn carries. Imports no torch."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import logging
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from dgbench.downloads import PROBE_SECONDS, any_answers
from dgbench.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

Base = Literal["auto", "mnist", "mnist_train", "digits"]
MNIST_PARTS = {"train": 60_000, "t10k": 10_000}
MNIST_KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
IMAGES = {"mnist": 70_000, "mnist_train": 60_000, "digits": 1797}
DIGITS_SIDE = 8

#: data folder -> whether MNIST could be downloaded to it; a process tries once, so that all its answers agree
_TRIED: dict[Path, bool] = {}


def mnist_there(folder: Path, download: bool) -> bool:
    """Whether MNIST is below ``folder``; ``download`` fetches it where it is not, once per process and folder."""
    if mnist_present(folder):
        return True
    key = folder.resolve()
    if download and key not in _TRIED:
        _TRIED[key] = _mnist_fetched(folder)
    return _TRIED.get(key, False)


@dataclass(frozen=True)
class BaseFacts:
    """Base images as their files tell.

    Args:
        name: where they come from; part of every row's identity.
        n_images: how many there are; 0 where the files are absent.
        side: of an image, in pixels.
        content: 16 hexadecimal digits of what the files hold; empty where they are absent.
    """

    name: str
    n_images: int
    side: int
    content: str


def base_facts(base: str, folder: Path, resolution: int, absent_ok: bool, download: bool) -> BaseFacts:
    """What is known of base images without reading one.

    Args:
        base, resolution: see :func:`load_base_images`.
        folder: of datasets.
        absent_ok, download: as of :meth:`~dgbench.data.options.DatasetOptions.describe`.

    Raises:
        DataError: MNIST is absent.
    """
    name = base_name(base, folder, download)
    if name == "digits":
        return BaseFacts(name, IMAGES[name], DIGITS_SIDE, _digits_content())
    if not mnist_there(folder, download):
        if not absent_ok:
            need_mnist(folder, download)
        return BaseFacts(name, 0, resolution, "")
    parts = MNIST_PARTS if name == "mnist" else ("train",)
    files = [mnist_folder(folder) / f"{part}-{kind}" for part in parts for kind in MNIST_KINDS]
    stats = [file.stat() for file in files]
    content = _files_content(tuple((str(f), s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)))
    return BaseFacts(name, IMAGES[name], resolution, content)


def base_name(base: str, folder: Path, download: bool) -> str:
    """The base images that ``base`` stands for: ``auto`` is MNIST where :func:`mnist_there`, else the digits."""
    if base != "auto":
        return base
    return "mnist" if mnist_there(folder, download) else "digits"


def need_mnist(folder: Path, download: bool) -> None:
    """Refuse to continue without MNIST.

    Raises:
        DataError: it is neither there nor, with ``download``, to be had.
    """
    if not mnist_there(folder, download):
        tried = " and cannot be downloaded" if download else ""
        raise DataError(
            f"MNIST is not in {mnist_folder(folder)}{tried}; "
            "set paths.data_dir to a folder that holds MNIST/raw, or use dataset.base=digits"
        )


def mnist_folder(folder: Path) -> Path:
    """Where MNIST's files lie below the data folder."""
    return folder / "MNIST" / "raw"


def mnist_present(folder: Path) -> bool:
    """Whether all four files of MNIST are there."""
    return all((mnist_folder(folder) / f"{part}-{kind}").is_file() for part in MNIST_PARTS for kind in MNIST_KINDS)


@lru_cache(maxsize=8)
def _files_content(files: tuple[tuple[str, int, int], ...]) -> str:
    """Hash of whole files; sizes and times are there so that what is remembered holds for unchanged files only."""
    digest = hashlib.sha256()
    for path, _, _ in files:
        with open(path, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def _digits_content() -> str:
    """Hash of scikit-learn's table of digits, read as it stands: importing scikit-learn takes a second."""
    found = importlib.util.find_spec("sklearn")
    assert found and found.origin
    packed = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return hashlib.sha256(gzip.decompress(packed.read_bytes())).hexdigest()[:16]


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


def load_base_images(base: Base, data_dir: str | Path, resolution: int) -> BaseImages:
    """Base images by name.

    Args:
        base: ``mnist`` (70,000 images, read from ``data_dir/MNIST/raw`` or downloaded), ``mnist_train`` (its first
            60,000), ``digits`` (1,797 images of 8 x 8 pixels, no network) or ``auto`` (MNIST when it is on disk or can
            be downloaded, else digits).
        data_dir: folder of datasets.
        resolution: 28, or 14 for every second pixel of MNIST; digits stay 8 x 8.

    Raises:
        DataError: files missing and out of reach, cut short or corrupt.
    """
    folder = Path(data_dir)
    name = base_name(base, folder, download=True)
    if base == "auto":
        log.warning("base images: %s (dataset.base=auto; set dataset.base=mnist or digits to insist)", name)
    return {"mnist": _mnist, "mnist_train": _mnist_train, "digits": _digits}[name](folder, resolution)


def _digits(folder: Path, resolution: int) -> BaseImages:
    import torch
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(np.uint8))[:, None]
    return BaseImages("digits", images, torch.from_numpy(bunch.target.astype(np.int64)), peak=16)


def _mnist(folder: Path, resolution: int) -> BaseImages:
    import torch

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
