"""A view of environments in which classes differ in where they train: eight images, counted by
hand.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Catalog, Environments, EvalSet, Table, TensorStore
from dgbench.data.partial import partial
from dgbench.errors import DataError

SPLIT_SEED = 3
PLACES = {"train": np.arange(5), "val": np.arange(5, 7), "test": np.arange(7, 12)}


class PaintedSmall(Table):
    """Every eval set is painted with the parity of its positions."""

    def eval_set(self, name: str) -> EvalSet:
        indices = super().eval_set(name).indices
        return EvalSet(indices, indices % 2)


def small() -> Environments:
    """Environments a and b; of each, train holds labels 0 0 0 1 1, val 0 1, test 0 0 1 1 1:
    positions in that order.
    """
    subsets = {(env, name): 12 * i + PLACES[name] for i, env in enumerate("ab") for name in PLACES}
    info = DatasetInfo(
        name="small", variant={}, base="", split_seed=SPLIT_SEED, given=("a", "b"),
        everywhere=("a", "b"), n_classes=2, image=(1, 1, 1),
    )  # fmt: skip
    labels = torch.tensor([0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1] * 2)
    catalog = Catalog(labels.numpy(), ("0", "1"), Preprocessing.unchanged(info.image))
    return Environments(
        PaintedSmall(info, subsets),
        catalog,
        TensorStore(torch.arange(24.0).view(-1, 1, 1, 1), labels),
    )


# class 0 trains in a with 2 images and is tested in b; class 1 trains in b and is tested in a with
# 1 image
TRAINING = {"a": {0: 2}, "b": {1: None}}
TESTED = {"a": {1: 1}, "b": {0: None}}


@pytest.fixture
def view() -> Environments:
    return partial(small(), TRAINING, TESTED)


def test_training_images(view: Environments) -> None:
    """Of a two of positions 0 1 2, in order; of b all of label 1, which are 15 and 16."""
    kept = view.table.subset("a", "train").tolist()
    assert len(kept) == 2
    assert kept == sorted(kept)
    assert set(kept) < {0, 1, 2}
    assert view.table.subset("b", "train").tolist() == [15, 16]
    assert view.table.subset("a", "val").tolist() == [5]  # limits do not hold for val


def test_scores_say_what_was_held_out(view: Environments) -> None:
    """val counts the classes trained on, test the classes never trained on there."""
    scores = view.table.error_recipes(False, ["val", "test"])
    assert [(s.env, s.subset, s.held_out) for s in scores] == [
        ("a", "val", False), ("b", "val", False), ("a", "test", True), ("b", "test", True),
    ]  # fmt: skip
    passes = view.eval_sets([name for score in scores for name in score.mixture])
    val_a, val_b, test_a, test_b = (
        passes[name].indices.tolist() for s in scores for name in s.mixture
    )
    assert (val_a, val_b) == ([5], [18])
    assert len(test_a) == 1
    assert set(test_a) < {9, 10, 11}
    assert test_b == [19, 20]
    features = [p.feature.tolist() for p in passes.values() if p.feature is not None]
    assert features == [[i % 2 for i in p.indices.tolist()] for p in passes.values()]


def test_which_images_a_limit_keeps_depends_on_the_split_seed_alone(view: Environments) -> None:
    again = partial(small(), TRAINING, {"a": {1: 2}})
    assert again.table.subset("a", "train").tolist() == view.table.subset("a", "train").tolist()


def test_nothing_left_is_told_before_training() -> None:
    with pytest.raises(DataError, match=r"environment b.*test image.*class 2.*protocol\.seed"):
        partial(small(), TRAINING, {"b": {2: None}}).table.error_recipes(False, ["test"])
