"""The LightningModule that trains any algorithm on ordinary modules: any backbone, device or precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.contract import Objective
from dgbench.errors import DivergedError
from dgbench.seeding import derive
from dgbench.types import Buffers, EnvBatch, Networks, ScoreBatch, Sizes, Tensors

NOISE_BLOCK = 64  # steps whose random numbers come from one generator; the draw of a step depends on nothing else


class Algorithm(Objective, pl.LightningModule):
    """Base class of all algorithms; a subclass implements :meth:`objective`.

    Args:
        networks: the networks that :meth:`networks_needed` asked for, plus ``featurizer``.
        sizes: numbers of classes, features and training environments, image shape.
        hparams: every hyperparameter, ``lr`` and ``weight_decay`` included.
        seed: base seed of the random numbers drawn for the objective.

    Attributes:
        after_step: called after each optimizer step with the number of steps done; not part of a checkpoint.
    """

    steps_done: Tensor

    def __init__(self, networks: Networks, sizes: Sizes, hparams: Mapping[str, Any], seed: int = 0) -> None:
        super().__init__()
        self.check(sizes, hparams)
        self.automatic_optimization = False
        self.networks, self.sizes, self.values = networks, sizes, dict(hparams)
        self.noise_seed = derive(seed, "noise")
        dynamic = {key: value for key, value in hparams.items() if key not in self.static}
        self.hp = Buffers({k: torch.tensor(v, dtype=torch.get_default_dtype()) for k, v in dynamic.items()})
        self.memory = Buffers(self.initial_state(sizes))
        self.register_buffer("steps_done", torch.tensor(0))
        self.after_step: list[Callable[[int], None]] = []
        self._noise: tuple[int, tuple[int, ...], Tensors] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, K) logits of this member."""
        return self._predict(x, "forward", 0)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """One Adam per player, in the order of :meth:`players`."""
        return [
            torch.optim.Adam(
                list(self.networks.params(*player.networks).values()),
                lr=self.values[player.lr],
                weight_decay=self.values[player.weight_decay],
                betas=(self.values[player.beta1] if isinstance(player.beta1, str) else player.beta1, player.beta2),
                fused=self.device.type in ("cpu", "cuda"),  # the same arithmetic in one pass over memory
            )
            for player in self.players().values()
        ]

    def training_step(self, batches: Sequence[EnvBatch], batch_idx: int) -> None:
        """One optimizer step per entry of ``batches``.

        Raises:
            DivergedError: a loss was NaN or infinite.
        """
        first = int(self.steps_done)
        opts = self.optimizers()
        optimizers = dict(zip(self.players(), opts if isinstance(opts, list) else [opts], strict=True))
        steps = torch.arange(first, first + len(batches), device=self.device)
        losses = torch.stack([self._step(first + k, steps[k], b, optimizers) for k, b in enumerate(batches)])
        finite = losses.isfinite()
        if not finite.all():
            k = int((~finite).nonzero()[0])
            raise DivergedError(first + k, float(losses[k]))
        self.steps_done += len(batches)
        self.log("train/loss", losses.mean())

    def _step(self, step: int, step_tensor: Tensor, batch: EnvBatch, optimizers: Mapping[str, Any]) -> Tensor:
        noise = self.noise_at(step, batch.sizes)
        hp = self.hp.tensors()
        for phase in self.phases(step):
            out = phase.objective(self.networks, batch, hp, self.memory.tensors(), noise, step_tensor)
            self.memory.assign(out.state)
            stepping = [optimizers[name] for name in phase.players]
            for optimizer in stepping:
                optimizer.zero_grad()
            if out.grads is None:
                inputs = [p for optimizer in stepping for group in optimizer.param_groups for p in group["params"]]
                self.manual_backward(out.loss, inputs=inputs)
            else:
                for name, parameter in self.networks.params().items():
                    parameter.grad = out.grads.get(name)
            for optimizer in stepping:
                if self.reset_at is not None and step == self.values[self.reset_at]:
                    self._recreate(optimizer)
                optimizer.step()
        for hook in self.after_step:
            hook(step + 1)
        return out.loss.detach()

    def _recreate(self, optimizer: Any) -> None:
        optimizer.optimizer.state.clear()
        if self.reset_lr is not None:
            for group in optimizer.param_groups:
                group["lr"] = self.values[self.reset_lr]

    def noise_at(self, step: int, sizes: tuple[int, ...]) -> Tensors:
        """The random numbers of one step: a function of the seed, the step and the minibatch sizes alone."""
        block, offset = divmod(step, NOISE_BLOCK)
        if self._noise is None or self._noise[:2] != (block, sizes):
            self._noise = (block, sizes, self.noise_block(block, sizes))
        return {name: values[offset] for name, values in self._noise[2].items()}

    def noise_block(self, block: int, sizes: tuple[int, ...]) -> Tensors:
        """The random numbers of NOISE_BLOCK steps; axis 0 is the step."""
        rng = np.random.default_rng([self.noise_seed, block])
        drawn = self.draw_noise(rng, NOISE_BLOCK, sizes, self.values)
        return {name: self._on_device(array) for name, array in drawn.items()}

    def _on_device(self, array: np.ndarray) -> Tensor:
        dtype = torch.get_default_dtype() if array.dtype.kind == "f" else None
        return torch.as_tensor(array, dtype=dtype, device=self.device)

    # ---- scoring ------------------------------------------------------------------------------------------

    def validation_step(self, batch: ScoreBatch, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Count what is wrong in one batch: ``seen``, ``wrong`` and the summed cross entropy ``loss``."""
        logits = self._predict(batch.x, batch.name, batch.index)
        wrong = (logits.argmax(1) != batch.y).sum()
        loss = F.cross_entropy(logits, batch.y, reduction="none").double().sum()
        return {"seen": torch.tensor(len(batch.y)), "wrong": wrong, "loss": loss}

    def _predict(self, x: Tensor, *purpose: str | int) -> Tensor:
        noise = self.noise_for_scoring(len(x), *purpose)
        return self.predict(self.networks, x, self.hp.tensors(), self.memory.tensors(), noise)

    def noise_for_scoring(self, n: int, *purpose: str | int) -> Tensors:
        """The random numbers of a prediction on ``n`` images: a function of the seed and the batch's name alone."""
        rng = np.random.default_rng(derive(self.noise_seed, "score", *purpose))
        return {name: self._on_device(array) for name, array in self.scoring_noise(rng, n).items()}
