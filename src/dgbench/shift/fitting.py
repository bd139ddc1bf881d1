"""Training classifiers of shift: those of one shape as one stack, on the machinery that trains every run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dgbench.data.environments import Environments
from dgbench.data.minibatches import EnvironmentData, RunOrder
from dgbench.errors import DivergedError
from dgbench.network_specs import Sizes
from dgbench.networks.build import assembled
from dgbench.plan.settings import TrainerSettings
from dgbench.records.spec import digest
from dgbench.seeding import derive
from dgbench.shift.estimators import Fitted, Fitting
from dgbench.shift.judging import Judge
from dgbench.shift.samples import EpochOrder, SampleStore
from dgbench.training.fit import fit_quietly, make_trainer
from dgbench.training.groups import CPU_PARAMETERS
from dgbench.training.modules import RunModule, SingleRun, StackedRuns
from dgbench.training.optimizers import UpdateRule

STACK_BYTES = 2 * 2**30  # of the minibatches and weights of a stack


@dataclass
class ClassifierTraining:
    """What classifiers are trained with.

    Args:
        source: images, or their features.
        settings: device and precision.
        mode: ``auto``, ``single`` or ``stacked``, as in ``conf/execution``.
        max_runs: most classifiers of a stack; None fits them into memory.
        backbone: makes a network with initial weights for a seed, where it learns too; None where the source holds
            features.
        features_of: features of image files, (n, m), where the source holds features.
        tell: called with a line of progress.
        scratch: folder for checkpoints; None keeps none.
    """

    source: Environments
    settings: TrainerSettings
    mode: str = "auto"
    max_runs: int | None = None
    backbone: Callable[[int], nn.Module] | None = None
    features_of: Callable[[Sequence[Path]], np.ndarray] = field(default=lambda files: np.empty((0, 0)))
    tell: Callable[[str], None] = field(default=lambda line: None)
    scratch: Path | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Of weights."""
        return torch.float64 if self.settings.precision == "64-true" else torch.float32

    def fit(self, fittings: Sequence[Fitting]) -> Iterator[dict[int, Fitted | None]]:
        """Train classifiers, stack by stack.

        Yields:
            Those of one stack by their number in ``fittings``; None for one whose loss stopped being finite.
        """
        for group in self.groups(fittings):
            trained = _train(self, [fittings[i] for i in group])
            yield dict(zip(group, trained, strict=True))

    def groups(self, fittings: Sequence[Fitting]) -> list[list[int]]:
        """Numbers of the classifiers that train together."""
        shapes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        stacks = self.mode != "single" and self._stacks()
        for i, fitting in enumerate(fittings):
            alone = () if stacks else (i,)
            shapes[fitting.schedule.key, fitting.n_classes, len(fitting.sides), *alone].append(i)
        groups = []
        for numbers in shapes.values():
            most = self._most(fittings[numbers[0]])
            groups += [numbers[first : first + most] for first in range(0, len(numbers), most)]
        return groups

    def _stacks(self) -> bool:
        """Whether stacks of such classifiers gain: small networks without convolutions (benchmarks/stacked.py)."""
        if self.backbone is None or self.mode == "stacked":
            return True
        body = self.backbone(0)
        convolves = any(isinstance(layer, nn.Conv2d) for layer in body.modules())
        return not convolves and sum(p.numel() for p in body.parameters()) <= CPU_PARAMETERS

    def _most(self, fitting: Fitting) -> int:
        if self.max_runs is not None:
            return self.max_runs
        minibatch = 8 * fitting.schedule.batch_size * len(fitting.sides) * int(np.prod(self.source.store.image))
        weights = 5 * sum(p.numel() for p in _module(self, fitting).networks.parameters())
        return max(1, STACK_BYTES // (4 * (minibatch + weights)))


class Standardized(nn.Module):
    """(n, m) features, minus a mean and divided by a deviation; a feature that does not vary becomes 0.

    Args:
        mean, std: (m,).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.n_features = len(mean)
        self.register_buffer("mean", mean)
        self.register_buffer("std", torch.where(std > 1e-12 * (1 + mean.abs()), std, torch.full_like(std, torch.inf)))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def _train(training: ClassifierTraining, fittings: Sequence[Fitting]) -> list[Fitted | None]:
    schedule, n = fittings[0].schedule, len(fittings)
    modules = [_module(training, fitting) for fitting in fittings]
    module: RunModule = modules[0] if n == 1 and training.mode != "stacked" else StackedRuns(modules)
    data = _data(training.source, fittings, stacked=module is not modules[0])
    file = f"{digest([_key(fitting) for fitting in fittings])}.ckpt"
    checkpoint = training.scratch / file if training.scratch else None
    judge = Judge(schedule, data, checkpoint, training.settings.checkpoint_seconds, training.tell)
    judge.restore(module)
    intervals = -(-schedule.steps // schedule.interval) - module.steps_done // schedule.interval
    trainer = make_trainer(training.settings, [judge], intervals)
    trainer.limit_val_batches = 0
    what = f"{n} classifiers together" if n > 1 else "1 classifier"
    begins = f" from step {module.steps_done}" if module.steps_done else ""
    training.tell(f"training {what}{begins}, {schedule.steps} steps")
    try:
        fit_quietly(trainer, module, data)
    except DivergedError:
        return [None] * n
    finally:
        if not judge.interrupted and checkpoint:
            checkpoint.unlink(missing_ok=True)
    return [
        None if i in module.diverged else Fitted(outputs, loss, error, step, judge.seconds / n, n)
        for i, (outputs, loss, error, step) in enumerate(judge.results)
    ]


def _key(fitting: Fitting) -> list[Any]:
    return [fitting.schedule.key, fitting.seed, *(len(side.positions) for side in fitting.sides)]


def _module(training: ClassifierTraining, fitting: Fitting) -> SingleRun:
    schedule, image = fitting.schedule, tuple(training.source.store.image)
    features: Any = training.backbone(fitting.seed) if training.backbone else _standardized(training, fitting)
    sizes = Sizes(features.n_features, fitting.n_classes, len(fitting.sides), image, schedule.steps)
    algorithm = schedule.algorithm(sizes, schedule.hparams)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(fitting.seed, "init"))
        needed = algorithm.networks_needed(sizes, schedule.hparams)
        networks = assembled({"featurizer": features}, needed, image, lambda: features)
    return SingleRun(algorithm, networks, fitting.seed, UpdateRule(schedule.steps), training.dtype)


def _standardized(training: ClassifierTraining, fitting: Fitting) -> Standardized:
    positions = np.concatenate([side.positions for side in fitting.sides])
    x = training.source.store.gather(torch.from_numpy(positions))[0].double().cpu()
    return Standardized(x.mean(0), x.std(0, correction=0))


def _data(source: Environments, fittings: Sequence[Fitting], stacked: bool) -> EnvironmentData:
    schedule, samples = fittings[0].schedule, SampleStore(source, fittings).environments
    kind = EpochOrder if schedule.epochs else RunOrder
    orders: list[RunOrder] = []
    for i, fitting in enumerate(fittings):
        names = [f"{i}/{side}" for side in range(len(fitting.sides))]
        orders.append(kind(samples, names, schedule.batch_size, fitting.seed))
    data = EnvironmentData(
        samples, orders[0].training, [], steps=schedule.steps, eval_every=schedule.interval,
        batch_size=schedule.batch_size, eval_batch_size=schedule.batch_size, seed=0,
    )  # fmt: skip
    data.runs, data.stacked = orders, stacked
    return data
