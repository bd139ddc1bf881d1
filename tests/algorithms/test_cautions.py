"""What leaves a method out is said: phases after the last step, losses of features that stand
still.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import dgbench
from dgbench.algorithms.iga import IGA
from dgbench.network_specs import Sizes
from dgbench.objectives.contract import Algorithm
from dgbench.plan.building import class_at
from dgbench.plan.hyperparameters import entry_of, without_effect
from tests.complaints import one_line
from tests.conftest import Command

CONF = Path(__file__).parents[2] / "conf" / "algorithm"


def declared(name: str) -> tuple[type[Algorithm], dict[str, object]]:
    """The class of an algorithm, and its own defaults for small images."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    defaults = {
        key: entry_of(entry).default for key, entry in (content.get("hparams") or {}).items()
    }
    small = {
        key: value["small"] if isinstance(value, dict) else value for key, value in defaults.items()
    }
    return class_at(content["objective"], "algorithm.objective", Algorithm), small


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONF.glob("*.yaml"))])
def test_a_second_phase_that_never_begins_is_said(name: str) -> None:
    """By the defaults each method begins within DomainBed's 5000 steps; those with phases do not
    within one step.

    Whatever re-creates the optimizers begins a phase.
    """
    kind, values = declared(name)
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    config = {
        "algorithm": content,
        "tuning": {"name": "ft"},
        "head": {"_target_": "dgbench.networks.initial_heads.ZeroShotHead"},
    }
    said = "; ".join(without_effect({**config, "trainer": {"steps": 1}}, values))
    assert {key for key in kind.resets() if values[key] >= 1} <= set(
        re.findall(r"hparams\.(\w+)=", said)
    )  # type: ignore[operator]
    assert "\n" not in said and not [
        *without_effect({**config, "trainer": {"steps": 5000}}, values)
    ]


@pytest.mark.thorough
def test_a_plan_says_it_and_why_draws_multiply(command: Command, tmp_path: Path) -> None:
    plan = ("dataset.base=digits", "trainer.steps=300", "grid.algorithm=[erm,vrex]", "plan=true")
    lines = command("train.py", *plan, cwd=tmp_path).out.splitlines()
    assert [line for line in lines if "phase" in line] == [
        line for line in lines if line.startswith("vrex: hparams.")
    ]
    assert not [line for line in lines if "20 draws" in line]
    searched = command(
        "train.py", *plan, "hparams=search", "grid.seed=[0,1]", cwd=tmp_path
    ).out.splitlines()
    (line,) = [line for line in searched if "draws" in line]
    one_line(line, r"erm 20 draws x 3 trials x 2 seeds = 120 studies")
    assert len([line for line in searched if "phase" in line]) == 1, "random draws may be late"


OF_FEATURES = {
    "mmd_gamma": ["coral", "mmd", "caus_irl_coral", "caus_irl_mmd"],
    "lmbda": ["cad", "cond_cad"],
    "lambda": ["dann", "cdann"],
    "ib_lambda": ["ib_erm", "ib_irm"],
    "ld": ["miro"],
}


def test_every_loss_of_features_is_tried() -> None:
    files = {
        path.stem: yaml.safe_load(path.read_text()).get("hparams") or {}
        for path in CONF.glob("*.yaml")
    }
    flagged = {
        (key, name)
        for name, keys in files.items()
        for key in keys
        if entry_of(keys[key], key).of_features
    }
    assert flagged == {(key, name) for key, names in OF_FEATURES.items() for name in names}


@pytest.mark.thorough
@pytest.mark.parametrize("weight", OF_FEATURES)
def test_a_loss_of_features_has_no_effect_where_they_stand_still(
    weight: str, command: Command, tmp_path: Path
) -> None:
    """Two weights give the same predictions; training and plan say so, once for each algorithm."""
    names = OF_FEATURES[weight]
    words = (
        "dataset.base=digits", "backbone.width=8", "trainer.steps=12", "protocol.folds=[full]",
        "tuning=lp", f"grid.algorithm=[{','.join(names)}]", f"grid.hparams.{weight}=[0.5,50]",
        *(["hparams.ib_penalty_anneal_iters=3"] if weight.startswith("ib") else []),
    )  # fmt: skip
    planned = command("train.py", *words, "plan=true", cwd=tmp_path)
    ended = command("train.py", *words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    for name in names:
        pattern = rf"^(?:WARNING )?{name}: hparams\.{weight} has no effect.* features alone"
        said = [len(re.findall(pattern, text, re.M)) for text in (planned.out, ended.err)]
        assert said == [1, 1], (planned.out, ended.err)
    losses = (
        dgbench.results(tmp_path / "outputs", "last").groupby(["algorithm", "env", "subset"]).loss
    )
    assert set(losses.count()) == {2} and set(losses.nunique()) == {1}


@pytest.mark.thorough
def test_a_classifier_that_never_learns_is_said_to_be_random(
    command: Command, tmp_path: Path
) -> None:
    """Training and plan say so, once; features learn all the same, and alone."""
    words = (
        "dataset.base=digits", "backbone.width=8", "trainer.steps=12", "protocol.folds=[0,full]",
        "algorithm=clipood", "execution=stacked",
    )  # fmt: skip
    planned = command("train.py", *words, "plan=true", cwd=tmp_path)
    ended = command("train.py", *words, cwd=tmp_path)
    assert ended.code == 0, ended.err
    pattern = r"^(?:WARNING )?clipood: the classifier stays as head=random.*head=zero_shot"
    said = [len(re.findall(pattern, text, re.M)) for text in (planned.out, ended.err)]
    assert said == [1, 1], (planned.out, ended.err)


def test_a_penalty_without_a_gradient_is_said() -> None:
    """OoD-Bench's IGA: the gradients whose spread it penalizes are constants."""
    sizes = Sizes(4, 2, 2, (4,))
    assert not IGA.caution(sizes, {"iga_graph": True})
    one_line(IGA.caution(sizes, {"iga_graph": False}), r"iga_graph=false.*ERM")
