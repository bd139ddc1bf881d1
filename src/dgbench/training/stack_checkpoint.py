"""Checkpoints of a stack: one file per member, in the form that a single run writes and reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from dgbench.training.stacked import StackedMembers

SHELL = ("epoch", "global_step", "loops", "lr_schedulers", "pytorch-lightning_version")


class StackCheckpointIO(TorchCheckpointIO):
    """Takes the trainer's checkpoint of a stack apart on saving and puts it together on loading.

    A member can therefore go on alone, and runs that were alone can go on together.

    Args:
        stack: the members.
        files: the ``last.ckpt`` of each.
    """

    def __init__(self, stack: StackedMembers, files: Sequence[Path]) -> None:
        self.stack, self.files = stack, list(files)
        self.best_errors = [float("inf")] * len(self.files)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        shell = {key: checkpoint[key] for key in SHELL if key in checkpoint}
        for i, file in enumerate(self.files):
            if i in self.stack.diverged:
                continue
            content = {
                **shell,
                "state_dict": self.stack.write_back(i).state_dict(),
                "optimizer_states": self.stack.optimizer_states(i, checkpoint["optimizer_states"]),
                "callbacks": {"Checkpoints": {"best_error": self.best_errors[i]}},
            }
            save_whole(content, file)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        members = [torch.load(file, map_location="cpu", weights_only=True) for file in self.files]
        self.best_errors = [member["callbacks"]["Checkpoints"]["best_error"] for member in members]
        return {
            **{key: members[0][key] for key in SHELL if key in members[0]},
            "state_dict": {},
            "callbacks": {},
            "optimizer_states": self.stack.merged_optimizer_states([member["optimizer_states"] for member in members]),
        }


def save_whole(content: dict[str, Any], file: Path) -> None:
    """Write under another name first, so a file with the final name is always whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name("partial.ckpt")
    torch.save(content, partial)
    os.replace(partial, file)
