"""Order of classes: text of folders, numbers of lists and tables; foreign models of unclear orders
must say theirs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dgbench.data.datasets.class_order import in_order, is_unclear
from dgbench.data.datasets.features import table_of_features
from dgbench.data.datasets.image_table import table_of_folders, table_of_rows
from dgbench.data.description import Preprocessing
from dgbench.trained.foreign import Foreign
from dgbench.trained.matched import Matched
from tests.complaints import refused
from tests.data.test_layouts import tree

NUMBERS = [str(i) for i in range(12)]
TEXT = sorted(NUMBERS)
IMAGE = Preprocessing.unchanged((3, 4, 4))


def test_integers_of_a_list_are_numbers_and_names_of_folders_are_text(tmp_path: Path) -> None:
    root = tree(tmp_path, [f"north/{k}/0.jpg" for k in NUMBERS])
    rows = [(f"north/{k}/0.jpg", "north", k, None) for k in NUMBERS]
    listed = table_of_rows(rows, root, None, "same", [])
    folders = table_of_folders(root, None, "same", [], "mine")
    assert (listed.classes, folders.classes) == (NUMBERS, TEXT)
    assert [listed.classes[k] for k in listed.label] == [folders.classes[k] for k in folders.label]
    assert listed.fingerprint() != folders.fingerprint(), "the outputs mean other classes"


@pytest.mark.parametrize("kind", [int, str])
def test_integers_of_a_table_are_numbers_also_as_text(tmp_path: Path, kind: type) -> None:
    labels = np.array([kind(i % 12) for i in range(24)])
    file = tmp_path / "table.npz"
    np.savez(file, features=np.zeros((24, 2)), environment=np.array(["a"] * 24), label=labels)
    table = table_of_features(file, None, None, "same")
    assert table.classes == NUMBERS
    assert table.label.tolist() == [i % 12 for i in range(24)]


@pytest.mark.parametrize(
    ("names", "unclear"),
    [
        (NUMBERS, True), (TEXT, True), ([f"class{i}" for i in NUMBERS], True),
        (NUMBERS[:10], False),
        ([f"{i:02}" for i in range(12)], False), (["cat", "dog", "elk2"], False),
        (["-1", "-2", "0"], True),
        (["a1", "a-1", "b"], False),
    ],
)  # fmt: skip
def test_unclear_orders(names: list[str], unclear: bool) -> None:
    assert is_unclear(names) is unclear


def test_in_order() -> None:
    assert in_order(["10", "9", "9", "-1"]) == ["-1", "9", "10"]
    assert in_order(["10", "9", "x"]) == ["10", "9", "x"]


def test_a_perfect_foreign_model_must_name_its_outputs() -> None:
    """Outputs in the order of numbers, classes in that of text: 10 of 12 would be wrong."""
    picture = torch.arange(12.0).view(12, 1, 1, 1).expand(12, 3, 4, 4)

    def perfect(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(x[:, 0, 0, 0].long(), 12).float()

    with refused(r"classes=\[\.\.\.\]"):
        Matched(Foreign(perfect, (), IMAGE), TEXT, IMAGE)
    labels = torch.tensor([TEXT.index(str(i)) for i in range(12)])
    named = Matched(Foreign(perfect, NUMBERS, IMAGE), TEXT, IMAGE)
    assert named(picture).argmax(1).tolist() == labels.tolist()
    assert (labels != torch.arange(12)).sum() == 10, "what was silently counted as errors"
