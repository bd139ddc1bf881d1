"""Costs that come with the package: found where counting would come to the same, and only there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dgbench.plan.cost import Cost
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import PlannedStudy, Planner
from dgbench.records.files import read_json
from dgbench.sweeps import costs
from dgbench.sweeps.costs import cost_of, shipped_cost, shipped_key
from dgbench.sweeps.plan import Judged
from dgbench.training.cost import count
from tests.studies import composer
from tools.costs import missing, planned, text_of, usual_studies

WORDS = ("dataset=pacs", "dataset.root=nowhere", "backbone=resnet18")
#: an algorithm with a state for each image, one with more networks, one whose steps differ
CHOSEN = (
    ("pacs", "resnet18", "erm"),
    ("domain_net", "resnet50_pretrained", "ada_clust"),
    ("office_home", "resnet18", "cdann"),
    ("terra_incognita", "resnet18", "ddg"),
    ("vlcs", "resnet50_pretrained", "mldg"),
    ("pacs", "vit_b16", "irm"),
)


@cache
def counted() -> tuple[str, Cost]:
    """Count the cost of :data:`WORDS`, once."""
    study = plan_of(Path("nowhere"))
    return shipped_key(study), count(study)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of shipped costs that holds one, and nothing that could count."""
    key, cost = counted()
    file = tmp_path / "costs.json"
    file.write_text(text_of({key: asdict(cost)}))
    monkeypatch.setattr(costs, "FILE", file)
    monkeypatch.setattr("dgbench.training.cost.count", fail)
    yield file


def fail(*_: Any) -> Any:
    raise AssertionError("worked out again")


def plan_of(folder: Path, *words: str) -> PlannedStudy:
    planner = Planner(composer(), folder, fetch_weights=False)
    (study,) = planner.studies(open_keys([*WORDS, f"paths.cache_dir={folder / 'cache'}", *words]))
    return study


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("seed=3", "hparams.lr=0.001", "logger=csv", "selection=train_val"),
        ("trainer.eval_every=100", "trainer.predictions=last", "trainer.device=cpu"),
    ],
    ids=["default", "nothing counted", "evaluations"],
)
def test_a_shipped_cost_needs_no_counting(
    words: tuple[str, ...], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = plan_of(tmp_path, *words)
    assert cost_of(study, {}) == counted()[1]
    monkeypatch.setattr("dgbench.training.blueprint.Blueprint", fail)
    Judged(remembers=True).add(study)
    with pytest.raises(AssertionError, match="again"):
        Judged().add(study)  # before jobs start


@pytest.mark.parametrize(
    "words",
    [
        ("hparams.batch_size=31",),
        ("hparams.resnet_dropout=0.1",),
        ("algorithm=vrex",),
        ("trainer.steps=6000",),
        ("backbone.norm=frozen",),
        ("dataset.image_size=128",),
        ("tuning=lp",),
        ("averaging=swad",),
        ("head=zero",),
        ("dataset.environments=[photo,sketch,cartoon]",),
    ],
    ids=" ".join,
)
def test_what_changes_a_count_is_counted(
    words: tuple[str, ...], file: Path, tmp_path: Path
) -> None:
    study = plan_of(tmp_path, *words)
    assert shipped_cost(study) is None
    with pytest.raises(AssertionError, match="again"):
        cost_of(study, {})


def test_other_code_and_other_packages_are_counted(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = plan_of(tmp_path)
    code = costs.computing_code
    for name, other in (
        ("computing_code", lambda paths: code(paths) | {"dgbench.algorithms.erm": "0" * 12}),
        ("version", lambda package: "9.9"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(costs, name, other)
            assert shipped_cost(study) is None
    monkeypatch.setattr(costs, "version", _with_build(costs.version))
    assert shipped_cost(study) == counted()[1]


def _with_build(version: Callable[[str], str]) -> Callable[[str], str]:
    return lambda package: version(package) + "+cpu"


def test_the_text_of_the_algorithm_is_what_counts(tmp_path: Path) -> None:
    """Each algorithm has a key of its own, and its module stands in it."""
    paths = [*costs._code_paths(plan_of(tmp_path, "algorithm=dann").config["algorithm"])]
    assert "dgbench.algorithms.dann" in costs.computing_code(paths)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"KEY": [1]}', '{"KEY": {"step": 1}}'])
def test_a_file_that_holds_no_cost_is_no_cost(text: str, file: Path, tmp_path: Path) -> None:
    costs._shipped.cache_clear()
    file.write_text(text.replace("KEY", counted()[0]))
    assert shipped_cost(plan_of(tmp_path)) is None
    costs._shipped.cache_clear()


def test_weights_that_are_on_disk_are_judged(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent ones are not looked at."""
    study = plan_of(tmp_path, "init=supervised", "backbone.norm=train")
    monkeypatch.setattr("dgbench.training.blueprint.Blueprint", fail)
    assert study.weights.to_fetch() is not None
    Judged(remembers=True).add(study)
    monkeypatch.setattr(type(study.weights), "to_fetch", lambda self: None)
    with pytest.raises(AssertionError, match="again"):
        Judged(remembers=True).add(study)


PROGRAM = """
import sys
from pathlib import Path
from dgbench.sweeps import costs
costs.FILE = Path(sys.argv.pop(1))
from dgbench.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted({"torch", "timm", "torchvision"} & set(sys.modules)), "loaded")
"""


@pytest.mark.parametrize("words", [(), ("hparams.batch_size=31",)], ids=["shipped", "changed"])
def test_a_first_plan_loads_no_torch(words: tuple[str, ...], file: Path, tmp_path: Path) -> None:
    command = ["train", "plan=true", *WORDS, *words]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    *lines, loaded = ended.stdout.splitlines()
    assert loaded.split() == [*(["timm", "torch", "torchvision"] if words else []), "loaded"]
    assert "PFLOP" in "".join(lines)
    assert "not counted" not in ended.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(("dataset", "backbone", "algorithm"), CHOSEN)
def test_what_is_shipped_is_what_counting_gives(
    dataset: str, backbone: str, algorithm: str
) -> None:
    words = (f"dataset={dataset}", f"backbone={backbone}", f"algorithm={algorithm}")
    assert words in set(usual_studies())
    known = read_json(costs.FILE)
    if missing([words], known):
        pytest.skip("the costs of the package are of other code; make costs")
    study = planned(words)
    assert json.loads(json.dumps(asdict(count(study)))) == known[shipped_key(study)]


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["erm", "ada_clust", "ddg"])
def test_no_count_depends_on_what_is_left_out(algorithm: str, tmp_path: Path) -> None:
    words = (
        "trainer.checkpoint_seconds=1",
        "trainer.class_errors=true",
        "trainer.device=cpu",
        "trainer.eval_batch_size=7",
        "trainer.eval_every=7",
        "trainer.eval_subsets=[train,val,test]",
        "trainer.eval_test=best",
        "trainer.log_every=3",
        "trainer.predictions=last",
    )
    assert {word.split("=")[0].removeprefix("trainer.") for word in words} == set(costs.UNCOUNTED)
    plain, other = (
        plan_of(tmp_path, f"algorithm={algorithm}"),
        plan_of(tmp_path, f"algorithm={algorithm}", *words),
    )
    assert shipped_key(plain) == shipped_key(other)
    assert count(plain) == count(other)
