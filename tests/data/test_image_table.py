"""Which images a dataset of files has, and one line for every way in which a tree or a list can be
wrong.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgbench.data.datasets.image_table import (
    ImageTable,
    cells_of,
    rows_of_list,
    table_of_folders,
    table_of_rows,
)
from dgbench.data.datasets.splits import subsets_of
from dgbench.errors import DgbenchError
from tests.complaints import refused

Tree = Callable[..., Path]
TWO = {"cat": 2, "dog": 1}


def folders(root: Path, **changes: Any) -> ImageTable:
    keys = {"environments": None, "classes": "same", "bad_files": [], "name": "pacs"}
    return table_of_folders(root, **{**keys, **changes})


def listed(manifest: Path, root: Path, **changes: Any) -> ImageTable:
    keys = {"environments": None, "classes": "same", "bad_files": []}
    return table_of_rows(rows_of_list(manifest), root, **{**keys, **changes})


def test_sorted_names_give_the_order(image_tree: Tree) -> None:
    root = image_tree(sketch={"dog": 1, "cat": 2}, photo={"cat": 1, "dog": 2})
    (root / "photo" / "cat" / "notes.txt").write_text("no image")
    (root / "photo" / "cat" / "._00.png").write_text("a Mac's shadow file")
    table = folders(root)
    assert table.environments == ["photo", "sketch"]
    assert table.classes == ["cat", "dog"]
    assert table.paths == [
        "photo/cat/00.png", "photo/dog/00.png", "photo/dog/01.png",
        "sketch/cat/00.png", "sketch/cat/01.png", "sketch/dog/00.png",
    ]  # fmt: skip
    assert table.env.tolist() == [0, 0, 0, 1, 1, 1]
    assert table.label.tolist() == [0, 1, 1, 0, 0, 1]
    assert table.listed.tolist() == [-1] * 6


def test_chosen_environments_keep_the_order_asked_for(image_tree: Tree) -> None:
    table = folders(image_tree(a=TWO, b=TWO, c=TWO), environments=["c", "a"])
    assert table.environments == ["c", "a"]
    assert table.env.tolist() == [1, 1, 1, 0, 0, 0], "paths are sorted, a comes first"


def test_blanks_around_names_do_not_count(image_tree: Tree, tmp_path: Path) -> None:
    """In a list, where 'a ' would be trained on while 'a' is tested, and of folders."""
    root = image_tree(a=TWO, b=TWO)
    names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.png"))]
    lines = [
        f"{name},{name[0]}{' ' * (i % 2)},{' ' * (i % 2)}{name.split('/')[1]}"
        for i, name in enumerate(names)
    ]
    manifest = tmp_path / "list.csv"
    manifest.write_text("\n".join(["path,environment,class", *lines]))
    assert listed(manifest, root).fingerprint() == folders(root).fingerprint()
    (root / "a").rename(root / "a ")
    (root / "a ").joinpath("cat").rename(root / "a " / " cat")
    table = folders(root, environments=["a"])
    assert (table.environments, table.classes, len(table)) == (["a"], ["cat", "dog"], 3)


def test_bad_files_are_left_out(image_tree: Tree) -> None:
    assert folders(image_tree(a=TWO), bad_files=["a/cat/00.png"]).paths == [
        "a/cat/01.png",
        "a/dog/00.png",
    ]


def test_the_fingerprint_is_that_of_the_content(image_tree: Tree, tmp_path: Path) -> None:
    """A copy elsewhere with other times is the same data;
    another size, name or environment is not.
    """
    root = image_tree(a=TWO, b=TWO)
    before = folders(root)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    os.utime(copy / "a" / "cat" / "00.png", (1, 1))
    assert folders(copy).fingerprint() == before.fingerprint()
    assert folders(copy).state() != before.state(), "but the file may have been written anew"
    (copy / "a" / "cat" / "00.png").write_bytes(b"other")
    assert folders(copy).fingerprint() != before.fingerprint()
    assert folders(root, environments=["a"]).fingerprint() != before.fingerprint()
    some = [True] * 5 + [False]
    assert (
        before.fingerprint(some)
        == folders(root, bad_files=["b/dog/00.png"], classes="union").fingerprint()
    )


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_list_of_paths(image_tree: Tree, tmp_path: Path, form: str) -> None:
    root = image_tree(x=TWO)
    rows = [
        {"path": "x/cat/01.png", "environment": "day", "class": "cat", "subset": "test"},
        {"path": "x/cat/00.png", "environment": "night", "class": "cat", "subset": ""},
        {"path": "x/dog/00.png", "environment": "night", "class": "dog", "subset": "val"},
    ]
    file = tmp_path / f"list.{form}"
    lines = [
        "subset,path,class,environment",
        *(f"{r['subset']},{r['path']},{r['class']},{r['environment']}" for r in rows),
    ]
    file.write_text(json.dumps(rows) if form == "json" else "\ufeff" + "\n".join(lines))
    table = listed(file, root, classes="union")
    assert table.environments == ["day", "night"]
    assert [table.paths[i] for i in range(3)] == ["x/cat/00.png", "x/cat/01.png", "x/dog/00.png"]
    assert table.env.tolist() == [1, 0, 1]
    assert table.label.tolist() == [0, 0, 1]
    assert table.listed.tolist() == [-1, 2, 1]
    assert listed(file, root, classes="union", environments=["night"]).paths == [
        "x/cat/00.png",
        "x/dog/00.png",
    ]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_further_columns_are_attributes_that_change_no_hash(
    image_tree: Tree, tmp_path: Path, form: str
) -> None:
    """In the order of the sorted paths; one that is absent, null or without a name is no attribute
    of that image.
    """
    root = image_tree(x=TWO)
    keys = ("path", "environment", "class")
    plain = [
        dict(zip(keys, (f"x/{c}/{i}.png", "x", c), strict=True))
        for c, i in (("dog", "00"), ("cat", "01"))
    ]
    more = [{**plain[0], "light": "dim", "camera": 3}, {**plain[1], "light": None, "camera": 4}]
    texts = {
        "csv": (
            ""
            "path,environment,class,light,camera,\nx/dog/00.png,x,dog,dim,3,5\nx/cat/01.png,x,cat,,4\n"
        ),
        "json": json.dumps(more),
    }
    (tmp_path / "plain.json").write_text(json.dumps(plain))
    (tmp_path / f"more.{form}").write_text(texts[form])
    before, table = listed(tmp_path / "plain.json", root), listed(tmp_path / f"more.{form}", root)
    assert table.attributes == {"light": ["", "dim"], "camera": ["4", "3"]}
    assert before.attributes == {}
    assert (before.fingerprint(), before.content(), before.state()) == (
        table.fingerprint(), table.content(), table.state(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x/cat/00.png,caf\u00e9,cat", r"byte 0xe9.*; save it as UTF-8"),
        ("x/cat/00.png,x,cat\nx/dog/00.png", "line that is cut short, 'x/dog/00.png'"),
        ("x/cat/00.png,x,cat\nx/dog/00.png,x", "line that is cut short, 'x/dog/00.png,x'"),
        ("x/cat/00.png,x,cat\nx/dog/00.png,x,dog,test", "line that has more values.*x,dog,test"),
        ('x/cat/00.png,x,cat\n"x/dog/00.png,x,dog', "cut short"),
    ],
)
def test_a_list_that_is_cut_or_of_another_encoding(
    image_tree: Tree, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "list.csv"
    file.write_bytes(f"path,environment,class\n{text}\n".encode("latin-1"))
    one_line(lambda: listed(file, image_tree(x=TWO)), said)


def test_a_cell_longer_than_any_name_is_one_line(tmp_path: Path) -> None:
    """Of a list of others too, which the reader of a dataset reads."""
    file = tmp_path / "list.csv"
    file.write_text(f"path,environment,class\nx/cat/00.png,{'x' * 200_000},cat\n")
    one_line(
        lambda: rows_of_list(file), r"list\.csv cannot be read \(field larger than .*; give a CSV"
    )
    one_line(lambda: cells_of(file), r"list\.csv cannot be read \(field larger than ")
    file.write_text(f"path,environment,class,{'x' * 200_000}\nx/cat/00.png,x,cat,y\n")
    one_line(lambda: cells_of(file), r"list\.csv cannot be read \(field larger than ")


def test_a_list_nested_without_end_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text("[" * 100_000)
    one_line(
        lambda: rows_of_list(file), r"list\.json cannot be read \(RecursionError: .*; give a CSV"
    )


def one_line(call: Callable[[], Any], words: str) -> None:
    with refused(words, DgbenchError):
        call()


def test_bad_trees(image_tree: Tree, tmp_path: Path) -> None:
    root = image_tree(photo=TWO, sketch={"cat": 1, "dog": 1})
    one_line(
        lambda: folders(tmp_path / "no"), r"dataset\.root=.*/no is no folder; .*dgbench fetch pacs"
    )
    one_line(
        lambda: folders(root, environments=["foto"]),
        r"dataset\.environments names foto, .* photo, sketch",
    )
    one_line(lambda: folders(root, environments=["photo", "photo"]), r"names photo twice")
    one_line(
        lambda: folders(root, environments="photo"),
        r"dataset\.environments=photo is no list of names",
    )
    (tmp_path / "empty").mkdir()
    one_line(
        lambda: folders(tmp_path / "empty"),
        r"holds no environment folders; .*environment/class/image",
    )
    (tmp_path / "empty" / "photo" / "cat").mkdir(parents=True)
    one_line(
        lambda: folders(tmp_path / "empty"), r"dataset\.root=.*/empty holds no images, such as .jpg"
    )
    (root / "aempty").mkdir()
    one_line(lambda: folders(root), r"environment aempty holds no images; .*dataset\.environments")
    one_line(
        lambda: folders(root / "photo"),
        r"/photo holds no images two .*environment/class/image, but cat/.*; .*folder above",
    )


def test_environments_with_other_classes(image_tree: Tree) -> None:
    root = image_tree(photo={"cat": 1, "dog": 1, "elk": 1}, sketch={"cat": 1})
    one_line(
        lambda: split(root),
        r"environment sketch has no images of class dog, elk, which others have; .*union",
    )
    assert folders(root, classes="union").classes == ["cat", "dog", "elk"]
    (root / "photo" / "elk" / "00.png").unlink()
    one_line(lambda: split(root), r"environment sketch has no images of class dog, which")


def split(root: Path) -> None:
    table = folders(root)
    subsets_of(table, np.ones(len(table), bool), 0.5, 0)


def test_bad_lists(image_tree: Tree, tmp_path: Path) -> None:
    root, file = image_tree(x=TWO), tmp_path / "list.csv"
    one_line(lambda: listed(file, root), r"dataset\.manifest=.*list\.csv is no file")
    file.write_text("path,class\nx/cat/00.png,cat\n")
    one_line(lambda: listed(file, root), r"list\.csv has no column 'environment'")
    head = "path,environment,class,subset\n"
    file.write_text(head + "x/cat/00.png,a,cat,\nx/dog/07.png,a,dog,\n")
    one_line(
        lambda: listed(file, root), r"1 of 2 files cannot be read \(No such file.*x/dog/07\.png"
    )
    file.write_text(head + "x/cat/00.png,a,cat,\nx/cat/00.png,a,dog,\n")
    one_line(lambda: listed(file, root), r"x/cat/00\.png is listed twice")
    file.write_text(head + "x/cat/00.png,a,cat,\nx/dog/00.png,a,dog,exam\n")
    one_line(lambda: listed(file, root), r"is listed in subset exam; use train, val, test")
    file.write_text(head + "x/cat/00.png,a\nx/dog/00.png,a,dog,\n")
    one_line(lambda: listed(file, root), r"line that is cut short, 'x/cat/00\.png,a'")
    wrong = tmp_path / "list.json"
    wrong.write_text("{")
    one_line(lambda: listed(wrong, root), r"cannot be read")
