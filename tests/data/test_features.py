"""dataset=features: what is read of a file, how its rows are split, and every way in which a file
can be wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dgbench.data.datasets.features import FeatureOptions
from dgbench.errors import ConfigError, DataError, DgbenchError
from tests.complaints import refused
from tests.vectors import EACH, ENVIRONMENTS, D, columns, save


def options(path: Path | str, **changed: Any) -> FeatureOptions:
    own: dict[str, Any] = {
        "name": "features", "path": str(path), "columns": None, "environments": None,
        "classes": "same", "val_fraction": 0.2, "split_seed": 0,
    }  # fmt: skip
    return FeatureOptions(**{**own, **changed})


def test_the_rows_are_those_of_the_file(tmp_path: Path) -> None:
    content = columns(age=np.arange(60))
    info = options(save(tmp_path / "x.npz", age=np.arange(60))).describe()
    environments = options(tmp_path / "x.npz").build()
    assert (info.given, info.n_classes, info.image, info.kind, info.beyond) == (
        ENVIRONMENTS,
        2,
        (D,),
        "vectors",
        False,
    )
    assert environments.info == info and environments.catalog.classes == ("cat", "dog")
    assert info.counts == {env: {"train": 16, "val": 4, "test": 0} for env in ENVIRONMENTS}
    for number, env in enumerate(ENVIRONMENTS):
        train, val = environments.table.subset(env, "train"), environments.table.subset(env, "val")
        assert sorted([*train, *val]) == list(range(number * EACH, (number + 1) * EACH))
    positions = torch.tensor([3, 41])
    x, y = environments.store.gather(positions)
    assert torch.equal(x, torch.tensor(content["features"][[3, 41]].astype(np.float32)))
    assert y.tolist() == [1, 1] and x.dtype == torch.float32
    assert environments.catalog.names_at(np.array([3, 41])) == ["3", "41"]
    assert environments.catalog.attributes_at(np.array([3, 41])) == {"age": ["3", "41"]}
    assert environments.catalog.labels[np.array([0, 3])].tolist() == [0, 1]


def test_chosen_environments_in_their_order(tmp_path: Path) -> None:
    environments = options(save(tmp_path / "x.npz"), environments=["c", "a"]).build()
    assert list(environments.info.given) == ["c", "a"]
    own = np.concatenate([environments.table.subset("c", name) for name in ("train", "val")])
    assert sorted(map(int, environments.catalog.names_at(own))) == list(range(40, 60)), (
        "numbers of rows in the file"
    )


def test_numbers_are_named_in_their_order(tmp_path: Path) -> None:
    """10 comes after 9, and integers are names."""
    label, environment = np.tile([10, 9], 30), np.repeat([10, 2, 1], 20)
    info = options(save(tmp_path / "x.npz", label=label, environment=environment)).build()
    assert (info.catalog.classes, info.info.given) == (("9", "10"), ("1", "2", "10"))


def test_blanks_around_names_do_not_count(tmp_path: Path) -> None:
    """'a ' is held out with 'a'; left apart, it would be trained on where 'a' is tested."""
    environment, label = np.repeat(["a", "b", "c"], 20), np.tile(["cat", "dog"], 30)
    path = save(tmp_path / "x.csv",
        environment=[f"{env} " if i % 2 else env for i, env in enumerate(environment)],
                label=[f" {name}" if i % 3 else name for i, name in enumerate(label)])  # fmt: skip
    environments = options(path, columns="f*").build()
    assert (
        environments.info == options(save(tmp_path / "y.csv", label=label), columns="f*").describe()
    )
    assert environments.catalog.classes == ("cat", "dog")


def test_listed_subsets(tmp_path: Path) -> None:
    """Rows named test are the test subset in every fold; a listed val leaves no draw, other
    environments are drawn.
    """
    subset = np.full(60, "", dtype="U5")
    subset[:5], subset[5:8], subset[20:24] = "test", "val", "test"
    environments = options(save(tmp_path / "x.npz", subset=subset)).build()
    assert environments.info.counts == {
        "a": {"train": 12, "val": 3, "test": 5},
        "b": {"train": 13, "val": 3, "test": 4},
        "c": {"train": 16, "val": 4, "test": 0},
    }
    assert environments.table.subset("a", "test").tolist() == [0, 1, 2, 3, 4]
    assert environments.table.subset("a", "val").tolist() == [5, 6, 7]
    recipes = environments.table.error_recipes(False, ["test"], training=["a", "c"])
    assert [(r.env, dict(r.mixture)) for r in recipes] == [
        ("a", {"test/a": 1.0}),
        ("b", {"test/b": 1.0}),
    ]


@pytest.mark.parametrize(
    ("suffix", "chosen"), [(".parquet", "f*"), (".csv", ["f0", "f1", "f2", "f3"])]
)
def test_every_format_is_the_same_dataset(tmp_path: Path, suffix: str, chosen: Any) -> None:
    first = options(save(tmp_path / "x.npz", age=np.arange(60))).build()
    other = options(save(tmp_path / f"x{suffix}", age=np.arange(60)), columns=chosen).build()
    assert other.info == first.info
    assert torch.equal(other.store.values, first.store.values)
    assert [each.catalog.attributes_at(np.array([7])) for each in (first, other)] == [
        {"age": ["7"]}
    ] * 2


def test_a_column_of_lists(tmp_path: Path) -> None:
    content = columns()
    pd.DataFrame({**content, "features": list(content["features"])}).to_parquet(
        tmp_path / "x.parquet"
    )
    assert (
        options(tmp_path / "x.parquet").describe() == options(save(tmp_path / "x.npz")).describe()
    )


def test_missing_attributes_and_subsets_are_empty(tmp_path: Path) -> None:
    content = columns()
    frame = pd.DataFrame({**content, "features": list(content["features"])})
    frame["site"], frame["subset"] = ["north", None] * 30, [None, "train"] * 30
    frame.to_parquet(tmp_path / "x.parquet")
    environments = options(tmp_path / "x.parquet").build()
    assert environments.catalog.attributes_at(np.array([0, 1])) == {"site": ["north", ""]}
    assert environments.info.counts["a"] == {"train": 16, "val": 4, "test": 0}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"age": np.arange(60)}, True),
        ({"features": columns()["features"].astype(np.float32)}, True),
        ({"features": np.where(np.eye(60, D), 7.0, columns()["features"])}, False),
        ({"label": np.tile(["dog", "cat"], 30)}, False),
        ({"label": np.tile(["cat", "emu"], 30)}, False),
        ({"environment": np.repeat(["a", "c", "b"], 20)}, False),
        ({"subset": np.repeat(["test", "train", "train"], [5, 15, 40])}, False),
    ],
)
def test_content_is_what_is_trained_on(tmp_path: Path, changed: dict[str, Any], same: bool) -> None:
    """Not the path, the format, the precision of the file or its attributes."""
    first = options(save(tmp_path / "x.npz")).describe()
    other = options(save(tmp_path / "other.npz", **changed)).describe()
    assert (other.content == first.content) is same
    assert (other.facts() == first.facts()) is same


# ---- files that are wrong

NAN = columns()["features"].copy()
NAN[7, 2] = np.nan
LARGE = columns()["features"].copy()
LARGE[9, 1] = 1e39


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"environment": None}, "environment.*features, label.*array features"),
        ({"label": None}, "has no label"),
        ({"features": None}, "has no features"),
        ({"features": np.zeros((60, 2, 2))}, r"features.*array \(60, 2, 2\).*float64.*numbers \(n"),
        ({"features": np.zeros((60, 0))}, r"features.*array \(60, 0\).*float64"),
        ({"features": np.full((60, 2), "x")}, r"features.*array \(60, 2\).*<U1.*numbers"),
        ({"features": NAN}, r"features.*nan.*row 7, column 2.*1 row\(s\) hold.*finite"),
        ({"features": LARGE}, r"features has 1e\+39 in row 9, column 1"),
        ({"label": np.tile(["cat", "dog"], 29)}, r"label.*shape \(58,\).*60 rows.*features"),
        ({"extra": np.zeros((60, 2))}, r"extra.*shape \(60, 2\).*60 rows"),
        ({"label": np.full(60, "cat")}, "row.*label cat.*two classes.*more"),
        ({"label": np.tile([0.5, 1.5], 30)}, r"label.*0\.5.*row 0.*integers"),
        ({"environment": np.array([*"abc" * 19, "a", "", "c"])}, "row 58.*environment"),
        ({"environment": np.array([*"aaaabbbb" * 7, *"cccc"])},
            "environment c has 4 train and 0 val images"),
        ({"environment": np.repeat(["a", "b"], 30), "label": np.repeat(["cat", "dog"], 30)},
         "environment a.*class dog.*dataset.classes=union"),
        ({"environment": np.array([*"abc"] * 20, dtype=object)}, "environment.*Python objects"),
        ({"subset": np.full(60, "extra")}, "row 0.*subset extra.*train, val.*leave.*empty"),
    ],
)  # fmt: skip
def test_wrong_content(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with refused(said, DgbenchError):
        options(save(tmp_path / "x.npz", **changed)).describe()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": ""}, r"dataset\.path.*empty.*\.npz, \.parquet.*\.csv file"),
        ({"path": "nowhere.npz"}, "dataset.path=nowhere.npz is no file"),
        ({"path": "features.pt"}, "dataset.path=features.pt is no .npz, .parquet, .csv file"),
        ({"columns": ["f0"]}, r"dataset\.columns=\[f0\] names columns of .parquet and .csv files"),
        ({"environments": ["a", "z"]}, r"dataset\.environments.*z.*b, c"),
        ({"environments": []}, r"dataset\.environments=\[\].*list"),
        ({"classes": "some"}, "dataset.classes=some is unknown"),
        ({"val_fraction": 1}, r"dataset\.val_fraction=1 is not in \(0, 1\)"),
        (
            {"val_fraction": 0.01},
            "3 of 3 environments have 0 val .*a: 20, b: 20, c: 20.*val_fraction=0.05 suffices",
        ),
        ({"split_seed": -1}, r"dataset\.split_seed=-1.*integer >= 0"),
        ({"name": "a/b"}, "folder"),
    ],
)
def test_wrong_values(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with refused(said, DgbenchError):
        options(**{"path": save(tmp_path / "x.npz"), **changes}).describe()


def test_the_example_is_a_column_of_numbers(tmp_path: Path) -> None:
    """Not one of text that happens to come first."""
    file = tmp_path / "x.csv"
    file.write_text("environment,class,f0\na,cat,0.5\na,dog,0.25\nb,cat,1\nb,dog,2\n")
    with refused(r"e\.g\. dataset\.columns=\[f0\]", DgbenchError):
        options(file).describe()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (None, r"column features.*dataset\.columns=\[f0\]"),
        (["f0", "zz"], "dataset.columns names zz, which"),
        ("label", "dataset.columns names label, which"),
        ([], r"dataset\.columns=\[\].*features.*f0, f1, f2, f3, site"),
        (3, r"dataset\.columns=3.*list"),
        (["f0", "site"], "column site holds"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_wrong_columns(tmp_path: Path, suffix: str, chosen: Any, said: str) -> None:
    file = save(tmp_path / f"x{suffix}", site=np.tile(["north", "south"], 30))
    with refused(said, DgbenchError):
        options(file, columns=chosen).describe()


def ragged(file: Path) -> None:
    content = columns()
    rows = list(content["features"])
    rows[4] = rows[4][:2]
    pd.DataFrame({**content, "features": rows}).to_parquet(file)


def without_an_environment(file: Path) -> None:
    content = columns()
    content["environment"] = np.array([None, *content["environment"][1:]], dtype=object)
    pd.DataFrame({**content, "features": list(content["features"])}).to_parquet(file)


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("x.npz", lambda file: file.write_text("hello"), "cannot be read.*zip"),
        ("x.npz", lambda file: file.write_bytes(b""), "cannot be read"),
        ("x.parquet", lambda file: file.write_text("hello"), r"cannot be read \(ArrowInvalid"),
        ("x.csv", lambda file: file.write_text(""), r"cannot be read \(EmptyDataError"),
        (
            "x.csv",
            lambda file: file.write_bytes(
                "features,environment,label\n1,\u00e9,0\n".encode("latin-1")
            ),
            r"save it as UTF-8",
        ),
        (
            "x.csv",
            lambda file: file.write_text("features,environment,label\n1,a,0\n1,a,0,9\n"),
            r"line 3, saw 4",
        ),
        (
            "x.csv",
            lambda file: file.write_text("features,environment,label\n" + "1,a,0,9\n" * 3),
            r"more values than",
        ),
        ("x.parquet", ragged, r"values.*features.*shapes \(2,\), \(4,\).*d numbers"),
        ("x.parquet", without_an_environment, "row 0 has no environment"),
    ],
)
def test_files_that_are_something_else(
    tmp_path: Path, name: str, write: Callable[[Path], Any], said: str
) -> None:
    write(tmp_path / name)
    with refused(said, DataError):
        options(tmp_path / name).describe()


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "x.parquet")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow.*installed; pip.*'dgbench\[parquet\]'$"):
        options(file, columns="f*").describe()


def test_a_plan_without_the_file(tmp_path: Path) -> None:
    """As of image files: environments that the configuration names are enough."""
    info = options(tmp_path / "x.npz", environments=["a", "b"]).describe(absent_ok=True)
    assert (info.given, info.content, info.kind) == (("a", "b"), "", "vectors")
    for changes in ({}, {"environments": ["a", "b"]}):
        with pytest.raises(DataError, match=r"x\.npz is no file"):
            options(tmp_path / "x.npz", **changes).describe(absent_ok="environments" not in changes)


def test_reading_that_takes_long_is_named(
    tmp_path: Path, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "x.npz")
    options(path).describe()
    assert f"reading {path}: 1 of 1 files" in capsys.readouterr().err
