"""What objectives log, left on the device until the minibatches that are computed together are through."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class StepValues:
    """Notes values step by step and reads them all at once, which waits for the device a single time."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, str, Tensor]] = []

    def note(self, step: int, name: str, values: Tensor) -> None:
        """Note the (R,) values of R runs, or of one run a value without dimension; they must not change any more."""
        self._noted.append((step, name, values))

    def take(self) -> list[tuple[int, str, NDArray[Any]]]:
        """(step, name, (R,) values) of all that was noted since the last call, in that order."""
        noted, self._noted = self._noted, []
        if not noted:
            return []
        double = any(values.dtype == torch.float64 for _, _, values in noted)
        dtype = torch.float64 if double else torch.float32
        table: NDArray[Any] = torch.stack([values.reshape(-1).to(dtype) for _, _, values in noted]).cpu().numpy()
        return [(step, name, row.astype(np.float64)) for (step, name, _), row in zip(noted, table, strict=True)]
