"""Frames of a clip, tiles of a patient and rows of a user stay on one side of the split, or a
caution says so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.data.datasets.features import FeatureOptions
from dgbench.data.datasets.split_units import units_by_pattern
from dgbench.data.datasets.splits import warn_once
from dgbench.errors import ConfigError, DataError
from tests.complaints import refused
from tests.studies import make_plan

FOLDER = (
    "dataset=image_folder", "dataset.image_size=8", "backbone=mlp", "init=random",
    "hparams.batch_size=4", "paths.cache_dir=nowhere",
)  # fmt: skip
ENVIRONMENTS, CLIPS, FRAMES = ("a", "b", "c"), 10, 6


def frame_of(**more: Any) -> pd.DataFrame:
    """Three environments of ten clips of six frames;
    the clip tells the class, nothing else does.
    """
    rng = np.random.default_rng(0)
    clip = np.tile(np.repeat(np.arange(CLIPS), FRAMES), len(ENVIRONMENTS))
    env = np.repeat(ENVIRONMENTS, CLIPS * FRAMES)
    names = [f"{e}{c}" for e, c in zip(env, clip, strict=True)]
    label = np.where(clip % 2, "cat", "dog")
    columns = {
        "environment": env,
        "label": label,
        "clip": names,
        "f0": rng.normal(size=len(env)),
        **more,
    }
    return pd.DataFrame(columns)


def options(tmp_path: Path, frame: pd.DataFrame, **changed: Any) -> FeatureOptions:
    file = tmp_path / "x.csv"
    frame.to_csv(file, index=False)
    own = {
        "environments": None,
        "classes": "same",
        "val_fraction": 0.2,
        "split_seed": 0,
        "columns": "f*",
    }
    return FeatureOptions(**{"name": "features", "path": str(file), **own, **changed})


def sides(
    tmp_path: Path, frame: pd.DataFrame, column: str = "clip", **changed: Any
) -> dict[str, set[str]]:
    """The values of a column in train and in val, over all environments."""
    environments = options(tmp_path, frame, **changed).build()
    return {
        subset: {
            value
            for env in environments.info.given
            for value in frame[column].iloc[environments.table.subset(env, subset)]
        }
        for subset in ("train", "val")
    }


def test_no_clip_is_on_both_sides(tmp_path: Path) -> None:
    frame = frame_of()
    row_by_row = sides(tmp_path, frame)
    assert row_by_row["train"] & row_by_row["val"], "the case that is cured"
    by_clip = sides(tmp_path, frame, split_by="clip")
    assert not by_clip["train"] & by_clip["val"]
    info = options(tmp_path, frame, split_by="clip").describe()
    assert info.counts["a"] == {"train": 48, "val": 12, "test": 0}, "two of ten clips"
    assert info.variant["split_by"] == "clip"
    assert "split_by" not in options(tmp_path, frame).describe().variant


def test_the_seed_decides_which_clips(tmp_path: Path) -> None:
    frame = frame_of()
    one, same, other = (
        sides(tmp_path, frame, split_by="clip", split_seed=seed) for seed in (0, 0, 1)
    )
    assert one == same != other


def test_a_user_of_several_environments_is_on_one_side_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    frame = frame_of(user=np.tile(np.repeat(np.arange(CLIPS), FRAMES), len(ENVIRONMENTS)))
    with caplog.at_level(logging.WARNING):
        by_user = sides(tmp_path, frame, "user", split_by="user")
    assert not by_user["train"] & by_user["val"]
    (said,) = {record.getMessage() for record in caplog.records}
    assert re.search("split_by=user: 10 of 10 values are in several environments", said)


def test_one_large_clip_does_not_fill_the_validation_set(tmp_path: Path) -> None:
    """Nine clips of four frames, one of 24: val may have 12 of 60, three small clips, never the
    large one.
    """
    frame = frame_of(clip=np.tile(["big"] * 24 + [f"c{i}" for i in range(9) for _ in range(4)], 3))
    for seed in range(5):
        val = sides(tmp_path, frame, split_by="clip", split_seed=seed)["val"]
        assert len(val) == 3 and "big" not in val


def test_two_halves_are_divided_whatever_the_fraction(tmp_path: Path) -> None:
    frame = frame_of(half=np.tile(np.repeat(["x", "y"], 30), 3))
    info = options(tmp_path, frame, split_by="half").describe()
    assert info.counts["a"] == {"train": 30, "val": 30, "test": 0}


def test_what_cannot_be_divided_is_refused_together(tmp_path: Path) -> None:
    with refused(
        r"3 of 3 environments \(a: 60, b: 60, c: 60\) cannot be divided .*dataset\.split_by"
    ):
        options(tmp_path, frame_of(site=np.repeat(["x", "y", "z"], 60)), split_by="site").describe()


def test_wrong_columns(tmp_path: Path) -> None:
    with refused("dataset.split_by=patient is no further column of the list; choose from clip"):
        options(tmp_path, frame_of(), split_by="patient").describe()
    with refused(
        r"split_by=user: 3 of 180 rows have no value there \(row 0, row 1, row 2\)", DataError
    ):
        options(
            tmp_path, frame_of(user=["", "", "", *["u", "v", "w"] * 59]), split_by="user"
        ).describe()


def test_a_list_that_divides_a_clip(tmp_path: Path) -> None:
    # the ninth clip is cut after two of its frames
    subset = np.tile(["train"] * 50 + ["val"] * 10, 3)
    with refused(r"the list divides 3 of 30 values.* one of a between train and val", DataError):
        options(tmp_path, frame_of(subset=subset), split_by="clip").describe()


def cautions(
    tmp_path: Path, frame: pd.DataFrame, caplog: pytest.LogCaptureFixture, **changed: Any
) -> list[str]:
    warn_once.cache_clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        options(tmp_path, frame, **changed).describe()
    return [record.getMessage() for record in caplog.records]


def test_a_column_on_both_sides_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (said,) = cautions(tmp_path, frame_of(), caplog)
    assert re.search(r"\d+% of the validation rows share their clip .*dataset\.split_by=clip", said)
    assert "\n" not in said
    assert not cautions(tmp_path, frame_of(), caplog, split_by="clip")


def test_kinds_and_names_of_single_rows_are_no_units(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two kinds of weather for two classes, and a number of each row."""
    frame = frame_of(weather=["sun", "rain"] * 90, number=np.arange(180)).drop(columns="clip")
    assert not cautions(tmp_path, frame, caplog)


def test_patterns_of_paths() -> None:
    paths = ["a/cat/clip1_0.png", "a/cat/clip1_1.png", "a/dog/clip2_0.png", "b/dog/clip2_1.png"]
    assert units_by_pattern("(clip[0-9]+)_", paths).tolist() == [0, 0, 1, 1]
    assert units_by_pattern("^[^/]*", paths).tolist() == [0, 0, 0, 1], (
        "all that is found where there is no group"
    )
    assert units_by_pattern("^([^/]*).*(clip[0-9])", paths).tolist() == [0, 0, 1, 2]
    with refused(r"split_pattern=\(clip is no regular expression"):
        units_by_pattern("(clip", paths)
    with refused(
        r"split_pattern=clip1 finds nothing in 2 of 4 paths \(a/dog/clip2_0.png, "
        r"b/dog/clip2_1.png\)"
    ):
        units_by_pattern("clip1", paths)


def test_a_pattern_keeps_frames_of_files_together(
    image_tree: Callable[..., Path], tmp_path: Path
) -> None:
    root = image_tree(a={"cat": 20, "dog": 20}, b={"cat": 20, "dog": 20})
    for image in root.rglob("*.png"):
        image.rename(image.with_name(f"clip{int(image.stem) // 5}_{image.stem}.png"))
    dataset = make_plan(
        tmp_path, *FOLDER, f"dataset.root={root}", "dataset.split_pattern='^(.*)_[0-9]+[.]'"
    ).dataset
    table = dataset.table()
    positions = dataset.planned()[1]
    clips = np.array([re.sub(r"_\d+\.png", "", path) for path in table.paths])
    both = set(clips[positions["a", "train"]]) & set(clips[positions["a", "val"]])
    assert not both


def frames_of_clips(root: Path) -> list[tuple[str, str, str, None, dict[str, str]]]:
    """List the images as a user's own reader does: five of a clip."""
    paths = sorted(path.relative_to(root) for path in root.rglob("*.png"))
    return [
        (
            path.as_posix(),
            path.parts[0],
            path.parts[1],
            None,
            {"clip": f"{path.parent}/{int(path.stem) // 5}"},
        )
        for path in paths
    ]


def test_readers_of_a_users_own_are_cautioned(
    image_tree: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Published layouts have a published split, and no caution."""
    root = image_tree(a={"cat": 20, "dog": 20}, b={"cat": 20, "dog": 20})
    reader = (
        "dataset.reader={_target_: tests.data.test_split_units.frames_of_clips, _partial_: true}"
    )
    asked = [*FOLDER, f"dataset.root={root}", reader]
    for words, number in (([], 1), (["dataset.split_by=clip"], 0)):
        warn_once.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            dataset = make_plan(tmp_path, *asked, *words).dataset
        said = [
            record.getMessage()
            for record in caplog.records
            if "share their clip" in record.getMessage()
        ]
        assert len(said) == number
    subsets, clips = dataset.planned()[1], dataset.table().attributes["clip"]
    sides = [{clips[k] for k in subsets["a", subset]} for subset in ("train", "val")]
    assert not sides[0] & sides[1]
    published = dataset.model_copy(
        update={"reader": {"_target_": "dgbench.data.datasets.readers.fmow"}}
    )
    assert dataset._lists_own_columns() and not published._lists_own_columns()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["dataset.split_by=clip"],
            "split_by=clip names a column of a list, and dataset.root is read without one",
        ),
        (
            ["dataset.split_by=clip", "dataset.split_pattern=x"],
            "split_by and dataset.split_pattern are both set",
        ),
        (["dataset.subset_column=split"], "subset_column=split names a column of a list"),
    ],
)
def test_keys_that_nothing_reads(
    image_tree: Callable[..., Path], tmp_path: Path, words: list[str], said: str
) -> None:
    root = image_tree(a={"cat": 5, "dog": 5}, b={"cat": 5, "dog": 5})
    with refused(said, ConfigError):
        make_plan(tmp_path, *FOLDER, f"dataset.root={root}", *words)


def test_a_column_changes_the_hash(tmp_path: Path) -> None:
    frame_of().to_csv(tmp_path / "x.csv", index=False)
    words = [
        "dataset=features",
        f"dataset.path={tmp_path}/x.csv",
        "dataset.columns='f*'",
        "hparams.batch_size=8",
    ]
    plain, by_clip = (
        make_plan(tmp_path, *words, *more).spec for more in ([], ["dataset.split_by=clip"])
    )
    assert plain.digest != by_clip.digest
