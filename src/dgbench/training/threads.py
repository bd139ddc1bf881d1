"""How many CPU threads a group trains with: all, or one where that was faster in a few steps.

Threads meet after every operation. With tiny networks, or on a busy machine, they wait longer than
they compute. Another number of threads rounds otherwise, so runs keep the number that they began
with.
"""

from __future__ import annotations

import logging
import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng

from dgbench.errors import DgbenchError
from dgbench.records.spec import digest
from dgbench.training.fit import group_data, group_module
from dgbench.training.groups import RunGroup, on_cuda
from dgbench.training.run_folder import first_threads

EXPLICIT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
CLOCKED_SECONDS = 0.3  # clocked in all, of each kind of group
CLOCKED_STEPS = 4  # clocked at a time; some algorithms take their updates in turns
SLOW_STEP = 0.5  # seconds with one thread; longer ones have enough to compute for every thread
LEAST_GAIN = 1.1  # times as fast that one thread must be
CLEAR_GAIN = 2.0  # times as fast with which nothing more is clocked

log = logging.getLogger("dgbench")


class Threads:
    """Chooses for one group after the other; groups of one kind get the same number.

    Args:
        free: whether the number may be chosen; False leaves torch's, which a Python caller may have
            set.
    """

    def __init__(self, free: bool) -> None:
        self.free = free and not any(os.environ.get(name) for name in EXPLICIT)
        self._choices: dict[str, tuple[int, str]] = {}

    @contextmanager
    def used(self, group: RunGroup) -> Iterator[None]:
        """Let torch compute with the number of threads chosen for a group.

        Its number is restored at the end.
        """
        everything = torch.get_num_threads()
        chosen, reason = self._chosen(group, everything)
        torch.set_num_threads(chosen)
        log.debug("threads: %d of %d (%s)", chosen, everything, reason)
        try:
            yield
        finally:
            torch.set_num_threads(everything)

    def _chosen(self, group: RunGroup, all_threads: int) -> tuple[int, str]:
        """Choose the number of threads for a group, and give the reason."""
        study = group.runs[0].study
        initial = first_threads(group.runs[0])
        if not self.free:
            if initial in (None, all_threads):
                return all_threads, "as set"
            return all_threads, f"as set; it began with {initial} and may round otherwise"
        if initial is not None:
            return min(initial, all_threads), f"it began with {initial}"
        on_gpu = study.settings.device == "mps" or on_cuda(study)
        if all_threads == 1 or study.settings.devices > 1 or on_gpu:
            return all_threads, "nothing to choose"
        kind = _kind(group)
        if kind not in self._choices:
            self._choices[kind] = _faster(group, all_threads)
        return self._choices[kind]


def _kind(group: RunGroup) -> str:
    """Compute a digest that is equal for groups that compute steps of the same size."""
    first = group.runs[0]
    spec = first.spec
    study = first.study
    n_envs = study.settings.minibatches(len(first.fold.training))
    images = [study.info.name, *study.environments.store.image, study.batch_size, n_envs]
    method = [spec.objective, spec.network, spec.tuning, spec.sharpness, spec.training]
    return digest([*method, images, len(group.runs), group.stacked])


def _faster(group: RunGroup, all_threads: int) -> tuple[int, str]:
    with isolate_rng():
        try:
            seconds = step_seconds(group, all_threads)
        except DgbenchError:  # training meets it, too, and says so
            return all_threads, "not clocked"
    if seconds is None:
        return all_threads, f"not clocked, a step takes one thread more than {SLOW_STEP} s"
    seconds_one, seconds_all = seconds
    chosen = 1 if seconds_one * LEAST_GAIN < seconds_all else all_threads
    ms_one = 1000 * seconds_one
    ms_all = 1000 * seconds_all
    return chosen, f"a step took {ms_one:.2f} ms with 1, {ms_all:.2f} ms with {all_threads}"


def step_seconds(group: RunGroup, all_threads: int) -> tuple[float, float] | None:
    """Measure the seconds of a step with one thread and with all, on a copy of the group.

    The two take turns, since a machine is busy at one moment and not at the next. Whether a step is
    slow is judged with one thread, which other processes on the machine delay least; then None is
    returned. Leaves torch's number of threads changed.

    Raises:
        DgbenchError: a step cannot be computed.
    """
    module: Any = group_module(group)
    module.train()
    optimizers = dict(zip(module.trained_groups(), module.configure_optimizers(), strict=True))
    batches = group_data(group).batches(0, 1) * CLOCKED_STEPS

    def clocked(threads: int, n: int = CLOCKED_STEPS, limit: float = math.inf) -> float:
        """Measure the average seconds of ``n`` steps.

        Fewer are taken once they have taken more than ``limit``.
        """
        torch.set_num_threads(threads)
        seconds = 0.0
        done = 0
        start = time.perf_counter()
        while done < n and seconds <= limit:
            module.train_steps(batches[done : done + 1], optimizers)
            seconds = time.perf_counter() - start
            done += 1
        return seconds / done

    if clocked(1, 1) > SLOW_STEP:  # it includes making Adam's moments
        return None
    clocked(all_threads, 1)  # a pool of threads starts
    rounds: list[tuple[float, float]] = []
    is_clear = False
    while not is_clear and (
        len(rounds) < 2 or CLOCKED_STEPS * sum(map(sum, rounds)) < CLOCKED_SECONDS
    ):
        seconds_one = clocked(1)
        limit = max(CLOCKED_SECONDS, CLEAR_GAIN * CLOCKED_STEPS * seconds_one)
        seconds_all = clocked(all_threads, limit=limit)
        rounds.append((seconds_one, seconds_all))
        is_clear = CLOCKED_STEPS * seconds_all > limit
    with_one, with_all = zip(*rounds, strict=True)
    return statistics.mean(with_one), statistics.mean(with_all)
