"""From whatever a user has of feature vectors to what a network sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.errors import DataError


def vector_batches(vectors: Any, d: int, size: int) -> Iterator[Tensor]:
    """Vectors in batches of what the network sees, (n, d) each, as they are.

    Args:
        vectors: an array, tensor or sequence of numbers, (n, d), or (d,) for one.
        d: features that the network was trained on.
        size: vectors in a batch.

    Raises:
        DataError: something else, or numbers that are not finite.
    """
    try:
        rows = torch.as_tensor(vectors if isinstance(vectors, Tensor) else np.asarray(vectors, np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"{type(vectors).__name__} holds no rows of numbers; give an array (n, {d})") from error
    rows = rows[None] if rows.dim() == 1 else rows
    if rows.dim() != 2 or rows.shape[1] != d or not len(rows):
        raise DataError(
            f"vectors of the shape {tuple(rows.shape)} are not (n, {d}), as this model was trained on; convert them"
        )
    if not rows.isfinite().all():
        raise DataError("vectors hold numbers that are not finite; fill or drop them")
    rows = rows.detach().cpu().to(torch.get_default_dtype())
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
