"""Tensors and plain values of a pickle of torch, read without running what it names.

``torch.load(weights_only=True)`` refuses a whole file for one value of a class that it does not
know, such as the ``argparse.Namespace`` of a training script. Here nothing is imported or called;
such a value becomes an :class:`Inert` one, which has the attributes that the file gives it and no
code. TorchScript archives are read in the same way: ``torch.jit.load`` would run parts of the
program that they hold.
"""

from __future__ import annotations

import codecs
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

#: what torch before 1.6 wrote first into a file
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_STORAGE_HEADER = 8  # bytes, the number of its elements, little-endian
NUMBERS = "biufcSU"  # kinds of NumPy's types that hold no Python objects
DEEPEST = 64  # modules within modules

_STORAGES: Mapping[str, torch.dtype] = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
    "UntypedStorage": torch.uint8,
}


class Inert:
    """A value of a class that is not known: attributes and items as the file gives them, no code.

    Attributes:
        origin: the class that the file names.
        items: what was appended or set.
    """

    origin: str = ""
    items: dict[object, object]

    def __new__(cls, *args: object, **options: object) -> Inert:
        value = super().__new__(cls)
        value.items = {}
        return value

    def __init__(self, *args: object, **options: object) -> None:
        """Take whatever a file passes, and keep nothing of it."""

    def __call__(self, *args: object, **options: object) -> Inert:
        """Return another inert value, for what a file makes by a call of something unknown."""
        return type(self)()

    def __setstate__(self, state: object) -> None:
        if isinstance(state, Mapping):
            attributes = {str(name): value for name, value in state.items()}
            self.__dict__.update(attributes)

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value

    def append(self, value: object) -> None:
        """Keep nothing: no list of an unknown class holds tensors by name."""

    extend = add = append


def _tensor(
    values: Tensor, offset: int, size: Sequence[int], stride: Sequence[int], *_: object
) -> Tensor:
    return values.as_strided(size, stride, offset)


def _typed_tensor(
    values: Tensor,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    _: object,
    __: object,
    dtype: torch.dtype,
    *rest: object,
) -> Tensor:
    return values.view(dtype).as_strided(size, stride, offset)


def _number_type(text: str, *_: object) -> np.dtype[Any]:
    """Make a type of NumPy of its own, which the file may change, for numbers alone."""
    dtype: np.dtype[Any] = np.dtype(str(text), align=False, copy=True)
    if dtype.kind not in NUMBERS:
        raise pickle.UnpicklingError(f"an array of {text} holds more than numbers")
    return dtype


def _number(dtype: np.dtype[Any], content: bytes) -> Any:
    return np.frombuffer(content, dtype, 1)[0].item()


class _Array:
    """An array of NumPy, which becomes a tensor once the file has said what it holds."""

    tensor: Tensor | None

    def __new__(cls, *_: object) -> _Array:
        array = super().__new__(cls)
        array.tensor = None
        return array

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_column, content = state
        values = np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")
        self.tensor = torch.from_numpy(values.copy())


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "utf8", "utf-8"):
        raise pickle.UnpicklingError(f"text in {encoding}")
    return codecs.encode(text, encoding)


_PLAIN = (set, frozenset, list, tuple, dict, int, float, complex)

#: all that is called while a file is read
_KNOWN: Mapping[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": lambda values, *_: values,
    "torch._utils._rebuild_parameter_with_state": lambda values, *_: values,
    "torch.Size": tuple,
    "torch.jit._pickle.restore_type_tag": lambda value, _: value,
    **{f"torch.jit._pickle.build_{kind}list": list for kind in ("bool", "double", "int", "tensor")},
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": lambda *_: {},
    "_codecs.encode": _encoded,
    "builtins.bool": bool,
    **{f"builtins.{kind.__name__}": kind for kind in _PLAIN},
    **{f"__builtin__.{kind.__name__}": kind for kind in _PLAIN},
    **{f"numpy.{core}.multiarray.scalar": _number for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray._reconstruct": lambda *_: _Array() for core in ("core", "_core")},
    "numpy.dtype": _number_type,
}


class _Reader(pickle.Unpickler):
    """Unpickles a file and calls nothing but :data:`_KNOWN`."""

    def __init__(self, file: IO[bytes], storage: Callable[[torch.dtype, str, int], Tensor]) -> None:
        super().__init__(file, encoding="latin1")  # Python 2 wrote some files
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch":
            dtype = getattr(torch, name, None)
            if isinstance(dtype, torch.dtype):
                return dtype
        path = f"{module}.{name}"
        known = _KNOWN.get(path)
        if known is None:
            return type("Inert", (Inert,), {"origin": path})
        if isinstance(known, type):
            return known
        # a new function each time: a file may set attributes of what it finds
        return lambda *args: known(*args)

    def persistent_load(self, place: Any) -> Tensor:
        kind, dtype, key, _, size, *_ = place
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise pickle.UnpicklingError(f"a part of the kind {kind} is no storage of numbers")
        return self._storage(dtype, str(key), int(size))


def read_pickle(file: Path) -> Any:
    """Read a file of ``torch.save`` or ``pickle.dump``.

    Returns:
        Tensors, plain values, and :class:`Inert` ones.

    Raises:
        pickle.UnpicklingError: it is no pickle, or damaged.
        Exception: it is damaged; whatever the readers of its parts raise.
    """
    if zipfile.is_zipfile(file):
        return _read_archive(file)
    with file.open("rb") as handle:
        first = _Reader(handle, _no_storage).load()
        return _read_legacy(handle) if first == LEGACY_MAGIC else _tensors_of_arrays(first)


def unknown_classes(content: Any, deepest: int = DEEPEST) -> list[str]:
    """List the classes of the :class:`Inert` values in what a file holds, sorted."""
    names: set[str] = set()
    parts = [content]
    for _ in range(deepest):
        inside: list[Any] = []
        for part in parts:
            if isinstance(part, Inert):
                names.add(ascii(part.origin)[1:-1])
            elif isinstance(part, Mapping):
                inside.extend(part.values())
            elif isinstance(part, (list, tuple)):
                inside.extend(part)
        parts = inside
    return sorted(names)


def _no_storage(dtype: torch.dtype, key: str, size: int) -> Tensor:
    raise pickle.UnpicklingError("a storage stands outside of a file of torch")


def _read_archive(file: Path) -> Any:
    with zipfile.ZipFile(file) as archive:
        (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        folder = pickled.rpartition("/")[0]
        storages: dict[str, Tensor] = {}

        def storage(dtype: torch.dtype, key: str, size: int) -> Tensor:
            if key not in storages:
                storages[key] = _values(archive.read(f"{folder}/data/{key}"), dtype)
            return storages[key]

        return _tensors_of_arrays(_Reader(io.BytesIO(archive.read(pickled)), storage).load())


def _values(content: bytes, dtype: torch.dtype) -> Tensor:
    if not content:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype)


def _read_legacy(handle: IO[bytes]) -> Any:
    """Read what follows the magic number of a file of torch before 1.6.

    Storages come behind what refers to them.
    """
    version = _Reader(handle, _no_storage).load()
    machine = _Reader(handle, _no_storage).load()
    if not isinstance(machine, Mapping) or not machine.get("little_endian", True):
        raise pickle.UnpicklingError(
            f"a file of version {version} with numbers in another byte order"
        )
    position = handle.tell()
    left = handle.seek(0, io.SEEK_END) - position
    handle.seek(position)
    storages: dict[str, Tensor] = {}

    def storage(dtype: torch.dtype, key: str, size: int) -> Tensor:
        nonlocal left
        if key not in storages:
            left -= size * dtype.itemsize
            if size < 0 or left < 0:
                raise pickle.UnpicklingError("its storages are larger than the file")
            storages[key] = torch.empty(size, dtype=dtype)
        return storages[key]

    content = _Reader(handle, storage).load()
    for key in _Reader(handle, _no_storage).load():
        values = storages[str(key)]
        handle.seek(LEGACY_STORAGE_HEADER, io.SEEK_CUR)
        part = handle.read(values.numel() * values.itemsize)
        values.copy_(_values(part, values.dtype))
    return _tensors_of_arrays(content)


def _tensors_of_arrays(value: Any, deepest: int = DEEPEST) -> Any:
    """Replace arrays of NumPy in nested mappings by tensors."""
    if isinstance(value, _Array):
        return value.tensor
    if isinstance(value, dict) and deepest:
        for key, item in value.items():
            value[key] = _tensors_of_arrays(item, deepest - 1)
    return value


def tensors_of_torchscript(file: Path) -> dict[str, Tensor]:
    """Read the parameters and buffers of the program in a TorchScript archive.

    They are named as in its ``state_dict``.

    Raises:
        Exception: it is damaged; whatever the readers of its parts raise.
    """
    return dict(tensors_of_module(read_pickle(file)))


def tensors_of_module(
    module: Inert, prefix: str = "", deepest: int = DEEPEST
) -> Iterator[tuple[str, Tensor]]:
    """Iterate over the tensors of a module that was pickled whole.

    They are named as in its ``state_dict``.
    """
    attributes = vars(module)
    members: list[tuple[Any, Any]] = []
    hidden: Collection[Any] = ()
    if isinstance(attributes.get("_modules"), Mapping):  # of nn.Module
        for name in ("_parameters", "_buffers", "_modules"):
            part = attributes.get(name)
            if isinstance(part, Mapping):
                members.extend(part.items())
        hidden = attributes.get("_non_persistent_buffers_set") or ()
    else:  # a TorchScript program has them as attributes
        members.extend(attributes.items())
    for name, value in members:
        if isinstance(value, Tensor) and name not in hidden:
            yield f"{prefix}{name}", value
        elif isinstance(value, Inert) and deepest:
            yield from tensors_of_module(value, f"{prefix}{name}.", deepest - 1)
