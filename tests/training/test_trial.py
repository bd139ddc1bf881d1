"""An objective is tried at its first step: it reaches a parameter, and is a pure function."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgbench.algorithms.erm import ERM
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Outcome
from dgbench.training.modules import StackedRuns
from tests.studies import small_study
from tests.training.test_stacked import fit, modules_of

pytestmark = pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")


def trained(study: Any, mode: str) -> None:
    runs = study.runs[:2]
    modules = modules_of(runs)
    if mode == "single":
        fit(modules[0], runs[0].data.batches(0, 2))
        return
    data = type(runs[0].data).stack([run.data for run in runs])
    fit(StackedRuns(modules), data.batches(0, 2))


@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize("form", ["detached", "constant"])
def test_a_loss_that_reaches_no_parameter(
    form: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = ERM.objective

    def without_gradient(self: Any, step: Any) -> Outcome:
        loss = objective(self, step).loss
        return Outcome(loss.detach() if form == "detached" else 0.0 * loss)

    monkeypatch.setattr(ERM, "objective", without_gradient)
    with pytest.raises(ConfigError, match=r"ERM.*reaches no parameter"):
        trained(small_study(tmp_path, "algorithm=erm"), mode)


@pytest.mark.parametrize("package", ["torch", "NumPy", "Python"])
def test_an_objective_that_draws_from_a_global_generator(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = ERM.objective
    draws = {"torch": lambda: torch.rand(()), "NumPy": np.random.rand, "Python": random.random}

    def drawing(self: Any, step: Any) -> Outcome:
        return Outcome(objective(self, step).loss * (1 + float(draws[package]())))

    monkeypatch.setattr(ERM, "objective", drawing)
    with pytest.raises(ConfigError, match=rf"ERM draws from the global generator of {package}"):
        trained(small_study(tmp_path, "algorithm=erm"), "single")


@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize("kind", ["loss", "state"])
def test_an_objective_that_comes_to_something_else_from_the_same_inputs(
    kind: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts its own calls: a resumed run would begin to count anew."""
    objective = ERM.objective
    calls = [0]

    def counting(self: Any, step: Any) -> Outcome:
        calls[0] += 1
        loss = objective(self, step).loss
        if kind == "loss":
            return Outcome(loss * calls[0])
        return Outcome(loss, state={"memory": step.state["memory"] + calls[0]})

    monkeypatch.setattr(ERM, "objective", counting)
    monkeypatch.setattr(ERM, "initial_state", lambda self, networks: {"memory": torch.zeros(())})
    with pytest.raises(ConfigError, match=rf"ERM came to another {kind} from the same inputs"):
        trained(small_study(tmp_path, "algorithm=erm"), mode)


@pytest.mark.parametrize(
    "words", [("algorithm=group_dro",), ("algorithm=rsc",), ("sharpness=sam",)], ids=str
)
@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_a_trial_changes_nothing(
    words: Any, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, memory and losses are those of a training without one, to the bit."""
    states = []
    for tried in (True, False):
        runs = small_study(tmp_path, *words).runs[:2]
        modules = modules_of(runs)
        module = modules[0] if mode == "single" else StackedRuns(modules)
        data = (
            runs[0].data
            if mode == "single"
            else type(runs[0].data).stack([run.data for run in runs])
        )
        module._is_tried = not tried
        fit(module, data.batches(0, 3))
        states.append(module.weights(0))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
