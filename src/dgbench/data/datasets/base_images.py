"""Images to build environments from: MNIST, scikit-learn's digits, CIFAR-10, any class folders.

Imports no torch.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import logging
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from dgbench.data.datasets.file_tree import LeftOut, images_below
from dgbench.data.datasets.image_table import ImageTable, Row, known_bad, table_of, usable
from dgbench.data.datasets.splits import warn_once
from dgbench.data.fetch.checksums import checksums_of
from dgbench.data.fetch.fetching import command_into, fetch, fetching_command, sources
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
#: classes 0 and 1 of colored digits, for people
LARGE_OR_SMALL = ("digits 5 to 9", "digits 0 to 4")
CIFAR_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CIFAR_SIDE = 32
HASHED_EVERY = 64  #: every 64th image of a CIFAR-10 batch is hashed

#: data folder -> whether MNIST could be downloaded to it; a process tries once, so that all its
#: answers agree
_TRIED: dict[Path, bool] = {}


@dataclass(frozen=True)
class BaseFacts:
    """Base images as their files tell."""

    name: str  #: where they come from; part of every row's identity
    n_images: int  #: how many count; 0 if the files are absent
    n_classes: int  #: of the images themselves; 0 if the files are absent
    side: int  #: of an image, in pixels; 0 if the initial weights decide
    content: str  #: 16 hexadecimal digits of what the files hold; empty if they are absent
    #: in the order of the classes; empty if only their number is known
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class BaseImages:
    """Images that environments are made from."""

    name: str  #: as of :class:`BaseFacts`
    images: Tensor  #: (M, C, H, W) uint8
    classes: Tensor  #: (M,) int64 original classes
    peak: int  #: pixel value that becomes 1.0


# Digits


def base_facts(
    base: str, folder: Path, resolution: int, absent_ok: bool, download: bool
) -> BaseFacts:
    """Describe base images without loading them.

    Args:
        base, resolution: see :func:`load_base_images`.
        folder: of datasets.
        absent_ok, download: as of :meth:`~dgbench.data.options.DatasetOptions.describe`.

    Raises:
        DataError: MNIST is absent, unless ``absent_ok``.
    """
    name = base_name(base, folder, download)
    if name == "digits":
        return BaseFacts(name, IMAGES[name], 10, DIGITS_SIDE, _digits_content())
    if not has_mnist(folder, download):
        if not absent_ok:
            need_mnist(folder, download)
        return BaseFacts(name, 0, 0, resolution, "")
    return BaseFacts(name, IMAGES[name], 10, resolution, _mnist_content(name, folder))


def load_base_images(base: Base, data_dir: str | Path, resolution: int) -> BaseImages:
    """Load base images by name.

    Args:
        base: ``mnist`` (70,000 images, read from ``data_dir/MNIST/raw`` or downloaded),
            ``mnist_train`` (its first 60,000), ``digits`` (1,797 images of 8 x 8 pixels, no
            network) or ``auto`` (MNIST when it is on disk or can be downloaded, else digits).
        data_dir: folder of datasets.
        resolution: 28, or 14 for every second pixel of MNIST; digits stay 8 x 8.

    Raises:
        DataError: files missing and out of reach, cut short or corrupt.
    """
    folder = Path(data_dir)
    name = base_name(base, folder, download=True)
    if (base, name) == ("auto", "digits"):
        log.warning(
            "MNIST is not in %s and cannot be downloaded: the digits of scikit-learn are "
            "taken in its place (dataset.base=auto); with a network, %s gets it",
            mnist_folder(folder),
            fetching_command("sr_cmnist", folder),
        )
    import torch

    if name == "digits":
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images = torch.from_numpy(bunch.images.astype(np.uint8))[:, None]
        return BaseImages(name, images, torch.from_numpy(bunch.target.astype(np.int64)), peak=16)
    need_mnist(folder, download=True)
    if checksums_of(mnist_folder(folder)):
        _mnist_content(name, folder)
    pixels, labels = MNIST_KINDS
    image_parts = []
    class_parts = []
    for part, n in _parts(name).items():
        image_parts.append(_read_idx(folder, part, pixels, (n, 28, 28)))
        class_parts.append(_read_idx(folder, part, labels, (n,)))
    step = 28 // resolution
    images = torch.cat(image_parts)[:, None, ::step, ::step].contiguous()
    return BaseImages(name, images, torch.cat(class_parts).long(), peak=255)


def base_name(base: str, folder: Path, download: bool) -> str:
    """Resolve ``base`` to a name: ``auto`` is MNIST if :func:`has_mnist`, else the digits."""
    if base != "auto":
        return base
    return "mnist" if has_mnist(folder, download) else "digits"


def has_mnist(folder: Path, download: bool) -> bool:
    """Return whether MNIST is below ``folder``.

    ``download`` tries to fetch it if not, once per process and folder.
    """
    if _complete(folder):
        return True
    key = folder.resolve()
    if download and key not in _TRIED:
        _TRIED[key] = _mnist_fetched(folder)
    return _TRIED.get(key, False)


def _complete(folder: Path) -> bool:
    files = [f"{part}-{kind}" for part, kind in product(MNIST_PARTS, MNIST_KINDS)]
    return all((mnist_folder(folder) / file).is_file() for file in files)


def _mnist_fetched(folder: Path) -> bool:
    """Download MNIST if a mirror answers at once; return whether all its files are there."""
    source = sources()["sr_cmnist"]
    if not any_answers(source.files[0].urls, PROBE_SECONDS):
        return False
    try:
        fetch(source, folder, say=log.info)
    except (OSError, DataError) as error:
        log.warning("MNIST could not be downloaded: %s", error)
    return _complete(folder)


def need_mnist(folder: Path, download: bool) -> None:
    """Refuse to continue without MNIST.

    Raises:
        DataError: it is not there and, with ``download``, cannot be downloaded.
    """
    if not has_mnist(folder, download):
        tried = " and cannot be downloaded" if download else ""
        remedy = ""
        if (folder / "MNIST").exists():
            remedy = f"delete {folder / 'MNIST'}, which lacks files, "
        command = fetching_command("sr_cmnist", folder)
        raise DataError(
            f"MNIST is not in {mnist_folder(folder)}{tried}; {remedy}get it where there is a "
            f"network ({command}), set paths.data_dir to a folder that holds MNIST/raw, or use "
            "dataset.base=digits"
        )


def mnist_folder(folder: Path) -> Path:
    """Return the folder of MNIST's files below the data folder."""
    return folder / "MNIST" / "raw"


def _parts(name: str) -> dict[str, int]:
    """Map each part of ``mnist`` or ``mnist_train`` to its number of images.

    The names of a part's files begin with its name.
    """
    return MNIST_PARTS if name == "mnist" else {"train": MNIST_PARTS["train"]}


def _mnist_content(name: str, folder: Path) -> str:
    """Hash the files of ``mnist`` or ``mnist_train``.

    They are compared with their checksums if they were downloaded.
    """
    files = []
    for part, kind in product(_parts(name), MNIST_KINDS):
        file = mnist_folder(folder) / f"{part}-{kind}"
        stat = file.stat()
        files.append((str(file), stat.st_size, stat.st_mtime_ns))
    return _files_content(tuple(files))


@lru_cache(maxsize=8)
def _files_content(files: tuple[tuple[str, int, int], ...]) -> str:
    """Hash whole files.

    Sizes and times are arguments so that the cached hash holds for unchanged files only.

    Raises:
        ChangedFile: one was downloaded and changed since.
    """
    digest = hashlib.sha256()
    checksums = checksums_of(Path(files[0][0]).parent)
    for path, _, _ in files:
        with open(path, "rb") as opened:
            of_file = hashlib.file_digest(opened, "sha256")
        if checksums:
            checksums.compare(path, of_file.hexdigest())
        digest.update(of_file.digest())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def _digits_content() -> str:
    """Hash scikit-learn's table of digits, read from its file.

    Importing scikit-learn would take a second.
    """
    spec = importlib.util.find_spec("sklearn")
    assert spec and spec.origin
    packed = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return hashlib.sha256(gzip.decompress(packed.read_bytes())).hexdigest()[:16]


def _read_idx(folder: Path, part: str, kind: str, shape: tuple[int, ...]) -> Tensor:
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    path = mnist_folder(folder) / f"{part}-{kind}"
    try:
        tensor: Tensor = read_sn3_pascalvincent_tensor(str(path))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); check its permissions"
        ) from error
    # torchvision asserts, divides and indexes its way through a broken header
    except Exception as error:
        raise DataError(
            f"{path} is cut short or corrupt; delete it and fetch MNIST again"
        ) from error
    if tuple(tensor.shape) != shape:
        raise DataError(
            f"{path} holds {tuple(tensor.shape)}, not {shape}; delete it and fetch MNIST again"
        )
    return tensor


# Pictures


def describe_pictures(
    root: str | Path, image_size: int | None, on_bad_image: str, cache: Path
) -> BaseFacts:
    """Describe the images below a folder.

    Which images cannot be decoded is known only after a first decoding.

    Args:
        root, on_bad_image: see :func:`load_pictures`.
        image_size: in pixels; None if the initial weights decide.
        cache: folder of caches.

    Raises:
        DataError: no such folder, no images, fewer than two classes, or damaged batches.
    """
    folder = _picture_folder(root)
    side = image_size or 0
    batches = _cifar_folder(folder)
    if batches is None:
        table = _picture_table(folder)
        bad = known_bad(table, image_size, cache)
        counted = usable(table, bad, on_bad_image, image_size, cache)
        n_classes = 1 + int(table.label[counted].max())
        return BaseFacts(
            _picture_name(table, counted),
            int(counted.sum()),
            n_classes,
            side,
            table.content(),
            tuple(table.classes[:n_classes]),
        )
    digest = hashlib.sha256()
    classes = []
    for pixels, labels in _cifar_batches(batches):
        digest.update(pixels[::HASHED_EVERY].tobytes() + labels.astype("<i8").tobytes())
        classes.append(labels)
    labels = np.concatenate(classes)
    content = digest.hexdigest()[:16]
    return BaseFacts(_cifar_name(batches), len(labels), 1 + int(labels.max()), side, content)


def load_pictures(
    root: str | Path,
    image_size: int,
    on_bad_image: str,
    cache_dir: str | Path,
    workers: int | None = None,
) -> BaseImages:
    """Load all images below a folder, (M, 3, S, S).

    Args:
        root: a folder with CIFAR-10's batches (as its makers and torchvision lay it out), or any
            tree whose images lie in class folders. A class is the name of the folder that holds an
            image, so ``root/cat/1.png`` and ``root/train/cat/1.png`` are both cats. Classes are
            numbered by name, images ordered by path.
        image_size: S; images are resized to a square without a crop (DomainBed).
        on_bad_image: ``fail`` names an image that cannot be decoded; ``skip`` leaves such images
            out.
        cache_dir: folder of caches, for the decoded images.
        workers: decoding threads; None is one per core.

    The name of the result is that of the folder and a checksum of the files' names and sizes: rows
    tell base images apart by it, wherever they lie.

    Raises:
        DataError: no such folder, no images, fewer than two classes, or an image that cannot be
            decoded.
    """
    import torch

    from dgbench.data.store.photographs import ResidentStore, image_store

    folder = _picture_folder(root)
    batches = _cifar_folder(folder)
    if batches is not None:
        return _load_cifar(batches, image_size)
    table = _picture_table(folder)
    cache = Path(cache_dir)
    store = image_store(
        table, side=image_size, kind="auto", cache=cache, workers=workers, device_share=0
    )
    assert isinstance(store, ResidentStore)
    counted = usable(table, store.bad, on_bad_image, image_size, cache)
    images = store.images if counted.all() else store.images[torch.from_numpy(counted)]
    labels = torch.from_numpy(table.label[counted])
    return BaseImages(_picture_name(table, counted), images, labels, 255)


def _load_cifar(batches: Path, image_size: int) -> BaseImages:
    """Load all images of CIFAR-10's batches, (M, 3, S, S), resized to S pixels if need be."""
    import torch
    from PIL import Image

    pixels, numbers = map(np.concatenate, zip(*_cifar_batches(batches), strict=True))
    if image_size != CIFAR_SIDE:
        size = (image_size, image_size)
        resized = []
        for values in pixels:
            picture = Image.fromarray(values.transpose(1, 2, 0))
            smaller = picture.resize(size, Image.Resampling.BILINEAR)
            resized.append(np.asarray(smaller).transpose(2, 0, 1))
        pixels = np.stack(resized)
    classes = torch.from_numpy(numbers).long()
    return BaseImages(_cifar_name(batches), torch.from_numpy(pixels), classes, 255)


def _picture_folder(root: str | Path) -> Path:
    """Resolve the path of the folder.

    Raises:
        DataError: it is not there.
    """
    folder = Path(root).expanduser().resolve()
    if not folder.is_dir():
        raise DataError(
            f"dataset.root={root} is no folder; name one that holds CLASS/IMAGE.png, or download "
            "the images (dgbench fetch list)"
        )
    return folder


def _picture_name(table: ImageTable, counted: np.ndarray) -> str:
    return f"{table.root.name}-{table.fingerprint(counted)}"


def _picture_table(folder: Path) -> ImageTable:
    """List all images in class folders, at any depth.

    A class is the name of the folder that holds an image.
    """
    left_out = LeftOut()
    paths = images_below(folder, left_out=left_out)
    rows: list[Row] = [(path, "all", Path(path).parent.name, None) for path in paths if "/" in path]
    table = table_of(folder, rows, ["all"], "same")
    line = left_out.line()
    if line:
        warn_once(f"left out below {folder}: {line}")
    return table


def _cifar_folder(folder: Path) -> Path | None:
    """Find the folder of CIFAR-10's batches, or return None."""
    for inner in (folder, folder / "cifar-10-batches-py"):
        if (inner / CIFAR_BATCHES[0]).is_file():
            return inner
    return None


def _cifar_batches(folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Read (n, 3, 32, 32) uint8 images and (n,) labels of each of the six batches.

    The training batches come first.

    Raises:
        DataError: a file is missing, cut short or corrupt.
    """
    checksums = checksums_of(folder)
    faults = (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError)
    for name in CIFAR_BATCHES:
        path = folder / name
        if not path.is_file():
            command = command_into("l_cifar10", folder) or "dgbench fetch l_cifar10"
            raise DataError(f"{path} is missing; fetch CIFAR-10 again: {command}")
        try:
            with path.open("rb") as file:
                if checksums:
                    checksums.check(path, file)
                batch = _Plain(file, encoding="bytes").load()
            images = np.asarray(batch[b"data"], dtype=np.uint8)
            pixels = images.reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)
            labels = np.asarray(batch[b"labels"])
        except faults as error:
            raise DataError(f"{path} is cut short or corrupt; fetch CIFAR-10 again") from error
        if labels.shape != (len(pixels),) or not ((labels >= 0) & (labels < 10)).all():
            raise DataError(
                f"{path} has {len(pixels)} images and other labels than 0..9; fetch CIFAR-10 again"
            )
        yield pixels, labels


def _cifar_name(folder: Path) -> str:
    """Format the name ``cifar10-`` with a checksum of the files' names and sizes."""
    listing = [f"{name}:{(folder / name).stat().st_size}" for name in CIFAR_BATCHES]
    return "cifar10-" + hashlib.sha256("\n".join(listing).encode()).hexdigest()[:12]


class _Plain(pickle.Unpickler):
    """Reads arrays and plain values only: a pickle may otherwise run any code."""

    def find_class(self, module: str, name: str) -> object:
        plain = module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype")
        # bytes, as Python 3 writes them for Python 2
        encoded = (module, name) == ("_codecs", "encode")
        if plain or encoded:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in a file of CIFAR-10")
