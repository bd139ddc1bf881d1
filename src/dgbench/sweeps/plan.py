"""What a command trains, what of it is done, and what the rest costs: before it starts, or with ``plan=true`` instead.

A table of 100,000 jobs takes seconds: they are not composed one by one, and no image is decoded.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dgbench.errors import ConfigError
from dgbench.plan.command import Command
from dgbench.plan.studies import PlannedStudy, Planner
from dgbench.records.status import duration, roughly
from dgbench.sweeps.costs import KindLeft, Speeds, Workload, images_of_a_step
from dgbench.sweeps.sizes import JobSize, packed, sized_left

STATES = ("done", "running", "failed", "stopped", "missing")


def print_plan(
    jobs: Sequence[Sequence[str]], planner: Planner, clock: bool, starts: bool, size: JobSize, folder: Path
) -> None:
    """Jobs and models by algorithm: done, running, failed, stopped, missing; time and disk for the rest.

    Args:
        jobs: overrides of each.
        planner: plans their studies.
        clock: whether to clock what was never trained in these folders; loads torch.
        starts: whether the jobs are about to start.
        size: of the launcher's jobs.
        folder: where studies go and speeds are kept.

    Raises:
        DataError: a dataset whose environments must be known is not there.
    """
    workload = Workload(planner.fetching_nothing())
    left = [workload.add(words) for words in jobs]
    speeds = speeds_for(size, folder, clock=clock, anew=clock and not starts)
    workload.clock(speeds)
    _print_table(workload)
    again = sum(kind.again for kind in workload.kinds.values())
    if again:
        print(f"Once the searches have chosen, up to {again} models more.")
    unfinished = [i for i, own in enumerate(left) if own.runs]
    parts = sized_left([jobs[i] for i in unfinished], [left[i] for i in unfinished], workload, size)
    packs = [parts[pack.start : pack.stop] for pack in packed(parts, size)]
    lengths = [_sum(job.seconds for job in own) for own in packs]
    print(_jobs(len(jobs), lengths, size) + _explained(clock, starts))
    notes = [*_images(workload.kinds.values()), *absent(workload.kinds.values()), *speeds.notes()]
    if clock and not size.can_clock:
        notes.append(
            "not clocked: the jobs train on GPUs and this machine has none; the same command on a machine with a GPU, "
            "in this folder, clocks them"
        )
    for note in notes:
        print(note)
    sys.stdout.flush()


def print_command_plan(command: Command, clock: bool, starts: bool) -> None:
    """The plan of one command without ``-m``.

    Args:
        command: as Hydra runs it.
        clock: whether to clock what was never trained in these folders; loads torch, and the images.
        starts: whether it is about to start.
    """
    size = JobSize.alone(str(command.config.trainer.device))
    print_plan([list(command.words)], command.planner(), clock, starts, size, command.parent)


def speeds_for(size: JobSize, folder: Path, *, clock: bool, anew: bool) -> Speeds:
    """Speeds that were kept, and where they may be clocked those of this machine.

    Args:
        size: of the jobs.
        folder: where speeds are kept.
        clock: whether to clock what was not kept; loads torch.
        anew: whether to clock what was kept.
    """
    return Speeds(_minibatches_per_second if clock and size.can_clock else None, folder, size.device, anew)


def _minibatches_per_second(studies: Sequence[PlannedStudy]) -> float:
    from dgbench.sweeps.probe import minibatches_per_second

    return minibatches_per_second(studies)


def asks_to_clock(how: object) -> bool:
    """Whether ``plan=`` asks to clock what was never trained.

    Raises:
        ConfigError: ``plan`` is neither ``true`` nor ``probe``.
    """
    if how is not True and how != "probe":
        raise ConfigError(f"plan={how} is unknown; write plan=true, or plan=probe to clock what never ran")
    return how == "probe"


def absent(kinds: Iterable[KindLeft]) -> Iterator[str]:
    """What must be fetched before jobs can train, and the command that fetches it; once for each."""
    said: set[str] = set()
    for study in (kind.left[0] for kind in kinds if kind.left):
        lines = []
        if not study.info.present:
            lines.append(_fetch_images(study))
        weights = study.weights.to_fetch()
        if weights is not None:
            name = f"init={study.config['init']['name']} for {study.config['backbone']['arch']}"
            lines.append(f"not here yet: weights of {name}; where the jobs have no network, first: {weights}")
        yield from (line for line in lines if line not in said)
        said.update(lines)


def _fetch_images(study: PlannedStudy) -> str:
    config, name = study.config, study.info.name
    where = config["dataset"].get("root") or config["dataset"].get("data_dir")
    absence = f"not here yet: images of {name}, in {where}"
    if not config["dataset"].get("fetch"):
        return f"{absence}; put them there, or see docs/how_to/images.md"
    usual = os.environ.get("DGBENCH_DATA_DIR") or "data"
    data = str(config["paths"]["data_dir"])
    elsewhere = [] if data == usual else ["--to", data]
    return f"{absence}; first: {shlex.join(['python', '-m', 'dgbench.data.fetch', name, *elsewhere])}"


def _images(kinds: Iterable[KindLeft]) -> list[str]:
    """Images of a step, once for every dataset: that of the first algorithm with models to train."""
    first: dict[str, PlannedStudy] = {}
    for kind in kinds:
        if kind.left:
            first.setdefault(kind.left[0].info.name, kind.left[0])
    return [images_of_a_step(study) for study in first.values()]


def _print_table(workload: Workload) -> None:
    by_name: dict[str, list[KindLeft]] = defaultdict(list)
    for kind in workload.kinds.values():
        by_name[kind.algorithm].append(kind)
    width = max(12, *(len(name) + 2 for name in by_name))
    titles = "".join(f"{title:>9}" for title in ("studies", "models", *STATES))
    print(f"{'algorithm':<{width}}{titles}{'time':>14}{'disk':>10}", flush=True)
    for name, own in by_name.items():
        _print_line(name, own, width)
    _print_line("all", list(workload.kinds.values()), width)


def _print_line(name: str, kinds: Sequence[KindLeft], width: int) -> None:
    counted = sum((kind.models for kind in kinds), Counter[str]())
    counts = [sum(kind.studies for kind in kinds), counted.total(), *(counted[state] for state in STATES)]
    time, disk = _sum(kind.seconds for kind in kinds), _sum(kind.bytes for kind in kinds)
    numbers = "".join(f"{count:>9}" for count in counts)
    costs = f"{'?' if time is None else duration(time):>14}{'?' if disk is None else _size(disk):>10}"
    print(f"{name:<{width}}{numbers}{costs}", flush=True)


def _jobs(n_typed: int, lengths: Sequence[float | None], size: JobSize) -> str:
    """``48 jobs of the queue (of 6), 1 h 40 min to 1 h 58 min each, 82 GPU hours in all.``"""
    typed = "1 job" if n_typed == 1 else f"{n_typed} jobs"
    known = [seconds for seconds in lengths if seconds is not None]
    text = typed
    if size.queue:
        of_queue = "1 job of the queue" if len(lengths) == 1 else f"{len(lengths)} jobs of the queue"
        text = f"{of_queue} (of {typed})"
    if not known or len(known) < len(lengths):
        unsized = "; how long they take is not known yet" if size.by_time else ""
        return f"{text}{unsized}."
    shortest, longest = roughly(min(known)), roughly(max(known))
    each = longest if shortest == longest else f"{shortest} to {longest}"
    unit, number = ("GPU", size.gpus) if size.gpus else ("core", size.cores)
    hours = _hours(sum(known) / 3600 * number)
    return f"{text}, {each}{' each' if len(known) > 1 else ''}, {hours} {unit} hours in all."


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 0.1 else "less than 0.1"


def _explained(clock: bool, starts: bool) -> str:
    never_ran = (
        " or, where none ran yet, of a second\nof their steps, evaluations left out."
        if clock
        else "; where it says ?, none ran yet,\nand plan=probe clocks a second of their steps, evaluations left out."
    )
    end = "" if starts else " Nothing was started."
    return f"\nTime: in one process, at the speed of the runs in these folders{never_ran}{end}"


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _size(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
