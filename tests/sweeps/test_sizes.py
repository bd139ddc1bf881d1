"""Jobs of a queue of the right size: what is split, what is packed, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dgbench.plan.studies import PlannedStudy, Planner
from dgbench.sweeps.plan import _explained, _jobs
from dgbench.sweeps.sizes import JobSize, Part, Speeds, Workload, packed, parts_of_jobs
from tests.studies import composed, composer

TINY = [
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.device=cpu",
    "trainer.steps=100",
    "trainer.eval_every=100",
]
# minibatches per second: a model of 3 environments takes 1 s, of all 4 a third longer
SPEED = 300.0
SEARCH = ["hparams=search", "hparams.scheme.draws=[0,4,7]", "hparams.scheme.trials=2"]
AGAIN = ["hparams=search_yu2024", "hparams.scheme.draws=3"]
GRID = ["++grid.seed=[0,1,2]", "++grid.algorithm=[erm,vrex]"]


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(composer(), tmp_path)


def parts_of(
    planner: Planner, words: Sequence[str], seconds: float, known: bool = True
) -> list[Part]:
    speeds = Speeds((lambda studies: SPEED) if known else None, Path(planner.parent or ""))
    (parts,) = parts_of_jobs([words], Workload(planner), JobSize(splits=seconds), speeds)
    return parts


def runs_of(planner: Planner, words: Sequence[str]) -> list[Path]:
    return [study.run_folder(fold) for study in planner.studies(words) for fold in study.folds]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "seconds", "parts", "last"),
    [
        (SEARCH, 1000, 1, ()),
        (SEARCH, 20, 2, ("hparams.scheme.trials=[1]",)),
        (SEARCH, 8, 6, ("hparams.scheme.trials=[1]", "hparams.scheme.draws=[7]")),
        (
            SEARCH,
            3,
            18,
            ("hparams.scheme.trials=[1]", "hparams.scheme.draws=[7]", "protocol.folds=[full]"),
        ),
        (
            SEARCH,
            0.01,
            30,
            ("hparams.scheme.trials=[1]", "hparams.scheme.draws=[7]", "protocol.folds=[full]"),
        ),
        (AGAIN, 10, 2, ("protocol.folds=[2,3,full]",)),
        (GRID, 12, 3, ("++grid.seed=[2]",)),
        (GRID, 6, 6, ("++grid.seed=[2]", "++grid.algorithm=[vrex]")),
        (["protocol.folds=[full]"], 0.1, 1, ()),
    ],
)
def test_parts_train_what_the_job_trains(
    words: list[str], seconds: float, parts: int, last: tuple[str, ...], planner: Planner
) -> None:
    """5 folds of 1 s, the full one 4/3 s; every run in one part, and a part longer than allowed is
    one model.
    """
    found = parts_of(planner, [*TINY, *words], seconds)
    assert all(list(part.words) == [*TINY, *words, *part.extra] for part in found)
    runs = [runs_of(planner, part.words) for part in found]
    assert sorted(run for own in runs for run in own) == sorted(runs_of(planner, [*TINY, *words]))
    assert [part.runs for part in found] == [len(own) for own in runs]
    assert all(
        part.seconds is not None and (part.seconds <= seconds or part.runs == 1) for part in found
    )
    assert (len(found), found[-1].extra) == (parts, last)


def test_what_is_refused_or_not_clocked_stays_one_job(planner: Planner) -> None:
    for words in ([*TINY, "seed=x"], [*TINY, *SEARCH]):
        (part,) = parts_of(planner, words, 1, known=False)
        assert (part.words, part.extra, part.seconds) == (words, (), None)


def test_speed_of_a_search_is_that_of_a_draw_with_a_mean_batch(planner: Planner) -> None:
    """Draws train with 8 to 512 images: the default's 64 would make a plan promise half of the
    time.
    """
    clocked: list[int] = []

    def clock(studies: Sequence[PlannedStudy]) -> float:
        clocked.append(studies[0].spec.hparams["batch_size"])
        return SPEED

    words = [*TINY, "hparams=search", "hparams.scheme.draws=20", "hparams.scheme.trials=1"]
    workload = Workload(planner)
    left = workload.add(words)
    workload.clock(Speeds(clock, Path(planner.parent or "")))
    sizes = [study.spec.hparams["batch_size"] for study in planner.studies(words)]
    mean = sum(sizes) / len(sizes)
    assert sizes[0] == 64 < 80 < mean
    assert clocked == [min(sizes, key=lambda size: abs(size - mean))]
    assert workload.seconds(left) == pytest.approx(20 * 16 * 100 / SPEED)


def test_time_of_models_of_several_speeds_is_the_mean_of_their_times(planner: Planner) -> None:
    workload = Workload(planner)
    left = workload.add([*TINY, "protocol.folds=[full]"])
    (kind,) = workload.kinds.values()
    kind.rates += [100.0, 400.0]
    assert kind.seconds == workload.seconds(left) == pytest.approx(400 * (1 / 100 + 1 / 400) / 2)


@pytest.mark.parametrize(
    ("size", "ends"),
    [
        (JobSize(), [1, 2, 3, 4, 5]),
        (JobSize(runs=4), [2, 3, 4, 5]),
        (JobSize(packs=60), [2, 3, 4, 5]),
        (JobSize(packs=1000), [3, 4, 5]),
        (JobSize(packs=1000, runs=2), [1, 2, 3, 4, 5]),
        (JobSize(splits=1), [1, 2, 3, 4, 5]),
    ],
)
def test_neighbors_are_packed(size: JobSize, ends: list[int]) -> None:
    """By models, by time, by both; a job of unknown time is packed with none by time."""
    seconds = (10, 20, 50, None, 5)
    runs = (2, 2, 5, 3, 2)
    jobs = [Part([], (), n, own) for n, own in zip(runs, seconds, strict=True)]
    packs = packed(jobs, size)
    assert [i for pack in packs for i in pack] == list(range(5))
    assert [pack.stop for pack in packs] == ends


@pytest.mark.parametrize(
    ("keys", "packs", "splits"),
    [
        ((), None, 7200),
        (("hydra.launcher.timeout_min=null",), None, None),
        (("sweep.hours_per_job=0.5",), 1800, 1800),
        (("sweep.runs_per_job=9",), None, None),
        (("sweep.runs_per_job=9", "sweep.hours_per_job=1"), 3600, 3600),
    ],
)
def test_size_that_is_asked_for(
    keys: tuple[str, ...], packs: float | None, splits: float | None
) -> None:
    size = JobSize.asked(composed("hydra/launcher=slurm", *keys, hydra=True))
    assert (size.packs, size.splits, size.queue) == (packs, splits, True)


@pytest.mark.parametrize(
    ("typed", "lengths", "size", "line"),
    [
        (6, [5900, 7100.0] * 5, JobSize(queue=True, gpus=1), 
         "10 jobs of the queue (of 6 jobs), 1 h 38 min to 1 h 58 min each, 18 GPU hours in all."),
        (1, [720.0], JobSize(queue=True, cores=4),
            "1 job of the queue (of 1 job), 12 min, 0.8 core hours in all."),
        (2, [60.0, None], JobSize(queue=True, splits=9), 
         "2 jobs of the queue (of 2 jobs); how long they take is not known yet."),
        (3, [60.0] * 3, JobSize(cores=2), "3 jobs, 60 s each, 0.1 core hours in all."),
        (3, [None], JobSize(), "3 jobs."),
    ],
)  # fmt: skip
def test_line_of_a_plan(typed: int, lengths: list[float | None], size: JobSize, line: str) -> None:
    assert _jobs(typed, lengths, size) == line


def test_a_plan_that_tells_times_does_not_deny_them() -> None:
    assert _jobs(2, [None], JobSize(queue=True, splits=9), guessed=True) == (
        "1 job of the queue (of 2 jobs), whole until steps are clocked."
    )
    assert "?" in _explained(clock=False, starts=False, unclocked="?")
    assert "?" not in _explained(clock=False, starts=False, unclocked="~")
    assert "none ran yet" not in _explained(clock=False, starts=False, unclocked="")


def test_speeds_are_kept_for_the_next_command(planner: Planner, tmp_path: Path) -> None:
    """Only for what trains on the same device with the same batch size."""
    studies, other = (
        list(planner.studies(TINY)),
        list(planner.studies([*TINY, "++hparams.batch_size=9"])),
    )
    assert Speeds(None, tmp_path).of(studies) is None
    assert Speeds(lambda studies: SPEED, tmp_path).of(studies) == SPEED
    assert Speeds(None, tmp_path).of(studies) == SPEED
    assert (
        Speeds(None, tmp_path).of(other) is None
        and Speeds(None, tmp_path, device="gpu").of(studies) is None
    )
    assert Speeds(lambda studies: 2 * SPEED, tmp_path).of(studies) == SPEED
    assert Speeds(lambda studies: 2 * SPEED, tmp_path, anew=True).of(studies) == 2 * SPEED
    (tmp_path / ".jobs" / "speeds.json").write_text("{")
    assert Speeds(None, tmp_path).of(studies) is None


def test_a_job_that_was_split_stays_split(command: Any, tmp_path: Path) -> None:
    """Its parts are jobs of their own, for a plan, for a sweep and for the next one."""
    words = ["-m", *TINY, "trainer.steps=4", "trainer.eval_every=4", "execution=single"]
    words += ["paths.data_dir=here", "seed=0,1"]
    place = Planner(composer(), tmp_path).place([*words[1:-1], "seed=1"])
    place._replace(parent=tmp_path / "multirun").keep_parts(
        [["protocol.folds=[0,1]"], ["protocol.folds=[2,3,full]"]]
    )
    assert "\n3 jobs." in command("train.py", *words, "plan=true", cwd=tmp_path).out
    ended = command("train.py", *words, cwd=tmp_path)
    assert (ended.code, "3 of 3 jobs done: 10 of their 10 models" in ended.out) == (0, True), (
        ended.err
    )
    again = command("train.py", *words, cwd=tmp_path)
    assert again.err.splitlines()[-1].endswith("all 3 jobs are done (retry=all)")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("word", "line"),
    [
        (
            "sweep.members_per_job=-3",
            "sweep.members_per_job is set by sweep.runs_per_job; write sweep.runs_per_job=-3",
        ),
        *(
            (
                f"sweep.runs_per_job={value}",
                rf"sweep\.runs_per_job={re.escape(value)}.*integer >= 1",
            )
            for value in ("-3", "0", "1.5", "abc", "1e+23", "true")
        ),
        *(
            (
                f"sweep.hours_per_job={value}",
                rf"sweep\.hours_per_job={value}.*number > 0",
            )
            for value in ("-1", "0", "nan", "inf", "abc")
        ),
        ("wait=maybe", "wait=maybe.*unknown.*true.*false"),
        ("wait=false", "wait=false "),
    ],
)
def test_values_that_cannot_be_meant(word: str, line: str, command: Any, tmp_path: Path) -> None:
    for sweep in (("-m",),) if word.startswith("sweep.") else ((), ("-m",)):
        ended = command("train.py", *sweep, *TINY, word, cwd=tmp_path)
        assert (ended.code, list(tmp_path.iterdir())) == (1, [])
        (told,) = ended.complaints
        assert re.match(f"dgbench: {line}", told)


def test_weights_that_are_absent_are_told_apart(tmp_path: Path) -> None:
    """Table 3 of Yu et al.: 10 draws x 4 test domains x 2 tunings x 3 initial weights, 2 more seeds
    of the best.
    """
    workload = Workload(Planner(composer(), tmp_path, fetch_weights=False))
    workload.add(["experiment=yu2024_table3", "seed=0"])
    kinds = workload.kinds.values()
    assert (sum(kind.models.total() for kind in kinds), sum(kind.again for kind in kinds)) == (
        240,
        48,
    )
    needing = [study.config["init"]["name"] for study in workload.needing.values()]
    assert needing == ["supervised", "moco", "simclr"]
    assert [kind.seeds for kind in kinds] == [{0}] * len(kinds)
