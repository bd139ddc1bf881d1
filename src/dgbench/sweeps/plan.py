"""What a command trains, what of it is done, and what the rest costs: before it starts, or instead
(``plan=true``).
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dgbench.configuration import CONF
from dgbench.data.description import DatasetInfo, with_base
from dgbench.data.fetch.fetching import command_into, fetching_command
from dgbench.data.understanding import lines_of_datasets
from dgbench.errors import ConfigError, reason_of
from dgbench.plan.building import (
    InitialWeights,
    build,
    conf_of,
    has_small_network,
    is_random,
    is_small,
    runs_anywhere,
)
from dgbench.plan.cost import Cost
from dgbench.plan.hyperparameters import without_effect
from dgbench.plan.search import Halving
from dgbench.plan.settings import Card, TrainerSettings
from dgbench.plan.studies import Command, PlannedStudy, Planner
from dgbench.records.spec import digest
from dgbench.records.status import duration, roughly
from dgbench.sweeps.costs import cost_of, facts_of, shipped_cost
from dgbench.sweeps.remembered import Remembered
from dgbench.sweeps.sizes import JobSize, KindLeft, Workload, packed

LAUNCHES = 1e-3  # seconds: least time of a step, whose kernels have to be launched
STATES = ("done", "running", "failed", "stopped", "missing")


def print_plan(
    jobs: Sequence[Sequence[str]],
    planner: Planner,
    starts: bool,
    size: JobSize,
) -> None:
    """Print jobs and models by algorithm: done, running, failed, stopped, missing.

    Beside them stand time and disk for the rest.

    Args:
        jobs: overrides of each.
        planner: plans their studies.
        starts: whether the jobs are about to start.
        size: of the launcher's jobs.

    Raises:
        ConfigError, DataError, WeightsError: a study that training would refuse before its first
            step, or a dataset whose environments must be known and is not there.
    """
    judged = Judged(remembers=not starts)
    workload = Workload(replace(planner, fetch_weights=False), judged.add)
    left_by_job = [workload.add(words) for words in jobs]
    kinds = workload.kinds.values()
    uncounted = [] if starts else list(_count(kinds))
    assumed = _assumed_card(kinds)
    if assumed:
        print(assumed)
    for line in lines_of_datasets(kind.left[0].info for kind in kinds if kind.left):
        print(line)
    _print_table(workload)
    n_repeats = sum(kind.again for kind in kinds)
    if n_repeats:
        print(f"Once the searches have chosen, up to {n_repeats} more models are trained.")
    to_train = [job_left for job_left in left_by_job if job_left.runs]
    seconds = [workload.seconds(job_left) for job_left in to_train]
    packs = packed([job_left.runs for job_left in to_train], size)
    lengths = [_sum(seconds[pack.start : pack.stop]) for pack in packs]
    print(_jobs(len(jobs), lengths, size) + _explained(starts, _unclocked(kinds)))
    counted = [kind for kind in kinds if kind.cost]
    if counted:
        print(_counted_columns(counted))
    absent: dict[str, None] = {}
    for study in workload.needing.values():
        absent |= dict.fromkeys(absent_files(study.config, study.info, study.weights))
    notes = [
        *_images(kinds),
        *_searched(kinds),
        *absent,
        *uncounted,
        *_without_effect(kinds),
    ]
    for note in (*notes, *judged.cautions):
        print(note)
    sys.stdout.flush()


def job_check(
    planner: Planner, *, on_this_machine: bool
) -> Callable[[Sequence[str]], Counter[Path]]:
    """Make the function that refuses jobs of a sweep, by their overrides, before anything is
    written.

    It raises ConfigError for a value that cannot work, DataError and WeightsError for files that
    are missing or broken, and else returns how many models the job has to train, by the folder of
    their study.

    Args:
        planner: plans their studies.
        on_this_machine: they are to run on this machine, not in a queue: their device must be here.
    """
    judged = Judged()
    workload = Workload(replace(planner, fetch_weights=False), judged.add)

    def check(words: Sequence[str]) -> Counter[Path]:
        job_left = workload.add(words)
        if on_this_machine and judged.cautions:
            raise ConfigError(next(iter(judged.cautions)))
        return job_left.runs_of

    return check


def print_command_plan(command: Command, starts: bool) -> None:
    """Print the plan of one command without ``-m``, see :func:`print_plan`."""
    size = JobSize.alone(str(command.config.trainer.device))
    print_plan([list(command.words)], command.planner(), starts, size)


#: group -> the file of it that needs no judgment, beside a small network
PLAIN = {
    "head": "random",
    "tuning": "ft",
    "averaging": "none",
    "sharpness": "none",
    "callbacks": "none",
}
OURS = ("logger", "selection")  # groups that need none if they name a class of dgbench


class Judged:
    """Refuses what training would refuse before an image is decoded.

    If that takes torch, torch is loaded.

    Args:
        remembers: whether what passed once in this version is believed. A plan does; whatever is
            about to start jobs looks anew.

    Attributes:
        cautions: what this machine cannot train, and the one that the jobs will run on may.
    """

    def __init__(self, remembers: bool = False) -> None:
        self.remembers = remembers
        self.cautions: dict[str, None] = {}
        self._done: set[str] = set()

    def add(self, study: PlannedStudy) -> None:
        """Judge a study, unless an equal one was judged before.

        Raises:
            ConfigError, WeightsError: it cannot work.
        """
        config = study.config
        image = study.info.image
        if _is_plain(study) and is_small(config, image):
            return
        groups = [
            config[group] for group in ("backbone", "init", "trainer", "execution", *PLAIN, *OURS)
        ]
        read = [
            study.spec.hparams[key] for key in (config["backbone"].get("hparams") or {}).values()
        ]
        key = digest([groups, image, study.spec.objective, read, config["seed_moves"]])
        if key in self._done:
            return
        self._done.add(key)
        passed = Remembered("passed")
        asked = [key, *facts_of(study)]
        keeps = study.weights.to_fetch() is None and _names_ours(config)
        if self.remembers and keeps and passed.read(study, asked):
            return
        if self.remembers and _is_plain(study) and _was_judged_before(study):
            if keeps:
                passed.keep(study, asked, {"passed": True})
            return

        from dgbench.callbacks.loggers import build_logger
        from dgbench.training.blueprint import Blueprint
        from dgbench.training.devices import why_not_here

        build_logger(config)
        build(config, "selection")
        reason = why_not_here(Blueprint(study).settings)
        if reason:
            self.cautions[reason] = None
        elif keeps:
            passed.keep(study, asked, {"passed": True})


def _is_plain(study: PlannedStudy) -> bool:
    """Return whether all that a study builds beside its network is dgbench's own and plain."""
    config = study.config
    trainer = config["trainer"]
    added = tuple(f"+{group}." for group in OURS)
    return (
        all(config[group] == conf_of(group, name) for group, name in PLAIN.items())
        and _names_ours(config)
        and not any(word.startswith(added) for word in study.words)
        and (CONF / "algorithm" / f"{study.spec.objective}.yaml").is_file()
        and trainer["accumulate"] == trainer["devices"] == 1
        and config["execution"]["mode"] != "stacked"
        and config["seed_moves"] != "inputs"
    )


def _was_judged_before(study: PlannedStudy) -> bool:
    """Return whether the study's networks were built when the costs of the package were counted.

    Weights that are on disk may still not fit them; random ones do, and absent ones are not looked
    at.
    """
    config = study.config
    has_no_file = is_random(config) or study.weights.to_fetch() is not None
    return has_no_file and runs_anywhere(config) and shipped_cost(study) is not None


def _names_ours(config: Mapping[str, Any]) -> bool:
    """Return whether the classes of the groups :data:`OURS` are dgbench's."""
    targets = [str(config[group].get("_target_") or "dgbench.") for group in OURS]
    return all(target.startswith("dgbench.") for target in targets)


def absent_files(
    config: Mapping[str, Any], info: DatasetInfo, weights: InitialWeights
) -> Iterator[str]:
    """List what must be fetched before a job can work, and the command that fetches it."""
    name = info.name
    dataset = config["dataset"]
    data = dataset.get("data_dir") or config["paths"]["data_dir"]
    if dataset.get("base") == "auto" and info.base == "digits":
        fetch = fetching_command(name, Path(data))
        yield (
            "not here yet: MNIST; training fetches it, or takes the digits without a network; "
            f"{fetch}"
        )
    if not info.present:
        root = dataset.get("root")
        fetch_images = (
            command_into(name, Path(root)) if root else fetching_command(name, Path(data))
        )
        remedy = "put them there, or see docs/how_to/images.md"
        if dataset.get("fetch") and fetch_images:
            remedy = f"first: {fetch_images}"
        yield f"not here yet: images of {name}, in {root or data}; {remedy}"
    command = weights.to_fetch()
    if command is not None:
        label = f"init={config['init']['name']} for {config['backbone']['arch']}"
        yield f"not here yet: weights of {label}; where the jobs have no network, first: {command}"


def _count(kinds: Iterable[KindLeft]) -> Iterator[str]:
    """Count the cost of models of large networks, alike ones once.

    Yields a note on each that cannot be counted.
    """
    costs: dict[str, Cost] = {}
    for kind in kinds:
        if not kind.left or has_small_network(kind.left[0].config, kind.left[0].info.image):
            continue
        study = kind.typical_first[0]
        try:
            cost, largest = (cost_of(counted, costs) for counted in (study, kind.largest or study))
        except (
            Exception
        ) as error:  # of an algorithm that reads numbers: a plan without costs is still a plan
            yield f"not counted, {kind.algorithm} with {study.spec.backbone}: {reason_of(error)}"
            continue
        kind.cost = replace(cost, memory=largest.memory)
        rate = _card(study).rate(TrainerSettings(**study.config["trainer"]))
        if kind.flops is not None and study.config["trainer"]["device"] != "cpu":
            # a run of 0 steps is only evaluated
            launches = LAUNCHES * rate / kind.cost.step if kind.cost.step else 1.0
            kind.guess = kind.flops / rate * max(1.0, launches)


def _card(study: PlannedStudy) -> Card:
    return Card(**study.config["card"])


def _assumed_card(kinds: Iterable[KindLeft]) -> str:
    """Name the GPU and its speed for which hours were counted instead of clocked.

    Returns an empty text if all hours were clocked.
    """
    guessed = [kind for kind in kinds if kind.guess and kind.seconds is None]
    if not guessed:
        return ""
    study = guessed[0].typical_first[0]
    card = _card(study)
    trainer = TrainerSettings(**study.config["trainer"])
    peak = card.rate(trainer) / card.utilization / 1e12
    hours = sum(kind.guess or 0.0 for kind in guessed) / 3600
    return (
        f"~: counted, not clocked: {_hours(hours)} hours of {card.name} at "
        f"{100 * card.utilization:g} % of the {peak:g} TFLOP/s that it has for "
        f"trainer.precision={trainer.precision} (card.utilization, card.tflops)"
    )


def _unclocked(kinds: Iterable[KindLeft]) -> str:
    """Return the marks that kinds never clocked have in the table: ~ for a guess, ? for no time."""
    marks = set()
    for kind in kinds:
        if kind.seconds is None:
            marks.add("?" if kind.guess is None else "~")
    return " or ".join(sorted(marks, reverse=True))


def _counted_columns(counted: Sequence[KindLeft]) -> str:
    """Explain the columns of counted costs."""
    study = counted[0].typical_first[0]
    text = (
        "PFLOP: 10^15 operations, evaluations included; memory: of a step of one model in single "
        "precision"
    )
    images, most = (
        drawn.spec.hparams["batch_size"] for drawn in (study, counted[0].largest or study)
    )
    if most != images:
        text += (
            f";\nPFLOP of the draw nearest the mean ({images} images), memory of the one with the "
            f"most ({most})"
        )
    return text


def _images(kinds: Iterable[KindLeft]) -> Iterator[str]:
    """Format ``pacs: 32 images of each of 3 environments per model and step``, for each dataset's
    first algorithm.
    """
    first: dict[str, list[PlannedStudy]] = {}
    for kind in kinds:
        if kind.left:
            first.setdefault(kind.left[0].info.name, kind.left)
    for name, studies in first.items():
        environments = _span(len(fold.training) for fold in studies[0].folds)
        images = f"{_span(study.spec.hparams['batch_size'] for study in studies)} images"
        base = studies[0].info.base
        drawn = studies[0].config["trainer"].get("environments_per_step")
        of_each = f"of each of {f'{drawn} out of ' if drawn else ''}{environments} environments"
        yield f"{with_base(name, base)}: {images} {of_each} per model and step"


def _span(numbers: Iterable[int]) -> str:
    """Format ``64`` where all numbers are equal, else ``8 to 512``."""
    in_order = sorted(numbers)
    return f"{in_order[0]}" if in_order[0] == in_order[-1] else f"{in_order[0]} to {in_order[-1]}"


def _searched(kinds: Iterable[KindLeft]) -> Iterator[str]:
    """Explain why draws multiply with trials and seeds, and what stops early, for the first
    algorithm with a search.
    """
    searching = [kind for kind in kinds if kind.left and kind.left[0].search]
    if not searching:
        return
    kind = searching[0]
    search = kind.left[0].search
    assert search is not None
    n_studies = len(search.scheme.studies(search.base))
    trials = len(search.scheme.independent()["trials"])
    seeds = len(kind.seeds)
    factors = [f"{n_studies // trials} draws", f"{trials} trials", f"{seeds} seeds"]
    factors.append(f"{kind.studies // (n_studies * seeds)} settings")
    shown_factors = [factor for factor in factors if not factor.startswith("1 ")]
    if isinstance(search.scheme, Halving):
        trainer = kind.left[0].config["trainer"]
        share = search.scheme.share(trainer["steps"], trainer["eval_every"])
        yield (
            "Counted to their end, also draws that hparams=halving stops: it trains "
            f"{share:.0%} of the steps"
        )
    if max(trials, seeds) > 1:
        yield (
            "A search trains all its draws for each trial and each seed, since each of "
            f"these chooses its own: {kind.algorithm} {' x '.join(shown_factors)} = "
            f"{kind.studies} studies"
        )


def _without_effect(kinds: Iterable[KindLeft]) -> Iterator[str]:
    """List phases and losses without effect, but for random draws, where this may happen."""
    cautions: dict[str, None] = {}
    for kind in kinds:
        for study in kind.left:
            if study.spec.draw:
                continue
            for caution in without_effect(study.config, study.spec.hparams):
                cautions[f"{kind.algorithm}: {caution}"] = None
    yield from cautions


def _print_table(workload: Workload) -> None:
    by_name: dict[str, list[KindLeft]] = defaultdict(list)
    for kind in workload.kinds.values():
        by_name[kind.algorithm].append(kind)
    width = max(12, *(len(name) + 2 for name in by_name))
    titles = "".join(f"{title:>9}" for title in ("studies", "models", *STATES))
    counts_costs = any(kind.cost for kind in workload.kinds.values())
    costs = f"{'time':>14}{'disk':>10}" + (f"{'memory':>10}{'PFLOP':>10}" if counts_costs else "")
    print(f"{'algorithm':<{width}}{titles}{costs}", flush=True)
    for name, kinds in (*by_name.items(), ("all", [*workload.kinds.values()])):
        counted = sum((kind.models for kind in kinds), Counter[str]())
        n_studies = sum(kind.studies for kind in kinds)
        counts = [n_studies, counted.total(), *(counted[state] for state in STATES)]
        numbers = "".join(f"{count:>9}" for count in counts)
        costs = _time_cell(kinds)
        disk = _sum(kind.bytes for kind in kinds)
        costs += f"{'?' if disk is None else _size(disk):>10}"
        if counts_costs:
            memory = max(kind.cost.memory for kind in kinds if kind.cost)
            flops = _sum(kind.flops for kind in kinds)
            costs += f"{_size(memory):>10}{'?' if flops is None else _peta(flops):>10}"
        print(f"{name:<{width}}{numbers}{costs}", flush=True)


def _time_cell(kinds: Sequence[KindLeft]) -> str:
    """Format the time of the rest, with ~ if some of it is that of an assumed card."""
    times = []
    mark = ""
    for kind in kinds:
        if kind.seconds is None:
            mark = "~"
        times.append(kind.guess if kind.seconds is None else kind.seconds)
    time = _sum(times)
    return f"{'?' if time is None else mark + duration(time):>14}"


def _jobs(n_typed: int, lengths: Sequence[float | None], size: JobSize) -> str:
    """Format ``48 jobs of the queue (of 6), 1 h 40 min to 1 h 58 min each, 82 GPU hours in all.``

    Args:
        n_typed: jobs of the command.
        lengths: seconds of each job that is left, or None if no run tells a speed.
        size: of the jobs.
    """
    typed = "1 job" if n_typed == 1 else f"{n_typed} jobs"
    times = [seconds for seconds in lengths if seconds is not None]
    text = typed
    if size.queue:
        queue_jobs = (
            "1 job of the queue" if len(lengths) == 1 else f"{len(lengths)} jobs of the queue"
        )
        text = f"{queue_jobs} (of {typed})"
    if not times or len(times) < len(lengths):
        return f"{text}."
    shortest = roughly(min(times))
    longest = roughly(max(times))
    length = longest if shortest == longest else f"{shortest} to {longest}"
    unit, number = ("GPU", size.gpus) if size.gpus else ("core", size.cores)
    hours = _hours(sum(times) / 3600 * number)
    return f"{text}, {length}{' each' if len(times) > 1 else ''}, {hours} {unit} hours in all."


def _hours(hours: float) -> str:
    if hours >= 10:
        return f"{hours:,.0f}"
    return f"{hours:.1f}" if hours >= 0.1 else "less than 0.1"


def _explained(starts: bool, unclocked: str) -> str:
    """Explain where times come from.

    Args:
        starts: whether training follows.
        unclocked: marks in the table of what never ran; empty if all did.
    """
    text = "\nTime: in one process, at the speed of the runs in these folders"
    text += f"; where it says {unclocked}, none ran yet." if unclocked else "."
    return text if starts else f"{text} Nothing was started."


def _sum(values: Iterable[float | None]) -> float | None:
    terms = list(values)
    return None if None in terms else sum(value for value in terms if value is not None)


def _peta(flops: float) -> str:
    return f"{flops / 1e15:,.0f}" if flops >= 1e16 else f"{flops / 1e15:.2g}"


def _size(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
