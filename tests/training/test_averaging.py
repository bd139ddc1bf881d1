"""Rules that average weights: EoA's and CLIPood's moving averages, SWAD's decisions.

theta after step s is s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta as beta_distribution
from torch import Tensor

from dgbench.callbacks.averaging import BetaMovingAverage, MovingAverage, RunningMean, Swad


def _at(step: float) -> dict[str, Tensor]:
    return {"theta": torch.tensor([float(step)], dtype=torch.float64)}


def _buffer(step: float) -> dict[str, Tensor]:
    return {"running": torch.tensor([float(step)], dtype=torch.float64)}


def _through_a_file(rule: Any, folder: Path) -> dict[str, Any]:
    torch.save(rule.state_dict(), folder / "state")
    state: dict[str, Any] = torch.load(folder / "state", weights_only=True)
    return state


def test_running_mean_weighs() -> None:
    """(2 * 1 + 1 * 4) / 3 = 2; the first tensor is copied."""
    mean, first = RunningMean(), _at(1)
    mean.add(first, weight=2)
    mean.add(_at(4))
    assert float(mean.mean["theta"]) == 2.0
    assert float(first["theta"]) == 1.0


@pytest.mark.parametrize(
    ("flavor", "expected"),
    [
        ("state", {99: (99.0, 99.0), 100: (99.5, 99.5), 103: (101.0, 101.0)}),
        ("parameters", {99: (99.0, 0.0), 100: (100.0, 0.0), 103: (101.2, 0.0)}),
    ],
)
def test_moving_average_of_100_and_more_steps(
    flavor: str, expected: dict[int, tuple[float, float]]
) -> None:
    """state: mean of 99..k, e.g. (99+100+101+102+103)/5 = 101. parameters: (2*100+101+102+103)/5 =
    101.2, buffers of the beginning (0). Before that the live parameters.
    """
    rule = MovingAverage(flavor=flavor)
    rule.begin(_buffer(0))
    for step in range(1, 104):
        rule.update(step, _at(step), _buffer(step))
        if step in expected:
            scored = {**_at(step), **_buffer(step), **rule.result()}
            assert (float(scored["theta"]), float(scored["running"])) == pytest.approx(
                expected[step], rel=1e-12
            )
    assert not rule.finished


def test_moving_average_continues_from_its_state(tmp_path: Path) -> None:
    whole, part = MovingAverage(start=3), MovingAverage(start=3)
    for step in range(1, 8):
        whole.update(step, _at(step), {})
        part.update(step, _at(step), {})
        if step == 4:
            state, part = _through_a_file(part, tmp_path), MovingAverage(start=3)
            part.load_state_dict(state)
    assert float(part.result()["theta"]) == float(whole.result()["theta"]) == 4.5  # mean of 2..7


def _beta_average(weights: np.ndarray, beta: float) -> BetaMovingAverage:
    rule = BetaMovingAverage(beta)
    rule.begin({})
    rule.prepare(len(weights) - 1, {"theta": torch.tensor(weights[0])}, _buffer(0))
    for step, theta in enumerate(weights[1:], 1):
        rule.update(step, {"theta": torch.tensor(theta)}, _buffer(step))
    return rule


@pytest.mark.parametrize("beta", [0.2, 0.5, 1.0, 3.0])
def test_beta_moving_average_is_the_recursion_of_clipood(beta: float) -> None:
    """Its code (commit 538dd3b, engine.py and main.py): after each step the average moves towards
    the weights by the density's share, w_t / (w_0 + ... + w_t).
    """
    weights = np.random.default_rng(0).normal(size=(13, 5))
    density = beta_distribution(beta, beta).pdf((np.arange(13) + 0.5) / 13)
    total = density[0]
    average = weights[0]
    for step in range(1, 13):
        share = density[step] / total
        average = (average + share * weights[step]) / (1 + share)
        total += density[step]
    result = _beta_average(weights, beta).result()
    np.testing.assert_allclose(result["theta"].numpy(), average, rtol=1e-12)
    expected = (density * np.arange(13)).sum() / density.sum()
    assert float(result["running"]) == pytest.approx(expected, rel=1e-12)


def test_beta_moving_average_of_two_steps_by_hand() -> None:
    """T = 2, Beta(1/2, 1/2): densities at 1/6, 1/2, 5/6 are as 3 : sqrt(5) : 3, so that the mean of
    0, 0 and 1 is 3 / (6 + sqrt(5)).
    """
    rule = _beta_average(np.array([[0.0], [0.0], [1.0]]), 0.5)
    assert float(rule.result()["theta"]) == pytest.approx(3 / (6 + 5**0.5), rel=1e-12)
    assert rule.final_only and not rule.finished


def test_beta_moving_average_of_no_step_is_the_initial_weights() -> None:
    assert float(_beta_average(np.array([[7.0]]), 0.5).result()["theta"]) == 7.0


def _swad(losses: list[float], restart_in: Path | None = None, **settings: Any) -> Swad:
    """The first segment holds step 0 alone, each later one two steps."""
    rule = Swad(**settings)
    rule.begin(_buffer(-1))
    step = 0
    for k, loss in enumerate(losses):
        for _ in range(2 if k else 1):
            rule.update(step, _at(step), _buffer(step))
            step += 1
        rule.evaluated(step - 1, loss, _buffer(step - 1))
        if restart_in:
            state, rule = _through_a_file(rule, restart_in), Swad(**settings)
            rule.load_state_dict(state)
        if rule.finished:
            break
    return rule


TRACES = [
    (
        [5, 4, 3, 2, 1.0, 1.1, 1.05, 1.2, 1.25, 1.2, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2, 2.3],
        (12.5, 7, 18, 6),
        True,
    ),
    ([5, 4, 3, 2, 1.2, 1.1, 1.0, 1.05, 1.1, 1.02, 1.03], (14.0714285714, 9, 20, 7), False),
    ([1.0, 1.1, 1.2, 1.15, 1.1, 1.12, 1.1, 1.05], (4.7916666667, 1, 14, 12), False),
    ([5, 4, 3, 2, 1], (7.5, 7, 8, 2), False),
]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("losses", "expected", "dead"), TRACES)
def test_swad_decides_as_the_reference(
    losses: list[float],
    expected: tuple[float, int, int, int],
    dead: bool,
    restarted: bool,
    tmp_path: Path,
) -> None:
    """Recorded from the reference; in the third, 12 segments are added of 8, since segments count
    twice.
    """
    rule = _swad(losses, tmp_path if restarted else None)
    average = rule.average()
    assert average is not None
    assert float(average.weights["theta"]) == pytest.approx(expected[0], abs=1e-9)
    assert (average.start, average.end, average.count) == expected[1:]
    assert rule.finished is dead
    assert float(rule.result()["theta"]) == float(
        average.weights["theta"]
    )  # asking twice changes nothing


def test_swad_with_a_tolerance_shorter_than_the_convergence() -> None:
    """nc=3, nt=2: segments end at 0, 2, 4 with means 0, 1.5, 3.5.

    Losses 1, 2, 3 converge at segment 0 with tolerance 1.3 * 2 = 2.6; segment 1 is added (nc - nt =
    1). Loss 2: the last two are 3 and 2, the lowest is within, so segment 2 is added: (1.5 + 3.5) /
    2 = 2.5. The end drops segment 2 and adds segment 3 (mean 5.5, end 6): 10.5 / 3 = 3.5.
    """
    average = _swad([1, 2, 3, 2], n_converge=3, n_tolerance=2).average()
    assert average is not None
    assert (float(average.weights["theta"]), average.start, average.end, average.count) == (
        3.5,
        1,
        6,
        3,
    )


def test_swad_takes_the_buffers_of_the_segments_beginning() -> None:
    """Losses 5, 4 have not converged: the last segment counts, begun when the buffer was that of
    step 0.
    """
    result = _swad([5, 4]).result()
    assert (float(result["theta"]), float(result["running"])) == (1.5, 0.0)


def test_swad_before_any_evaluation_scores_the_live_weights() -> None:
    assert Swad().result() == {}
