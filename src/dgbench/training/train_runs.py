"""Train everything that a command has planned and no other process trains."""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from dgbench.callbacks.loggers import CsvLog, Guard, MetricsLogger
from dgbench.callbacks.metrics import RunMetrics, with_errors
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.study_means import StudyMeans
from dgbench.errors import (
    ConfigError,
    DgbenchError,
    DivergedError,
    RecordError,
    is_out_of_memory,
    reason_of,
)
from dgbench.interruption import request_first, stopped_by
from dgbench.plan.code import raised_at
from dgbench.records.commands import keep_plan
from dgbench.records.files import NOT_REGULAR
from dgbench.records.locks import RunLocks, lock_holder
from dgbench.records.metrics import METRICS_FILE, Lines, read_metrics, write_metrics
from dgbench.records.predictions import PREDICTION_FILE, about_predictions
from dgbench.records.rows import ROW_FILE, cleaned
from dgbench.records.spec import digest
from dgbench.records.status import (
    FAILED,
    INTERRUPTED,
    RUNNING,
    finish,
    is_done,
    mark_failed,
    mark_interrupted,
    read_status,
    write_status,
)
from dgbench.training.checkpoints import (
    ResumedPart,
    Snapshot,
    changed_since,
    finish_run,
    forget,
    group_file,
    has_lost_rows,
    last_step,
    resumable,
)
from dgbench.training.fit import Fit
from dgbench.training.groups import RunGroup, plan_groups
from dgbench.training.predicted_again import predict_again, predicting_command, why_predicted_again
from dgbench.training.processes import processes
from dgbench.training.run_folder import own_log, write_config, write_identity
from dgbench.training.study import ReadyRun, ReadyStudy
from dgbench.training.threads import Threads

log = logging.getLogger("dgbench")


@dataclass
class RunOutcomes:
    """How the runs of a command ended, by run hash."""

    #: whether a run is complete; failed ones are not
    complete: dict[str, bool] = field(default_factory=dict)
    #: why this command left a run alone that is neither complete nor failed
    left: dict[str, str] = field(default_factory=dict)

    def __or__(self, more: RunOutcomes) -> RunOutcomes:
        return RunOutcomes({**self.complete, **more.complete}, {**self.left, **more.left})


def train_runs(
    studies: Sequence[ReadyStudy],
    execution: Mapping[str, Any],
    progress: StudyProgress,
    logger: MetricsLogger | None,
    retry: str = "all",
    chooses_threads: bool = False,
    until: int | None = None,
) -> RunOutcomes:
    """Train every run that is not done, in the groups that ``execution`` asks for.

    Runs that another process trains are left to it; once the rest is through, those that have
    become free are trained after all.

    Args:
        studies: what the command has planned.
        execution: which runs train together.
        progress: shows what is done.
        logger: where it is logged besides; None logs nothing but rows.
        retry: ``all`` trains whatever is not done, ``failed`` only what failed before, ``none``
            what did not fail.
        chooses_threads: clock how many CPU threads are fastest; False leaves torch's number.
        until: step at which the runs pause, after its evaluation; None trains them to their end.

    Raises:
        ConfigError: the configuration cannot work.
    """
    trainer = _Trainer(progress, logger, Threads(chooses_threads), len(studies), until)
    by_hash: dict[str, ReadyRun] = {}  # typed twice, trained once
    for study in studies:
        by_hash.update((run.hash, run) for run in study.runs)
    runs = list(by_hash.values())
    asked = {run.hash for run in runs if trainer.asks_for(run, retry)}
    complete = [run for run in runs if trainer.outcomes.complete.get(run.hash)]
    predicted = [run for run in complete if trainer.mend_predictions(run)]
    note = _lacking(predicted)
    if note:
        progress.note(note)
    waiting = plan_groups(runs, execution) if asked else []
    if until is not None:
        beside = _beside_lost_rows(waiting, asked)
        asked |= {run.hash for run in beside if run.hash not in trainer.outcomes.complete}
    for study in studies:  # the first folders of a command: what is refused has none
        keep_plan(study.folder, [run.folder.name for run in study.runs])
    # first whole groups, so that two processes with the same command share them out without
    # splitting them
    waiting = [group for group in waiting if not trainer.train(group, asked, whole=True)]
    moved = True
    while waiting and moved:
        trainer.moved = False
        waiting = [group for group in waiting if not trainer.train(group, asked)]
        trainer.note_done_by_others(waiting, asked)
        moved = trainer.moved
    trainer.log_missed(studies)
    forget(runs)  # of stacks whose runs ended in other groups
    return trainer.outcomes


def _beside_lost_rows(groups: Sequence[RunGroup], asked: set[str]) -> list[ReadyRun]:
    """List the runs of groups in which a run that is asked for has lost rows.

    What paused beside such a run begins anew with it, or both would round anew.
    """
    together: list[ReadyRun] = []
    for group in groups:
        if any(run.hash in asked and has_lost_rows(run) for run in group.runs):
            together.extend(group.runs)
    return together


class _Trainer:
    """Trains groups one after the other, and notes how their runs ended."""

    def __init__(
        self,
        progress: StudyProgress,
        logger: MetricsLogger | None,
        threads: Threads,
        studies: int,
        until: int | None,
    ) -> None:
        self.progress = progress
        self.logger = logger
        self.threads = threads
        self.until = until
        self.guard = Guard(METRICS_FILE)
        self.shown_live = False  #: each run of the group that was trained last
        self.studies = studies
        self.outcomes = RunOutcomes()
        self.moved = False  #: something was trained since this was last set to False
        self.reasons: list[tuple[ReadyStudy, str]] = []  # why runs failed, each shown once
        self.trained_since_clearing = False  #: so a group may have left memory behind
        self.short_of_memory = False  #: memory ran out once: it is cleared after each group
        #: kind of group -> fewest runs together that had too little memory, with all of it free
        self.too_many: dict[Any, int] = {}

    def asks_for(self, run: ReadyRun, retry: str) -> bool:
        """Return whether to train a run now.

        If not, note how it stands, unless it has reached ``until``.
        """
        failed = read_status(run.folder).word == FAILED
        done = is_done(run.folder, run.evaluations)
        if self.until is not None and (done or self._has_paused(run, self.until)):
            return False
        if done or (failed and retry == "none"):
            note = "failed before; retry=failed trains it again" if failed else "was done before"
            if done:
                self._clean(run)
            self.progress.end(self._named(run), note)
            self.outcomes.complete[run.hash] = done
            return False
        if retry == "failed" and not failed:
            self.outcomes.left[run.hash] = "not failed (retry=failed)"
            return False
        return True

    @staticmethod
    def _has_paused(run: ReadyRun, until: int) -> bool:
        """Return whether a run has reached this step, with all rows that it wrote before."""
        return last_step(run) >= until and not has_lost_rows(run)

    def _clean(self, run: ReadyRun) -> None:
        """Repair the rows of a finished run, unless another process holds it.

        What is no row, or there twice, is removed.
        """
        file = run.folder / ROW_FILE
        with RunLocks() as locks, suppress(OSError):
            removed = cleaned(file) if locks.take(run.folder) else ""
            if removed:
                self.progress.note(
                    f"{file}: {removed} were removed; the rows of the run are complete"
                )

    def mend_predictions(self, run: ReadyRun) -> bool:
        """Write the predictions of a finished run again if they are damaged or lost, with a note.

        Returns:
            False if they cannot be made again, which a line has said.
        """
        file = run.folder / PREDICTION_FILE
        fault = why_predicted_again(run)
        if not fault:
            return True
        with RunLocks() as locks:
            if not locks.take(run.folder):
                return True  # whoever holds it writes them
            try:
                reason = predict_again(run, [self.progress])
            except Exception as error:  # of this file alone: the rows of the run are whole
                reason = failure(error)
        if reason:
            self.progress.note(f"{file} {fault} and cannot be made again: {reason}")
        else:
            self.progress.note(f"{file} {fault}; it is made again")
        return not reason

    def train(self, group: RunGroup, asked: set[str], whole: bool = False) -> bool:
        """Train the runs of a group that are asked for and not complete.

        Args:
            group: as it was planned.
            asked: hashes of the runs that are to be trained.
            whole: train nothing of it if another process holds some.

        Returns:
            False if other processes hold some of it.
        """
        with RunLocks() as locks, ExitStack() as stack:
            runs = self._open_runs(group, asked)
            if not runs:
                return True
            locked_runs = []
            for run in runs:
                if self._take(run, locks):
                    locked_runs.append(run)
                elif whole:
                    return False
            locked_runs = [run for run in locked_runs if not self._done_meanwhile(run)]
            locked_runs = self._writable(locked_runs)
            if not locked_runs:
                return all(run.hash in self.outcomes.complete for run in runs)
            self.moved = True
            stack.enter_context(own_log(*(run.folder for run in locked_runs)))
            self._continue(group, locked_runs)
            if group.stacked:
                forget(group.runs)
            return len(locked_runs) == len(runs)

    def _writable(self, runs: Sequence[ReadyRun]) -> list[ReadyRun]:
        """Fail the runs whose row or prediction file is a folder, say, and return the others."""
        writable = []
        for run in runs:
            files = [run.folder / name for name in (ROW_FILE, PREDICTION_FILE)]
            blocked = [file for file in files if file.is_dir()]  # a pipe is replaced
            if blocked:
                self._fail([run], f"{blocked[0]} is {NOT_REGULAR}; remove it")
            else:
                writable.append(run)
        return writable

    def note_done_by_others(self, groups: Sequence[RunGroup], asked: set[str]) -> None:
        """Note as complete what other processes have finished meanwhile."""
        for group in groups:
            for run in self._open_runs(group, asked):
                self._done_meanwhile(run)

    def _open_runs(self, group: RunGroup, asked: set[str]) -> list[ReadyRun]:
        """List the runs of a group that are asked for and not complete."""
        complete = self.outcomes.complete
        return [run for run in group.runs if run.hash in asked and run.hash not in complete]

    def log_missed(self, studies: Sequence[ReadyStudy]) -> None:
        """Log the complete runs that the logger lacks.

        They were done without it, or killed before it knew.
        """
        for study in studies:
            for run in study.runs:
                if self.logger and self.outcomes.complete.get(run.hash):
                    self._show(self.logger, run, only_new=True)

    def _show(self, logger: MetricsLogger, run: ReadyRun, only_new: bool = False) -> None:
        """Give a logger all that a run has logged.

        It may be one of a stack at its end, or one that was trained without the logger.
        """
        file = run.folder / METRICS_FILE
        is_shown = isinstance(logger, CsvLog) or (only_new and logger.knows(run.folder))
        if is_shown and file.exists():
            return
        lines: Lines = {}

        def read() -> None:
            lines.update(with_errors(read_metrics(file), run.folder))
            if not file.exists():
                write_metrics(file, lines)

        self.guard.attempt(read)
        if is_shown:
            return
        shown = logger.open(run.info, anew=True)
        for step, values in lines.items():
            shown.log(step, values)
        shown.finish(failed=not self.outcomes.complete[run.hash])

    def _named(self, run: ReadyRun) -> str:
        """Name a run, as ``fold 0 (hold out 0.80)``.

        If there are several studies, the folder of its study comes first.
        """
        study = f"{run.study.folder.name} " if self.studies > 1 else ""
        return f"{study}fold {run.fold.name} ({run.fold.title})"

    def _take(self, run: ReadyRun, locks: RunLocks) -> bool:
        if locks.take(run.folder):
            self.outcomes.left.pop(run.hash, None)
            return True
        if run.hash not in self.outcomes.left:
            reason = f"trained by {lock_holder(run.folder) or 'another process'}"
            self.outcomes.left[run.hash] = reason
            self.progress.note(f"{run.folder} is {reason}; left to it")
        return False

    def _done_meanwhile(self, run: ReadyRun) -> bool:
        if not is_done(run.folder, run.evaluations):
            return False
        self.progress.end(self._named(run), "was done by another process")
        self.outcomes.complete[run.hash] = True
        self.outcomes.left.pop(run.hash, None)
        return True

    def _continue(self, group: RunGroup, runs: Sequence[ReadyRun]) -> None:
        """Train these runs of a group, each part from its checkpoint or from its beginning."""
        hashes = {run.hash for run in runs}
        if self._is_too_large(group):
            self._continue_parts(group.halves(), hashes)
            return
        resumed: list[ResumedPart] = []
        smaller: tuple[RunGroup, ...] = ()
        try:
            with request_first():
                resumed = resumable(group, runs)
        except Exception as error:
            if is_out_of_memory(error):
                smaller = self._smaller(group, self._title(group))
            elif not isinstance(error, DgbenchError):
                raise
            if not smaller:
                self._fail(runs, failure(error))
        # out here nothing refers to the error, and so to what was read of the group
        self._clear_if_short()
        self._continue_parts(smaller, hashes)
        for part, snapshot in resumed:
            self._train_part(part, snapshot, hashes)

    def _continue_parts(self, parts: Sequence[RunGroup], hashes: set[str]) -> None:
        """Train what is open of parts of a group that was too large."""
        for part in parts:
            members = self._open_runs(part, hashes)
            if members:
                self._continue(part, members)

    def _is_too_large(self, group: RunGroup) -> bool:
        """Return whether as many runs of this kind had too little memory before."""
        n = len(group.runs)
        return n > 1 and n >= self.too_many.get(_kind(group), n + 1)

    def _clear_if_short(self) -> None:
        """Free what trained groups left behind, once memory has run out."""
        if self.short_of_memory:
            gc.collect()
            self.trained_since_clearing = False

    def _train_part(self, group: RunGroup, snapshot: Snapshot | None, hashes: set[str]) -> None:
        """Train a group; when memory runs out, try what :meth:`_smaller` proposes."""
        runs = [run for run in group.runs if run.hash in hashes]
        title = self._announce(group, snapshot)
        parts: tuple[RunGroup, ...] = ()
        try:
            self._train_to_end(group, snapshot, runs)
            self.trained_since_clearing = True
        except KeyboardInterrupt as stop:
            self._note_interruption(title, runs, stop)
            raise
        except Exception as error:  # whatever broke this group, others are trained
            if is_out_of_memory(error):
                parts = self._smaller(group, title)
            elif isinstance(error, ConfigError):  # it concerns all that is left
                for run in runs:
                    mark_failed(run.folder, str(error))
                raise
            if not parts:
                self._fail(self._open_runs(group, hashes), failure(error))
        # out here nothing refers to the error, and so to the memory of the group, any longer
        snapshot = None
        self._clear_if_short()
        self._continue_parts(parts, hashes)

    def _announce(self, group: RunGroup, snapshot: Snapshot | None) -> str:
        """Show that the training of a group begins, and from where; return what it is called."""
        title = self._title(group)
        self.progress.begin(title, len(group.runs))
        step = snapshot.step if snapshot else 0
        if step:
            steps = group.runs[0].study.settings.steps
            self.progress.note(f"{title}: resumes from step {step} of {steps}")
        log.debug("%s, from step %d on", title, step)
        return title

    def _title(self, group: RunGroup) -> str:
        n = len(group.runs)
        return self._named(group.runs[0]) if n == 1 else f"{n} runs together"

    def _train_to_end(
        self, group: RunGroup, snapshot: Snapshot | None, runs: Sequence[ReadyRun]
    ) -> None:
        """Train a group from a snapshot, and note how these runs ended."""
        with request_first():
            with self.threads.used(group):
                diverged = self._fit(group, snapshot, runs)
            final = Snapshot.load(group_file(group)) or snapshot
            for run in runs:
                self._end(run, group, diverged.get(run.hash), final)

    def _note_interruption(
        self, title: str, runs: Sequence[ReadyRun], stop: KeyboardInterrupt
    ) -> None:
        step = last_step(runs[0])
        for run in runs:
            mark_interrupted(run.folder, stopped_by(stop, step))
        self.progress.note(f"{title}: interrupted; the same command resumes it from step {step}")

    def _smaller(self, group: RunGroup, title: str) -> tuple[RunGroup, ...]:
        """Choose what to train, from its last checkpoint, after memory ran out with a group.

        This is the whole group again if an earlier group of this process left memory behind: a
        trainer and its callbacks refer to each other, so their memory is free only once Python
        collects such cycles. Otherwise it is the two halves, which later groups of as many runs
        begin with, and nothing for a single run.
        """
        self.short_of_memory = True
        if self.trained_since_clearing:
            parts: tuple[RunGroup, ...] = (group,)
            remedy = "which is tried again now that more is free"
        elif len(group.runs) > 1:
            self.too_many[_kind(group)] = len(group.runs)
            parts = group.halves()
            remedy = "continuing with half of them"
        else:
            return ()
        log.debug(traceback.format_exc())
        log.warning("out of memory with %s, %s", title, remedy)
        return parts

    def _fit(
        self, group: RunGroup, snapshot: Snapshot | None, runs: Sequence[ReadyRun]
    ) -> Mapping[str, tuple[int, float]]:
        """Train a group from a snapshot.

        Returns:
            Step and value of the first loss that was not finite, by hash of the runs that diverged.
        """
        finished = {run.hash for run in group.runs} - {run.hash for run in runs}
        resumed_from = snapshot.step if snapshot else 0
        for run in runs:
            write_config(run)
            write_identity(run, resumed_from=resumed_from, together=len(group.runs))
            write_status(run.folder, RUNNING)
        metrics: list[RunMetrics | None] = []
        if self.logger is not None:
            live = self._live(group, runs)
            self.shown_live = live is not None and len(group.runs) <= self.logger.most_live
            for run in group.runs:
                is_open = run.hash not in finished
                metrics.append(RunMetrics(run.info, live, self.guard) if is_open else None)
        devices = runs[0].study.settings.devices
        complete = False
        try:
            with processes(devices, runs[0].folder, snapshot is not None) as process:
                fit = Fit(
                    group,
                    snapshot,
                    finished,
                    callbacks=[self.progress],
                    metrics=metrics,
                    guard=self.guard,
                    process=process,
                    until=self.until,
                )
                diverged = fit.train()
            complete = True
            return diverged
        finally:
            for run_metrics in metrics:
                if run_metrics:
                    run_metrics.finish(failed=not complete)

    def _live(self, group: RunGroup, runs: Sequence[ReadyRun]) -> MetricsLogger | None:
        """Choose what shows the runs of a group while they train.

        It is None if they are shown at their ends.
        """
        logger = self.logger
        if logger is None:
            return None
        alone = len(group.runs) == 1
        fits = len(group.runs) <= logger.most_live
        if alone or (fits and not logger.follows_studies):
            return logger
        if logger.most_live == 1:  # it knows nothing of studies either
            return None
        studies = {run.hash: run.study.logged_as() for run in runs}
        if not fits:
            self.progress.note(
                f"{len(group.runs)} runs train together, {logger.most_live} are shown live by "
                f"{logger.label}: it gets means over the runs of each study now, and every run "
                "when all are done"
            )
        return StudyMeans(logger, studies, with_runs=fits)

    def _end(
        self,
        run: ReadyRun,
        group: RunGroup,
        diverged: tuple[int, float] | None,
        final: Snapshot | None,
    ) -> None:
        """Note how a run ended, or that it pauses."""
        problem = None if diverged is None else str(DivergedError(*diverged))
        if problem is None:
            path = changed_since(final, run)
            if path:
                problem = (
                    f"{path} was changed by another while it trained; the same command trains it "
                    "again"
                )
        if problem is None and self._pauses(run, final):
            reason = f"at step {self.until}, between two rungs of its search"
            write_status(run.folder, INTERRUPTED, reason)
            return
        try:
            if problem is None and group.stacked and final is not None:
                finish_run(run, final)
        except OSError as error:
            problem = failure(error)
        last = final.step if final and run.evaluations.may_end_early else None
        ended = finish(run.folder, problem, last)
        failed = ended.word == FAILED
        self.outcomes.complete[run.hash] = not failed
        log.debug("%s done at step %d: %s", run.title, final.step if final else 0, ended.word)
        self.progress.end(self._named(run), f"FAILED: {ended.reason}" if failed else "done")
        if self.logger and len(group.runs) > 1:
            self._show(self.logger, run, only_new=self.shown_live)

    def _pauses(self, run: ReadyRun, final: Snapshot | None) -> bool:
        """Return whether a run has come to ``until`` and not to its end."""
        if self.until is None or final is None:
            return False
        return self.until <= final.step < run.study.settings.steps

    def _fail(self, runs: Sequence[ReadyRun], reason: str) -> None:
        for run in runs:
            mark_failed(run.folder, reason)
            is_repeated = (run.study, reason) in self.reasons
            self.reasons.append((run.study, reason))
            note = "FAILED, like the one before" if is_repeated else f"FAILED: {reason}"
            self.progress.end(self._named(run), note)
            self.outcomes.complete[run.hash] = False


def _kind(group: RunGroup) -> tuple[Any, ...]:
    """Return a key that is equal for groups of which each run takes as much memory."""
    run = group.runs[0]
    networks = digest([run.spec.backbone, run.spec.network, run.spec.tuning])
    batch = run.study.batch_size
    return run.spec.algorithm, networks, batch, len(run.fold.training), group.stacked


def failure(error: Exception) -> str:
    """Describe an error for a status, with the place in a user's own code.

    The traceback goes to the open logs.
    """
    log.debug(traceback.format_exc())
    if isinstance(error, DgbenchError) or is_out_of_memory(error):
        return reason_of(error)
    place = raised_at(error)
    return f"{reason_of(error)} ({place})" if place else reason_of(error)


def _lacking(runs: Sequence[ReadyRun]) -> str:
    """Format a line on finished runs that never wrote the predictions that are asked for.

    It is "" without any.
    """
    lack = [run for run in runs if _lacks_predictions(run)]
    if not lack:
        return ""
    label = f"{lack[0].folder} was"
    if len(lack) > 1:
        label = f"{len(lack)} runs, e.g. {lack[0].folder}, were"
    return (
        f"{label} done before trainer.predictions={lack[0].study.settings.predictions} was set "
        "and not trained again; delete the folder to train it anew, or write them with: "
        f"{predicting_command(lack[0])}"
    )


def _lacks_predictions(run: ReadyRun) -> bool:
    which = run.study.settings.predictions
    if which == "none":
        return False
    try:
        about = about_predictions(run.folder / PREDICTION_FILE)
    except RecordError:
        return True
    return about.get("evaluation") != which
