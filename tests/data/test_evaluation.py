"""Errors from scoring passes: exact ones by brute force, sampled ones by binomial theory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgbench.data.environments import Environments
from dgbench.data.minibatches import EvalSetLoader

Make = Callable[..., Any]


def predict(x: Tensor) -> Tensor:
    """A fixed predictor that uses the color of bright images and the shape of dark ones."""
    color = (x[:, 1].sum((1, 2)) > 0).long()
    shape = (x[:, :, :, :4].sum((1, 2, 3)) > x[:, :, :, 4:].sum((1, 2, 3))).long()
    return torch.where(x.sum((1, 2, 3)) > 18, color, shape)


def errors(environments: Environments, batch_size: int = 100) -> dict[tuple[str, str], float]:
    """(environment, subset) -> error, the way that rows get it."""
    scores = environments.table.error_recipes(everywhere=True, subsets=("train", "val", "test"))
    names = list(dict.fromkeys(name for score in scores for name in score.mixture))
    rates = {}
    for name, scored in environments.eval_sets(names).items():
        batches = list(EvalSetLoader(environments.store, name, scored, batch_size))
        assert [batch.index for batch in batches] == list(
            range(math.ceil(len(scored.indices) / batch_size))
        )
        wrong = sum(int((predict(batch.x) != batch.y).sum()) for batch in batches)
        rates[name] = wrong / len(scored.indices)
    return {
        (s.env, s.subset): sum(weight * rates[name] for name, weight in s.mixture.items())
        for s in scores
    }


def test_exact_errors_equal_brute_force(make: Make) -> None:
    """Every image of the pool in both colors: weight 1 - e where the color equals the label, e
    where it does not.
    """
    environments = make()
    found = errors(environments)
    for e, env in [(0.0, "0.00"), (0.1, "0.10"), (0.37, "0.37"), (1.0, "1.00")]:
        expected = 0.0
        for index in environments.table.pool:
            position = torch.tensor([index])
            for color in (0, 1):
                x, y = environments.store.gather(position, torch.tensor([color]))
                weight = 1 - e if color == int(y) else e
                expected += weight * int(predict(x) != y)
        assert abs(found[env, "test"] - expected / len(environments.table.pool)) < 1e-12


def test_all_environments_cost_two_passes(make: Make) -> None:
    environments = make()
    scores = environments.table.error_recipes(everywhere=True, subsets=("test",))
    assert len(scores) == 101
    assert {name for score in scores for name in score.mixture} == {"test+0", "test+1"}
    assert all(math.isclose(sum(score.mixture.values()), 1) for score in scores)


def test_own_subsets_are_scored_in_their_own_colors(make: Make) -> None:
    environments = make()
    found = errors(environments)
    for env in environments.info.given:
        for subset in ("train", "val"):
            x, y = environments.store.gather(
                torch.from_numpy(environments.table.subset(env, subset))
            )
            assert found[env, subset] == float((predict(x) != y).double().mean())


def test_scores_follow_what_is_asked(make: Make) -> None:
    """Folds that hold something out are tested on the given environments,
    the full one everywhere.
    """
    environments = make(given=[0.9, 0.125])
    some = environments.table.error_recipes(everywhere=False, subsets=("val", "test"))
    assert [(s.env, s.subset) for s in some] == [
        ("0.90", "val"),
        ("0.125" + "0", "val"),
        ("0.90", "test"),
        ("0.1250", "test"),
    ]
    everywhere = environments.table.error_recipes(everywhere=True, subsets=("test",))
    assert [s.env for s in everywhere] == [f"{i / 100:.2f}" for i in range(101)] + ["0.1250"]


def test_predictions_in_groups_are_scored_in_sampled_colors(make: Make) -> None:
    """No pass then shows one color rule for all images,
    which no environment between 0 and 1 does.
    """
    exact, sampled = make(), make(evaluation="sampled")
    found = exact.table.error_recipes(everywhere=True, subsets=("val", "test"), grouped=True)
    assert found == sampled.table.error_recipes(everywhere=True, subsets=("val", "test"))
    names = [name for score in found for name in score.mixture]
    for name, scored in exact.eval_sets(names).items():
        same = sampled.eval_sets([name])[name]
        assert torch.equal(scored.indices, same.indices)
        assert scored.feature is same.feature is None or torch.equal(scored.feature, same.feature)


def test_sampled_errors_scatter_around_exact_ones(make: Make) -> None:
    """Coloring the pool once is one binomial draw for each image whose fate hangs on its color.

    Of n pool images, d are right in one color and wrong in the other, so a sampled error has mean
    `exact` and variance e (1 - e) d / n^2. Environments are colored independently: the standardized
    differences of the 99 environments inside (0, 1), times 4 data seeds, are m = 396 independent
    values of mean 0 and variance 1. Their mean has standard deviation 1 / sqrt(m) = 0.05. Their
    mean square has sqrt((2 + k) / m), where k is the mean excess kurtosis of a standardized
    binomial, (1 - 6 e (1 - e)) / (d e (1 - e)), below 0.1 here: 0.073. Both must stay within four
    standard deviations. With e = 0 and e = 1 nothing is random and the errors are equal.
    """
    standardized = []
    for seed in range(4):
        exact = make(data_seed=seed, pool_fraction=0.6)
        sampled = make(data_seed=seed, pool_fraction=0.6, evaluation="sampled")
        expected, drawn = errors(exact, 2000), errors(sampled, 2000)
        pool = torch.from_numpy(exact.table.pool)
        labels = exact.store.labels[pool]
        right = [
            predict(exact.store.gather(pool, color)[0]) == labels for color in (labels, 1 - labels)
        ]
        n, d = len(pool), int((right[0] != right[1]).sum())
        assert d > 300  # or the test would say nothing
        for env in exact.info.everywhere:
            e, difference = (
                exact.table.disagreement[env],
                drawn[env, "test"] - expected[env, "test"],
            )
            if e in (0, 1):
                assert abs(difference) < 1e-12
            else:
                standardized.append(difference * n / math.sqrt(e * (1 - e) * d))
    values = torch.tensor(standardized, dtype=torch.float64)
    assert len(values) == 396
    assert abs(values.mean()) < 4 * 0.05
    assert abs(values.square().mean() - 1) < 4 * 0.073


def test_sampled_colors_are_the_same_every_time_and_differ_between_environments(make: Make) -> None:
    environments = make(evaluation="sampled")
    first, second = (
        environments.eval_sets(["test/0.50"]),
        environments.eval_sets(["test/0.51", "test/0.50"]),
    )
    features = [p.feature for p in (first["test/0.50"], second["test/0.50"], second["test/0.51"])]
    assert torch.equal(features[0], features[1])  # type: ignore[arg-type]
    assert (features[0] != features[2]).double().mean() > 0.3  # type: ignore[union-attr] # half of them differ by chance
