"""Reading files of weights by what they are, without running anything in them.

How a file's name ends does not matter.
"""

from __future__ import annotations

import json
import pickle
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

from dgbench.errors import WeightsError, is_out_of_memory, one_line

FORMATS = ".pth, .pth.tar, .pt, .ckpt, .bin or .safetensors"
MOST_TIMES_PACKED = 2  # times its size, at most, that a file of weights holds, ...
SMALL = 2**26  # ... and bytes of what may be packed
BEGINNING = 512  # bytes of a file by which it is known
GZIP = b"\x1f\x8b"
_POINTER = "is a pointer of Git LFS and not the file itself; fetch that with git lfs pull"
_WEB_PAGE = (
    "is a web page, as a download that needs a login or a confirmation gives; download it again"
)
_HDF5 = (
    "is an HDF5 file, as Keras writes them; convert it to PyTorch's names, and save a .safetensors"
)
_PACKED = "is an archive or packed with gzip; unpack it, and name the file of weights in it"
#: how files begin that are no weights, or none that torch reads -> what they are, and what to do
NO_WEIGHTS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", _POINTER),
    (b"<!doctype html", _WEB_PAGE),
    (b"<html", _WEB_PAGE),
    (b"\x89hdf\r\n", _HDF5),
    (GZIP, _PACKED),
    (b"pk\x05\x06", "is an empty archive; name a file of weights"),
)


def read_tensors(file: Path) -> Any:
    """Read the content of a weights file without running anything that may be in it.

    Returns:
        What it holds: mappings of tensors and plain values. A value of any other class is an
        :class:`~dgbench.networks.pickles.Inert` one.

    Raises:
        WeightsError: it is absent or damaged, or is something else.
    """
    if not file.is_file():  # a pipe would be waited for
        raise WeightsError(f"{file} is no file; name one of weights, {FORMATS}")
    try:
        with file.open("rb") as handle:
            beginning = handle.read(BEGINNING)
        _refuse_others(file, beginning)
        if _is_safetensors(beginning):
            from safetensors.torch import load_file

            return load_file(file)
        return _read_torch(file)
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{file} is damaged, or no file of weights ({one_line(error)}); download it again, as "
            f"{FORMATS}"
        ) from error
    except Exception as error:  # the readers raise whatever they stumble over
        # a small file only claims to be large
        if is_out_of_memory(error) and file.stat().st_size > SMALL:
            raise
        raise WeightsError(
            f"{file} cannot be read ({one_line(error)}); download it again, as {FORMATS}"
        ) from error


def _read_torch(file: Path) -> Any:
    import torch

    from dgbench.networks.pickles import read_pickle, tensors_of_torchscript

    if zipfile.is_zipfile(file):
        _refuse_packed(file)
        if is_torchscript(file):  # as OpenAI publishes CLIP
            return tensors_of_torchscript(file)
    try:
        with warnings.catch_warnings():  # of pickles that torch did not write
            warnings.simplefilter("ignore")
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # for one value of another class; torch reads the rest no more
        return read_pickle(file)


def _refuse_others(file: Path, beginning: bytes) -> None:
    """Refuse a file that is known to be something else.

    Raises:
        WeightsError: what it is, and what to do.
    """
    text = beginning.lstrip().lower()
    for first, reason in NO_WEIGHTS:
        if text.startswith(first):
            raise WeightsError(f"{file} {reason}")
    if text.startswith(b"{") and file.suffix == ".json":
        raise WeightsError(f"{file} {_of_json(file)}")
    if beginning[257:262] == b"ustar" and not _is_torch_tar(file):
        raise WeightsError(
            f"{file} is a tar archive; unpack it, and name the file of weights in it"
        )


def _of_json(file: Path) -> str:
    try:
        index = json.loads(file.read_bytes()[:SMALL])["weight_map"]
        names = sorted(set(map(str, index.values())))
        return (
            f"lists the shards of a network ({len(names)}) and holds no weights; join them into "
            "one .safetensors file"
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"is JSON and holds no weights; give a {FORMATS} file"


def _is_torch_tar(file: Path) -> bool:
    """Return whether torch of its first year wrote a tar archive, which torch reads."""
    with tarfile.open(file, "r:") as archive:
        return {"pickle", "storages", "tensors"} <= set(archive.getnames()[:16])


def _is_safetensors(beginning: bytes) -> bool:
    """Return whether a file begins as safetensors do.

    That is the length of a JSON header, and then that header.
    """
    length = int.from_bytes(beginning[:8], "little")
    return len(beginning) > 8 and 2 <= length < 2**27 and beginning[8:9] == b"{"


def _refuse_packed(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        size = sum(info.file_size for info in archive.infolist())
        names = archive.namelist()
    if size > MOST_TIMES_PACKED * file.stat().st_size + SMALL:
        raise ValueError(f"its {size:.3g} bytes are packed, as no weights are")
    if not any(name.endswith("/data.pkl") for name in names):
        raise WeightsError(
            f"{file} is a zip archive of {len(names)} files; unpack it, and name the file of "
            "weights in it"
        )


def is_torchscript(file: Path) -> bool:
    """Return whether a file holds a TorchScript program."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())
