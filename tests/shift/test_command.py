"""``shift.py`` as a user runs it: rows, a second start, an interruption, sweeps, refusals, and the
report.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.complaints import one_line

pytestmark = pytest.mark.slow

TINY = (
    "dataset.base=digits",
    "backbone.width=16",
    "trainer.device=cpu",
    "trials=2",
    "halves=2",
    "cache_dir=null",
)
JOINT = ("estimator.joint.steps=60", "estimator.joint.width=8")
DIE = """
import dgbench.shift.job as job, os
append, count = job.append_shift_rows, []
def dying(path, rows):
    append(path, rows)
    count.append(1)
    if len(count) == 5:
        os._exit(9)
job.append_shift_rows = dying
"""


def rows_under(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for file in sorted(folder.rglob("shifts.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def values(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "/".join(map(str, (r["estimator"], r["pair"], r["kind"], r["number"], r["null"]))): r[
            "values"
        ]
        for r in rows
    }


def test_rows_a_second_start_more_trials_and_the_report(command: Any, tmp_path: Path) -> None:
    first = command("shift.py", *TINY, *JOINT, cwd=tmp_path)
    assert (first.code, first.complaints) == (0, [])
    rows = rows_under(tmp_path)
    assert len(rows) == 4 * (2 * 3 + 2 * 2)
    assert {row["pair"] for row in rows} == {"0", "1", "2", "3"}
    last = next(row for row in rows if row["pair"] == "3" and row["null"] == "none")
    assert last["exact"]["cor"] == pytest.approx(0.607330, abs=1e-6)
    assert last["together"] == 2 * 40
    assert re.search(r"exact cor", first.out)
    again = command("shift.py", *TINY, *JOINT, cwd=tmp_path)
    assert "all 40 estimates were done" in again.err
    assert rows_under(tmp_path) == rows
    more = command("shift.py", *TINY, *JOINT, "trials=3", "plan=true", cwd=tmp_path)
    assert "40 of 52 done" in more.out
    more = command("shift.py", *TINY, *JOINT, "trials=3", cwd=tmp_path)
    assert more.code == 0
    assert len(rows_under(tmp_path)) == 52
    report = command("report.py", "report=shift", cwd=tmp_path)
    assert (report.code, report.complaints) == (0, [])
    assert "sr_cmnist" in report.out
    assert list((tmp_path / "reports" / "shift").glob("*.html"))


def test_a_killed_job_makes_what_is_left(command: Any, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    few = (*TINY, "estimator=distances", "estimator.distances.permutations=20")
    assert command("shift.py", *few, cwd=whole).code == 0
    assert command("shift.py", *few, cwd=killed, before=DIE).code == 9
    assert len(rows_under(killed)) == 5
    assert command("shift.py", *few, cwd=killed).code == 0
    assert values(rows_under(killed)) == values(rows_under(whole))


def test_classifiers_go_on_from_their_checkpoint(command: Any, tmp_path: Path) -> None:
    """Killed after step 20, with a checkpoint after every 4: the same values as without."""
    stop = """
import dgbench.shift.fitting as fitting, os
save = fitting.Judge._save
def dying(self, module):
    save(self, module)
    if module.steps_done >= 20:
        os._exit(9)
fitting.Judge._save = dying
"""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    few = (*TINY, *JOINT, "estimator.joint.look_every=20", "trainer.checkpoint_seconds=0")
    assert command("shift.py", *few, cwd=whole).code == 0
    assert command("shift.py", *few, cwd=killed, before=stop).code == 9
    assert list(killed.rglob("checkpoints/*.ckpt"))
    went_on = command("shift.py", *few, cwd=killed)
    assert went_on.code == 0
    assert "from step 20" in went_on.err
    assert values(rows_under(killed)) == values(rows_under(whole))
    assert not list(killed.rglob("checkpoints/*.ckpt"))


def test_a_sweep_and_the_same_sweep_again(command: Any, tmp_path: Path) -> None:
    words = (
        "-m",
        *TINY,
        *JOINT,
        "hydra/launcher=local",
        "hydra.launcher.workers=1",
        "dataset=sr_cmnist,cmnist_irm",
    )
    first = command("shift.py", *words, cwd=tmp_path)
    assert (first.code, first.complaints) == (0, [])
    assert "2 of 2 jobs done" in first.out
    assert {row["dataset"] for row in rows_under(tmp_path / "multirun")} == {
        "sr_cmnist",
        "cmnist_irm",
    }
    again = command("shift.py", *words, cwd=tmp_path)
    assert "to do: all 2 jobs are done" in again.err


def test_a_users_folder_with_a_class_too_few(command: Any, tmp_path: Path, image_tree: Any) -> None:
    """Rows for the pairs that can be estimated, one line for the one that cannot."""
    root = image_tree(a={"cat": 24, "dog": 24}, b={"cat": 24, "dog": 24}, c={"cat": 24, "dog": 3})
    ended = command(
        "shift.py", "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=8",
        "backbone=mlp", "backbone.width=8", "init=random", "pairs=each", "trials=1", "halves=0",
        "trainer.device=cpu", "estimator=[joint,distances]", *JOINT,
        "estimator.distances.permutations=0", f"cache_dir={tmp_path}/cache", cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "a against c" in ended.err
    rows = rows_under(tmp_path / "outputs")
    assert {row["pair"] for row in rows if row["refused"]} == {"a|c", "b|c"}
    assert any(row["values"] for row in rows if row["pair"] == "a|b")
    assert list((tmp_path / "cache").glob("features-*/complete.jsonl"))


def test_networks_that_learn_with_the_estimator(
    command: Any, tmp_path: Path, image_tree: Any
) -> None:
    """A perceptron in a stack; a ResNet one by one, whose BatchNorm is renewed for the mean
    weights.
    """
    few = ("features=trained", "trials=1", "halves=0", "null=false", "pairs=each")
    digits = command("shift.py", *TINY, *JOINT, *few, "estimator=[joint,ood_bench]", cwd=tmp_path)
    assert digits.code == 0, digits.err
    root = image_tree(a={"cat": 60, "dog": 60}, b={"cat": 60, "dog": 60})
    images = command(
        "shift.py", "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=32",
        "backbone=resnet18", "init=random", *few, "estimator=ood_bench",
        "estimator.ood_bench.bottleneck=2", "trainer.device=cpu", cwd=tmp_path,
    )  # fmt: skip
    assert images.code == 0, images.err
    rows = rows_under(tmp_path / "outputs")
    assert {row["dataset"]: row["together"] for row in rows} == {"sr_cmnist": 6, "image_folder": 1}
    assert all(row["values"] or row["refused"] for row in rows)
    assert any(row["values"] for row in rows if row["dataset"] == "image_folder")


def test_frechet_against_a_folder_and_its_moments(
    command: Any, tmp_path: Path, image_tree: Any
) -> None:
    import numpy as np

    root = image_tree(a={"cat": 60, "dog": 60}, b={"cat": 70, "dog": 60})
    elsewhere, reference = image_tree("elsewhere", all={"cat": 120}), tmp_path / "reference"
    reference.mkdir()
    for link in ("cats", "the same cats"):
        (reference / link).symlink_to(elsewhere / "all")
    common = (
        "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=8", "backbone=mlp",
        "backbone.width=8", "init=random", "trials=1", "halves=0", "trainer.device=cpu",
        "estimator=frechet", "cache_dir=null",
    )  # fmt: skip
    ended = command("shift.py", *common, f"estimator.frechet.reference={reference}", cwd=tmp_path)
    assert ended.code == 0, ended.err
    rows = rows_under(tmp_path / "outputs")
    assert {tuple(row["p"]) for row in rows} == {("reference",)}
    assert all(row["values"]["d2"] > 0 for row in rows if row["null"] == "none")
    assert all("too few" in row["refused"] for row in rows if row["null"] == "halves")
    sizes = {
        tuple(row["diagnostics"][key] for key in ("n", "n_reference"))
        for row in rows
        if row["null"] == "none"
    }
    assert sizes == {(120, 120)}
    moments = tmp_path / "moments.npz"
    np.savez(moments, mean=np.zeros(8), cov=np.eye(8), n=500, features="resnet50/supervised")
    other = command("shift.py", *common, f"estimator.frechet.reference={moments}", cwd=tmp_path)
    assert other.code == 1
    assert "holds moments of resnet50/supervised" in other.complaints[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pairs=all",), "pairs=all.*unknown.*folds"),
        (("features=freezed",), "features=freezed.*unknown.*frozen.*trained"),
        (("trials=0",), "trials=0.*integer >= 1"),
        (("halves=1",), "halves=1 has no spread"),
        (("min_per_class=0",), "min_per_class=0.*integer >= 2"),
        (("cache_dir=5",), "cache_dir=5 is no folder"),
        (("paths.output_dir=5",), r"paths\.output_dir=5 is no folder"),
        (("cache_gb=abc",), "cache_gb=abc is not a number > 0"),
        (("cache_gb=nan",), "cache_gb=nan is not a number > 0"),
        (("backbone.width=0", "plan=true"), r"backbone\.width=0"),
        (
            ("trainer.precision=16-mixed", "trainer.device=cpu", "plan=true"),
            r"trainer\.precision=16-mixed",
        ),
        (("estimator=[]",), r"estimator=\[\] estimates nothing"),
        (("estimator=jiont",), r"estimator=jiont.*unknown.*joint\?"),
        (("estimator.joint.delta=2",), r"estimator\.joint\.delta=2.*number.*0.*0\.5"),
        (("estimator.joint.detla=0.1",), r"estimator\.joint\.delta\?"),
        (
            ("estimator=ood_bench", "estimator.ood_bench.recipe=best"),
            "recipe=best.*unknown.*code.*paper",
        ),
        (
            ("estimator=ood_bench", "estimator.ood_bench.thresholds=calibrated", "null=false"),
            "set null=true",
        ),
        (
            ("estimator=distances", "features=trained"),
            "estimator=distances compares fixed features",
        ),
        (("estimator=frechet",), "estimator.frechet.reference=PATH"),
        (
            ("shift_experiment=ye2022_table3", "estimator=joint"),
            r"estimator\.ood_bench has.*recipe.*~estimator\.ood_bench",
        ),
        (("dataset.given=[0.1]",), "at least 2 given environments"),
        (("algorithm=vrex",), r"algorithm.*group.*shift\.py.*groups.*backbone, corruptions"),
        (
            ("trainer.steps=100",),
            r"trainer\.steps says.*algorithms.*trained, and a shift reads trainer\.device",
        ),
        (("hparams.lr=1",), r"hparams.*group.*shift\.py"),
        (("grid.seed=[0,1]",), r"grid\.seed.*unknown"),
        (("trainer=ddp",), "leave trainer=ddp out"),
        (("wait=false",), "wait=false submits a sweep"),
        (("dataset.augment=none",), "augment"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    command: Any, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    ended = command("shift.py", *TINY, *words, cwd=tmp_path)
    assert ended.code == 1
    assert len(ended.complaints) == 1, ended.err
    one_line(ended.complaints[0], said)
    assert not list(tmp_path.iterdir())


def test_a_plan_downloads_nothing(command: Any, tmp_path: Path) -> None:
    weights = ("backbone=resnet18", "init=supervised", "init.url=http://127.0.0.1:9/w.pt")
    words = ("dataset=pacs", "paths.data_dir=nowhere", *weights, "plan=true")
    ended = command("shift.py", *words, cwd=tmp_path, env={"HF_HUB_OFFLINE": "1"})
    assert ended.code == 0, ended.err
    absent = [line for line in ended.out.splitlines() if line.startswith("not here yet: ")]
    assert [line.split()[3] for line in absent] == ["images", "weights"]
    assert "first: dgbench fetch pacs --to nowhere" in absent[0]
    assert not list(tmp_path.iterdir())
