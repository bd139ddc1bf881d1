"""The speed that a plan tells is that of training with its evaluations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from dgbench.sweeps import probe
from dgbench.training.modules import SingleRun
from tests.studies import make_plan

WORDS = (
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.device=cpu",
    "execution=single",
    "protocol.folds=[0]",
)


@pytest.mark.thorough
def test_evaluations_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scoring that is slowed down slows down what is evaluated often, by what it takes, and nothing
    else.
    """
    seconds: dict[str, float] = {}
    predicted = SingleRun.predict_logits

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.01)
        return predicted(self, *arguments, **options)

    monkeypatch.setattr(SingleRun, "predict_logits", slow)
    for every in (2, 100):
        plan = make_plan(tmp_path, *WORDS, "trainer.steps=100", f"trainer.eval_every={every}")
        seconds[str(every)] = 3 / probe.minibatches_per_second([plan])
    data = len(probe.studies_of([plan])[0].runs[0].data.eval_set_names())
    assert seconds["2"] - seconds["100"] > 0.3 * 0.01 * data * 49 / 100
