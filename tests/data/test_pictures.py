"""Base images from class folders and from CIFAR-10's batches, made here in their layout."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dgbench.data.datasets.base_images import CIFAR_BATCHES, BaseImages, load_pictures
from dgbench.errors import DataError
from tests.complaints import refused

Load = Callable[..., BaseImages]


@pytest.fixture
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """``load(root, size, on_bad_image)`` with a cache of its own."""
    cache = tmp_path_factory.mktemp("cache")

    def pictures(root: Path | str, size: int, on_bad_image: str = "fail") -> BaseImages:
        return load_pictures(root, size, on_bad_image, cache, workers=1)

    return pictures


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def plain(color: tuple[int, int, int], height: int = 4, width: int = 4) -> np.ndarray:
    return np.full((height, width, 3), color, dtype=np.uint8)


def cifar(folder: Path, per_batch: int = 3) -> np.ndarray:
    """CIFAR-10's six files with a few images each; returns all pixels (n, 3072)."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (6 * per_batch, 3072), dtype=np.uint8)
    for i, name in enumerate(CIFAR_BATCHES):
        own = slice(i * per_batch, (i + 1) * per_batch)
        content = {"data": rows[own], "labels": [(i + k) % 10 for k in range(per_batch)]}
        written = pickle.dumps(content, protocol=2).replace(b"numpy._core", b"numpy.core")
        for key in content:  # strings of Python 2
            written = written.replace(
                b"X%c\0\0\0%s" % (len(key), key.encode()), b"U%c%s" % (len(key), key.encode())
            )
        (folder / name).write_bytes(written)
    return rows


def test_classes_are_the_folders_that_hold_images(load: Load, tmp_path: Path) -> None:
    """Numbered by name over all splits; images in the order of their paths: test/b, train/a,
    train/b.
    """
    save(tmp_path / "train/b/1.png", plain((1, 2, 3)))
    save(tmp_path / "train/a/9.PNG", plain((4, 5, 6)))
    save(tmp_path / "test/b/0.png", plain((7, 8, 9)))
    (tmp_path / "train/b/Thumbs.db").write_bytes(b"no image")
    base = load(tmp_path, 4)
    assert base.images.dtype == torch.uint8
    assert base.images.shape == (3, 3, 4, 4)
    assert base.images[:, :, 0, 0].tolist() == [[7, 8, 9], [4, 5, 6], [1, 2, 3]]
    assert base.classes.tolist() == [1, 0, 1]
    assert base.peak == 255


def test_images_are_resized_to_a_square_without_a_crop(load: Load, tmp_path: Path) -> None:
    """8 x 16, the left half black, the right white: so is the square of 4; its rows are equal."""
    wide = np.concatenate([plain((0, 0, 0), 8, 8), plain((255, 255, 255), 8, 8)], axis=1)
    save(tmp_path / "a/1.png", wide)
    save(tmp_path / "b/1.png", wide.transpose(1, 0, 2))
    base = load(tmp_path, 4)
    assert base.images.shape == (2, 3, 4, 4)
    assert (base.images[0, 0, :, 0] < 64).all()
    assert (base.images[0, 0, :, 3] > 191).all()
    assert torch.equal(base.images[0].transpose(1, 2), base.images[1])


def test_gray_and_transparent_files_become_three_channels(load: Load, tmp_path: Path) -> None:
    save(tmp_path / "a/1.png", np.full((4, 4), 9, dtype=np.uint8))
    save(tmp_path / "b/1.png", np.full((4, 4, 4), 7, dtype=np.uint8))
    assert load(tmp_path, 4).images[:, :, 0, 0].tolist() == [[9, 9, 9], [7, 7, 7]]


def test_the_name_follows_the_content_not_the_place(load: Load, tmp_path: Path) -> None:
    names = []
    for place, colors in (("here", 10), ("there", 10), ("other", 5000)):
        folder = tmp_path / place / "pets"
        rng = np.random.default_rng(1)
        for kind in "ab":
            save(folder / kind / "1.png", rng.integers(0, colors, (8, 8, 3)).astype(np.uint8))
        names.append(load(folder, 8).name)
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("pets-")


def test_cifar10_batches(load: Load, tmp_path: Path) -> None:
    """Rows are red, green, blue planes of 32 x 32; training batches come first; both places for the
    root work.
    """
    rows = cifar(tmp_path / "cifar-10-batches-py")
    inner, outer = load(tmp_path / "cifar-10-batches-py", 32), load(tmp_path, 32)
    assert torch.equal(inner.images, torch.from_numpy(rows.reshape(-1, 3, 32, 32)))
    assert inner.classes.tolist() == [(i + k) % 10 for i in range(6) for k in range(3)]
    assert torch.equal(inner.images, outer.images)
    assert inner.name == outer.name
    assert load(tmp_path, 8).images.shape == (18, 3, 8, 8)


def test_cifar10_reads_as_torchvision_does(load: Load, tmp_path: Path) -> None:
    from torchvision.datasets import CIFAR10

    class Unchecked(CIFAR10):
        train_list = [(name, "") for name in CIFAR_BATCHES[:5]]  # noqa: RUF012
        test_list = [(CIFAR_BATCHES[5], "")]  # noqa: RUF012

        def _check_integrity(self) -> bool:
            return True

        def _load_meta(self) -> None:
            pass

    cifar(tmp_path / "cifar-10-batches-py")
    base = load(tmp_path, 32)
    theirs = [Unchecked(str(tmp_path), train=train) for train in (True, False)]
    assert np.array_equal(
        base.images.permute(0, 2, 3, 1).numpy(), np.concatenate([part.data for part in theirs])
    )
    assert base.classes.tolist() == [label for part in theirs for label in part.targets]


def test_a_pickle_that_would_run_code_is_refused(load: Load, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    cifar(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(DataError, match=r"data_batch_2.*cut short.*corrupt"):
        load(tmp_path, 32)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "data_batch_3").unlink(), "data_batch_3 is missing"),
        (
            lambda f: (f / "data_batch_1").write_bytes((f / "data_batch_1").read_bytes()[:500]),
            "data_batch_1 is cut",
        ),
        (lambda f: (f / "test_batch").write_bytes(b""), "test_batch is cut"),
        (
            lambda f: (f / "test_batch").write_bytes(
                pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]})
            ),
            "test_batch.*1 images.*labels.*0..9",
        ),
    ],
)
def test_damaged_cifar10_is_named(load: Load, tmp_path: Path, damage: object, said: str) -> None:
    cifar(tmp_path / "cifar-10-batches-py")
    damage(tmp_path / "cifar-10-batches-py")  # type: ignore[operator]
    with refused(said, DataError):
        load(tmp_path, 32)


@pytest.mark.parametrize("content", [b"", b"no image at all", None])
def test_an_unreadable_image_is_named_or_skipped(
    load: Load, tmp_path: Path, content: bytes | None
) -> None:
    """Empty, no image, or cut in the middle."""
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        save(
            tmp_path / name, np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        )
    whole = (tmp_path / "a/1.png").read_bytes()
    (tmp_path / "a/1.png").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(DataError, match=r"a/1\.png cannot be decoded .*dataset\.on_bad_image=skip"):
        load(tmp_path, 16)
    assert load(tmp_path, 16, "skip").classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "holds no images"),
        (["a/1.png"], "images.*class"),
        (["1.png", "a/1.png"], "images.*class"),
    ],
)
def test_a_folder_that_will_not_do(load: Load, tmp_path: Path, files: list[str], said: str) -> None:
    for name in files:
        save(tmp_path / name, plain((1, 1, 1)))
    with pytest.raises(DataError, match=said):
        load(tmp_path, 4)


def test_a_folder_that_is_not_there(load: Load) -> None:
    with pytest.raises(DataError, match=r"dataset\.root=nowhere is no folder"):
        load("nowhere", 4)
