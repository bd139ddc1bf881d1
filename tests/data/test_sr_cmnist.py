"""SR-CMNIST: which environments there are, which images they get, and how those look."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgbench.data.datasets.base_images import load_base_images
from dgbench.data.environments import Environments
from dgbench.data.transforms.paint import two_channel_color
from dgbench.validation import shown
from tests.complaints import refused

Make = Callable[..., Any]
DIGITS = 1797


def own_images(environments: Environments, env: str) -> np.ndarray:
    """The images dealt to a given environment, sorted."""
    return np.sort(
        np.concatenate([environments.table.subset(env, name) for name in ("train", "val")])
    )


@pytest.mark.parametrize(
    ("ratio", "scale", "expected"),
    [
        (
            3,
            1,
            "0.80 0.85 0.90 0.10",
        ),  # a single minority environment is the lower end of its range
        (3, 2, "0.80 0.82 0.84 0.86 0.88 0.90 0.10 0.20"),
        (3, 3, "0.80 0.8125 0.825 0.8375 0.85 0.8625 0.875 0.8875 0.90 0.10 0.15 0.20"),
        (4, 1, "0.80 0.8333 0.8667 0.90 0.10"),
        (5, 1, "0.80 0.825 0.85 0.875 0.90 0.10"),
        (1, 1, "0.80 0.10"),
        (1, 2, "0.80 0.90 0.10 0.20"),
    ],
)
def test_given_environments(make: Make, ratio: int, scale: int, expected: str) -> None:
    """ratio * scale of them evenly spaced in [0.8, 0.9], then scale in [0.1, 0.2], e.g. 0.8 + 0.1 /
    3 = 0.8333.
    """
    given = make(ratio=ratio, scale=scale).info.given
    assert list(given) == [
        name if len(name) == 4 else f"{float(name):.4f}" for name in expected.split()
    ]


def test_strengths_are_not_rounded(make: Make) -> None:
    """The environment named 0.8333 is 0.8 + 0.1 / 3."""
    assert make(ratio=4).table.disagreement["0.8333"] == pytest.approx(0.8 + 0.1 / 3, abs=1e-15)


def test_all_environments(make: Make) -> None:
    everywhere = make().info.everywhere
    assert (len(everywhere), everywhere[0], everywhere[7], everywhere[-1]) == (
        101,
        "0.00",
        "0.07",
        "1.00",
    )


def test_given_overrides_ratio_and_scale(make: Make) -> None:
    environments = make(given=[0.9, 0.8, 0.1])
    assert environments.info.given == ("0.90", "0.80", "0.10")
    assert environments.info.identity()["given"] == ["0.90", "0.80", "0.10"]
    assert not {"ratio", "scale"} & environments.info.identity()["variant"].keys()


@pytest.mark.parametrize("ratio", [3, 4, 5])
@pytest.mark.parametrize("scale", [1, 2, 4])
def test_every_image_has_one_place(make: Make, ratio: int, scale: int) -> None:
    """Pool, train and val of all environments part the 1,797 images; shares are equal up to one
    image.

    The pool is round(0.142857 * 1797) = 257 images; val is a fifth of an environment, rounded down.
    """
    environments = make(ratio=ratio, scale=scale)
    parts = [
        environments.table.subset(env, name)
        for env in environments.info.given
        for name in ("train", "val")
    ]
    assert sorted(np.concatenate([environments.table.pool, *parts])) == list(range(DIGITS))
    assert len(environments.table.pool) == 257
    sizes = {len(own_images(environments, env)) for env in environments.info.given}
    assert sizes <= {1540 // len(environments.info.given), -(-1540 // len(environments.info.given))}
    for env in environments.info.given:
        assert len(environments.table.subset(env, "val")) == len(own_images(environments, env)) // 5


def test_label_noise(make: Make) -> None:
    """A quarter of the labels digit < 5 is flipped: 1797 draws, standard deviation sqrt(.25 * .75 /
    1797) = 0.0102.
    """
    environments = make()
    clean = (load_base_images("digits", "nowhere", 28).classes < 5).long()
    flipped = (environments.store.labels != clean).double().mean().item()
    assert abs(flipped - 0.25) < 4 * 0.0102
    assert torch.equal(make(label_noise=0.0).store.labels, clean)


@pytest.mark.parametrize("given", [[0.8, 0.85, 0.9, 0.1], [0.0, 1.0, 0.5]])
def test_color_flips(make: Make, given: list[float]) -> None:
    """In environment e the color differs from the final label with probability e (n images: sqrt(e
    (1 - e) / n)).
    """
    environments = make(given=given)
    for e, name in zip(given, environments.info.given, strict=True):
        own = torch.from_numpy(own_images(environments, name))
        flipped = (
            (environments.store.feature[own] != environments.store.labels[own])
            .double()
            .mean()
            .item()
        )
        assert abs(flipped - e) <= 4 * (e * (1 - e) / len(own)) ** 0.5


def test_color_follows_the_final_label_not_the_digit(make: Make) -> None:
    """With e = 0 colors equal the noisy labels exactly, so against digit < 5 a quarter differs."""
    environments = make(given=[0.0, 1.0])
    first, second = (
        torch.from_numpy(own_images(environments, env)) for env in environments.info.given
    )
    assert torch.equal(environments.store.feature[first], environments.store.labels[first])
    assert torch.equal(environments.store.feature[second], 1 - environments.store.labels[second])


@pytest.mark.parametrize(
    "changes",
    [{}, {"split_seed": 5}, {"evaluation": "sampled"}, {"val_fraction": 0.4}],
    ids=lambda c: str(c),
)
def test_only_the_data_seed_changes_the_data(make: Make, changes: dict[str, Any]) -> None:
    """Neither the split nor what anybody drew before from the global generators."""
    first = make()
    np.random.rand(3), torch.rand(3)
    second = make(**changes)
    for name in ("values", "labels", "feature"):
        assert torch.equal(getattr(first.store, name), getattr(second.store, name))
    assert np.array_equal(first.table.pool, second.table.pool)
    for env in first.info.given:
        assert np.array_equal(own_images(first, env), own_images(second, env))


def test_the_data_seed_changes_all_of_it(make: Make) -> None:
    first, second = make(), make(data_seed=1)
    assert not np.array_equal(np.sort(first.table.pool), np.sort(second.table.pool))
    assert not torch.equal(first.store.labels, second.store.labels)
    assert not np.array_equal(own_images(first, "0.10"), own_images(second, "0.10"))
    sampled = [
        make(evaluation="sampled", data_seed=seed).eval_sets(["test/0.50"])["test/0.50"].feature
        for seed in (0, 1)
    ]
    assert not torch.equal(*sampled)


def test_the_split_seed_changes_the_split(make: Make) -> None:
    first, second = make(), make(split_seed=1)
    for env in first.info.given:
        assert set(first.table.subset(env, "val")) != set(second.table.subset(env, "val"))
    assert [environments.info.identity()["split_seed"] for environments in (first, second)] == [
        0,
        1,
    ]


def test_pool_and_label_noise_do_not_depend_on_the_environments(make: Make) -> None:
    """So studies of every ratio and scale are judged on the same images."""
    first, second = make(), make(ratio=5, scale=3)
    assert np.array_equal(first.table.pool, second.table.pool)
    assert torch.equal(first.store.labels, second.store.labels)


def test_building_leaves_the_global_generators_alone(make: Make) -> None:
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index,union-attr]
    environments = make(evaluation="sampled")
    environments.eval_sets(["test/0.30"])
    assert np.random.get_state()[1].tolist() == before[0]  # type: ignore[index,union-attr]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_painting() -> None:
    """Feature 0: the digit in channel 0 and nothing in channel 1; feature 1 the other way round."""
    digit = torch.tensor([[0.0, 0.5], [1.0, 0.25]])
    painted = two_channel_color(torch.stack([digit, 2 * digit])[:, None], torch.tensor([1, 0]))
    nothing = torch.zeros(2, 2)
    assert torch.equal(
        painted, torch.stack([torch.stack([nothing, digit]), torch.stack([2 * digit, nothing])])
    )


def test_gathered_images(make: Make) -> None:
    """Pixels 0..16 become 0..1, in the channel of the image's own color; labels come along."""
    environments = make()
    digits = load_base_images("digits", "nowhere", 28).images
    indices = torch.tensor([5, 1700, 5])
    x, y = environments.store.gather(indices)
    assert x.shape == (3, *environments.store.image) == (3, 2, 8, 8)
    assert torch.equal(y, environments.store.labels[indices])
    for image, index in zip(x, indices, strict=True):
        color = int(environments.store.feature[index])
        assert torch.equal(image[color], digits[index, 0] / 16)
        assert image[1 - color].count_nonzero() == 0
    assert torch.equal(x[0], x[2])
    assert torch.equal(
        environments.store.gather(indices, 1 - environments.store.feature[indices])[0], x.flip(1)
    )


@pytest.mark.mnist
@pytest.mark.skipif(
    not (Path(os.environ.get("DGBENCH_DATA_DIR", "")) / "MNIST" / "raw").is_dir(),
    reason="no MNIST in DGBENCH_DATA_DIR",
)
def test_real_mnist(make: Make) -> None:
    """70,000 images: a pool of 10,000, four environments of 15,000 with 3,000 for val; 14 = every
    second pixel.
    """
    folder = os.environ["DGBENCH_DATA_DIR"]
    large, small = (make(base="mnist", data_dir=folder, resolution=side) for side in (28, 14))
    assert (large.store.image, small.store.image) == ((2, 28, 28), (2, 14, 14))
    assert torch.equal(large.store.values[:, :, ::2, ::2], small.store.values)
    assert len(small.store.values) == 70_000
    assert len(small.table.pool) == 10_000
    assert [len(small.table.subset("0.10", name)) for name in ("train", "val")] == [12_000, 3_000]
    assert np.array_equal(large.table.pool, small.table.pool)
    assert torch.equal(large.store.feature, small.store.feature)


@pytest.mark.parametrize("given", [[0.9, 0.1], [0.8, 0.85, 0.9, 0.1]])
def test_identity_says_what_the_data_are(make: Make, given: list[float]) -> None:
    identity = make(
        given=given, data_seed=3, split_seed=4, evaluation="sampled", label_noise=0.1
    ).info.identity()
    assert identity == {
        "dataset": "sr_cmnist",
        "variant": {
            "resolution": 8,
            "label_noise": 0.1,
            "pool_fraction": 0.142857,
            "val_fraction": 0.2,
        },
        "base": "digits",
        "evaluation": "sampled",
        "data_seed": 3,
        "split_seed": 4,
        "given": [f"{e:.2f}" for e in given],
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(
            ({"ratio": bad}, rf"dataset\.ratio={shown(bad)}.*integer >= 1")
            for bad in (0, -1, 1.5, True)
        ),
        ({"ratio": "3"}, r"dataset\.ratio='3'.*text.*integer >= 1.*write 3"),
        *(
            ({"scale": bad}, rf"dataset\.scale={shown(bad)}.*integer >= 1")
            for bad in (0, -2, 2.0, "many", False)
        ),
        ({"ratio": None}, "dataset.ratio"),
        ({"scale": None}, "dataset.scale"),
        *(
            ({"given": [0.9, bad]}, rf"dataset\.given.*{shown(bad)}.*number")
            for bad in (1.01, -0.01, float("nan"), float("inf"), "0.5", None, True, [0.1])
        ),
        ({"given": []}, "dataset.given is empty"),
        ({"given": "0.9"}, "dataset.given=0.9 is no list"),
        ({"given": 0.9}, "dataset.given=0.9 is no list"),
        ({"given": [0.9, 0.1, 0.9]}, "dataset.given holds 0.90 more than once"),
        ({"given": [0.1, 0.10000001]}, "dataset.given holds 0.10 more than once"),
        ({"evaluation": "both"}, "dataset.evaluation=both is unknown"),
        ({"base": "cifar"}, "dataset.base=cifar is unknown"),
        ({"resolution": 8}, "dataset.resolution=8 is not 28 or 14"),
        ({"label_noise": 1.0}, "dataset.label_noise=1.0"),
        ({"label_noise": -0.1}, "dataset.label_noise=-0.1"),
        ({"pool_fraction": 1}, "dataset.pool_fraction=1"),
        ({"pool_fraction": 0.0}, r"dataset\.pool_fraction=0.0 is not in \(0, 1\)"),
        ({"val_fraction": 0.0}, r"dataset\.val_fraction=0.0 is not in \(0, 1\)"),
        ({"val_fraction": 1.0}, r"dataset\.val_fraction=1.0 is not in \(0, 1\)"),
        ({"ratio": 100, "scale": 10}, "subset.*empty.*fewer environments"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_values_are_named(make: Make, changes: dict[str, Any], said: str) -> None:
    with refused(said):
        make(**changes)


def test_shares_and_environments_that_only_validate(make: Make) -> None:
    """1,540 digits outside the pool, dealt 2 : 1 : 1; all of the third's are val and it has no
    train score.
    """
    environments = make(given=[0.1, 0.2, 0.9], shares=[2, 1, 1], val_only=[0.9])
    sizes = [
        [len(environments.table.subset(env, part)) for part in ("train", "val")]
        for env in environments.info.given
    ]
    assert sizes == [[616, 154], [308, 77], [0, 385]]
    parts = [
        environments.table.subset(env, part)
        for env in environments.info.given
        for part in ("train", "val")
    ]
    assert sorted(np.concatenate([environments.table.pool, *parts])) == list(range(DIGITS))
    scored = {
        (s.env, s.subset) for s in environments.table.error_recipes(False, ("train", "val", "test"))
    }
    assert scored == {
        (env, part) for env in environments.info.given for part in ("train", "val", "test")
    } - {("0.90", "train")}
    assert environments.info.identity()["variant"]["shares"] == [2, 1, 1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shares": [1, 1]}, r"dataset\.shares=\[1,1\] is not 3 positive numbers"),
        ({"shares": [1, 0, 1]}, r"dataset\.shares=\[1,0,1\] is not 3 positive numbers"),
        (
            {"val_only": [0.5]},
            r"dataset\.val_only=\[0\.5\] names environments that are not in dataset\.given",
        ),
    ],
)
def test_bad_shares_are_named(make: Make, changes: dict[str, Any], said: str) -> None:
    with refused(said):
        make(given=[0.1, 0.2, 0.9], **changes)
