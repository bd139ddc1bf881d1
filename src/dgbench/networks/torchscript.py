"""Tensors of a TorchScript archive by name; ``torch.jit.load`` would run parts of the program that it holds."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class _Module:
    """A module of the program, reduced to its attributes."""


def _tensor(values: Tensor, offset: int, size: Sequence[int], stride: Sequence[int], *_: object) -> Tensor:
    return values.as_strided(size, stride, offset)


_STORAGES: Mapping[str, torch.dtype] = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}
#: all that a program's attributes are made of
_KNOWN: Mapping[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "collections.OrderedDict": OrderedDict,
    **{f"torch.jit._pickle.build_{kind}list": list for kind in ("bool", "double", "int", "tensor")},
    "torch.jit._pickle.restore_type_tag": lambda value, _: value,
}


class _Attributes(pickle.Unpickler):
    """Unpickles the attributes of a program and calls nothing but :data:`_KNOWN`."""

    def __init__(self, archive: zipfile.ZipFile, pickled: str) -> None:
        super().__init__(io.BytesIO(archive.read(pickled)))
        self._archive, self._folder = archive, pickled.rpartition("/")[0]
        self._values: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "__torch__":
            return _Module
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (path := f"{module}.{name}") in _KNOWN:
            return _KNOWN[path]
        raise pickle.UnpicklingError(f"{path} is no tensor")

    def persistent_load(self, place: Any) -> Tensor:
        _, dtype, key, *_ = place
        if key not in self._values:
            content = bytearray(self._archive.read(f"{self._folder}/data/{key}"))
            self._values[key] = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
        return self._values[key]


def tensors_of_torchscript(file: Path) -> dict[str, Tensor]:
    """Read the parameters and buffers of the program in a TorchScript archive, named as in its ``state_dict``.

    Raises:
        pickle.UnpicklingError: it holds more than modules, tensors and plain values.
        Exception: it is damaged; whatever the readers of its parts raise.
    """
    with zipfile.ZipFile(file) as archive:
        (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        return dict(_tensors(_Attributes(archive, pickled).load()))


def _tensors(module: _Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    for name, value in vars(module).items():
        if isinstance(value, Tensor):
            yield prefix + name, value
        elif isinstance(value, _Module):
            yield from _tensors(value, f"{prefix}{name}.")
