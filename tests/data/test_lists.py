"""Lists and tables as people have them: other signs between columns, backslashes, ``split`` for
``subset``, 1.0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.data.datasets.features import FeatureOptions
from dgbench.data.datasets.image_table import ImageTable, rows_of_list, table_of_rows
from dgbench.errors import ConfigError, DataError
from tests.complaints import refused
from tests.vectors import save

Tree = Callable[..., Path]


@pytest.fixture
def tree(image_tree: Tree) -> Path:
    return image_tree(a={"cat": 3, "dog": 3}, b={"cat": 3, "dog": 3})


def lines_of(root: Path, **more: list[str]) -> pd.DataFrame:
    """List the twelve images of the tree."""
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    parts = [path.split("/") for path in paths]
    named = {
        "path": paths,
        "environment": [part[0] for part in parts],
        "class": [part[1] for part in parts],
    }
    return pd.DataFrame({**named, **more})


def table_of_list(
    frame: pd.DataFrame, root: Path, column: str | None = None, **form: Any
) -> ImageTable:
    file = root.parent / "list.csv"
    frame.to_csv(file, index=False, **form)
    return table_of_rows(rows_of_list(file, column), root, None, "same", [])


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_semicolon_or_a_tab_parts_columns(tree: Path, sign: str) -> None:
    usual = table_of_list(lines_of(tree), tree)
    assert table_of_list(lines_of(tree), tree, sep=sign).fingerprint() == usual.fingerprint()


def test_blanks_in_the_first_line_do_not_count(tree: Path) -> None:
    frame = lines_of(tree).rename(columns={"environment": " environment", "class": " class "})
    assert table_of_list(frame, tree).environments == ["a", "b"]


def test_paths_of_windows(tree: Path) -> None:
    usual = table_of_list(lines_of(tree), tree)
    frame = lines_of(tree)
    frame["path"] = frame["path"].str.replace("/", "\\")
    assert table_of_list(frame, tree).fingerprint() == usual.fingerprint()


def test_a_file_may_have_a_backslash_in_its_name(tree: Path) -> None:
    frame = lines_of(tree)
    (tree / "a" / "cat" / "00.png").rename(tree / "a\\cat\\00.png")
    frame["path"] = frame["path"].replace("a/cat/00.png", "a\\cat\\00.png")
    assert "a\\cat\\00.png" in table_of_list(frame, tree).paths


SPLIT = ["train", "valid", "Test"] * 4


def test_a_column_that_says_train_and_test_is_followed_or_refused(tree: Path) -> None:
    """Formerly it was an attribute, and validation images were drawn from those that it says are
    for training.
    """
    frame = lines_of(tree, split=SPLIT)
    with refused(
        r"list\.csv has a column split \(train, valid, Test\).*subset_column=split .*=none",
        DataError,
    ):
        table_of_list(frame, tree)
    followed = table_of_list(frame, tree, "split")
    assert followed.listed.tolist() == [0, 1, 2] * 4
    assert followed.attributes == {}
    ignored = table_of_list(frame, tree, "none")
    assert ignored.listed.tolist() == [-1] * 12
    assert ignored.attributes == {"split": SPLIT}


@pytest.mark.parametrize(
    ("name", "values"), [("split", ["0", "1", "2"]), ("phase", ["training", "", "testing"])]
)
def test_what_looks_like_a_column_of_subsets(tree: Path, name: str, values: list[str]) -> None:
    with refused(f"a column {name} .*dataset.subset_column={name}", DataError):
        table_of_list(lines_of(tree, **{name: values * 4}), tree)


def test_a_column_that_is_none(tree: Path) -> None:
    table = table_of_list(lines_of(tree, light=["dim", "test", "train"] * 4), tree)
    assert set(table.attributes) == {"light"}
    with refused("dataset.subset_column=part is no column of .*; choose from light, none"):
        table_of_list(lines_of(tree, light=["dim"] * 12), tree, "part")
    with refused("is listed in subset 0; use train, val, test", DataError):
        table_of_list(lines_of(tree, split=["0"] * 12), tree, "split")


def test_subset_comes_before_other_names(tree: Path) -> None:
    frame = lines_of(tree, split=["test"] * 12, subset=["train", "train", "val"] * 4)
    assert table_of_list(frame, tree).listed.tolist() == [0, 0, 1] * 4


# ---- features


def options(path: Path | str, **changed: Any) -> FeatureOptions:
    own = {"environments": None, "classes": "same", "val_fraction": 0.2, "split_seed": 0}
    return FeatureOptions(**{"name": "features", "path": path, "columns": "f*", **own, **changed})


def saved_with(sign: str, file: Path) -> Path:
    frame = pd.read_csv(save(file))
    frame.to_csv(file, sep=sign, index=False, float_format="%.17g")
    return file


@pytest.mark.parametrize("sign", [";", "\t"])
def test_features_with_other_signs(tmp_path: Path, sign: str) -> None:
    usual = options(save(tmp_path / "usual.csv")).describe()
    assert options(saved_with(sign, tmp_path / "other.csv")).describe() == usual


def test_commas_in_numbers_are_named(tmp_path: Path) -> None:
    frame = pd.read_csv(save(tmp_path / "x.csv"))
    frame.to_csv(tmp_path / "x.csv", sep=";", decimal=",", index=False)
    with refused(
        r"x\.csv: column f0 holds \w+, e\.g\. '-?\d+,\d+'.*write numbers with a point", DataError
    ):
        options(tmp_path / "x.csv").describe()


def test_a_path_from_python(tmp_path: Path) -> None:
    file = save(tmp_path / "x.npz")
    assert options(file, columns=None).describe() == options(str(file), columns=None).describe()


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_labels_as_floats_are_whole_numbers(tmp_path: Path, suffix: str) -> None:
    """As pandas writes integers of a column that once had a gap; 10 comes after 9."""
    label, environment = np.tile([10.0, 9.0], 30), np.repeat([2.0, 0.0, 1.0], 20)
    file = save(tmp_path / f"x{suffix}", label=label, environment=environment)
    info = options(file, columns=None if suffix == ".npz" else "f*").build()
    assert (info.catalog.classes, info.info.given) == (("9", "10"), ("0", "1", "2"))
    assert info.catalog.labels.tolist() == [1, 0] * 30


def test_features_with_a_column_split(tmp_path: Path) -> None:
    split = np.tile(["train"] * 7 + ["val", "test", "test"], 6)
    file = save(tmp_path / "x.npz", split=split)
    with refused("has a column split .*dataset.subset_column=split", DataError):
        options(file, columns=None).describe()
    info = options(file, columns=None, subset_column="split").describe()
    assert info.counts["a"] == {"train": 14, "val": 2, "test": 4}
    environments = options(file, columns=None, subset_column="none").build()
    assert environments.info.counts["a"] == {"train": 16, "val": 4, "test": 0}
    assert list(environments.catalog.attributes) == ["split"]
    with refused("dataset.subset_column=gone is no column", ConfigError):
        options(file, columns=None, subset_column="gone").describe()
