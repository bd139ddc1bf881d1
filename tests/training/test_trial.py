"""An objective is tried at its first step: it reaches a parameter, and draws no numbers of its own."""

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
