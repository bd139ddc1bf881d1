"""Values that leave a method out without an error are said: a second phase that would begin after the last step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dgbench.objectives.contract import Algorithm
from dgbench.plan.building import class_at
from dgbench.plan.hyperparameters import entry_of, late_phase
from tests.complaints import one_line
from tests.conftest import Command

CONF = Path(__file__).parents[2] / "conf" / "algorithm"


def declared(name: str) -> tuple[type[Algorithm], dict[str, object]]:
    """The class of an algorithm, and its own defaults for small images."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    defaults = {key: entry_of(entry).default for key, entry in (content.get("hparams") or {}).items()}
    small = {key: value["small"] if isinstance(value, dict) else value for key, value in defaults.items()}
    return class_at(content["objective"], "algorithm.objective", Algorithm), small


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONF.glob("*.yaml"))])
def test_a_second_phase_that_never_begins_is_said(name: str) -> None:
    """By the defaults each method begins within DomainBed's 5000 steps; those with phases do not within one step.

    Whatever re-creates the optimizers begins a phase.
    """
    kind, values = declared(name)
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    said = late_phase({"algorithm": content, "trainer": {"steps": 1}}, values)
    assert {key for key in kind.resets() if values[key] >= 1} <= set(re.findall(r"hparams\.(\w+)=", said))  # type: ignore[operator]
    assert "\n" not in said and not late_phase({"algorithm": content, "trainer": {"steps": 5000}}, values)


def test_a_plan_says_it_and_why_draws_multiply(command: Command, tmp_path: Path) -> None:
    plan = ("dataset.base=digits", "trainer.steps=300", "grid.algorithm=[erm,vrex]", "plan=true")
    lines = command("train.py", *plan, cwd=tmp_path).out.splitlines()
    assert [line for line in lines if "phase" in line] == [line for line in lines if line.startswith("vrex: hparams.")]
    assert not [line for line in lines if "20 draws" in line]
    searched = command("train.py", *plan, "hparams=search", "grid.seed=[0,1]", cwd=tmp_path).out.splitlines()
    (line,) = [line for line in searched if "draws" in line]
    one_line(line, r"erm 20 draws x 3 trials x 2 seeds = 120 studies")
    assert len([line for line in searched if "phase" in line]) == 1, "random draws may be late"
