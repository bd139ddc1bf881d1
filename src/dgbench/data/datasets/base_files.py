"""The files of the digits that environments are made from: where they are, how many images, what they hold."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import logging
import socket
from functools import lru_cache
from pathlib import Path

from dgbench.data.fetch.download import PROBE_SECONDS, any_answers
from dgbench.data.option_checks import shown
from dgbench.errors import ConfigError, DataError

log = logging.getLogger(__name__)

BASES = ("auto", "mnist", "mnist_train", "digits")
MNIST_PARTS = {"train": 60_000, "t10k": 10_000}
MNIST_KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
IMAGES = {"mnist": 70_000, "mnist_train": 60_000, "digits": 1797}
DIGITS_SIDE = 8

#: data folder -> whether MNIST could be downloaded to it; a process tries once, so that all its answers agree
_TRIED: dict[Path, bool] = {}


def check_base(base: str, resolution: int) -> None:
    """Refuse unknown base images and resolutions.

    Raises:
        ConfigError: either is unknown.
    """
    if not isinstance(resolution, int) or resolution not in (14, 28):
        raise ConfigError(f"dataset.resolution={shown(resolution)} is not 28 or 14; choose one of them")
    if not isinstance(base, str) or base not in BASES:
        raise ConfigError(f"dataset.base={shown(base)} is unknown; choose auto, mnist, mnist_train or digits")


def mnist_there(folder: Path, download: bool) -> bool:
    """Whether MNIST is below ``folder``; ``download`` fetches it where it is not, once per process and folder."""
    if mnist_present(folder):
        return True
    key = folder.resolve()
    if download and key not in _TRIED:
        _TRIED[key] = _mnist_fetched(folder)
    return _TRIED.get(key, False)


def base_name(base: str, folder: Path, download: bool) -> str:
    """The base images that ``base`` stands for: ``auto`` is MNIST where :func:`mnist_there`, else the digits."""
    if base != "auto":
        return base
    return "mnist" if mnist_there(folder, download) else "digits"


def is_there(name: str, folder: Path, download: bool) -> bool:
    """Whether the files of base images are on this machine."""
    return name == "digits" or mnist_there(folder, download)


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


def content(name: str, folder: Path) -> str:
    """16 hexadecimal digits of what the files hold."""
    if name == "digits":
        return _digits_content()
    parts = MNIST_PARTS if name == "mnist" else ("train",)
    files = [mnist_folder(folder) / f"{part}-{kind}" for part in parts for kind in MNIST_KINDS]
    stats = [file.stat() for file in files]
    return _files_content(tuple((str(f), s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)))


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
