"""Weights that a run never changes, written once beside its checkpoints.

With few trained parameters (``tuning=lora``, ``bias``, ``norm``) a checkpoint would be frozen
weights for the most part, the same in every one and in all runs that start from them. They stand
in ``checkpoints/frozen_DIGEST.ckpt``, ``last.ckpt`` and ``best.ckpt`` hold the rest and their
digest. Where another run beside has the file, it becomes a hard link to that: a sweep has the
weights on the disk once, and every folder can still be copied, packed and loaded by itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from dgbench.containers import Networks
from dgbench.errors import WeightsError
from dgbench.networks.weight_files import read_tensors
from dgbench.records.files import check_seal, write_sealed

KEY = "frozen"  #: of the digest, beside ``state_dict`` in a checkpoint
PREFIX = "networks."  #: of the names of networks' tensors in a ``state_dict`` of a run

log = logging.getLogger("dgbench")


@dataclass(frozen=True, eq=False)
class FrozenWeights:
    """Frozen weights of a run, by their names in its ``state_dict``."""

    tensors: Mapping[str, Tensor]
    digest: str  #: sha256 of names, types, shapes and values

    @staticmethod
    def of(networks: Networks) -> FrozenWeights:
        """Copy the frozen weights of a run's networks to the CPU."""
        tensors = {}
        for name, tensor in networks.constants().items():
            tensors[PREFIX + name] = tensor.detach().cpu().clone()
        return FrozenWeights(tensors, digest_of(tensors))

    def left_out(self, state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return ``state_dict`` without tensors that are among these bit for bit, and the digest.

        What differs, an average over steps that was rounded say, stays.
        """
        rest = {}
        for name, tensor in state_dict.items():
            frozen = self.tensors.get(name)
            if frozen is None or not torch.equal(tensor, frozen):
                rest[name] = tensor
        return {"state_dict": rest, KEY: self.digest}

    def write(self, run_folder: Path) -> None:
        """Write the file to the folder of a run, or link to that of another run; once.

        Raises:
            OSError: it cannot be written.
        """
        file = frozen_file(run_folder / "checkpoints", self.digest)
        if _is_whole(file):
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        for other in run_folder.parent.parent.glob(f"*/*/checkpoints/{file.name}"):
            if _is_whole(other):
                with suppress(OSError):  # no links here, or too many: a copy
                    os.link(other, file)
                    return
        content = {"state_dict": dict(self.tensors)}
        write_sealed(file, partial(torch.save, content))


def frozen_file(checkpoints: Path, digest: str) -> Path:
    """Name the file of frozen weights among checkpoints."""
    return checkpoints / f"frozen_{digest[:12]}.ckpt"


def frozen_beside(checkpoint: Path) -> list[Path]:
    """List the files of frozen weights beside a checkpoint."""
    return [path for path in checkpoint.parent.glob("frozen_*.ckpt") if path.is_file()]


def complete(content: Mapping[str, Any], checkpoints: Path) -> dict[str, Tensor]:
    """Put the frozen weights back into what a checkpoint holds of a run.

    Args:
        content: ``state_dict``, and the digest of the frozen weights if they were left out.
        checkpoints: folder that has their file.

    Raises:
        WeightsError: the file is absent or damaged, or holds other weights.
    """
    digest = content.get(KEY)
    if digest is None:
        return dict(content["state_dict"])
    return {**read_frozen(checkpoints, digest).tensors, **content["state_dict"]}


def read_frozen(checkpoints: Path, digest: Any) -> FrozenWeights:
    """Read frozen weights from their file, and check them.

    Raises:
        WeightsError: the file is absent or damaged, or holds other weights.
    """
    if not re.fullmatch("[0-9a-f]{64}", str(digest)):
        raise WeightsError(
            f"a checkpoint in {checkpoints} names its frozen weights by {str(digest)[:40]!r}, "
            "which is no digest; train the run again"
        )
    file = frozen_file(checkpoints, digest)
    if not file.is_file():
        raise WeightsError(
            f"{file} is gone, and the checkpoints beside it hold only what was trained; put it "
            "back, from another run of the same initial weights if need be"
        )
    content = read_tensors(file)
    tensors = content.get("state_dict") if isinstance(content, Mapping) else None
    if not _are_tensors(tensors) or digest_of(tensors) != digest:
        raise WeightsError(
            f"{file} holds other weights than those that its name and the checkpoints beside it "
            "stand for; put it back, from another run of the same initial weights if need be"
        )
    return FrozenWeights(tensors, digest)


def _are_tensors(tensors: Any) -> TypeGuard[Mapping[str, Tensor]]:
    if not isinstance(tensors, Mapping):
        return False
    return all(isinstance(tensor, Tensor) for tensor in tensors.values())


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Compute the sha256 of names, types, shapes and values, in the order of the names."""
    content = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def _is_whole(file: Path) -> bool:
    """Return whether a file is there and sealed, with no byte changed since."""
    try:
        return check_seal(file)
    except OSError:
        return False
