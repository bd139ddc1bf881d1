"""Environments of image files: pixels as PIL gives them, DomainBed's splits and rows, and images
that are broken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from torchvision import transforms

from dgbench.batches import EnvBatch
from dgbench.data.environments import Environments
from dgbench.data.minibatches import EnvironmentData, IntervalLoader
from dgbench.data.store.photographs import FileStore, ResidentStore
from dgbench.errors import DgbenchError
from tests.complaints import refused
from tests.datasets import built
from tests.studies import composed

Tree = Callable[..., Path]
TWO = {"cat": 6, "dog": 4}
KEYS = ("flip", "brightness", "contrast", "saturation", "hue", "grayscale")
UNCHANGED = {**dict.fromkeys(KEYS, 0), "crop_area": [1, 1], "crop_aspect": [1, 1]}


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Any]:
    """``build(root, val_fraction=0.5)``: conf/dataset/image_folder.yaml at 8 x 8 pixels, with
    changes.
    """

    def make(root: Path, dataset: str = "image_folder", **changes: Any) -> Environments:
        config = composed(f"dataset={dataset}", f"paths.cache_dir={tmp_path}/cache")
        config.dataset.root = str(root)
        OmegaConf.set_struct(config, False)
        config.dataset.update({"image_size": 8, **changes})
        return built(config)  # type: ignore[no-any-return]

    return make


Build = Callable[..., Any]


@pytest.mark.parametrize("store", ["auto", "ram", "file", "none"])
def test_pixels_are_those_of_the_plain_transform(
    image_tree: Tree, build: Build, store: str
) -> None:
    """Resize to a square without a crop, [0, 1], ImageNet mean and standard deviation: torchvision
    on PIL images.
    """
    root = image_tree(photo=TWO, sketch=TWO)
    environments = build(root, store=store)
    assert isinstance(environments.store.pixels, FileStore if store == "none" else ResidentStore)
    plain = transforms.Compose(
        [
            transforms.Resize((8, 8)),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    x, y = environments.store.gather(torch.tensor([11, 0, 19, 0]))
    for got, path in zip(
        x, ["photo/cat/01", "photo/cat/00", "sketch/dog/03", "photo/cat/00"], strict=True
    ):
        # position 11 is the second image of sketch
        path = path.replace("photo/cat/01", "sketch/cat/01")
        torch.testing.assert_close(got, plain(Image.open(root / f"{path}.png")), rtol=0, atol=1e-6)
    assert y.tolist() == [0, 0, 1, 0]
    assert environments.store.image == (3, 8, 8)
    assert environments.info.n_classes == 2


def test_sizes_on_disk_are_kept(image_tree: Tree, build: Build) -> None:
    """Image i of a class is 10 + i % 3 high and 12 + i % 2 wide."""
    store = build(image_tree(a=TWO, b=TWO)).store.pixels
    assert store.rows(torch.arange(6))[1].tolist() == [
        [10, 12],
        [11, 13],
        [12, 12],
        [10, 13],
        [11, 12],
        [12, 13],
    ]


def test_a_split_depends_on_its_seed_alone(image_tree: Tree, build: Build) -> None:
    """int(10 * 0.2) = 2 of 10 images are val; an environment is split alike whichever others are
    chosen.
    """
    root = image_tree(a=TWO, b=TWO, c=TWO)
    all_three, one = build(root), build(root, environments=["b"])
    for env in "abc":
        train, val = all_three.table.subset(env, "train"), all_three.table.subset(env, "val")
        assert (len(train), len(val)) == (8, 2)
        first = 10 * "abc".index(env)
        assert sorted([*train, *val]) == list(range(first, first + 10))
    assert np.array_equal(all_three.table.subset("b", "val"), one.table.subset("b", "val") + 10)
    others = [build(root, split_seed=seed).table.subset("b", "val").tolist() for seed in range(4)]
    assert others[0] == all_three.table.subset("b", "val").tolist()
    assert len({tuple(other) for other in others}) > 1


def test_rows_are_domainbeds(image_tree: Tree, build: Build) -> None:
    """val everywhere (out-splits); test where never trained (in-split); train where trained
    (in-split).
    """
    environments = build(image_tree(a=TWO, b=TWO, c=TWO))
    found = environments.table.error_recipes(False, ["train", "val", "test"], ("a", "c"))
    assert [(s.env, s.subset, dict(s.mixture)) for s in found] == [
        ("a", "train", {"train/a": 1.0}),
        ("c", "train", {"train/c": 1.0}),
        ("a", "val", {"val/a": 1.0}),
        ("b", "val", {"val/b": 1.0}),
        ("c", "val", {"val/c": 1.0}),
        ("b", "test", {"train/b": 1.0}),
    ]
    passes = environments.eval_sets(["train/b", "val/c"])
    assert passes["train/b"].indices.tolist() == environments.table.subset("b", "train").tolist()
    assert passes["val/c"].indices.tolist() == environments.table.subset("c", "val").tolist()
    assert all(
        s.subset != "test"
        for s in environments.table.error_recipes(True, ["val", "test"], ("a", "b", "c"))
    )


def test_listed_subsets(image_tree: Tree, build: Build, tmp_path: Path) -> None:
    """Listed test images are test rows in every fold; listed val images are val; without any, a
    share is drawn.
    """
    root = image_tree(x={"cat": 6, "dog": 6})
    lines = ["path,environment,class,subset"]
    for label in ("cat", "dog"):
        lines += [
            f"x/{label}/{i:02}.png,day,{label},{s}" for i, s in enumerate(["train", "val", "test"])
        ]
        lines += [
            f"x/{label}/{i:02}.png,night,{label},{s}"
            for i, s in enumerate(["train", "", ""], start=3)
        ]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    environments = build(root, "manifest", manifest=str(tmp_path / "list.csv"), val_fraction=0.4)
    of = {
        (e, s): environments.table.subset(e, s).tolist()
        for e in ("day", "night")
        for s in ("train", "val", "test")
    }
    assert of["day", "train"] == [0, 6]
    assert of["day", "val"] == [1, 7]
    assert of["day", "test"] == [2, 8]
    assert (len(of["night", "train"]), len(of["night", "val"]), of["night", "test"]) == (4, 2, [])
    tests = environments.table.error_recipes(False, ["test"], ("day",))
    assert [(s.env, dict(s.mixture)) for s in tests] == [
        ("day", {"test/day": 1.0}),
        ("night", {"train/night": 1.0}),
    ]


def test_the_identity_tells_copies_apart(image_tree: Tree, build: Build) -> None:
    root = image_tree(a=TWO, b=TWO)
    before = build(root).info.identity()
    assert before == build(root, store="none").info.identity()
    assert before["variant"]["images"] == 20
    assert before["given"] == ["a", "b"]
    Image.new("RGB", (40, 30)).save(root / "a" / "cat" / "00.png")
    assert build(root).info.identity()["variant"] != before["variant"]


@pytest.mark.parametrize("content", ["empty", "half", "text"])
def test_a_broken_image(image_tree: Tree, build: Build, caplog: Any, content: str) -> None:
    """It is named; with ``skip`` it is in no subset,
    and the rows say that an image less was there.
    """
    root = image_tree(a=TWO, b=TWO)
    file = root / "a" / "dog" / "02.png"
    whole = file.read_bytes()
    file.write_bytes(
        {"empty": b"", "half": whole[: len(whole) // 2], "text": b"<html>not found</html>"}[content]
    )
    with refused(r"a/dog/02\.png.*decoded \(.*\); fix.*delete", DgbenchError):
        build(root)
    with caplog.at_level(logging.WARNING):
        environments = build(root, on_bad_image="skip")
    assert "a/dog/02.png cannot be decoded" in caplog.text
    used = [*environments.table.subset("a", "train"), *environments.table.subset("a", "val")]
    assert sorted(used) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert environments.info.identity()["variant"]["images"] == 19
    with pytest.raises(DgbenchError, match=r"a/dog/02\.png cannot be decoded"):
        build(root, store="none").store.gather(torch.tensor([8]))


@pytest.mark.parametrize("n_broken", [3, 11])
def test_every_broken_image_is_named_once(
    image_tree: Tree, build: Build, caplog: Any, tmp_path: Path, n_broken: int
) -> None:
    """In one warning of a process, of many in a file that it names."""
    root = image_tree(a=dict.fromkeys(TWO, 12), b=TWO)
    broken = sorted(root.rglob("a/*/*.png"))[::2]
    for file in broken[:n_broken]:
        file.write_bytes(b"")
    for _ in range(2):
        build(root, on_bad_image="skip")
    (text,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    listed = [*tmp_path.glob("cache/images/*/undecodable.txt")]
    assert len(listed) == (n_broken > 10) and all(str(file) in text for file in listed)
    named = "".join([text, *(file.read_text() for file in listed)])
    assert (
        all(named.count(file.relative_to(root).as_posix()) >= 1 for file in broken[:n_broken])
        and "\n" not in text
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"on_bad_image": "ignore"}, r"dataset\.on_bad_image=ignore.*unknown.*fail.*skip"),
        ({"store": "none", "on_bad_image": "skip"}, r"on_bad_image=skip needs.*image decoded"),
        ({"store": "disk"}, r"dataset\.store=disk.*unknown.*auto, ram.*none"),
        ({"image_size": 0}, r"dataset\.image_size=0.*positive number.*pixels"),
        ({"val_fraction": 1}, r"dataset\.val_fraction=1 is not in \(0, 1\)"),
        (
            {"val_fraction": 0.01},
            r"2 of 2 environments have 0 val .*a: 10, b: 10.*val_fraction=0\.1 suffices",
        ),
        (
            {"normalize": {"mean": [0.5], "std": [1, 1, 1]}},
            r"dataset\.normalize\.mean=\[0\.5\].*three numbers",
        ),
        (
            {"normalize": {"mean": [0, 0, 0], "std": [1, 0, 1]}},
            r"dataset\.normalize\.std=\[1,0,1\].*three numbers",
        ),
    ],
)
def test_bad_keys(image_tree: Tree, build: Build, changes: dict[str, Any], words: str) -> None:
    root = image_tree(a=TWO, b=TWO)
    with pytest.raises(DgbenchError, match=words):
        build(root, **changes)


def test_a_copy_that_differs_from_the_published_one_is_told(
    image_tree: Tree, build: Build, caplog: Any
) -> None:
    """Another number of classes or environments is refused, another number of images is told."""
    root = image_tree(art_painting=TWO, cartoon=TWO)
    with refused(
        "has 2 classes .* pacs as published 7;.*dataset.layout.*dataset.published=null",
        DgbenchError,
    ):
        build(root, "pacs")
    published = {"images": 9991, "classes": 2, "environments": ["art_painting", "cartoon"]}
    with caplog.at_level(logging.WARNING):
        build(root, "pacs", published=published)
    assert "has images 20, the published dataset 9991" in caplog.text


# ---- minibatches


def data_of(
    environments: Environments, training: Sequence[str] = ("a", "b"), **changes: Any
) -> EnvironmentData:
    keys = {
        "steps": 200,
        "eval_every": 100,
        "batch_size": 3,
        "eval_batch_size": 4,
        "seed": 0,
        **changes,
    }
    return EnvironmentData(
        environments,
        training,
        environments.table.error_recipes(False, ["val", "test"], training),
        **keys,
    )


def same(first: Sequence[EnvBatch], second: Sequence[EnvBatch]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one.x, other.x, rtol=0, atol=1e-5)
        assert torch.equal(one.y, other.y)


@pytest.mark.parametrize("store", ["ram", "file", "none"])
def test_minibatches_are_a_function_of_seed_and_step(
    image_tree: Tree, build: Build, store: str
) -> None:
    """Wherever the images live, however many steps are asked for at once, whatever came before."""
    root = image_tree(a=TWO, b=TWO, c=TWO)
    expected = data_of(build(root)).batches(62, 4)
    data = data_of(build(root, store=store))
    same([data.batches(step, 1)[0] for step in (62, 63, 64, 65)], expected)
    same(data_of(build(root, store=store)).batches(64, 2), expected[2:])
    assert not torch.equal(data_of(build(root), seed=1).batches(62, 1)[0].x, expected[0].x)


def test_an_environment_is_augmented_alike_in_every_fold(image_tree: Tree, build: Build) -> None:
    environments = build(image_tree(a=TWO, b=TWO, c=TWO))
    [first], [second] = (
        data_of(environments).batches(70, 1),
        data_of(environments, ("b", "c")).batches(70, 1),
    )
    torch.testing.assert_close(first.x[3:], second.x[:3], rtol=0, atol=1e-5)


def test_members_of_a_stack_see_what_they_would_see_alone(image_tree: Tree, build: Build) -> None:
    environments = build(image_tree(a=TWO, b=TWO, c=TWO))
    alone = [data_of(environments, ("a", "b")), data_of(environments, ("b", "c"), seed=5)]
    stacked = EnvironmentData.stack(alone).batches(63, 2)
    for i, data in enumerate(alone):
        same(
            [EnvBatch(batch.x[i], batch.y[i], batch.sizes) for batch in stacked],
            data.batches(63, 2),
        )


def test_training_images_are_augmented_and_scored_ones_are_not(
    image_tree: Tree, build: Build
) -> None:
    root = image_tree(a=TWO, b=TWO, c=TWO)
    for augment in ("domainbed", "ood_bench", "nico", "none"):
        environments = build(root, augment=augment)
        data = data_of(environments)
        plain, _ = environments.store.gather(torch.from_numpy(data.runs[0].order(3)))
        assert torch.equal(data.batches(3, 1)[0].x, plain) is (augment == "none")
        assert environments.info.identity()["variant"]["augment"] == augment
        scored = next(iter(data.val_dataloader()[0]))
        assert torch.equal(
            scored.x,
            environments.store.gather(torch.from_numpy(environments.table.subset("a", "val")))[0],
        )


def test_unknown_augmentation(image_tree: Tree, build: Build) -> None:
    root = image_tree(a=TWO, b=TWO)
    with pytest.raises(
        DgbenchError, match=r"dataset\.augment=auto.*unknown.*none, domainbed, ood_bench, nico"
    ):
        build(root, augment="auto")
    with pytest.raises(DgbenchError, match=r"dataset\.augmentations\.mine\.crop_aspect is missing"):
        build(root, augment="mine", augmentations={"mine": {"crop_area": [1, 1]}})
    with pytest.raises(
        DgbenchError, match=r"dataset\.augmentations\.mine\.crop_in=center.*unknown.*file.*square"
    ):
        build(root, augment="mine", augmentations={"mine": {**UNCHANGED, "crop_in": "center"}})


def test_images_decoded_ahead_are_those_asked_for(image_tree: Tree, build: Build) -> None:
    """Training chunks and scoring batches through the DataLoader,
    then a hint that turns out wrong.
    """
    root = image_tree(a=TWO, b=TWO, c=TWO)
    resident, ahead = (
        data_of(build(root, store=store), steps=5, eval_every=5) for store in ("ram", "none")
    )
    chunks = [list(IntervalLoader(data, lambda: 2)) for data in (resident, ahead)]
    same(*[[batch for chunk in found for batch in chunk] for found in chunks])
    for one, other in zip(resident.val_dataloader(), ahead.val_dataloader(), strict=True):
        same(list(one), list(other))  # type: ignore[arg-type]
    environments = ahead.environments
    environments.store.expect([torch.tensor([1, 2]), torch.tensor([3, 4])])
    x, _ = environments.store.gather(torch.tensor([3, 4]))
    assert torch.equal(x, resident.environments.store.gather(torch.tensor([3, 4]))[0])


def test_a_broken_image_met_ahead(image_tree: Tree, build: Build) -> None:
    root = image_tree(a=TWO, b=TWO)
    (root / "a" / "cat" / "01.png").write_bytes(b"")
    environments = build(root, store="none")
    environments.store.expect([torch.tensor([1, 2])])
    with pytest.raises(
        DgbenchError, match=r"^\S+a/cat/01\.png cannot be decoded \(.*\); fix or delete it$"
    ):
        environments.store.gather(torch.tensor([1, 2]))
