"""Code in a run's identity: names for dgbench's own, the text for a user's."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.configuration import CONF
from dgbench.plan import code
from dgbench.plan.code import class_name, named, present_path, present_paths, user_code
from tests.conftest import Command
from tests.studies import SMALL, make_plan

OBJECTIVE = """\
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome


def weight():
    return 1.0


class Mine(Algorithm):
    def objective(self, s):
        risk = s.risk(s.logits())
        return Outcome(weight() * risk)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of a user's own that can be imported, and no memory of another text of it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    code._text_digest.cache_clear()
    file = tmp_path / "mine_for_code.py"
    file.write_text(OBJECTIVE)
    yield file
    code._text_digest.cache_clear()


def text_digest(file: Path, text: str) -> str:
    file.write_text(text)
    importlib.invalidate_caches()
    code._text_digest.cache_clear()
    return user_code({"objective": "mine_for_code.Mine"})["mine_for_code.Mine"]


@pytest.mark.parametrize(
    ("edit", "counts"),
    [
        (lambda text: text.replace("* risk", "+ risk"), True),
        (lambda text: text.replace("return 1.0", "return 2.0"), True),
        (lambda text: text.replace("1.0", "1"), True),
        (lambda text: text + "\nEXTRA = 3\n", True),
        (lambda text: text.replace("def weight", "# a comment\ndef weight"), False),
        (
            lambda text: text.replace(
                "def objective(self, s):", 'def objective(self, s):\n        """Docs."""'
            ),
            False,
        ),
        (lambda text: text.replace("s.risk(", "s.risk(\n            "), False),
        (lambda text: '"""Of mine."""\n' + text.replace('"', "'") + "\n\n\n", False),
    ],
)
def test_the_text_counts_but_for_comments_docstrings_and_layout(
    module: Path, edit: Any, counts: bool
) -> None:
    before = text_digest(module, OBJECTIVE)
    assert re.fullmatch("[0-9a-f]{12}", before)
    assert (text_digest(module, edit(OBJECTIVE)) != before) is counts


def test_code_is_found_wherever_a_configuration_names_it(module: Path) -> None:
    content = [
        {"objective": "dgbench.algorithms.erm.ERM",
            "_target_": "dgbench.training.modules.training_module"},
        {"reader": {"_target_": "mine_for_code.read", "_partial_": True},
            "p": [{"_target_": "mine_for_code.weight"}]},
        {"rule": {"_target_": "torch.nn.Linear"}, "name": "mine_for_code.no_code"},
        {"_target_": "not.there.AtAll"},
    ]  # fmt: skip
    digests = user_code(content)
    assert digests.keys() == {"mine_for_code.read", "mine_for_code.weight", "not.there.AtAll"}
    assert digests["mine_for_code.read"] == digests["mine_for_code.weight"] != ""
    assert digests["not.there.AtAll"] == "", "whoever builds it says that it is not there"


def test_a_package_that_cannot_be_imported_is_left_to_whoever_builds_it(module: Path) -> None:
    package = module.parent / "broken_for_code"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken')")
    (package / "inside.py").write_text("x = 1")
    module.write_text("def (")
    assert set(
        user_code(
            [{"_target_": "broken_for_code.inside.f"}, {"_target_": "mine_for_code.f"}]
        ).values()
    ) == {""}


def test_names_stand_for_classes_of_dgbench() -> None:
    assert class_name("dgbench.algorithms.group_dro.GroupDRO") == "group_dro"
    assert class_name("mine.Objective") == "mine.Objective"
    rule = {
        "name": "swad",
        "rule": {"_target_": "dgbench.somewhere.Swad", "n": [{"_target_": "mine.F"}]},
    }
    assert named(rule) == {
        "name": "swad",
        "rule": {"_target_": "Swad", "n": [{"_target_": "mine.F"}]},
    }


def test_every_objective_has_one_name() -> None:
    files = sorted((CONF / "algorithm").glob("*.yaml"))
    objectives = [yaml.safe_load(file.read_text())["objective"] for file in files]
    assert [class_name(objective) for objective in objectives] == [file.stem for file in files]


def test_no_two_classes_of_one_group_have_the_same_name() -> None:
    """Or two configurations that differ would be one run."""
    for group in sorted(path for path in CONF.iterdir() if path.is_dir()):
        paths = {
            path for file in group.glob("*.yaml") for path in code._PATH.findall(file.read_text())
        }
        assert len({class_name(path) for path in paths}) == len(paths), group


#: names that hashes hold since version 0.3.0; a class that is renamed gets a line in
#: ``FORMER_NAMES``
SINCE_0_3 = {
    "backbone": ["FeatureMLP", "LinearFeaturizer", "MLPFeaturizer", "MNISTCNN", "ResNet",
        "TimmFeaturizer",
                 "VisionTransformer", "WideResNet"],
    "dataset": ["ColoredMNIST", "FeatureOptions", "ImageFolders", "RotatedMNIST", "SRCMNIST",
        "SpuriousPictures"],
    "head": ["RandomHead", "ZeroHead", "ZeroShotHead"],
    "sharpness": ["GSAM", "SAGM", "SAM"],
    "averaging": ["BetaMovingAverage", "MovingAverage", "Swad"],
}  # fmt: skip


@pytest.mark.parametrize("group", SINCE_0_3)
def test_no_rename_changes_a_hash(group: str) -> None:
    paths = {
        path
        for file in (CONF / group).glob("*.yaml")
        for path in code._PATH.findall(file.read_text())
    }
    assert set(SINCE_0_3[group]) <= {class_name(path) for path in paths}


def test_no_specification_holds_a_path_of_dgbench() -> None:
    words = ("averaging=swad", "sharpness=sam", "algorithm=irm", "head=zero")
    spec = make_plan(Path("outputs"), *SMALL, *words).spec
    assert "dgbench." not in json.dumps(spec.to_json())
    assert (
        spec.objective == "irm"
        and spec.network["class"] == "MLPFeaturizer"
        and spec.user_code == {}
    )


def test_a_class_that_moved_is_found_by_its_name() -> None:
    config = {
        "algorithm": {"objective": "dgbench.formerly.IRM"},
        "backbone": [{"_target_": "dgbench.old.small.MNISTCNN"}],
    }
    present = present_paths(config)
    assert present["algorithm"]["objective"] == "dgbench.algorithms.irm.IRM"
    module, _, name = present["backbone"][0]["_target_"].rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)
    for path in (
        "mine.Objective",
        "dgbench.nowhere.NeverThere",
        None,
        present["algorithm"]["objective"],
    ):
        assert present_path(path) == path


def test_an_edited_objective_trains_anew(command: Command, tmp_path: Path) -> None:
    """Its helper function is edited, then a comment."""
    words = (
        *SMALL,
        "algorithm.name=mine",
        "algorithm.objective=mine_for_code.Mine",
        "trainer.steps=2",
    )
    here = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    file = tmp_path / "mine_for_code.py"
    counts = []
    edited = OBJECTIVE.replace("1.0", "2.0")
    for text in (OBJECTIVE, edited, edited + "# said\n"):
        file.write_text(text)
        ended = command(
            "train.py",
            *words,
            "protocol.folds=[0]",
            "paths.output_dir=runs",
            cwd=tmp_path,
            before=here,
        )
        assert ended.code == 0, ended.err
        counts.append(len(list((tmp_path / "runs").rglob("errors.jsonl"))))
    assert counts == [1, 2, 2]
    assert "nothing to do" in ended.err
