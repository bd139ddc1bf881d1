"""Hydra's sweeper of ``python train.py -m``: knows what is done before anything starts, and
launches the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import RangeSweep
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.utils import get_method
from omegaconf import OmegaConf

from dgbench.configuration import typed_command
from dgbench.errors import (
    ConfigError,
    DataError,
    DgbenchError,
    JobsFailedError,
    WeightsError,
    one_line,
)
from dgbench.plan.explain import explain
from dgbench.plan.measures import check_own_measures
from dgbench.plan.overrides import quoted
from dgbench.plan.search import MOST_STUDIES
from dgbench.plan.settings import check_configuration
from dgbench.plan.studies import Planner
from dgbench.plan.unread import UNREAD_IN_SWEEPS, Reading, check_needs, key_of, refuse_unread
from dgbench.records.commands import PARTS, JobPlace, expect_jobs, forget_jobs
from dgbench.sweeps.local import LocalLauncher, labels, raise_failed, tell
from dgbench.sweeps.sizes import JobSize
from dgbench.sweeps.unlogged import is_unlogged
from dgbench.validation import Checked, Folder


class SweepFolder(Checked):
    """Keys of ``hydra.sweep`` that a path is made of."""

    key = "hydra.sweep"

    dir: Folder


class StudySweeper(BasicSweeper):
    """All combinations, as Hydra's own, less the jobs of which nothing is left; or their plan.

    Args:
        closing: dotted name of the function that ends a sweep; gets how many jobs there are, how
            many of them are done, the folders of their runs, and the configuration.
        planning: dotted name of the function that prints the plan of a sweep, see
            :func:`dgbench.sweeps.plan.print_plan`.
        checking: dotted name of what makes the function that refuses a job, see
            :func:`dgbench.sweeps.plan.job_check`.
        needs: dotted name of what keys need to be read, see :data:`dgbench.plan.needs.OF_TRAINING`.
        options: of Hydra's own sweeper.
    """

    def __init__(
        self, closing: str, planning: str, checking: str, needs: str, **options: Any
    ) -> None:
        super().__init__(**options)
        self.closing, self.planning, self.checking = closing, planning, checking
        self.needs = needs

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs that are left; with ``plan=true`` print the plan and start nothing.

        Raises:
            HydraException: a job that Hydra refuses; nothing was started.
            DgbenchError: a job has a value that cannot work, or all lack files; nothing was
                written.
            JobsFailedError: some failed, or left no finished runs where they were to be.
        """
        assert (
            self.config is not None and self.hydra_context is not None and self.launcher is not None
        )
        refuse_unread([*arguments, *map(str, self.config.hydra.overrides.hydra)], UNREAD_IN_SWEEPS)
        loader = self.hydra_context.config_loader
        SweepFolder(dir=self.config.hydra.sweep.dir)
        sweep_dir = Path(self.config.hydra.sweep.dir)
        basic = type(self.launcher).__name__ == "BasicLauncher"
        ours = bool(getattr(self.launcher, "in_this_folder", basic))
        if not ours:  # its workers may start elsewhere
            sweep_dir = sweep_dir.absolute()
            self.config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quoted(str(sweep_dir))}")
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(
            [*self._parse_config(), *arguments]
        )
        for override in overrides:  # before they are listed
            values = override.value()
            if (
                isinstance(values, RangeSweep)
                and next(islice(values.range(), MOST_STUDIES, None), None) is not None
            ):
                raise ConfigError(
                    f"{override.input_line} has more values than one command plans, "
                    f"{MOST_STUDIES:,}; give fewer"
                )
        (jobs,) = self.split_arguments(overrides, None)
        if not jobs:
            raise ConfigError(
                "the sweep has no job: a range among its words is empty; write e.g. seed=0,1,2"
            )
        settings: Any = OmegaConf.to_container(
            OmegaConf.masked_copy(self.config, ["plan", "retry", "sweep", "wait"]), resolve=True
        )
        check_configuration(settings)
        queue = getattr(self.launcher, "queue", False)
        if not self.config.wait and not queue:
            raise ConfigError(
                "wait=false needs a queue whose jobs go on; add hydra/launcher=slurm, or leave it "
                "out"
            )
        planner = Planner.of_sweep(loader, self.config)
        self._check_words(arguments, jobs, planner, queue)
        check_own_measures()
        size = JobSize.asked(self.config)
        jobs = _parts(jobs, planner, sweep_dir)
        if self.config.plan:
            clock = self.config.plan == "probe"
            get_method(self.planning)(
                jobs, planner, clock=clock, starts=False, size=size, folder=sweep_dir
            )
            return []
        places: dict[JobPlace, list[str]] = {}
        for words in jobs:
            places.setdefault(planner.place(words), words)
        logger = self.config.get("logger") or {}  # estimates of shift are not logged
        open_places = [
            place
            for place in places
            if place.is_left(self.config.retry) or is_unlogged(place, logger)
        ]
        jobs_left = [places[place] for place in open_places]
        if not jobs_left:
            tell(f"nothing to do: all {len(places)} jobs are done (retry={self.config.retry})")
            self._close(places)
            return []
        if len(jobs_left) < len(places):
            tell(f"{len(places) - len(jobs_left)} of {len(places)} jobs were done before")
        models = self._refuse(jobs_left, planner, on_this_machine=not queue)
        if isinstance(self.launcher, LocalLauncher):
            self.launcher.models = models
        getattr(self.launcher, "look", lambda: None)()
        sweep_dir.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, sweep_dir / "multirun.yaml")
        expect_jobs(open_places, self._typed())
        try:
            results = self.launcher.launch(jobs_left, initial_job_idx=0)
            if not basic:  # Hydra's own runs the jobs here, and each has said how it ended
                self._raise_failed(jobs_left, results)
        except JobsFailedError:
            self._close(map(planner.place, _parts(jobs, planner, sweep_dir)))
            raise
        except Exception as error:
            if ours or isinstance(error, (DgbenchError, HydraException)):
                raise
            # another package's launcher lost a worker, and gives up the other jobs with it
            raise JobsFailedError(
                f"{one_line(error)}; jobs may be left, and the same command continues with them"
            ) from error
        if self.config.wait:  # a launcher may have split jobs meanwhile
            ended = [planner.place(words) for words in _parts(jobs, planner, sweep_dir)]
            self._close(ended)
            told = {
                place
                for place, result in zip(open_places, results, strict=False)
                if result.status is JobStatus.FAILED
            }
            lost = sum(place.is_left(self.config.retry) for place in set(ended) - told)
            if lost:
                raise JobsFailedError(
                    f"{lost} of {len(set(ended))} jobs came to no end in {sweep_dir.absolute()}; "
                    "where the launcher's workers have other files, give them a shared "
                    "hydra.sweep.dir, and start the same command again"
                )
        return [results]

    def _check_words(
        self, arguments: Sequence[str], jobs: Sequence[Sequence[str]], planner: Planner, queue: bool
    ) -> None:
        """Refuse typed words that no job reads, or name them."""

        def readings() -> Iterator[Reading]:
            return chain.from_iterable(map(planner.readings, jobs))

        check_needs(arguments, readings, resolve_name(self.needs), tell)
        packing = [word for word in arguments if key_of(word).startswith("sweep.")]
        if packing and not queue:
            tell(
                f"{packing[0]} changes nothing here: it packs the jobs of a queue; add "
                "hydra/launcher=slurm"
            )

    def _refuse(
        self, jobs: Sequence[Sequence[str]], planner: Planner, on_this_machine: bool
    ) -> Counter[Path]:
        """Raise the first error in a value of any job; one whose files are missing does not stop
        the others.

        Returns:
            How many models the jobs have to train, of those whose files are there, by the folder of
            their study.
        """
        check = get_method(self.checking)(planner, on_this_machine=on_this_machine)
        lacking, models = list[DgbenchError](), Counter[Path]()
        for words in jobs:
            try:
                models += check(words)
            except (DataError, WeightsError) as error:
                lacking.append(error)
        if len(lacking) == len(jobs):
            raise lacking[0]
        if on_this_machine:
            planner.need_images()
        return models

    def _raise_failed(self, jobs: Sequence[Sequence[str]], results: Sequence[JobReturn]) -> None:
        """Name the jobs that failed in another package's launcher; those of dgbench say it and give
        no results.
        """
        assert self.config is not None
        failed, errors = list[str](), list[Exception]()
        for name, result in zip(labels(jobs), results, strict=False):
            try:
                with redirect_stderr(StringIO()):  # Hydra repeats the overrides on it
                    _ = result.return_value  # raises what the job raised
            except Exception as error:
                failed.append(name)
                errors.append(error)
                tell(f"{name}: FAILED: {explain(error, self.config.hydra.job.config_name)}")
        try:
            raise_failed(failed, len(jobs))
        except JobsFailedError as error:
            raise error from errors[0]

    def _close(self, places: Iterable[JobPlace]) -> None:
        """Print the results of a sweep, as what its jobs print may go to logs of other processes."""
        ended = list(dict.fromkeys(places))
        done = sum(not place.is_left("all") for place in ended)
        runs = list(dict.fromkeys(run for place in ended for run in place.runs() or ()))
        forget_jobs({place.parent for place in ended}, self._typed())
        get_method(self.closing)(len(ended), done, runs, self.config)

    def _typed(self) -> str:
        assert self.config is not None
        return typed_command(str(self.config.hydra.job.name))


def _parts(jobs: list[list[str]], planner: Planner, folder: Path) -> list[list[str]]:
    """List the jobs of a sweep in its folder; for one that an earlier command split, its parts."""
    if not any(folder.glob(PARTS)):
        return jobs
    extra = [
        [[*words, *part_words] for part_words in planner.place(words).parts()] for words in jobs
    ]
    return [
        part
        for words, cut in zip(jobs, extra, strict=True)
        for part in _parts(cut, planner, folder) or [words]
    ]
