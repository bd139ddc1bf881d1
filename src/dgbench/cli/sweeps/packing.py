"""Several jobs of a sweep in one job of a queue, whose waiting and starting small models would not be worth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hydra.types import HydraContext
from omegaconf import DictConfig

from dgbench.cli.sweeps.composing import Composer
from dgbench.cli.sweeps.jobs import Folds, studies_of
from dgbench.errors import ConfigError


def packed(jobs: Sequence[Sequence[str]], most: int | None, context: HydraContext, config: DictConfig) -> list[range]:
    """Positions of the jobs that go together, in their order.

    Args:
        jobs: overrides of each.
        most: models that go together, at least one job; None keeps jobs apart.
        context: Hydra's.
        config: of the sweep.

    Raises:
        ConfigError: ``most`` is no number >= 1.
    """
    if most is None:
        return [range(i, i + 1) for i in range(len(jobs))]
    if not isinstance(most, int) or most < 1:
        raise ConfigError(f"sweep.members_per_job={most} is not at least 1; give a number or null")
    loader, folds = context.config_loader, Folds()
    composer = Composer(loader, partial(loader.load_sweep_config, config))
    models = [
        sum(len(folds.of(study.composed)) for study in studies_of(words, composer, lambda job: job.folder))
        for words in jobs
    ]
    return together(models, most)


def together(models: Sequence[int], most: int) -> list[range]:
    """Neighbors whose models add up to ``most`` at most; one that is larger stays alone."""
    found: list[range] = []
    first = total = 0
    for i, own in enumerate(models):
        if i > first and total + own > most:
            found.append(range(first, i))
            first, total = i, 0
        total += own
    return [*found, range(first, len(models))] if models else []
