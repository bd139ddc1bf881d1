"""Several jobs of a sweep in one job of a queue, whose waiting and starting small models would not be worth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hydra.types import HydraContext
from omegaconf import DictConfig

from dgbench.errors import ConfigError, DgbenchError
from dgbench.training.composing import Composer
from dgbench.training.jobs import Planner


def packed(jobs: Sequence[Sequence[str]], most: int | None, context: HydraContext, config: DictConfig) -> list[range]:
    """Positions of the jobs that go together, in their order.

    Args:
        jobs: overrides of each.
        most: runs that go together, at least one job; None keeps jobs apart.
        context: Hydra's.
        config: of the sweep.

    Raises:
        ConfigError: ``most`` is no number >= 1.
    """
    if most is None:
        return [range(i, i + 1) for i in range(len(jobs))]
    if not isinstance(most, int) or most < 1:
        raise ConfigError(f"sweep.runs_per_job={most} is not at least 1; give a number or null")
    loader = context.config_loader
    planner = Planner(Composer(loader, partial(loader.load_sweep_config, config)))
    return together([_runs(planner, words) for words in jobs], most)


def _runs(planner: Planner, words: Sequence[str]) -> int:
    """Runs of a job; one that is refused stays a job, and fails alone."""
    try:
        return sum(len(study.folds) for study in planner.studies(words))
    except DgbenchError:
        return 1


def together(runs: Sequence[int], most: int) -> list[range]:
    """Neighbors whose runs add up to ``most`` at most; one that is larger stays alone."""
    found: list[range] = []
    first = total = 0
    for i, own in enumerate(runs):
        if i > first and total + own > most:
            found.append(range(first, i))
            first, total = i, 0
        total += own
    return [*found, range(first, len(runs))] if runs else []
