"""Several studies in one job, and the plan of a job that is not started."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.locks import RunLocks
from dgbench.records.status import PROGRESS_FILE, write_status
from tests.complaints import one_line

SMALL = [
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.steps=20",
    "trainer.eval_every=10",
    "trainer.device=cpu",
]
PLANNING = "planning the studies ...\n"
COMPOSING = "composing the jobs of the sweep ...\n"
GRID = [*SMALL, "grid.seed=[0,1]", "grid.algorithm=[erm,vrex]"]


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by run folder, without the version of the code."""
    found = {}
    for file in sorted(folder.rglob("errors.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found[f"{file.parent.parent.name}/{file.parent.name}"] = [
            {**row, "code": ""} for row in rows
        ]
    return found


@pytest.mark.thorough
def test_a_grid_leaves_what_single_studies_leave(command: Any, tmp_path: Path) -> None:
    """Two algorithms times two seeds: four studies of five runs, in the folders that they would
    have alone.
    """
    ended = command(
        "train.py", *GRID, "execution=stacked", "paths.output_dir=together", cwd=tmp_path
    )
    assert ended.code == 0, ended.err
    assert "8 runs together" in ended.err  # four folds times two seeds of one algorithm
    understood, plan = ended.out.splitlines()[:3], ended.out.splitlines()[3]
    assert understood[0].startswith("sr_cmnist (digits): ") and understood[2].startswith(
        "validation: "
    )
    assert plan.startswith("algorithm ") and "Nothing was started" not in ended.out, (
        "the plan comes first"
    )
    assert counts(ended.out, "all") == [4, 20, 0, 0, 0, 0, 20] and not known_time(ended.out)
    again = command(
        "train.py", *GRID, "execution=stacked", "paths.output_dir=together", cwd=tmp_path
    )
    assert again.code == 0 and "nothing to do: all 20 runs are done" in again.err
    alone = [*SMALL, "algorithm=vrex", "seed=1", "execution=single", "paths.output_dir=alone"]
    single_study = command("train.py", *alone, cwd=tmp_path)
    assert single_study.code == 0 and not single_study.out.startswith("algorithm ")
    together, single = rows_of(tmp_path / "together"), rows_of(tmp_path / "alone")
    assert len(together) == 20
    for folder, rows in single.items():
        stacked, alone_rows = (
            [{**row, "loss": 0, "together": 0} for row in own] for own in (together[folder], rows)
        )
        assert stacked == alone_rows
        assert {row["together"] for row in rows} == {1}
        assert {row["together"] for row in together[folder]} == {2 if "fold-full-" in folder else 8}


def counts(out: str, name: str) -> list[int]:
    """Studies, models, done, running, failed, stopped, missing of one line of the plan."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
    return [int(word) for word in line.split()[1:8]]


def known_time(out: str) -> bool:
    """Whether the plan's last line tells a time; there are no runs to take a size from."""
    return bool(re.search(r"^all .* \d+ s +\?$", out, re.M))


def test_plan_starts_nothing_and_knows_what_is_done(command: Any, tmp_path: Path) -> None:
    """Before anything ran 20 models are to train; after one study of five, 15: one of the five
    failed, one was killed, and one is being trained by this process.
    """
    ended = command("train.py", *GRID, "plan=true", cwd=tmp_path)
    assert ended.code == 0 and ended.err == PLANNING, ended.err
    assert counts(ended.out, "all") == [4, 20, 0, 0, 0, 0, 20]
    assert (
        not known_time(ended.out) and "1 job." in ended.out and "Nothing was started." in ended.out
    )
    assert not list(tmp_path.rglob("errors.jsonl")) and not list(tmp_path.rglob("status"))
    sweep = ("-m", *SMALL, "seed=0,1", "algorithm=erm,vrex")
    counted = command("train.py", *sweep, "plan=true", cwd=tmp_path)
    assert counts(counted.out, "all") == [4, 20, 0, 0, 0, 0, 20]
    assert counted.out.splitlines()[6].split()[-2] == "?", (
        "no run, no speed: a sweep may have many jobs"
    )
    assert command("train.py", *SMALL, cwd=tmp_path).code == 0
    after = command("train.py", *GRID, "plan=true", cwd=tmp_path)
    assert counts(after.out, "erm") == [2, 10, 5, 0, 0, 0, 5]
    assert counts(after.out, "all") == [4, 20, 5, 0, 0, 0, 15]
    failed, killed, locked = sorted(path.parent for path in tmp_path.rglob("status"))[:3]
    write_status(failed, "FAILED for a reason")
    for folder in (killed, locked):
        write_status(folder, "RUNNING")
    with RunLocks() as locks:
        locks.take(locked)
        assert counts(command("train.py", *GRID, "plan=true", cwd=tmp_path).out, "erm") == [
            2,
            10,
            2,
            1,
            1,
            1,
            5,
        ]


def test_time_grows_with_the_training_environments(command: Any, tmp_path: Path) -> None:
    """Fold 0 trained 0.1 steps of 3 environments per second; 20 steps of 4 take 20 x 4 / 0.3 s."""
    assert command("train.py", *SMALL, "protocol.folds=[0]", cwd=tmp_path).code == 0
    (beat,) = tmp_path.rglob(PROGRESS_FILE)
    beat.write_text(json.dumps({**json.loads(beat.read_text()), "steps_per_s": 0.1, "runs": 1}))
    ended = command("train.py", *SMALL, "protocol.folds=[0,full]", "plan=true", cwd=tmp_path)
    assert counts(ended.out, "all") == [1, 2, 1, 0, 0, 0, 1] and "4 min 27 s" in ended.out


def test_plan_counts_the_folds_that_are_asked_for(command: Any, tmp_path: Path) -> None:
    """Ratios 3 and 4 of scale 1: 4 and 5 given environments; all folds are 5 + 6, two of them 2 +
    2.
    """
    sweep = ("-m", *SMALL, "dataset.ratio=3,4", "plan=true")
    assert counts(command("train.py", *sweep, cwd=tmp_path).out, "all") == [2, 11, 0, 0, 0, 0, 11]
    some = command("train.py", *sweep, "protocol.folds=[0,full]", cwd=tmp_path)
    assert counts(some.out, "all") == [2, 4, 0, 0, 0, 0, 4]
    assert not list(tmp_path.iterdir())


def test_plan_counts_the_folds_that_jobs_share_out(command: Any, tmp_path: Path) -> None:
    """A study trained by three jobs, one of whose folds two of them ask for."""
    sweep = ("-m", *SMALL, "protocol.folds=[0],[1,2],[2,full]", "plan=true")
    ended = command("train.py", *sweep, cwd=tmp_path)
    assert counts(ended.out, "all") == [1, 4, 0, 0, 0, 0, 4] and "\n3 jobs." in ended.out


def test_plan_counts_a_search(command: Any, tmp_path: Path) -> None:
    """3 draws x 2 trials x 5 folds."""
    words = (
        *SMALL,
        "hparams=search",
        "hparams.scheme.draws=3",
        "hparams.scheme.trials=2",
        "plan=true",
    )
    assert counts(command("train.py", *words, cwd=tmp_path).out, "all") == [6, 30, 0, 0, 0, 0, 30]


def test_a_plan_that_does_not_exist(command: Any, tmp_path: Path) -> None:
    ended = command("train.py", *SMALL, "plan=maybe", cwd=tmp_path)
    assert ended.code == 1
    assert ended.complaints[0].startswith("dgbench: plan=maybe is unknown; choose true or false")


def test_a_grid_entry_that_is_no_list(command: Any, tmp_path: Path) -> None:
    ended = command("train.py", *SMALL, "grid.seed=3", cwd=tmp_path)
    assert ended.code == 1
    one_line(*ended.complaints, r"grid\.seed=3 .*list; ")


def test_an_entry_of_an_experiments_grid_is_taken_out(command: Any, tmp_path: Path) -> None:
    """3 ratios x 3 seeds of one algorithm are left of 126 studies."""
    words = (
        "experiment=hwang2024_table1_scale1",
        "dataset.base=digits",
        "grid.algorithm=null",
        "algorithm=vrex",
    )
    assert counts(command("train.py", *words, "plan=true", cwd=tmp_path).out, "all")[0] == 9
    two = command("train.py", *words, "grid.dataset.ratio=[3,5]", "plan=true", cwd=tmp_path)
    assert counts(two.out, "all")[0] == 6
    alone = command(
        "train.py", *words, "grid.dataset.ratio=null", "grid.seed=null", "plan=true", cwd=tmp_path
    )
    assert counts(alone.out, "vrex")[0] == 1


def test_plan_of_a_dataset_that_is_not_here(command: Any, tmp_path: Path) -> None:
    """Counted from conf/dataset: two groups of PACS in one study, two algorithms; the plan says
    what it lacks, once.
    """
    words = [
        "dataset=pacs",
        "backbone=mlp",
        "paths.data_dir=nowhere",
        "protocol=multi_test",
        "grid.algorithm=[erm,vrex]",
    ]
    counted = command("train.py", *words, "plan=true", cwd=tmp_path)
    assert counted.code == 0, counted.err
    assert counts(counted.out, "all") == [2, 4, 0, 0, 0, 0, 4]
    assert any(line.split()[-2:-1] == ["?"] for line in counted.out.splitlines())
    told = counted.out.splitlines()[-2:]
    assert told[0] == "pacs: 32 images of each of 2 environments per model and step"
    fetch = "dgbench fetch pacs --to nowhere"
    assert told[1].endswith(f" pacs, in nowhere/PACS; first: {fetch}")


def test_plan_of_weights_that_are_not_here(command: Any, tmp_path: Path) -> None:
    """Nothing is downloaded: the plan counts, and names the command; a file in that place is taken
    for the weights.
    """
    words = [
        "dataset=pacs",
        "paths.data_dir=nowhere",
        "backbone=resnet18",
        "init=supervised",
        "init.url=http://x/w.pt",
    ]
    ended = command("train.py", *words, "plan=true", cwd=tmp_path, env={"HF_HUB_OFFLINE": "1"})
    assert ended.code == 0, ended.err
    assert counts(ended.out, "all") == [1, 4, 0, 0, 0, 0, 4]
    (line,) = [line for line in ended.out.splitlines() if "weights of" in line]
    assert line.startswith("not here yet: weights of init=supervised for resnet18")
    target, url = re.findall(r"curl -fL --create-dirs -o (\S+) (\S+)$", line)[0]
    assert url == "http://x/w.pt"
    assert all("plans" in file.parts for file in tmp_path.rglob("*") if file.is_file()), (
        "counted costs alone"
    )
    (tmp_path / target).parent.mkdir(parents=True)
    (tmp_path / target).write_bytes(b"weights")
    assert "weights of" not in command("train.py", *words, "plan=true", cwd=tmp_path).out


def test_plan_counts_the_images_of_a_step(command: Any, tmp_path: Path) -> None:
    """Leave-one-out of 4 given environments: 3 in each fold and 4 in the full one."""
    ended = command("train.py", *SMALL, "hparams.batch_size=20", "plan=true", cwd=tmp_path)
    last = ended.out.splitlines()[-1]
    assert last == "sr_cmnist (digits): 20 images of each of 3 to 4 environments per model and step"


def test_a_study_typed_twice_is_trained_once(command: Any, tmp_path: Path) -> None:
    """0.001 and 1e-3 are one learning rate: one study, five runs, each row once."""
    words = (
        "dataset.base=digits",
        "backbone.width=8",
        "trainer.steps=4",
        "trainer.eval_every=4",
        "trainer.device=cpu",
    )
    ended = command("train.py", *words, "grid.hparams.lr=[0.001,1e-3]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (study,) = (tmp_path / "outputs").glob("sr_cmnist-*")
    assert len(list(study.glob("fold-*"))) == 5
    for file in study.rglob("errors.jsonl"):
        found = map(json.loads, file.read_text().splitlines())
        rows = [(row["step"], row["env"], row["subset"]) for row in found]
        assert len(rows) == len(set(rows))


@pytest.mark.parametrize("launcher", ["slurm", "local"])
def test_a_launcher_without_a_sweep_is_refused(launcher: str, command: Any, tmp_path: Path) -> None:
    ended = command("train.py", f"hydra/launcher={launcher}", cwd=tmp_path)
    assert (ended.code, list(tmp_path.iterdir())) == (1, [])
    one_line(*ended.complaints, f"hydra/launcher={launcher} .*add -m")


LARGE = (
    "dataset=pacs",
    "dataset.image_size=32",
    "backbone=mnist_cnn",
    "backbone.min_size=8",
    "trainer.device=gpu",
)


def test_plan_of_a_large_network_counts_what_it_costs(command: Any, tmp_path: Path) -> None:
    """Without images, weights or a GPU; half the peak takes twice as long, and nothing is told of a
    small network.
    """

    def costs(*words: str) -> list[str]:
        ended = command(
            "train.py", *LARGE, *words, "paths.data_dir=nowhere", "plan=true", cwd=tmp_path
        )
        assert ended.code == 0, ended.err
        (head,) = [line for line in ended.out.splitlines() if line.endswith("PFLOP")]
        assert head.split()[-4:] == ["time", "disk", "memory", "PFLOP"]
        (line,) = [line for line in ended.out.splitlines() if line.startswith("all ")]
        first = ended.out.splitlines()[0]
        assert first.startswith("~: counted, not clocked: ") and "at 37 % of" in first
        assert "?" not in ended.out
        return line.split("~")[1].split("  ")

    def seconds(text: str) -> int:
        minutes, rest = re.fullmatch(r"(\d+) min (\d+) s", text).groups()  # type: ignore[union-attr]
        return 60 * int(minutes) + int(rest)

    whole, half = costs("card.tflops.single=6.7"), costs("card.tflops.single=3.35")
    assert seconds(half[0]) == pytest.approx(2 * seconds(whole[0]), abs=2)
    assert whole[1:] == half[1:]
    assert costs("trainer.device=auto")[1:] == whole[1:]  # also on a machine without a GPU
    small = command("train.py", *SMALL, "trainer.device=gpu", "plan=true", cwd=tmp_path)
    assert "PFLOP" not in small.out and "~" not in small.out
    refused = command("train.py", *SMALL, "card.utilization=1.2", "plan=true", cwd=tmp_path)
    assert refused.code == 1
    one_line(*refused.complaints, r"card\.utilization=1\.2 .*0\.37")


def test_memory_of_a_search_is_that_of_its_largest_draw(command: Any, tmp_path: Path) -> None:
    """A search that fits with its typical draw and not with its largest would end in the middle."""

    def plan(*words: str) -> str:
        ended = command(
            "train.py", *LARGE, *words, "paths.data_dir=nowhere", "plan=true", cwd=tmp_path
        )
        assert ended.code == 0, ended.err
        return str(ended.out)

    def memory(out: str) -> list[str]:
        (line,) = [line for line in out.splitlines() if line.startswith("all ")]
        return line.split()[-3:-1]

    search = plan("hparams=search", "hparams.scheme.draws=4")
    mean, largest = (
        int(images) for images in re.search(r"\((\d+) images\).*\((\d+)\)", search).groups()
    )  # type: ignore[union-attr]
    assert mean < largest
    assert memory(search) == memory(plan(f"hparams.batch_size={largest}"))
    assert memory(search) != memory(plan(f"hparams.batch_size={mean}"))
