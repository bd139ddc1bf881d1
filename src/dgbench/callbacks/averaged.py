"""Score averaged weights, while the live ones are trained.

:mod:`dgbench.callbacks.averaging` says what is averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from dgbench.batches import EnvBatch
from dgbench.callbacks.averaging import AveragingRule
from dgbench.containers import renew_statistics


class AveragedScores(pl.Callback):
    """Scores averaged weights, while the live ones are trained.

    It must come after every callback that reads weights at the end of a validation: there it puts
    the live ones back. A rule that is ``final_only`` needs one more ``trainer.validate`` after
    training.

    Args:
        rule: what is averaged.
        steps: length of the whole training.
        constant: names of parameters that never change, of which no average is kept.
    """

    def __init__(self, rule: AveragingRule, steps: int = 0, constant: Collection[str] = ()) -> None:
        self.rule = rule
        self.steps = steps
        self._constant = constant
        self._restored: dict[str, Any] | None = None
        self._live: dict[str, Tensor] = {}
        self._hook: Callable[[int], None] | None = None

    def state_dict(self) -> dict[str, Any]:
        return self.rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._restored is None:
            self.rule.begin(_buffers(pl_module))
            if hasattr(self.rule, "prepare"):
                self.rule.prepare(self.steps, self._parameters(pl_module), _buffers(pl_module))
        else:
            state = pl_module.transfer_batch_to_device(self._restored, pl_module.device, 0)
            self.rule.load_state_dict(state)
        self._restored = None
        trainer.should_stop = trainer.should_stop or self.rule.finished
        self._hook = partial(self._after_step, pl_module)
        pl_module.after_step.append(self._hook)

    def teardown(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        if self._hook in pl_module.after_step:
            pl_module.after_step.remove(self._hook)

    def _after_step(self, module: Any, step: int, batch: EnvBatch) -> None:
        self.rule.update(step, self._parameters(module), _buffers(module))
        if getattr(self.rule, "renews", False):
            module.move_statistics(self.rule.result(), step, batch)

    def _parameters(self, module: Any) -> dict[str, Tensor]:
        """Collect the parameters that are averaged, by name."""
        parameters = dict(module.named_parameters())
        for name in self._constant:
            del parameters[name]
        return parameters

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.rule.final_only and _fitting(trainer):
            return
        with _plain_tensors():
            tensors = {**dict(pl_module.named_parameters()), **dict(pl_module.named_buffers())}
            averaged = self.rule.result()
            self._live = {name: tensors[name].clone() for name in averaged}
            for name, value in averaged.items():
                tensors[name].copy_(value)
            if not _fitting(trainer):
                renew_statistics(pl_module, pl_module, self._images(trainer, pl_module))

    def _images(self, trainer: Any, module: Any) -> Iterator[Tensor]:
        """Yield the images of the steps that would have come next, minibatch by minibatch."""
        first = int(module.steps_done)
        for step in range(first, first + self.rule.batchnorm_batches):
            yield from (batch.x for batch in trainer.datamodule.batches(step, 1))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        with _plain_tensors():
            tensors = {**dict(pl_module.named_parameters()), **dict(pl_module.named_buffers())}
            for name, value in self._live.items():
                tensors[name].copy_(value)
            self._live = {}
            if _fitting(trainer):
                loss = float(trainer.callback_metrics["val/loss"])
                self.rule.evaluated(int(pl_module.steps_done), loss, _buffers(pl_module))
                trainer.should_stop = trainer.should_stop or self.rule.finished


def _fitting(trainer: pl.Trainer) -> bool:
    return trainer.state.fn == TrainerFn.FITTING


def _buffers(module: Any) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in module.named_buffers() if tensor.is_floating_point()}


@contextmanager
def _plain_tensors() -> Iterator[None]:
    """Make tensors inside changeable in place later.

    The inference mode of an evaluation would make tensors that are not.
    """
    with torch.inference_mode(False), torch.no_grad():
        yield
