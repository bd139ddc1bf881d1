"""NICO++'s official lists of training and test images, on a small tree in their layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dgbench.data.datasets.image_table import table_of_rows
from dgbench.data.datasets.readers import official_lists
from dgbench.errors import DataError

FOLDER = "NICO_DG_official"


def test_official_lists(image_tree: Callable[..., Path]) -> None:
    """Paths below the root with blanks in class names, a number that is not needed, train and test
    apart.
    """
    root = image_tree(
        "nico/NICO_DG", dim={"hot air balloon": 2, "cat": 1}, rock={"hot air balloon": 1, "cat": 1}
    ).parent
    lists = root / FOLDER
    lists.mkdir()
    with pytest.raises(DataError, match=r"NICO_DG_official lists no image"):
        official_lists(root=root, folder=FOLDER)
    (lists / "dim_train.txt").write_text(
        "NICO_DG/dim/hot air balloon/00.png 3\nNICO_DG/dim/cat/00.png 7\n"
    )
    (lists / "dim_test.txt").write_text("./NICO_DG/dim/hot air balloon/01.png 3\n\n")
    (lists / "rock_test.txt").write_text(
        "NICO_DG/rock/cat/00.png 7\nNICO_DG/rock/hot air balloon/00.png 3\n"
    )
    (lists / "readme.txt").write_text("not a list")
    table = table_of_rows(official_lists(root=root, folder=FOLDER), root, None, "same", [])
    assert table.environments == ["dim", "rock"]
    assert table.classes == ["cat", "hot air balloon"]
    assert table.env.tolist() == [0, 0, 0, 1, 1]
    assert table.label.tolist() == [0, 1, 1, 0, 1]
    assert table.listed.tolist() == [0, 0, 2, 2, 2]
    (lists / "rock_test.txt").write_text("NICO_DG/rock/cat/00.png\n")
    with pytest.raises(
        DataError, match=r"rock_test\.txt line 1.*path.*number: NICO_DG/rock/cat/00\.png; correct"
    ):
        official_lists(root=root, folder=FOLDER)
    with pytest.raises(
        DataError, match=r"nowhere.*folder.*; put NICO\+\+'s official lists.*take.*tree"
    ):
        official_lists(root=root, folder="nowhere")
