"""Errors of the most frequent class, counted by hand from labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgbench.batches import ErrorRecipe
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Catalog, Environments, EvalSet, Table, TensorStore
from dgbench.data.majority import majority_class, with_majority_errors
from dgbench.data.partial import partial
from dgbench.plan.folds import Fold
from dgbench.training.study import recipes_of

#: of environment and subset; class 1 is the most frequent of a's training images, class 0 of b's
#: and of both together
LABELS = {
    ("a", "train"): [1, 1, 0], ("a", "val"): [1, 0], ("b", "train"): [0, 0, 2, 0],
    ("b", "val"): [2, 2, 2, 1],
}  # fmt: skip


class Judged(Table):
    """The images of b are a pool that two other eval sets show too,
    the second one of them in part.
    """

    def eval_set(self, name: str) -> EvalSet:
        if name == "few":
            return EvalSet(torch.from_numpy(self.subset("b", "train")[:2]))
        return super().eval_set("train/b" if name == "pool" else name)


def environments() -> Environments:
    subsets, labels = {}, []
    for place, of_place in LABELS.items():
        subsets[place] = np.arange(len(labels), len(labels) + len(of_place))
        labels += of_place
    info = DatasetInfo(
        name="small", variant={}, base="", split_seed=0, given=("a", "b"), everywhere=("a", "b"),
        n_classes=3, image=(1, 1, 1),
    )  # fmt: skip
    catalog = Catalog(np.array(labels), ("0", "1", "2"), Preprocessing.unchanged(info.image))
    pixels = torch.zeros(len(labels), 1, 1, 1)
    return Environments(Judged(info, subsets), catalog, TensorStore(pixels, torch.tensor(labels)))


@pytest.mark.parametrize(
    ("training", "label"), [(["a"], 1), (["b"], 0), (["a", "b"], 0), ([], None)]
)
def test_the_most_frequent_class_is_that_of_all_training_images_together(
    training: list[str], label: int | None
) -> None:
    assert majority_class(environments(), training) == label


def test_of_two_that_tie_the_first_class_counts() -> None:
    whole = environments()
    tied = partial(whole, {"a": {0: None, 1: 1}, "b": {2: None}}, {"a": {0: None}, "b": {2: None}})
    assert majority_class(tied, ["a"]) == 0  # one image of each


@pytest.mark.parametrize(
    ("held_out", "wrong"),
    [
        # trained on b, whose most frequent class is 0
        ("a", {("a", "test"): 2, ("a", "val"): 1, ("b", "val"): 4, ("b", "train"): 1}),
        # trained on a, whose most frequent class is 1
        ("b", {("b", "test"): 4, ("b", "val"): 3, ("a", "val"): 1, ("a", "train"): 1}),
    ],
)
def test_recipes_of_a_fold_know_their_errors(
    held_out: str, wrong: dict[tuple[str, str], int]
) -> None:
    training = tuple(env for env in "ab" if env != held_out)
    fold = Fold("0", training, (held_out,))
    recipes = recipes_of(fold, environments(), ["train", "val", "test"], grouped=False)
    assert {(recipe.env, recipe.subset): recipe.majority_wrong for recipe in recipes} == wrong


def test_of_a_mixture_the_expected_number_counts() -> None:
    """Of four images of the pool 1 is not class 0, of the two others none: 0.75 of one."""
    (mixed,) = with_majority_errors(
        [ErrorRecipe("c", "test", {"pool": 0.75, "few": 0.25})], environments(), ["b"]
    )
    assert mixed.majority_wrong == pytest.approx(0.75)
    thirds = {"pool": 1 / 3, "train/b": 2 / 3}
    (equal,) = with_majority_errors([ErrorRecipe("c", "test", thirds)], environments(), ["b"])
    assert equal.majority_wrong == 1.0, "the same images, whatever is painted: no rounding"


def test_a_protocol_that_trains_on_some_classes_counts_those() -> None:
    """Class 2 alone trains in b, so it is what is always said;
    a is tested on its classes 0 and 1.
    """
    part = partial(environments(), {"b": {2: None}}, {"a": {0: None, 1: None}})
    fold = Fold("0", ("b",), ("a",))
    recipes = with_majority_errors(
        part.table.error_recipes(False, ["val", "test"], fold.training), part, ["b"]
    )
    assert {(recipe.env, recipe.subset): recipe.majority_wrong for recipe in recipes} == {
        ("b", "val"): 0.0,
        ("a", "test"): 3.0,
    }


def test_without_training_images_nothing_is_known() -> None:
    (recipe,) = with_majority_errors([ErrorRecipe("a", "val", {"val/a": 1.0})], environments(), [])
    assert recipe.majority_wrong is None
