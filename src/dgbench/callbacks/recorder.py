"""Turn every evaluation into rows: one recorder for a run alone and for the runs of a stack."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.batches import ErrorRecipe
from dgbench.callbacks.loggers import error_values
from dgbench.errors import DivergedError
from dgbench.records.files import Checksum, keep_beginning
from dgbench.records.rows import Row, append_rows, lines_before, read_rows
from dgbench.records.run_identity import RunIdentity

COUNTED = ("seen", "wrong", "loss")  # of every eval set
BY_CLASS = ("class_seen", "class_wrong")  # also, if classes are counted
Listener = Callable[[int, Sequence[Row]], None]
# eval set -> what was counted -> number; of what is counted by class, a number for each
Counts = Mapping[str, Mapping[str, Any]]


@dataclass
class RunRecord:
    """Where the rows of one run go."""

    #: its row file; None for a run that is complete and computed once more beside others
    file: Path | None
    identity: RunIdentity  #: who the rows are from
    recipes: Sequence[ErrorRecipe]  #: the errors to record
    #: called with (step, rows) after they are on disk
    listeners: Sequence[Listener] = field(default_factory=tuple)


class Recorder(pl.Callback):
    """Counts what is wrong in every eval set and appends each run's rows.

    Eval sets are mixed into environments.

    Args:
        runs: in the order of the module.
        final_only: evaluations during training judge weights that are not the result: they are made
            on the ``val`` subsets of training environments alone and leave ``val/loss``; only one
            after training is recorded.
        eval_test: ``always``; or ``best``, and ``test`` is recorded only where the error on ``val``
            is the lowest so far and at the last step: all that training-domain validation and
            oracle selection ask for. The runs of a stack are scored on ``test`` if any is at its
            best.
        class_errors: rows hold the error of the worst class and the mean over classes, too.
    """

    def __init__(
        self,
        runs: Sequence[RunRecord],
        final_only: bool = False,
        eval_test: str = "always",
        class_errors: bool = False,
    ) -> None:
        self.runs = list(runs)
        self.counted = (*COUNTED, *BY_CLASS) if class_errors else COUNTED
        self.final_only = final_only
        self.eval_test = eval_test
        #: the lines of each run so far, of earlier starts included, also if they go to no file
        self.written = [Checksum()] * len(self.runs)
        #: runs whose validation error was lower than ever at the evaluation just made
        self.improved: list[int] = []
        self.evaluated = -1  #: step of the last evaluation that left rows; -1 before one
        self._lowest = [math.inf] * len(self.runs)
        self._sums: dict[str, dict[str, Any]] = {}
        # eval sets of every evaluation; others are asked for one by one
        self._needed: set[str] = set()
        self._decided = -1, False  # at which step, and whether ``test`` was wanted

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self.eval_test == "best" or self.final_only:
            self._needed = set()
            for run in self.runs:
                training = trained_on(run.identity)
                for recipe in run.recipes:
                    if self._always(recipe, training):
                        self._needed.update(recipe.mixture)
            trainer.datamodule.wanted = partial(self._is_scored, trainer, pl_module)  # type: ignore[attr-defined]
        if not trainer.is_global_zero:
            return
        for i, run in enumerate(self.runs):
            if run.file is not None:
                keep_beginning(run.file, self.written[i].size)
                self._lowest[i] = lowest_validation_error(run.file)

    def _always(self, recipe: ErrorRecipe, training: Collection[str]) -> bool:
        """Return whether every evaluation scores a recipe.

        It scores all but ``test``, or only what ``val/loss`` needs.
        """
        if self.final_only:
            return recipe.subset == "val" and not recipe.never_trained_on(training)
        return recipe.subset != "test"

    def _is_scored(self, trainer: pl.Trainer, pl_module: Any, name: str) -> bool:
        """Return whether to score the eval set of this name.

        Those of ``test`` are scored at the last step and where ``val`` is best. This is decided
        once per evaluation, at the first eval set that only ``test`` needs; ``val`` has been scored
        by then. Evaluations in training that are not recorded score only what ``val/loss`` needs.
        """
        if name in self._needed:
            return True
        if self.final_only:
            return bool(trainer.state.fn != TrainerFn.FITTING)
        if is_last(trainer, pl_module):
            return True
        step = int(pl_module.steps_done)
        if self._decided[0] != step:
            best = any(self._is_best(i, rows) for i, rows in self._rows(pl_module))
            self._decided = step, best
        return self._decided[1]

    def _is_best(self, i: int, rows: Sequence[Row]) -> bool:
        """Return whether these rows of run ``i`` have its lowest error on ``val`` so far."""
        return at_best(training_validation_error(rows), self._lowest[i])

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.counts_classes = self.counted != COUNTED
        self._sums = defaultdict(lambda: defaultdict(float))

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        for key in self.counted:
            self._sums[batch.name][key] = self._sums[batch.name][key] + outputs[key].double()

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.improved = []
        if trainer.sanity_checking:
            return
        if trainer.world_size > 1:
            self._sum_over_processes(trainer, pl_module.device)
        values: dict[str, list[float]] = defaultdict(list)
        for i, rows in list(self._rows(pl_module)):
            broken = [row.loss for row in rows if not math.isfinite(row.loss)]
            if broken:  # the update of the last step broke the weights
                pl_module.diverged[i] = (pl_module.steps_done, broken[0])
                if len(pl_module.diverged) == len(self.runs):
                    raise DivergedError(*pl_module.diverged[i])
                continue
            if len(self.runs) == 1:  # for what averages weights, which follows one run
                loss = _over_training_environments(rows, lambda row: row.loss)
                pl_module.log("val/loss", loss, logger=False)
            for name, value in error_values(rows).items():
                values[name].append(value)
            if not (self.final_only and trainer.state.fn == TrainerFn.FITTING):
                self._record(i, rows, trainer, pl_module)
        # of a stack the means over its runs, for callbacks that read ``trainer.callback_metrics``
        means = {name: sum(errors) / len(errors) for name, errors in values.items()}
        pl_module.log_dict(means, logger=False)

    def _record(self, i: int, rows: list[Row], trainer: pl.Trainer, pl_module: Any) -> None:
        run = self.runs[i]
        error = training_validation_error(rows)
        if self.eval_test == "best":
            shows_test = is_last(trainer, pl_module) or at_best(error, self._lowest[i])
            if not shows_test:
                rows = [row for row in rows if row.subset != "test"]  # scored for other runs
        if error < self._lowest[i]:
            self._lowest[i] = error
            self.improved.append(i)
        if trainer.is_global_zero:  # the first process of several that train one run
            # after training, in place of those before an early end
            if run.file is not None and trainer.state.fn != TrainerFn.FITTING:
                self.written[i] = lines_before(run.file, pl_module.steps_done)
                keep_beginning(run.file, self.written[i].size)
            self.written[i] += append_rows(run.file, rows)
        self.evaluated = int(pl_module.steps_done)
        if trainer.is_global_zero:
            for listener in run.listeners:
                listener(pl_module.steps_done, rows)

    def _rows(self, pl_module: Any) -> Iterator[tuple[int, list[Row]]]:
        """Yield the number and rows of each run that has not diverged.

        The rows are those of the eval sets counted so far.
        """
        step = pl_module.steps_done
        together = len(self.runs)
        counted = {}
        for name, sums in self._sums.items():
            counted[name] = {key: value.cpu() for key, value in sums.items()}
        for i, run in enumerate(self.runs):
            if i in pl_module.diverged:
                continue
            counts = {name: _of_run(sums, i) for name, sums in counted.items()}
            yield i, rows_of_counts(run.identity, step, run.recipes, counts, together)

    def _sum_over_processes(self, trainer: pl.Trainer, device: torch.device) -> None:
        """Sum the counts over processes.

        Each process has scored some of the batches of one run.
        """
        names: dict[str, None] = {}  # in the order of their first use
        for recipe in self.runs[0].recipes:
            names.update(dict.fromkeys(recipe.mixture))
        counts = []
        for name in names:
            counts.append([float(self._sums[name][key]) for key in COUNTED])
        table = torch.tensor(counts, dtype=torch.float64, device=device)
        table = trainer.strategy.reduce(table, reduce_op="sum")
        self._sums = {}
        for name, row in zip(names, table, strict=True):
            sums = dict(zip(COUNTED, row, strict=True))
            if sums["seen"]:  # what was not wanted is in none
                self._sums[name] = sums


def _of_run(sums: Mapping[str, torch.Tensor], i: int) -> dict[str, Any]:
    """Read the counts of run ``i`` from those of a stack, or of the only run."""
    counts: dict[str, Any] = {}
    for key, value in sums.items():
        if key == "class_seen":  # the same images for all runs
            counts[key] = value.tolist()
        else:
            of_run = value if value.dim() == 0 else value[i]
            counts[key] = of_run.tolist()
    return counts


TIE = 1e-9  # errors this close may change places by rounding


def is_last(trainer: Any, pl_module: Any) -> bool:
    """Return whether no step follows the evaluation that is going on."""
    return bool(
        trainer.state.fn != TrainerFn.FITTING or pl_module.steps_done >= trainer.datamodule.steps
    )


def at_best(error: float, lowest: float) -> bool:
    """Return whether an error on ``val`` is at most the lowest before it, up to rounding."""
    return error <= lowest + TIE


def lowest_validation_error(file: Path) -> float:
    """Find the lowest mean ``val`` error over training environments at any step in a row file.

    It is inf without rows.
    """
    if not file.exists():
        return math.inf
    steps: dict[int, list[float]] = defaultdict(list)
    for row in read_rows(file)[0]:
        if row["subset"] == "val" and not row["env_held_out"]:
            steps[row["step"]].append(row["wrong"] / row["seen"])
    return min((sum(errors) / len(errors) for errors in steps.values()), default=math.inf)


def rows_of_counts(
    identity: RunIdentity,
    step: int,
    recipes: Sequence[ErrorRecipe],
    counts: Counts,
    together: int = 1,
) -> list[Row]:
    """Build the rows of those recipes whose eval sets have been counted.

    Args:
        identity: who the rows are from.
        step: optimizer updates done.
        recipes: environment, subset and weights of the eval sets of each.
        counts: ``seen``, ``wrong`` and summed ``loss`` of every eval set.
        together: runs that train together.
    """
    counted = [recipe for recipe in recipes if recipe.mixture.keys() <= counts.keys()]
    return [_mixed_row(identity, step, recipe, counts, together) for recipe in counted]


def _mixed_row(
    identity: RunIdentity, step: int, recipe: ErrorRecipe, counts: Counts, together: int
) -> Row:
    """Mix eval sets over the same images into a row.

    Its counts are the expected ones per image, times the images seen.
    """
    sizes = {counts[name]["seen"] for name in recipe.mixture}
    if len(sizes) != 1:
        raise ValueError(
            f"eval sets {list(recipe.mixture)} hold different numbers of images: {sizes}"
        )
    n = sizes.pop()
    wrong = sum(weight * counts[name]["wrong"] for name, weight in recipe.mixture.items())
    loss = sum(weight * counts[name]["loss"] for name, weight in recipe.mixture.items())
    worst_class, balanced = _class_errors(recipe, counts)
    return Row(
        identity=identity,
        step=step,
        env=recipe.env,
        subset=recipe.subset,
        held_out=recipe.never_trained_on(trained_on(identity)),
        seen=int(n),
        wrong=min(wrong, n),  # weights that sum to 1 may give a rounding error more
        loss=loss / n,
        together=together,
        majority_wrong=recipe.majority_wrong,
        worst_class_wrong=None if worst_class is None else worst_class * n,
        balanced_wrong=None if balanced is None else balanced * n,
    )


def _class_errors(recipe: ErrorRecipe, counts: Counts) -> tuple[float | None, float | None]:
    """Compute the largest error of a class, and the mean over the classes that occur.

    Eval sets that are mixed show the same pictures, so each class is equally frequent in all.

    Returns:
        None and None if errors were not counted by class.
    """
    first = counts[next(iter(recipe.mixture))]
    if "class_seen" not in first:
        return None, None
    errors = []
    for k, seen in enumerate(first["class_seen"]):
        wrong = 0.0
        for name, weight in recipe.mixture.items():
            wrong += weight * counts[name]["class_wrong"][k]
        if seen:
            errors.append(min(wrong / seen, 1.0))
    return max(errors), sum(errors) / len(errors)


def trained_on(identity: RunIdentity) -> set[str]:
    """Return the given environments that a run did not hold out."""
    return set(identity.given) - set(identity.held_out)


def training_validation_error(rows: Sequence[Row]) -> float:
    """Average the error over the val subsets of training environments.

    This is what training-domain validation selects on.
    """
    return _over_training_environments(rows, lambda row: row.error)


def _over_training_environments(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    """Average a value, unweighted, over the val subsets of the training environments.

    It is NaN without any.
    """
    values = [value(row) for row in rows if row.subset == "val" and not row.held_out]
    return sum(values) / len(values) if values else float("nan")
