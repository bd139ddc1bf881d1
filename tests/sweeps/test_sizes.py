"""Jobs of a queue of the right size: what is packed, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dgbench.plan.studies import Planner
from dgbench.sweeps.plan import _explained, _jobs
from dgbench.sweeps.sizes import JobSize, Workload, packed, sized_jobs
from tests.studies import composed, composer

TINY = [
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.device=cpu",
    "trainer.steps=100",
    "trainer.eval_every=100",
]


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(composer(), tmp_path)


@pytest.mark.parametrize("words", [["seed=x"], ["dataset.split_seed=-1"]])
def test_a_job_that_is_refused_is_sized_as_one_run(words: list[str], planner: Planner) -> None:
    jobs = [[*TINY, *words], [*TINY, "protocol.folds=[0,full]"]]
    sized = sized_jobs(jobs, Workload(planner))
    assert [(job.words, job.runs) for job in sized] == [(jobs[0], 1), (jobs[1], 2)]


def test_cost_of_a_search_is_that_of_a_draw_with_a_mean_batch(planner: Planner) -> None:
    """Draws train with 8 to 512 images: the default's 64 would make a plan promise half of the
    operations.
    """
    words = [*TINY, "hparams=search", "hparams.scheme.draws=20", "hparams.scheme.trials=1"]
    workload = Workload(planner)
    workload.add(words)
    (kind,) = workload.kinds.values()
    sizes = [study.spec.hparams["batch_size"] for study in planner.studies(words)]
    mean = sum(sizes) / len(sizes)
    assert sizes[0] == 64 < 80 < mean
    typical = kind.typical_first[0].spec.hparams["batch_size"]
    assert typical == min(sizes, key=lambda size: abs(size - mean))


def test_time_of_models_of_several_speeds_is_the_mean_of_their_times(planner: Planner) -> None:
    workload = Workload(planner)
    left = workload.add([*TINY, "protocol.folds=[full]"])
    (kind,) = workload.kinds.values()
    kind.rates += [100.0, 400.0]
    assert kind.seconds == workload.seconds(left) == pytest.approx(400 * (1 / 100 + 1 / 400) / 2)


@pytest.mark.parametrize(
    ("most", "ends"),
    [
        (None, [1, 2, 3, 4, 5]),
        (4, [2, 3, 4, 5]),
        (2, [1, 2, 3, 4, 5]),
        (7, [2, 3, 5]),
        (100, [5]),
    ],
)
def test_neighbors_are_packed(most: int | None, ends: list[int]) -> None:
    """By models; one job that has more of them than the size allows stays alone."""
    packs = packed([2, 2, 5, 3, 2], JobSize(runs=most))
    assert [i for pack in packs for i in pack] == list(range(5))
    assert [pack.stop for pack in packs] == ends


def test_no_jobs_are_no_packs() -> None:
    assert packed([], JobSize(runs=3)) == packed([], JobSize()) == []


@pytest.mark.parametrize(
    ("keys", "runs", "cores"),
    [
        ((), None, 2),
        (("sweep.runs_per_job=9",), 9, 2),
        (("hydra.launcher.cpus_per_task=4",), None, 4),
    ],
)
def test_size_that_is_asked_for(keys: tuple[str, ...], runs: int | None, cores: int) -> None:
    size = JobSize.asked(composed("hydra/launcher=slurm", *keys, hydra=True))
    assert size == JobSize(runs=runs, queue=True, gpus=0, cores=cores)


@pytest.mark.parametrize(
    ("typed", "lengths", "size", "line"),
    [
        (
            6,
            [5900, 7100.0] * 5,
            JobSize(queue=True, gpus=1),
            "10 jobs of the queue (of 6 jobs), 1 h 38 min to 1 h 58 min each, 18 GPU hours in all.",
        ),
        (
            1,
            [720.0],
            JobSize(queue=True, cores=4),
            "1 job of the queue (of 1 job), 12 min, 0.8 core hours in all.",
        ),
        (2, [60.0, None], JobSize(queue=True), "2 jobs of the queue (of 2 jobs)."),
        (3, [60.0] * 3, JobSize(cores=2), "3 jobs, 60 s each, 0.1 core hours in all."),
        (3, [None], JobSize(), "3 jobs."),
    ],
)
def test_line_of_a_plan(typed: int, lengths: list[float | None], size: JobSize, line: str) -> None:
    assert _jobs(typed, lengths, size) == line


def test_a_plan_that_tells_times_does_not_deny_them() -> None:
    assert "?" in _explained(starts=False, unclocked="?")
    assert "?" not in _explained(starts=False, unclocked="~")
    assert "none ran yet" not in _explained(starts=False, unclocked="")


def test_a_job_that_an_earlier_version_split_is_one_job(command: Any, tmp_path: Path) -> None:
    """What its parts trained is done: the whole job trains the rest, nothing twice."""
    words = ["-m", *TINY, "trainer.steps=4", "trainer.eval_every=4", "execution=single"]
    words += ["paths.data_dir=here", "seed=0"]
    part = command("train.py", *words, "protocol.folds=[0,1]", cwd=tmp_path)
    assert (part.code, "2 of their 2 models" in part.out) == (0, True), part.err
    place = Planner(composer(), tmp_path).place(words[1:])
    place._replace(parent=tmp_path / "multirun")._write(
        "parts.json", [["protocol.folds=[0,1]"], ["protocol.folds=[2,3,full]"]]
    )
    before = {file: file.read_bytes() for file in tmp_path.rglob("errors.jsonl")}
    assert len(before) == 2
    ended = command("train.py", *words, cwd=tmp_path)
    assert (ended.code, "1 of 1 job done: 5 of their 5 models" in ended.out) == (0, True), ended.out
    assert {file: file.read_bytes() for file in before} == before


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
        ("sweep.hours_per_job=2", "sweep.hours_per_job=2 is of an earlier version: sweep.runs_per"),
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
