"""Minibatches: whose images, drawn how, and the same whatever the way they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dgbench.batches import EnvBatch
from dgbench.data.environments import Environments
from dgbench.data.minibatches import CHUNK_BYTES, CHUNK_STEPS, EnvironmentData, IntervalLoader
from dgbench.errors import ConfigError

Make = Callable[..., Any]
GIVEN = ("0.80", "0.85", "0.90", "0.10")


@pytest.fixture(scope="module")
def environments(make: Make) -> Environments:
    return make()


def data_of(
    environments: Environments, training: Sequence[str] = GIVEN, **changes: Any
) -> EnvironmentData:
    keys = {
        "steps": 1000,
        "eval_every": 100,
        "batch_size": 16,
        "eval_batch_size": 64,
        "seed": 0,
        **changes,
    }
    return EnvironmentData(
        environments, training, environments.table.error_recipes(False, ("val", "test")), **keys
    )


def same(first: Sequence[EnvBatch], second: Sequence[EnvBatch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and a.sizes == b.sizes
        for a, b in zip(first, second, strict=True)
    )


def test_rows_come_from_their_environments(environments: Environments) -> None:
    """16 of each environment's training images, environment by environment, gathered as the store
    has them.
    """
    training = ("0.10", "0.85")
    data = data_of(environments, training)
    for step in (0, 63, 64, 500):
        order = data.runs[0].order(step)
        assert order.shape == (32,)
        for part, env in zip(order.reshape(2, 16), training, strict=True):
            assert set(part) <= set(environments.table.subset(env, "train"))
        [batch] = data.batches(step, 1)
        x, y = environments.store.gather(torch.from_numpy(order))
        assert torch.equal(batch.x, x)
        assert torch.equal(batch.y, y)
        assert batch.sizes == (16, 16)


def test_groups_are_scored_whole_and_in_no_order_of_labels(environments: Environments) -> None:
    """Batches of 60 = 3 x 20 images instead of 64, the last one shorter; the same images as one by
    one, reordered.
    """
    alone, grouped = data_of(environments), data_of(environments, group_size=20)
    for one, other in zip(alone.val_dataloader(), grouped.val_dataloader(), strict=True):
        images = [torch.cat([batch.x for batch in loader]) for loader in (one, other)]
        sizes = [len(batch.x) for batch in other]
        assert set(sizes[:-1]) <= {60}
        assert not torch.equal(*images)
        assert torch.equal(*(x.flatten(1).sort(0).values.sum(0) for x in images))
        assert torch.equal(images[1], torch.cat([batch.x for batch in other])), (
            "the same order each time"
        )


def test_with_replacement_and_uniform(environments: Environments) -> None:
    """A minibatch as large as the environment (308 images) repeats some of them.

    Without replacement all 308 would differ; with it 308 (1 - (1 - 1/308)^308) = 195 do on average.
    Over 640 steps each image is drawn 640 times on average; the chi-square of the counts has mean
    307 and standard deviation sqrt(2 * 307) = 24.8.
    """
    own = environments.table.subset("0.10", "train")
    data = data_of(environments, ["0.10"], batch_size=len(own))
    assert len(own) == 308
    drawn = [data.runs[0].order(step) for step in range(640)]
    assert abs(np.mean([len(set(step)) for step in drawn]) - 195) < 2
    counts = np.array(np.unique(np.concatenate(drawn), return_counts=True)[1])
    assert len(counts) == 308
    assert abs(((counts - 640) ** 2 / 640).sum() - 307) < 4 * 24.8


@pytest.mark.parametrize("first", [0, 40, 64, 127])
def test_the_same_whatever_the_chunks(environments: Environments, first: int) -> None:
    """32 at once, one by one, backwards, and from a fresh start in the middle; also across blocks
    of 64 steps.
    """
    at_once = data_of(environments).batches(first, 32)
    data = data_of(environments)
    one_by_one = [data.batches(step, 1)[0] for step in range(first, first + 32)]
    backwards = [data.batches(step, 1)[0] for step in reversed(range(first, first + 32))][::-1]
    assert same(at_once, one_by_one)
    assert same(at_once, backwards)
    assert same(at_once[20:], data_of(environments).batches(first + 20, 12))
    assert not torch.equal(at_once[0].x, at_once[1].x)


def test_a_pure_function_of_the_seed(environments: Environments) -> None:
    first = data_of(environments).batches(5, 3)
    state = np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index,union-attr]
    again = data_of(environments, steps=7, eval_every=3).batches(5, 3)
    assert np.random.get_state()[1].tolist() == state[0]  # type: ignore[index,union-attr]
    assert torch.equal(torch.get_rng_state(), state[1])
    assert same(first, again)
    assert not torch.equal(first[0].x, data_of(environments, seed=1).batches(5, 1)[0].x)


def test_an_environment_shows_the_same_images_in_every_fold(environments: Environments) -> None:
    """At step 70 environment 0.10 stands last of four, first of two, or alone:
    the same 16 images.
    """
    folds = [GIVEN, ("0.10", "0.80"), ("0.10",)]
    orders = [data_of(environments, fold).runs[0].order(70).reshape(-1, 16) for fold in folds]
    assert np.array_equal(orders[0][3], orders[1][0])
    assert np.array_equal(orders[0][3], orders[2][0])
    assert np.array_equal(orders[0][0], orders[1][1])


def test_environments_are_drawn_independently(environments: Environments) -> None:
    """Places within two subsets of 308 images agree in about 64 * 16 / 308 = 3 of 1,024 draws, not
    in all of them.
    """
    drawing = data_of(environments, GIVEN[:2]).runs[0]
    order = np.concatenate([drawing.order(step).reshape(2, 16) for step in range(64)], axis=1)
    places = [
        {int(i): k for k, i in enumerate(environments.table.subset(env, "train"))}
        for env in GIVEN[:2]
    ]
    drawn = [[places[e][int(i)] for i in order[e]] for e in (0, 1)]
    assert sum(a == b for a, b in zip(*drawn, strict=True)) < 20


def test_a_minibatch_larger_than_an_environment(environments: Environments) -> None:
    """1540 dealt images, 385 for each of four environments, 77 of them for val: 308 are left."""
    data_of(environments, batch_size=308)
    with pytest.raises(
        ConfigError, match=r"hparams\.batch_size=309.*larger.*4 of 4 .*0\.80: 308.*batch_size=308"
    ):
        data_of(environments, batch_size=309)


@pytest.mark.parametrize(
    ("done", "chunks"),
    [
        (0, [32, 32, 32, 4]),
        (37, [32, 31]),
        (99, [1]),
        (100, [32, 32, 32, 4]),
        (200, [32, 18]),
        (250, []),
    ],
)
def test_intervals_end_at_evaluations(
    environments: Environments, done: int, chunks: list[int]
) -> None:
    """250 steps, judged every 100: an interval goes from the steps done to the next multiple of
    100, or the end.
    """
    data = data_of(environments, steps=250)
    found = list(IntervalLoader(data, lambda: done))
    assert [len(chunk) for chunk in found] == chunks
    flat = [batch for chunk in found for batch in chunk]
    assert not flat or same(flat, data_of(environments, steps=250).batches(done, sum(chunks)))


def test_chunks_shrink_with_the_images(environments: Environments) -> None:
    """4 bytes * 16 images * 4 environments * 2 * 8 * 8 pixels a step; 32 steps at most, one at
    least.
    """
    data = data_of(environments)
    assert data.step_bytes() == 4 * 16 * 4 * 128
    assert data.chunk_steps() == CHUNK_STEPS
    large = data_of(environments, batch_size=308)
    assert large.chunk_steps() == CHUNK_BYTES[0] // (4 * 308 * 4 * 128) == 13


def test_chunks_are_larger_beside_a_device(
    environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every chunk costs a turn of the loop, for which a device of short kernels waits."""
    monkeypatch.setattr(environments.store, "to", lambda device: None)
    stack = EnvironmentData.stack([data_of(environments, batch_size=308)] * 3)
    for kind, steps in (("cpu", 4), ("meta", CHUNK_STEPS), ("cpu", 4)):
        strategy = SimpleNamespace(root_device=torch.device(kind))
        monkeypatch.setattr(
            stack, "trainer", SimpleNamespace(strategy=strategy, global_rank=0, world_size=1)
        )
        stack.setup("fit")
        assert stack.chunk_steps() == steps


def test_passes_are_loaders_in_order(environments: Environments) -> None:
    """Four val passes and two over the pool; 77 images in batches of 64 are two batches."""
    data = data_of(environments)
    loaders = data.val_dataloader()
    assert [loader.name for loader in loaders] == data.eval_set_names()
    assert data.eval_set_names() == [*(f"val/{env}" for env in GIVEN), "test+0", "test+1"]
    first = list(loaders[0])
    assert len(loaders[0]) == 2
    assert [len(batch.y) for batch in first] == [64, 13]
    x, y = environments.store.gather(torch.from_numpy(environments.table.subset("0.80", "val")))
    assert torch.equal(torch.cat([batch.x for batch in first]), x)
    assert torch.equal(torch.cat([batch.y for batch in first]), y)


def test_a_stack_gives_each_member_what_it_gets_alone(environments: Environments) -> None:
    """Three runs with other folds and other seeds, side by side; other training environments, as
    many.
    """
    runs = [
        data_of(environments, ("0.80", "0.85", "0.90")),
        data_of(environments, ("0.10", "0.85", "0.90"), seed=1),
        data_of(environments, ("0.80", "0.85", "0.90"), seed=2),
    ]
    stack = EnvironmentData.stack(runs)
    batches = stack.batches(60, 10)
    assert batches[0].x.shape == (3, 48, 2, 8, 8)
    assert batches[0].sizes == (16, 16, 16)
    for number, run in enumerate(runs):
        alone = run.batches(60, 10)
        assert same(
            alone, [EnvBatch(batch.x[number], batch.y[number], batch.sizes) for batch in batches]
        )
    assert stack.chunk_steps() == CHUNK_STEPS
    large = EnvironmentData.stack([data_of(environments, batch_size=308)] * 3)
    assert large.chunk_steps() == CHUNK_BYTES[0] // (3 * 4 * 308 * 4 * 128) == 4


def test_a_stack_scores_what_its_runs_score_once(environments: Environments, make: Make) -> None:
    """The full fold is judged everywhere (101), the other in the four given ones, which are among
    them; val of four.
    """
    runs = [data_of(environments, GIVEN[:2]), data_of(environments, GIVEN[2:])]
    runs[1].recipes = environments.table.error_recipes(True, ("val", "test"))
    scored = [(score.env, score.subset) for score in EnvironmentData.stack(runs).recipes]
    assert len(scored) == len(set(scored)) == 101 + 4
