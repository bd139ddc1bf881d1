"""Training classifiers of shift: those of one shape as one stack, on the machinery that trains
every run.

Their images have labels of the samples' own (:class:`SampleStore`); :class:`Judge` keeps the
weights that count.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.batches import Tensors
from dgbench.containers import AnyNetworks, renew_statistics
from dgbench.data.environments import Environments, Store, Table
from dgbench.data.minibatches import EnvironmentData, RunOrder
from dgbench.errors import DivergedError
from dgbench.network_specs import Sizes
from dgbench.networks.build import assembled
from dgbench.plan.settings import TrainerSettings
from dgbench.records.spec import digest
from dgbench.records.status import roughly
from dgbench.seeding import derive
from dgbench.shift.classifiers import ShiftClassifier
from dgbench.shift.estimators import Fitted, Fitting, Labeled, Schedule
from dgbench.training.checkpoints import Snapshot
from dgbench.training.fit import while_fitting
from dgbench.training.groups import CPU_PARAMETERS
from dgbench.training.modules import LightningRuns, SingleRun, StackedRuns
from dgbench.training.modules.predicting import images_at_once
from dgbench.training.optimizers import UpdateRule
from dgbench.training.processes import make_trainer

STACK_BYTES = 2 * 2**30  # of the minibatches and weights of a stack
FEATURES_AT_ONCE = 16384
FIRST_SECONDS = 2.0  # of training before the first line
LINE_SECONDS = 15.0  # between two lines


class SampleStore(Store):
    """A view of images in which the same image may have different labels in different samples.

    It holds the samples of several classifiers that train together: ``I/SIDE`` that number I trains
    on, ``I/validation/SIDE`` that choose its step, ``I/predicted`` whose outputs are wanted
    (without labels).

    Attributes:
        environments: the samples by name, each a ``train`` subset; their catalog is that of the
            source.
        rows: the positions (n,) of each sample in this store.

    Args:
        source: the images, or their features.
        fittings: the classifiers, all of K classes.
    """

    def __init__(self, source: Environments, fittings: Sequence[Fitting]) -> None:
        self.source = source.store
        self.image = source.store.image
        samples: dict[str, Labeled] = {}
        for i, fitting in enumerate(fittings):
            samples |= {f"{i}/{side}": sample for side, sample in enumerate(fitting.sides)}
            samples |= {
                f"{i}/validation/{side}": sample for side, sample in enumerate(fitting.validation)
            }
            samples[f"{i}/predicted"] = Labeled(
                fitting.predicted, np.zeros(len(fitting.predicted), dtype=np.int64)
            )
        ends = np.cumsum([0, *(len(sample.positions) for sample in samples.values())])
        self.rows = {name: np.arange(ends[k], ends[k + 1]) for k, name in enumerate(samples)}
        self._positions = torch.from_numpy(
            np.concatenate([sample.positions for sample in samples.values()])
        )
        self._labels = torch.from_numpy(
            np.concatenate([sample.labels for sample in samples.values()])
        )
        table = Table(source.info, {(name, "train"): rows for name, rows in self.rows.items()})
        self.environments = Environments(table, source.catalog, self)

    def to(self, device: torch.device) -> None:
        self.source.to(device)
        self._positions = self._positions.to(device)
        self._labels = self._labels.to(device)

    def validation(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (n,) rows of the images that choose a classifier's step, and their (n,) sides, 0
        for p and 1 for q.
        """
        names = [f"{i}/validation/{side}" for side in (0, 1)]
        parts = [self.rows[name] for name in names if name in self.rows]
        return np.concatenate(parts), np.repeat(
            np.arange(len(parts)), [len(rows) for rows in parts]
        )

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = indices.to(self._positions.device)
        return self.source.gather(self._positions[rows])[0], self._labels[rows]


class EpochOrder(RunOrder):
    """Minibatches without replacement, epoch by epoch; what does not fill one is left out."""

    def __init__(
        self, environments: Environments, training: Sequence[str], batch_size: int, seed: int
    ) -> None:
        super().__init__(environments, training, batch_size, seed)
        self.per_epoch = min(len(subset) for subset in self._subsets) // batch_size
        self._epoch: tuple[int, list[np.ndarray]] | None = None

    def order(self, step: int) -> np.ndarray:
        epoch, k = divmod(step, self.per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            shuffled = [
                np.random.default_rng(derive(self.order_seed, "epoch", env, epoch)).permutation(
                    subset
                )
                for env, subset in zip(self.training, self._subsets, strict=True)
            ]
            self._epoch = (epoch, shuffled)
        rows = slice(k * self.batch_size, (k + 1) * self.batch_size)
        return np.concatenate([positions[rows] for positions in self._epoch[1]])


class Judge(pl.Callback):
    """Looks at the validation images after every interval, keeps the weights that count, and
    predicts at the end.

    Args:
        schedule: of all classifiers.
        data: their minibatches, of a :class:`SampleStore`.
        checkpoint: file for the state of a stack that is interrupted; None keeps none.
        every: least seconds between two checkpoints.
        tell: called with a line of progress.

    Attributes:
        fitted: the classifiers, once training came to its end.
    """

    def __init__(
        self,
        schedule: Schedule,
        data: EnvironmentData,
        checkpoint: Path | None,
        every: float,
        tell: Callable[[str], None],
    ) -> None:
        assert isinstance(data.environments.store, SampleStore)
        self.schedule = schedule
        self.data = data
        self.store = data.environments.store
        self.n = len(data.runs)
        self.checkpoint = checkpoint
        self.every = every
        self.tell = tell
        self.fitted: list[Fitted] = []
        self._best: list[tuple[float, float, int, Tensors] | None] = [None] * self.n
        self._mean: dict[str, Tensor] = {}
        self._averaged = 0
        self._saved = self._begun = self._spoke = time.monotonic()
        self._first = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._begun = time.monotonic()
        self._spoke = self._begun + FIRST_SECONDS - LINE_SECONDS
        self._first = int(pl_module.steps_done)
        if self.schedule.mean_from is not None:
            pl_module.after_step.append(lambda done, batch: self._average(pl_module, done))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        last = pl_module.steps_done >= self.schedule.steps
        chooses = self.schedule.chooses and self.schedule.looks(pl_module.steps_done)
        if chooses or (last and self.schedule.mean_from is None):
            for i in range(self.n):
                self._look(pl_module, i)
        now = time.monotonic()
        if not last and now - self._spoke > LINE_SECONDS:
            self._spoke = now
            self.tell(self._pace(pl_module.steps_done, now))
        if self.checkpoint and not last and time.monotonic() - self._saved >= self.every:
            self._save(pl_module)

    def _pace(self, step: int, now: float) -> str:
        """Format how far training is, and how long the rest takes at the pace so far."""
        of_step = (now - self._begun) / max(1, step - self._first)
        left = of_step * (self.schedule.steps - step)
        return f"step {step} of {self.schedule.steps}, {roughly(left)} left"

    @torch.no_grad()
    def _look(self, module: LightningRuns, i: int) -> None:
        networks = module.evaluated(i)[0]
        loss, error = self._validated(module, networks, i)
        best = self._best[i]
        better = best is None or (
            error < best[1] if self.schedule.chooses == "error" else loss < best[0]
        )
        if better or self.schedule.chooses is None:
            tensors = {**networks.params(), **networks.statistics()}
            self._best[i] = (
                loss,
                error,
                module.steps_done,
                {k: v.detach().clone() for k, v in tensors.items()},
            )

    @torch.no_grad()
    def _average(self, module: LightningRuns, done: int) -> None:
        assert self.schedule.mean_from is not None
        if done <= self.schedule.mean_from:
            return
        self._averaged += 1
        for name, value in module.live_parameters().items():
            mean = self._mean.setdefault(name, torch.zeros_like(value))
            mean += (value.detach() - mean) / self._averaged

    @torch.no_grad()
    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if pl_module.steps_done < self.schedule.steps:
            return  # Ctrl-C
        results = []
        for i in range(self.n):
            networks = pl_module.evaluated(i)[0]
            if self.schedule.mean_from is None:
                best = self._best[i]
                assert best is not None
                loss, error, step, weights = best
                networks = networks.bind(weights)
            else:
                networks = self._with_mean(pl_module, networks, i)
                step = self.schedule.steps
                loss, error = self._validated(pl_module, networks, i)
            outputs = self._outputs(pl_module, networks, self.store.rows[f"{i}/predicted"])[0]
            results.append((outputs.double().cpu().numpy(), loss, error, step))
        seconds = (time.monotonic() - self._begun) / self.n
        self.fitted = [Fitted(*result, seconds, self.n) for result in results]

    def _with_mean(self, module: LightningRuns, networks: AnyNetworks, i: int) -> AnyNetworks:
        """Give the networks their mean weights.

        Outside a stack, BatchNorm's statistics are renewed for these.
        """
        alone = isinstance(module, SingleRun)
        if not alone:
            return networks.bind({name: value[i] for name, value in self._mean.items()})
        trained = module.runs[0].networks
        for name, parameter in trained.params().items():
            parameter.copy_(self._mean[name])
        steps = range(getattr(self.data.runs[0], "per_epoch", self.schedule.steps))
        images = (self.data.batches(step, 1)[0].x.to(trained.dtype) for step in steps)
        renew_statistics(trained, trained.featurizer, images)
        return trained.eval()

    def _validated(
        self, module: LightningRuns, networks: AnyNetworks, i: int
    ) -> tuple[float, float]:
        """Compute the mean cross entropy of the validation images, and the fraction of them that is
        wrong.
        """
        algorithm: Any = module.runs[i].algorithm
        rows, sides = self.store.validation(i)
        outputs, y = self._outputs(module, networks, rows)
        logits, target = algorithm.judged(outputs, y, torch.from_numpy(sides).to(y.device))
        wrong = (logits.argmax(1) != target).double().mean()
        return float(F.cross_entropy(logits.double(), target)), float(wrong)

    def _outputs(
        self, module: LightningRuns, networks: AnyNetworks, rows: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Map (n,) rows of the store to (n, c) outputs and (n,) labels."""
        algorithm: Any = module.runs[0].algorithm
        assert isinstance(algorithm, ShiftClassifier)
        images = len(self.store.image) > 1
        size = (
            images_at_once(module.runs[0].activations(self.store.image), module.device)
            if images
            else 0
        )
        parts = []
        for part in torch.split(torch.from_numpy(rows), size or FEATURES_AT_ONCE):
            x, y = self.store.gather(part)
            parts.append((algorithm.outputs(networks, x.to(module.runs[0].networks.dtype)), y))
        outputs, labels = zip(*parts, strict=True)
        return torch.cat(outputs), torch.cat(labels)

    def _save(self, module: LightningRuns) -> None:
        assert self.checkpoint is not None
        states = {str(i): {**module.run_state(i), "best": self._best[i]} for i in range(self.n)}
        states["mean"] = {
            "n": self._averaged,
            "weights": {name: value.cpu() for name, value in self._mean.items()},
        }
        diverged = {str(i): (step, float(value)) for i, (step, value) in module.diverged.items()}
        Snapshot(module.steps_done, states, diverged).save(self.checkpoint)
        self._saved = time.monotonic()

    def restore(self, module: LightningRuns) -> None:
        """Continue from a checkpoint, if there is one."""
        snapshot = Snapshot.load(self.checkpoint) if self.checkpoint else None
        if snapshot is None or len(snapshot.runs) != self.n + 1:
            return
        mean = snapshot.runs.pop("mean")
        self._averaged = mean["n"]
        self._mean = mean["weights"]
        states = [snapshot.runs[str(i)] for i in range(self.n)]
        self._best = [state.pop("best") for state in states]
        module.load_run_states(states)
        module.diverged.update({int(i): divergence for i, divergence in snapshot.diverged.items()})


@dataclass
class ClassifierTraining:
    """What classifiers are trained with."""

    source: Environments  #: images, or their features
    settings: TrainerSettings
    mode: str = "auto"  #: ``auto``, ``single`` or ``stacked``, as in ``conf/execution``
    max_runs: int | None = None  #: most classifiers of a stack; None fits them into memory
    #: a network with initial weights for a seed, where it learns too, or None if the source holds
    #: features
    backbone: Callable[[int], nn.Module] | None = None
    #: features of image files, (n, m), where the source holds features
    features_of: Callable[[Sequence[Path]], np.ndarray] = field(
        default=lambda files: np.empty((0, 0))
    )
    #: called with a line of progress
    tell: Callable[[str], None] = field(default=lambda line: None)
    scratch: Path | None = None  #: folder for checkpoints; None keeps none

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return torch.float64 if self.settings.precision == "64-true" else torch.float32

    def fit(self, fittings: Sequence[Fitting]) -> Iterator[dict[int, Fitted | None]]:
        """Train classifiers, stack by stack.

        Yields:
            The classifiers of one stack by number in ``fittings``; None for one whose loss stopped
            being finite.
        """
        for group in self.groups(fittings):
            trained = _train(self, [fittings[i] for i in group])
            yield dict(zip(group, trained, strict=True))

    def groups(self, fittings: Sequence[Fitting]) -> list[list[int]]:
        """Group the numbers of the classifiers by which of them train together."""
        shapes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        stacks = self.mode != "single" and self._stacks()
        for i, fitting in enumerate(fittings):
            alone = () if stacks else (i,)
            shapes[fitting.schedule.key, fitting.n_classes, len(fitting.sides), *alone].append(i)
        groups = []
        for numbers in shapes.values():
            limit = self._most(fittings[numbers[0]])
            groups += [numbers[first : first + limit] for first in range(0, len(numbers), limit)]
        return groups

    def _stacks(self) -> bool:
        """Return whether stacks gain: of features or small networks without convolutions
        (benchmarks/stacked.py).
        """
        if self.backbone is None or self.mode == "stacked":
            return True
        body = self.backbone(0)
        convolves = any(isinstance(layer, nn.Conv2d) for layer in body.modules())
        return not convolves and sum(p.numel() for p in body.parameters()) <= CPU_PARAMETERS

    def _most(self, fitting: Fitting) -> int:
        if self.max_runs is not None:
            return self.max_runs
        minibatch = (
            8
            * fitting.schedule.batch_size
            * len(fitting.sides)
            * int(np.prod(self.source.store.image))
        )
        weights = 5 * sum(p.numel() for p in _module(self, fitting).networks.parameters())
        return max(1, STACK_BYTES // (4 * (minibatch + weights)))


class Standardized(nn.Module):
    """(n, m) features, minus a mean and divided by a deviation.

    A feature that does not vary becomes 0.

    Args:
        mean, std: (m,).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.n_features = len(mean)
        self.register_buffer("mean", mean)
        self.register_buffer(
            "std", torch.where(std > 1e-12 * (1 + mean.abs()), std, torch.full_like(std, torch.inf))
        )

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def _train(training: ClassifierTraining, fittings: Sequence[Fitting]) -> list[Fitted | None]:
    schedule = fittings[0].schedule
    n = len(fittings)
    modules = [_module(training, fitting) for fitting in fittings]
    module: LightningRuns = (
        modules[0] if n == 1 and training.mode != "stacked" else StackedRuns(modules)
    )
    data = _data(training.source, fittings, stacked=module is not modules[0])
    key = []
    for fitting in fittings:
        n_images = [len(side.positions) for side in fitting.sides]
        key.append([schedule.key, fitting.seed, *n_images])
    checkpoint = training.scratch / f"{digest(key)}.ckpt" if training.scratch else None
    judge = Judge(schedule, data, checkpoint, training.settings.checkpoint_seconds, training.tell)
    judge.restore(module)
    intervals = -(-schedule.steps // schedule.interval) - module.steps_done // schedule.interval
    trainer = make_trainer(training.settings, [judge], intervals)
    trainer.limit_val_batches = 0
    subject = f"{n} classifiers together" if n > 1 else "1 classifier"
    start = f" from step {module.steps_done}" if module.steps_done else ""
    training.tell(f"training {subject}{start}, {schedule.steps} steps")
    try:
        with while_fitting():
            trainer.fit(module, datamodule=data)
    except DivergedError:
        return [None] * n
    finally:
        if judge.fitted and checkpoint:
            checkpoint.unlink(missing_ok=True)
    results: list[Fitted | None] = []
    for i, fitted in enumerate(judge.fitted):
        results.append(None if i in module.diverged else fitted)
    return results


def _module(training: ClassifierTraining, fitting: Fitting) -> SingleRun:
    schedule = fitting.schedule
    image = tuple(training.source.store.image)
    if training.backbone:
        features: Any = training.backbone(fitting.seed)
    else:
        positions = np.concatenate([side.positions for side in fitting.sides])
        x = training.source.store.gather(torch.from_numpy(positions))[0].double().cpu()
        features = Standardized(x.mean(0), x.std(0, correction=0))
    sizes = Sizes(features.n_features, fitting.n_classes, len(fitting.sides), image, schedule.steps)
    algorithm = schedule.algorithm(sizes, schedule.hparams)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(fitting.seed, "init"))
        needed = algorithm.networks_needed(sizes, schedule.hparams)
        networks = assembled({"featurizer": features}, needed, image, lambda: features)
    return SingleRun(algorithm, networks, fitting.seed, UpdateRule(schedule.steps), training.dtype)


def _data(source: Environments, fittings: Sequence[Fitting], stacked: bool) -> EnvironmentData:
    schedule = fittings[0].schedule
    samples = SampleStore(source, fittings).environments
    kind = EpochOrder if schedule.epochs else RunOrder
    orders: list[RunOrder] = []
    for i, fitting in enumerate(fittings):
        names = [f"{i}/{side}" for side in range(len(fitting.sides))]
        orders.append(kind(samples, names, schedule.batch_size, fitting.seed))
    data = EnvironmentData(
        samples, orders[0].training, [], steps=schedule.steps, eval_every=schedule.interval,
        batch_size=schedule.batch_size, eval_batch_size=schedule.batch_size, seed=0,
    )  # fmt: skip
    data.runs = orders
    data.stacked = stacked
    return data
