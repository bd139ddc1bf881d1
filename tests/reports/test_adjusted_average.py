"""The published "average" of Waterbirds weighs groups by their shares of the training images."""

from __future__ import annotations

import numpy as np
import pytest

import dgbench
from tests.complaints import refused

#: training images of Waterbirds by class and background (Sagawa et al., 2020), and tested images and right ones here
TRAINING = {
    "y=land, place=land": 3498,
    "y=land, place=water": 184,
    "y=water, place=land": 56,
    "y=water, place=water": 1057,
}
TESTED = {"y=land, place=land": (100, 99), "y=land, place=water": (100, 51), "y=water, place=land": (100, 52),
          "y=water, place=water": (100, 98)}  # fmt: skip


def predictions() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    true, predicted, place = [], [], []
    for name, (n, right) in TESTED.items():
        y, where = (part.split("=")[1] for part in name.split(", "))
        other = {"land": "water", "water": "land"}[y]
        true += [y] * n
        predicted += [y] * right + [other] * (n - right)
        place += [where] * n
    return np.array(true), np.array(predicted), {"y": np.array(true), "place": np.array(place)}


def test_groups_weigh_as_in_training() -> None:
    true, predicted, groups = predictions()
    frame = dgbench.score(true, predicted, groups["place"], groups=groups, training_groups=TRAINING)
    accuracy = np.array([right / n for n, right in TESTED.values()])
    images = np.array(list(TRAINING.values()))
    measures = frame.loc["measure"]["error"]
    assert measures["adjusted_average"] == pytest.approx(1 - accuracy @ images / images.sum())
    assert 100 * (1 - measures["adjusted_average"]) == pytest.approx(96.4, abs=0.1)
    assert measures["overall"] == pytest.approx(0.25), "75.0 where the published average is 96.4"


def test_absent_where_shares_are_not_known() -> None:
    true, predicted, groups = predictions()
    frame = dgbench.score(true, predicted, groups["place"], groups=groups)
    assert "adjusted_average" not in frame.loc["measure"].index


def test_a_group_that_is_not_tested_has_a_reason() -> None:
    true, predicted, groups = predictions()
    more = {**TRAINING, "y=emu, place=land": 5}
    line = dgbench.score(true, predicted, groups["place"], groups=groups, training_groups=more).loc["measure"]
    assert np.isnan(line.loc["adjusted_average", "error"])
    assert line.loc["adjusted_average", "reason"] == "trained on, but not tested: y=emu, place=land"


def test_what_fits_no_group() -> None:
    true, predicted, groups = predictions()
    with refused("training_groups names .*land.*none of the groups; choose from .*y=land, place=land"):
        dgbench.score(true, predicted, groups["place"], groups=groups, training_groups={"land": 1})
    with refused("training_groups names images of groups, and there are no groups"):
        dgbench.score(true, predicted, groups["place"], training_groups=TRAINING)
    with refused("training_groups.* is no mapping from groups to numbers"):
        dgbench.score(true, predicted, groups["place"], groups=groups, training_groups=[1, 2])
