"""Arrays that others saved, one value for each image: NumPy, PyTorch, or one column of text.

Nothing is unpickled: such a file can run any code when it is opened. WILDS writes predictions as
one column without a name.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.errors import RecordError
from dgbench.records.files import read_regular
from dgbench.reports.importers.cells import letters
from dgbench.reports.reading.folders import printable

#: letters of what the first line of a column is called, where it is no value
_NAMES = {"label", "labels", "ytrue", "truth", "target", "groundtruth", "category"}
_NAMES |= {"predicted", "ypred", "prediction", "predictions", "pred", "preds"}
_NAMES |= {"environment", "env", "domain", "condition", "group", "metadata"}


def is_array(path: Any) -> bool:
    """Return whether a value names a file of an array."""
    return isinstance(path, str | Path) and Path(path).suffix.lower() in READERS


def read_array(path: str | Path) -> NDArray[Any]:
    """Read the array of a file.

    Raises:
        RecordError: it cannot be read without unpickling objects, or holds several arrays.
    """
    file = Path(path)
    name = printable(file)
    try:
        content = read_regular(file)
    except OSError as error:
        reason = error.strerror or error
        raise RecordError(f"{name} cannot be read ({reason}); name a file of an array") from None
    try:
        return READERS[file.suffix.lower()](content, name)
    except RecordError:
        raise
    except Exception as error:  # whatever NumPy, torch and pandas raise
        reason = " ".join(str(error).split())[:120]
        raise RecordError(
            f"{name} holds no plain array ({reason}); pickled objects can run code and are not "
            "opened: save the array alone, e.g. with numpy.save"
        ) from None


def _numpy(content: bytes, name: str) -> NDArray[Any]:
    loaded: Any = np.load(io.BytesIO(content), allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    if len(loaded.files) != 1:
        raise RecordError(
            f"{name} holds the arrays {', '.join(loaded.files)}; give one: numpy.load(FILE)[NAME]"
        )
    array: NDArray[Any] = loaded[loaded.files[0]]
    return array


def _torch(content: bytes, name: str) -> NDArray[Any]:
    torch: Any = importlib.import_module("torch")  # reports need it for such a file alone
    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise RecordError(
            f"{name} holds objects other than tensors, which could run code and are not opened; "
            "save the tensor alone"
        ) from None
    if not hasattr(loaded, "detach"):
        raise RecordError(f"{name} holds a {type(loaded).__name__}, no tensor; give one of its")
    array: NDArray[Any] = loaded.detach().numpy()
    return array


def _text(content: bytes, name: str) -> NDArray[Any]:
    text = content.decode("utf-8-sig")
    lines = [line.strip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise RecordError(f"{name} is empty; give one value for every image")
    for number, line in enumerate(lines, start=1):
        if "," in line or "\t" in line:
            raise RecordError(
                f"{name} has several values in line {number}, {line[:60]}; give a column of it: "
                "pandas.read_csv(FILE)[NAME]"
            )
        if not line:
            raise RecordError(f"{name} has no value in line {number}; write one for every image")
    numbers = pd.to_numeric(pd.Series(lines), errors="coerce")
    headed = letters(lines[0]) in _NAMES
    values = numbers[1:] if headed else numbers
    words = lines[1:] if headed else lines
    return np.array(words) if values.isna().any() else values.to_numpy()


#: ending of a file -> what reads its content
READERS: dict[str, Callable[[bytes, str], NDArray[Any]]] = {
    **dict.fromkeys((".npy", ".npz"), _numpy),
    **dict.fromkeys((".pt", ".pth"), _torch),
    **dict.fromkeys((".csv", ".txt"), _text),
}
