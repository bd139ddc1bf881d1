"""Hydra's sweeper of ``python train.py -m``.

It knows what is done before anything starts, and launches the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
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
from dgbench.records.commands import JobPlace, expect_jobs, forget_jobs
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
        self.closing = closing
        self.planning = planning
        self.checking = checking
        self.needs = needs

    def sweep(self, arguments: list[str]) -> Any:
        """Launch the jobs that are left; with ``plan=true`` print the plan and start nothing.

        Raises:
            HydraException: a job that Hydra refuses; nothing was started.
            DgbenchError: a job has a value that cannot work, or all lack files; nothing was
                written.
            JobsFailedError: some failed, or left no finished runs where they were to be.
        """
        assert self.config is not None
        assert self.hydra_context is not None
        assert self.launcher is not None
        refuse_unread([*arguments, *map(str, self.config.hydra.overrides.hydra)], UNREAD_IN_SWEEPS)
        loader = self.hydra_context.config_loader
        sweep_dir = self._folder()
        jobs = self._combinations(arguments, loader)
        queue = getattr(self.launcher, "queue", False)
        self._check_keys(queue)
        planner = Planner.of_sweep(loader, self.config)
        self._check_words(arguments, jobs, planner, queue)
        check_own_measures()
        size = JobSize.asked(self.config)
        if self.config.plan:
            get_method(self.planning)(jobs, planner, starts=False, size=size)
            return []

        places: dict[JobPlace, list[str]] = {}
        for words in jobs:
            places.setdefault(planner.place(words), words)
        open_places = self._open(places)
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

        results = self._launch(jobs_left, lambda: self._close(places))
        if self.config.wait:
            ended = list(places)
            self._close(ended)
            failed = {
                place
                for place, result in zip(open_places, results, strict=False)
                if result.status is JobStatus.FAILED
            }
            self._refuse_missing(ended, failed, sweep_dir)
        return [results]

    @property
    def _is_basic(self) -> bool:
        """Whether Hydra's own launcher runs the jobs, in this process."""
        return type(self.launcher).__name__ == "BasicLauncher"

    @property
    def _starts_here(self) -> bool:
        """Whether the workers of the launcher start in the folder of the command."""
        return bool(getattr(self.launcher, "in_this_folder", self._is_basic))

    def _folder(self) -> Path:
        """Return the folder of the sweep, absolute if workers may start elsewhere.

        Raises:
            ConfigError: its name cannot be one.
        """
        assert self.config is not None
        SweepFolder(dir=self.config.hydra.sweep.dir)
        folder = Path(self.config.hydra.sweep.dir)
        if not self._starts_here:
            folder = folder.absolute()
            self.config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quoted(str(folder))}")
        return folder

    def _combinations(self, arguments: Sequence[str], loader: ConfigLoader) -> list[list[str]]:
        """List the words of every job: all combinations of the values that were typed.

        Raises:
            ConfigError: there are none, or more than one command plans.
        """
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(
            [*self._parse_config(), *arguments]
        )
        for override in overrides:  # before they are listed
            values = override.value()
            if not isinstance(values, RangeSweep):
                continue
            one_too_many = next(islice(values.range(), MOST_STUDIES, None), None)
            if one_too_many is not None:
                raise ConfigError(
                    f"{override.input_line} has more values than one command plans, "
                    f"{MOST_STUDIES:,}; give fewer"
                )
        jobs: list[list[str]]
        (jobs,) = self.split_arguments(overrides, None)
        if not jobs:
            raise ConfigError(
                "the sweep has no job: a range among its words is empty; write e.g. seed=0,1,2"
            )
        return jobs

    def _check_keys(self, queue: bool) -> None:
        """Check the keys that the sweeper reads.

        Args:
            queue: whether the jobs go on when this command ends.

        Raises:
            ConfigError: one has a value that cannot work.
        """
        assert self.config is not None
        settings: Any = OmegaConf.to_container(
            OmegaConf.masked_copy(self.config, ["plan", "retry", "sweep", "wait"]), resolve=True
        )
        check_configuration(settings)
        if not self.config.wait and not queue:
            raise ConfigError(
                "wait=false needs a queue whose jobs go on; add hydra/launcher=slurm, or leave it "
                "out"
            )

    def _open(self, places: Iterable[JobPlace]) -> list[JobPlace]:
        """Return the jobs of which something is left to train or to log."""
        assert self.config is not None
        logger = self.config.get("logger") or {}  # estimates of shift are not logged
        return [
            place
            for place in places
            if place.is_left(self.config.retry) or is_unlogged(place, logger)
        ]

    def _launch(
        self, jobs: Sequence[Sequence[str]], close: Callable[[], None]
    ) -> Sequence[JobReturn]:
        """Launch jobs.

        Args:
            jobs: their words.
            close: called where some failed, to print the results of the others.

        Raises:
            JobsFailedError: some failed, or another package's launcher gave up.
        """
        assert self.launcher is not None
        try:
            results: Sequence[JobReturn] = self.launcher.launch(jobs, initial_job_idx=0)
            if not self._is_basic:  # the jobs of Hydra's own launcher have said how they ended
                self._raise_failed(jobs, results)
            return results
        except JobsFailedError:
            close()
            raise
        except Exception as error:
            if self._starts_here or isinstance(error, (DgbenchError, HydraException)):
                raise
            # another package's launcher lost a worker, and gives up the other jobs with it
            raise JobsFailedError(
                f"{one_line(error)}; jobs may be left, and the same command continues with them"
            ) from error

    def _refuse_missing(
        self, ended: Sequence[JobPlace], failed: Collection[JobPlace], folder: Path
    ) -> None:
        """Refuse to end with 0 where jobs left no finished runs in the folder of the sweep.

        Args:
            ended: all jobs of the sweep.
            failed: those whose failure was told.
            folder: of the sweep.

        Raises:
            JobsFailedError: there are such jobs.
        """
        assert self.config is not None
        missing = sum(place.is_left(self.config.retry) for place in set(ended) - set(failed))
        if missing:
            raise JobsFailedError(
                f"{missing} of {len(set(ended))} jobs came to no end in {folder.absolute()}; "
                "where the launcher's workers have other files, give them a shared "
                "hydra.sweep.dir, and start the same command again"
            )

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
    ) -> list[Counter[Path]]:
        """Raise the first error in a value of any job.

        A job whose files are missing does not stop the others.

        Returns:
            How many models each job has to train, by the folder of their study; none if its files
            are missing.
        """
        check = get_method(self.checking)(planner, on_this_machine=on_this_machine)
        lacking: list[DgbenchError] = []
        models: list[Counter[Path]] = []
        for words in jobs:
            try:
                models.append(check(words))
            except (DataError, WeightsError) as error:
                lacking.append(error)
                models.append(Counter())
        if len(lacking) == len(jobs):
            raise lacking[0]
        if on_this_machine:
            planner.need_images()
        return models

    def _raise_failed(self, jobs: Sequence[Sequence[str]], results: Sequence[JobReturn]) -> None:
        """Name the jobs that failed in another package's launcher.

        The launchers of dgbench name them themselves, and give no results.

        Raises:
            JobsFailedError: some failed.
        """
        assert self.config is not None
        failed: list[str] = []
        errors: list[Exception] = []
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
        """Print the results of a sweep; what its jobs print may go to logs of other processes."""
        ended = list(dict.fromkeys(places))
        done = sum(not place.is_left("all") for place in ended)
        runs: dict[Path, None] = {}
        for place in ended:
            runs.update(dict.fromkeys(place.runs() or ()))
        forget_jobs({place.parent for place in ended}, self._typed())
        get_method(self.closing)(len(ended), done, list(runs), self.config)

    def _typed(self) -> str:
        assert self.config is not None
        return typed_command(str(self.config.hydra.job.name))
