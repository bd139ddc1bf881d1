"""Values that leave a method out without an error are said: a second phase that would begin after the last step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dgbench.network_specs import Sizes
from dgbench.objectives.contract import Algorithm
from dgbench.plan.building import class_at
from dgbench.plan.hyperparameters import entry_of

CONF = Path(__file__).parents[2] / "conf" / "algorithm"
SIZES = Sizes(n_features=4, n_classes=3, n_envs=3, image=(1, 2, 2), n_steps=5000)


def declared(name: str) -> tuple[type[Algorithm], dict[str, object]]:
    """The class of an algorithm, and its own defaults for small images."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    defaults = {key: entry_of(entry).default for key, entry in (content.get("hparams") or {}).items()}
    small = {key: value["small"] if isinstance(value, dict) else value for key, value in defaults.items()}
    return class_at(content["objective"]), small


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONF.glob("*.yaml"))])
def test_a_second_phase_that_never_begins_is_said(name: str) -> None:
    """By the defaults each method begins within DomainBed's 5000 steps; those with phases do not within one step."""
    kind, values = declared(name)
    assert "phase" not in kind.caution(SIZES, values)
    late = [key for key in kind.resets() if values[key] >= 1]  # type: ignore[operator]
    said = kind.caution(replace(SIZES, n_steps=1), values)
    assert all(f"hparams.{key}=" in said for key in late) and "\n" not in said


def test_which_have_phases() -> None:
    phased = [path.stem for path in sorted(CONF.glob("*.yaml")) if declared(path.stem)[0].resets()]
    assert phased == ["ddg", "eqrm", "fishr", "ib_erm", "ib_irm", "irm", "rdm", "vrex"]
