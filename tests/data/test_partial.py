"""A view of environments in which classes differ in where they train: eight images, counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.batches import ErrorRecipe
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.partial import PartialEnvironments
from dgbench.errors import DataError


class Small(Environments):
    """Environments a and b; of each, train holds labels 0 0 0 1 1, val 0 1, test 0 0 1 1 1: positions in that order."""

    def __init__(self) -> None:
        self.given, self.image, self.n_classes = ["a", "b"], (1, 1, 1), 2
        self.labels = torch.tensor([0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1] * 2)
        self.places = {"train": np.arange(5), "val": np.arange(5, 7), "test": np.arange(7, 12)}

    def identity(self) -> dict[str, Any]:
        return {"split_seed": 3}

    def to(self, device: torch.device) -> None:
        pass

    def subset(self, env: str, name: str) -> np.ndarray:
        return self.places[name] + 12 * self.given.index(env)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return indices.float().view(-1, 1, 1, 1), self.labels[indices]

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        assert (everywhere, list(training)) == (False, [] if "test" in subsets else ["a", "b"])
        return [ErrorRecipe(env, name, {f"{name}/{env}": 1.0}) for name in subsets for env in self.given]

    def eval_sets(self, names: Sequence[str]) -> Mapping[str, EvalSet]:
        places = {name: name.split("/") for name in names}
        found = {name: torch.from_numpy(self.subset(env, subset)) for name, (subset, env) in places.items()}
        return {name: EvalSet(indices, indices % 2) for name, indices in found.items()}


# class 0 trains in a with 2 images and is tested in b; class 1 trains in b and is tested in a with 1 image
TRAINING = {"a": {0: 2}, "b": {1: None}}
TESTED = {"a": {1: 1}, "b": {0: None}}


@pytest.fixture
def view() -> PartialEnvironments:
    return PartialEnvironments(Small(), TRAINING, TESTED)


def test_training_images(view: PartialEnvironments) -> None:
    """Of a two of positions 0 1 2, in order; of b all of label 1, which are 15 and 16."""
    kept = view.subset("a", "train").tolist()
    assert len(kept) == 2
    assert kept == sorted(kept)
    assert set(kept) < {0, 1, 2}
    assert view.subset("b", "train").tolist() == [15, 16]
    assert view.subset("a", "val").tolist() == [5]  # limits do not hold for val


def test_scores_say_what_was_held_out(view: PartialEnvironments) -> None:
    """val counts the classes trained on, test the classes never trained on there."""
    scores = view.error_recipes(False, ["val", "test"])
    assert [(s.env, s.subset, s.held_out) for s in scores] == [
        ("a", "val", False), ("b", "val", False), ("a", "test", True), ("b", "test", True),
    ]  # fmt: skip
    passes = view.eval_sets([name for score in scores for name in score.mixture])
    val_a, val_b, test_a, test_b = (passes[name].indices.tolist() for s in scores for name in s.mixture)
    assert (val_a, val_b) == ([5], [18])
    assert len(test_a) == 1
    assert set(test_a) < {9, 10, 11}
    assert test_b == [19, 20]
    features = [p.feature.tolist() for p in passes.values() if p.feature is not None]
    assert features == [[i % 2 for i in p.indices.tolist()] for p in passes.values()]


def test_which_images_a_limit_keeps_depends_on_the_split_seed_alone(view: PartialEnvironments) -> None:
    again = PartialEnvironments(Small(), TRAINING, {"a": {1: 2}})
    assert again.subset("a", "train").tolist() == view.subset("a", "train").tolist()


def test_nothing_left_is_told_before_training() -> None:
    with pytest.raises(DataError, match=r"environment b has no test image of class 2; choose another protocol\.seed"):
        PartialEnvironments(Small(), TRAINING, {"b": {2: None}}).error_recipes(False, ["test"])


def test_labels_without_images() -> None:
    """The default gathers; more positions than one chunk come back in order."""
    many = np.tile(np.arange(24), 20)
    assert Small().labels_at(many).tolist() == Small().labels.tolist() * 20
