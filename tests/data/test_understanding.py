"""The lines that say what was understood of a dataset, by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.data.description import DatasetInfo
from dgbench.data.understanding import first_and_last, lines_of_dataset, lines_of_datasets
from dgbench.errors import DgbenchError
from tests.complaints import refused
from tests.data.layouts import image
from tests.datasets import described
from tests.studies import composed
from tests.vectors import save


def test_painted_digits() -> None:
    """1,797 digits of scikit-learn: a seventh is kept apart, the others are dealt to four
    environments.
    """
    info = described(composed("dataset=sr_cmnist", "dataset.base=digits"))
    pool = round(0.142857 * 1797)
    dealt = [len(range(i, 1797 - pool, 4)) for i in range(4)]
    named = ", ".join(
        f"{env} ({n})" for env, n in zip(("0.80", "0.85", "0.90", "0.10"), dealt, strict=True)
    )
    assert lines_of_dataset(info) == [
        (
            f"sr_cmnist (digits): 4 given environments, {sum(dealt):,} images: {named}; errors "
            f"are measured in 101 environments, on up to {pool} other images each"
        ),
        "2 classes, in the order of the outputs: digits 5 to 9, digits 0 to 4",
        "validation: 20 % of each environment's images, drawn at random (dataset.split_seed=0)",
    ]


def test_a_table(tmp_path: Path) -> None:
    file = save(tmp_path / "features.npz")
    info = described(composed("dataset=features", f"dataset.path={file}"))
    total = sum(sum(counts.values()) for counts in info.counts.values())
    first, second, _ = lines_of_dataset(info)
    assert first.startswith(f"features: {len(info.given)} environments, {total:,} images")
    assert (
        second
        == f"{info.n_classes} classes, in the order of the outputs: {', '.join(info.class_names)}"
    )


def test_files_that_are_absent() -> None:
    info = described(composed("dataset=pacs", "dataset.root=nowhere"), absent_ok=True)
    assert lines_of_dataset(info)[0].endswith(
        "art_painting, cartoon, photo, sketch; their images are not here yet"
    )


def test_many_names_are_cut() -> None:
    assert first_and_last([str(i) for i in range(100)], 4) == "0, 1, 2, ..., 99"
    assert first_and_last(["a", "b"], 4) == "a, b"


def test_several_datasets_have_a_line_each() -> None:
    infos = [
        DatasetInfo(
            name=f"d{i}",
            variant={},
            base="",
            split_seed=0,
            given=("a",),
            everywhere=("a",),
            n_classes=2,
            image=(),
        )
        for i in range(6)
    ]
    lines = lines_of_datasets(infos)
    assert len(lines) == 5 and lines[-1] == "and 2 more datasets, or forms of them"
    assert len(lines_of_datasets([infos[0], infos[0]])) == 2


def test_a_preset_with_another_number_of_classes_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused alone: that the number of images differs too is no news."""
    for env in ("art_painting", "cartoon", "photo", "sketch"):
        for label in ("dog", "elephant"):
            image(tmp_path / env / label / "0.png")
            image(tmp_path / env / label / "1.png")
    words = ("dataset=pacs", f"dataset.root={tmp_path}", "dataset.val_fraction=0.5")
    with refused(
        r"2 classes \(dog, elephant\), pacs as published 7; .*dataset\.published=null", DgbenchError
    ):
        described(composed(*words))
    assert not caplog.records
    assert described(composed(*words, "dataset.published=null")).n_classes == 2
