"""Ensembles of trained models, e.g. of several runs' moving averages (Ensemble of Averages, Arpit et al., 2022)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from dgbench.errors import RecordError

Model = TypeVar("Model", bound=nn.Module)


def load_weights(model: Model, checkpoint: Path) -> Model:
    """The model with the weights of a ``best.ckpt``, ready to predict.

    Under averaging that file holds averaged weights: with ``eoa`` those of the lowest validation error of the average,
    as published, with ``swad`` the final ones.

    Raises:
        RecordError: the file is missing, cut short, or of another model.
    """
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(content["state_dict"])
    except Exception as error:  # torch raises whatever its unpickler stumbles over
        reason = str(error).splitlines()[0]
        raise RecordError(
            f"{checkpoint} does not load: {reason}; train that run again or build its own model"
        ) from error
    return model.eval()


@torch.no_grad()
def ensemble_logits(members: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    """Sum of the members' logits, (n, C, H, W) -> (n, K); its argmax is the ensemble's prediction.

    Raises:
        ValueError: there are no members.
    """
    if not members:
        raise ValueError("an ensemble needs at least one member")
    return torch.stack([member(x) for member in members]).sum(0)
