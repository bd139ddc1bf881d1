"""Hydra's sweeper of ``python train.py -m``: knows what is done before anything starts, and launches the rest."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from dgbench.errors import DgbenchError
from dgbench.training.composing import Composer
from dgbench.training.execution import check_retry
from dgbench.training.job_record import is_left
from dgbench.training.jobs import Planner


class StudySweeper(BasicSweeper):
    """All combinations, as Hydra's own, less the jobs of which nothing is left; or their plan."""

    def sweep(self, arguments: list[str]) -> Any:
        """Launch what is left; with ``plan=true`` start nothing.

        Raises:
            HydraException: a job that Hydra refuses; nothing was started.
        """
        assert self.config is not None and self.hydra_context is not None and self.launcher is not None
        loader = self.hydra_context.config_loader
        overrides = OverridesParser.create(config_loader=loader).parse_overrides([*self._parse_config(), *arguments])
        (jobs,) = self.split_arguments(overrides, None)
        composer = Composer(loader, partial(loader.load_sweep_config, self.config))
        planner = Planner(composer)
        if self.config.plan:
            from dgbench.sweeps.plan import asks_to_clock, print_plan

            print_plan(jobs, planner, asks_to_clock(self.config.plan), starts=False)
            return []
        check_retry(self.config.retry)
        left: list[list[str]] = []
        seen = set()
        for words in jobs:
            job = composer.compose(words)
            try:
                place = Path(job.parent), planner.key(job)
            except DgbenchError:  # it says why when its turn comes, and stops no other
                place = Path(job.parent), " ".join(words)
            if place not in seen and is_left(*place, self.config.retry):
                left.append(words)
            seen.add(place)
        if not left:
            _tell(f"nothing to do: all {len(seen)} jobs are done (retry={self.config.retry})")
            return []
        if len(left) < len(seen):
            _tell(f"{len(seen) - len(left)} of {len(seen)} jobs were done before")
        sweep_dir = Path(self.config.hydra.sweep.dir)
        sweep_dir.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, sweep_dir / "multirun.yaml")
        results = self.launcher.launch(left, initial_job_idx=0)
        for result in results:
            _ = result.return_value  # raises what the job raised
        return [results]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
