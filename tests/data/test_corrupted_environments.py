"""Corrupted environments: which there are, whose images they hold, what their pixels are, and their
cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from dgbench.data.datasets.corrupted import given_environments
from dgbench.data.environments import Environments
from dgbench.data.store import corrupted as corrupted_store
from dgbench.data.transforms.corruptions import CORRUPTIONS, RandomNumbers, corrupt
from dgbench.errors import DgbenchError
from dgbench.seeding import derive
from tests.complaints import refused
from tests.datasets import built
from tests.studies import composed

DOMAINS = ["art_painting", "cartoon", "photo", "sketch"]
CLASSES = {"cat": 14, "dog": 11}


@pytest.fixture
def build(tmp_path: Path, image_tree: Callable[..., Path]) -> Callable[..., Any]:
    """``build(given="2-2-2-2")``: conf/dataset/pacs_corrupted.yaml at 32 x 32 pixels on 4 x 25
    images, with changes.
    """
    root = image_tree(**dict.fromkeys(DOMAINS, CLASSES))

    def make(
        dataset: str = "pacs_corrupted", words: tuple[str, ...] = (), **changes: Any
    ) -> Environments:
        config = composed(f"dataset={dataset}", f"paths.cache_dir={tmp_path}/cache", *words)
        OmegaConf.set_struct(config, False)
        config.dataset.update(
            {"root": str(root), "image_size": 32, "workers": 2, "published": None, **changes}
        )
        return built(config)  # type: ignore[no-any-return]

    return make


Build = Callable[..., Any]


def clean_positions(environments: Any, env: str, subset: str) -> set[int]:
    """Which clean images a subset of an environment is made from."""
    return set(environments.store.pixels.positions[environments.table.subset(env, subset)].tolist())


# ---- environments


def test_sixty_four_environments(build: Build) -> None:
    environments = build()
    tested = [
        score.env
        for score in environments.table.error_recipes(True, ["train", "val", "test"])
        if score.subset == "test"
    ]
    assert tuple(tested) == environments.info.everywhere
    assert len(set(tested)) == 64
    assert tested[:2] == ["art_painting", "art_painting+gaussian_noise"]
    assert Counter(env.partition("+")[0] for env in tested) == dict.fromkeys(DOMAINS, 16)
    held_out = environments.table.error_recipes(
        False, ["train", "val", "test"], training=environments.info.given[1:]
    )
    assert Counter(score.subset for score in held_out) == {"train": 4, "val": 4, "test": 4}
    assert {score.env for score in held_out} == set(environments.info.given)


@pytest.mark.parametrize("given", ["1-1-1-1", "2-2-2-2", "1-0-1-1", "2-0-2-2", "0-0-3-15"])
def test_so_many_are_drawn_for_each_domain(given: str) -> None:
    drawn = given_environments(given, DOMAINS, list(CORRUPTIONS), 5)
    counts = Counter(env.partition("+")[0] for env in drawn)
    assert [counts[domain] for domain in DOMAINS] == [int(k) for k in given.split("-")]
    assert len(set(drawn)) == len(drawn)
    assert all(env.partition("+")[2] in CORRUPTIONS for env in drawn)


def test_draws_of_one_seed_are_nested_and_seeds_differ() -> None:
    def drawn(given: str, seed: int = 3) -> list[str]:
        return given_environments(given, DOMAINS, list(CORRUPTIONS), seed)

    assert set(drawn("1-1-1-1")) < set(drawn("2-2-2-2"))
    assert drawn("1-0-1-1") == [env for env in drawn("1-1-1-1") if not env.startswith("cartoon")]
    assert len({tuple(drawn("1-1-1-1", seed)) for seed in range(20)}) > 15


def test_every_corruption_is_drawn_alike() -> None:
    """600 draws over 15 corruptions: 40 expected, with a standard deviation of 6."""
    drawn = [
        env
        for s in range(150)
        for env in given_environments("1-1-1-1", DOMAINS, list(CORRUPTIONS), s)
    ]
    counts = Counter(env.partition("+")[2] for env in drawn)
    assert set(counts) == set(CORRUPTIONS)
    assert min(counts.values()) > 15 and max(counts.values()) < 65


def test_listed_environments_and_chosen_corruptions(build: Build) -> None:
    environments = build(
        given=["sketch", "photo+fog"],
        corruptions=["fog", "contrast"],
        environments=["photo", "sketch"],
    )
    assert environments.info.given == ("sketch", "photo+fog")
    assert environments.info.everywhere == (
        "photo", "photo+fog", "photo+contrast", "sketch", "sketch+fog", "sketch+contrast",
    )  # fmt: skip
    assert environments.info.identity()["variant"]["corruptions"] == ["fog", "contrast"]


@pytest.mark.parametrize("dataset", ["office_home", "image_folder"])
def test_any_dataset_of_image_files_can_be_corrupted(build: Build, dataset: str) -> None:
    environments = build(dataset, ("corruptions=hendrycks", "dataset.severity=2"))
    assert len(environments.info.everywhere) == 64
    assert environments.info.identity()["dataset"] == dataset
    assert environments.info.identity()["variant"]["severity"] == 2


# ---- images


@pytest.mark.parametrize("given", ["1-1-1-1", "2-0-2-2"])
def test_no_image_is_trained_on_twice_or_judges_what_it_trains(build: Build, given: str) -> None:
    """25 images a domain: int(25 * 0.2) = 5 in its pool, 20 dealt: 20 to one environment, or 10 and
    10 to two.

    int(20 * 0.2) = 4 and int(10 * 0.2) = 2 of them are val.
    """
    environments = build(given=given)
    k = int(given[0])
    for d, domain in enumerate(DOMAINS):
        forms = [env for env in environments.info.everywhere if env.partition("+")[0] == domain]
        pools = [clean_positions(environments, env, "test") for env in forms]
        assert all(pool == pools[0] for pool in pools)
        used, sizes = set(pools[0]), [len(pools[0])]
        for env in environments.info.given:
            if env in forms:
                for subset in ("train", "val"):
                    images = clean_positions(environments, env, subset)
                    sizes.append(len(images))
                    used |= images
        assert sum(sizes) == len(used), "an image is in two subsets"
        expected = [5] + [20 // k * 4 // 5, 20 // k // 5] * int(given[2 * d])
        assert sizes == expected
        assert used <= set(range(d * 25, d * 25 + 25))


def test_what_each_seed_decides(build: Build) -> None:
    one = build(given=["photo", "photo+fog"])
    other_data, other_split = (
        build(given=list(one.info.given), **{key: 1}) for key in ("data_seed", "split_seed")
    )
    assert clean_positions(one, "sketch", "test") == clean_positions(other_data, "sketch", "test")
    assert clean_positions(one, "sketch", "test") != clean_positions(other_split, "sketch", "test")
    assert clean_positions(one, "photo", "train") != clean_positions(other_data, "photo", "train")
    assert build(data_seed=0).info.given != build(data_seed=1).info.given
    assert build(split_seed=0).info.given == build(split_seed=1).info.given
    assert one.info.identity() != other_data.info.identity() != other_split.info.identity()


def test_pixels(build: Build) -> None:
    """Positions of three sections in one gather: clean, and two corruptions with the seeds of their
    sections.
    """
    environments = build(given=["photo", "sketch+gaussian_noise"], severity=4, corruption_seed=9)
    ask = np.concatenate(
        [
            environments.table.subset("photo", "val"),
            environments.table.subset("sketch+gaussian_noise", "train")[::2],
            environments.table.subset("art_painting+contrast", "test"),
        ]
    )
    x, y = environments.store.gather(torch.from_numpy(ask))
    clean = environments.store.pixels.positions[ask]
    raw, _ = environments.store.pixels.clean.rows(torch.arange(100))
    assert y.tolist() == [
        0 if i % 25 < 14 else 1 for i in clean.tolist()
    ]  # 14 cats, then 11 dogs in each domain

    def section(name: str, corruption: str, positions: list[int]) -> torch.Tensor:
        chance = RandomNumbers(derive(9, "corruption", name, corruption, 4, 0))
        return corrupt(raw[positions], corruption, 4, chance)

    env = "sketch+gaussian_noise"
    dealt = [*environments.store.pixels.positions[environments.table.subset(env, "train")].tolist()]
    dealt += environments.store.pixels.positions[environments.table.subset(env, "val")].tolist()
    noisy = section(f"{env}-dealt", "gaussian_noise", dealt)[
        : len(environments.table.subset(env, "train"))
    ][::2]
    pool = environments.store.pixels.positions[
        environments.table.subset("art_painting", "test")
    ].tolist()
    gray = section("art_painting+contrast-pool", "contrast", pool)
    expected = torch.cat([raw[clean[:4]], noisy, gray]).float() / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(x, (expected - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    assert x.shape == (4 + len(noisy) + 5, 3, 32, 32)
    # number of the file within its class
    kinds = [i % 25 if i % 25 < 14 else i % 25 - 14 for i in clean.tolist()]
    assert environments.store.pixels.rows(torch.from_numpy(ask))[1].tolist() == [
        [10 + i % 3, 12 + i % 2] for i in kinds
    ]


def test_training_images_are_augmented_like_those_of_any_folder(build: Build) -> None:
    """The same numbers give the same crops of an image, clean or from a set of its own."""
    environments = build(given=["photo", "sketch+contrast"], augment="domainbed")
    asked = torch.from_numpy(environments.table.subset("photo", "train")[:6])
    noise = environments.store.training_noise(np.random.default_rng(0), 6)
    x, y = environments.store.gather_for_training(asked, noise)
    base = copy(environments.store)
    base.pixels, base.labels = (
        environments.store.pixels.clean,
        torch.tensor([0] * 14 + [1] * 11).repeat(4),
    )
    clean = environments.store.pixels.positions[asked]
    expected = base.gather_for_training(clean, noise)
    assert torch.equal(x, expected[0]) and torch.equal(y, expected[1])
    assert not torch.equal(x, environments.store.gather(asked)[0])


def test_bad_images_are_left_out(build: Build, tmp_path: Path) -> None:
    (tmp_path / "tree" / "photo" / "cat" / "00.png").write_bytes(b"no image")
    with pytest.raises(DgbenchError, match=r"00\.png cannot be decoded"):
        build()
    environments = build(given=["photo"], on_bad_image="skip")
    used = set.union(
        *(clean_positions(environments, "photo", subset) for subset in ("train", "val", "test"))
    )
    assert used == set(range(51, 75))  # the third domain without its first image


# ---- cache


def images_of(environments: Any, *names: str) -> torch.Tensor:
    passes = environments.eval_sets(list(names))
    return torch.cat([environments.store.gather(scored.indices)[0] for scored in passes.values()])


ASKED = ("test/photo+fog", "val/photo+fog", "test/sketch+shot_noise", "test/sketch")
KEYS: dict[str, Any] = {"given": ["photo+fog", "sketch"], "corruptions": ["fog", "shot_noise"]}


@pytest.mark.parametrize("store", ["ram", "file", "none"])
def test_made_once(build: Build, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    first = images_of(build(store=store, **KEYS), *ASKED)
    monkeypatch.setattr(corrupted_store, "corrupt", lambda *_: pytest.fail("made again"))
    again = build(store=store, **KEYS)
    assert torch.equal(images_of(again, *ASKED), first)
    with pytest.raises(pytest.fail.Exception, match="made again"):
        images_of(again, "test/photo+shot_noise")


def test_interrupted_and_gone_on_with(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 2 images; the 4th call fails.

    The next process makes the others only, to the same images.
    """
    monkeypatch.setattr(corrupted_store, "CHUNK_IMAGES", 2)
    whole = images_of(build(cache_dir=f"{tmp_path}/other", workers=1, **KEYS), *ASKED)
    calls: list[int] = []
    real = corrupted_store.corrupt

    def torn(*args: Any) -> torch.Tensor:
        calls.append(len(args[0]))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(corrupted_store, "corrupt", torn)
    with pytest.raises(KeyboardInterrupt):
        images_of(build(workers=1, **KEYS), *ASKED)
    monkeypatch.setattr(
        corrupted_store, "corrupt", lambda *args: calls.append(len(args[0])) or real(*args)
    )
    before = len(calls)
    assert torch.equal(images_of(build(workers=2, **KEYS), *ASKED), whole)
    chunks = 3 + 10 + 3  # 5 of each pool and the 20 dealt to photo+fog; sketch is clean
    assert 0 < len(calls) - before <= chunks - 3


def test_two_at_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores over one cache, as two processes have: each set is made by one of them."""
    made: list[str] = []
    real = corrupted_store.corrupt
    monkeypatch.setattr(
        corrupted_store, "corrupt", lambda *args: made.append(args[1]) or real(*args)
    )
    both = [build(**KEYS), build(**KEYS)]
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda environments: images_of(environments, *ASKED), both)
    assert torch.equal(one, two)
    assert sorted(made) == ["fog", "fog", "shot_noise"]


def test_files_are_named_by_what_decides_their_content(build: Build, tmp_path: Path) -> None:
    def folders(**changes: Any) -> set[str]:
        environments = build(**{**KEYS, **changes})
        environments.eval_sets(["test/photo+fog"])
        return {
            path.name
            for path in (tmp_path / "cache" / "corrupted").rglob("photo+fog-pool-*")
            if path.is_dir()
        }

    first = folders()
    assert len(first) == 1
    assert folders(data_seed=1) == folders(given=["photo"]) == folders(store="file") == first
    seen = first
    for changes in (
        {"severity": 1},
        {"corruption_seed": 1},
        {"split_seed": 1},
        {"pool_fraction": 0.3},
    ):
        now = folders(**changes)
        assert len(now) == len(seen) + 1, changes
        seen = now
    image = tmp_path / "tree" / "photo" / "cat" / "00.png"
    image.write_bytes((tmp_path / "tree" / "photo" / "cat" / "01.png").read_bytes())
    assert len(folders()) == len(seen) + 1


# ---- bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"given": "1-1-1"}, "given=1-1-1.*number.*corruptions.*most 15.*art_painting"),
        ({"given": "16-1-1-1"}, "given=16-1-1-1.*number"),
        ({"given": "0-0-0-0"}, "given=0-0-0-0.*number"),
        ({"given": "one"}, "use e.g. dataset.given=1-1-1-1"),
        ({"given": 3}, "given=3 is no list"),
        ({"given": []}, "is no list"),
        ({"given": ["photo+rain"]}, r"photo\+rain.*exist.*e.g. art_painting\+gaussian_noise"),
        ({"given": ["photos"]}, "photos.*exist"),
        ({"given": ["photo+"]}, r"photo\+.*exist"),
        ({"given": ["photo", "photo"]}, "photo more.*once"),
        ({"corruptions": ["rain"]}, r"corruptions=\[rain\].*rain.*unknown.*gaussian_noise"),
        ({"corruptions": "fog"}, "corruptions=fog is no list"),
        ({"severity": 0}, "severity=0 is unknown; choose 1"),
        ({"severity": 2.5}, "severity=2.5 is unknown"),
        ({"pool_fraction": 0}, "pool_fraction=0 is not in"),
        ({"pool_fraction": 0.99}, "empty.*more images"),
        ({"pool_fraction": 0.01}, "the pool of art_painting 0: one is empty"),
        ({"image_size": 28}, "dataset.image_size=28.*small.*corrupt.*32.*more"),
    ],
    ids=str,
)
def test_what_cannot_work(build: Build, changes: dict[str, Any], message: str) -> None:
    with refused(message, DgbenchError):
        build(**changes)


def test_only_image_files_can_be_corrupted() -> None:
    config = composed("dataset=sr_cmnist", "corruptions=hendrycks")
    with pytest.raises(DgbenchError, match=r"corruptions=hendrycks.*go.*dataset=sr_cmnist"):
        built(config)
