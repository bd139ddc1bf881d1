"""Trees of pictures as people have them, and as published archives unpack: read right, or refused
in one line.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from dgbench.data.datasets.image_table import ImageTable, table_of_folders
from dgbench.data.datasets.layouts import subset_of
from dgbench.data.datasets.splits import subsets_of
from dgbench.errors import DgbenchError
from tests.complaints import refused

JPEG, PNG = b"\xff\xd8\xff\xe0 no picture needs to be decoded", b"\x89PNG\r\n\x1a\n"
ENVS, CLASSES = ("north", "south"), ("fox", "hare", "owl")


def tree(root: Path, paths: Iterable[str], content: bytes = JPEG) -> Path:
    """Files with these paths, which begin as a JPEG does."""
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return root


def read(root: Path, layout: str | None = None, **keys: object) -> ImageTable:
    arguments = {"environments": None, "classes": "same", "bad_files": [], "name": "mine", **keys}
    return table_of_folders(root, layout=layout, **arguments)  # type: ignore[arg-type]


def product(
    pattern: str, n: int = 2, envs: Iterable[str] = ENVS, splits: Iterable[str] = ("train", "test")
) -> list[str]:
    """Paths of n pictures for every environment, split and class that a pattern names."""
    paths = [
        pattern.format(e=env, s=split, c=label, i=i)
        for env in envs
        for split in splits
        for label in CLASSES
        for i in range(n)
    ]
    return list(dict.fromkeys(paths))


USUAL = product("{e}/{c}/{i}.jpg")
DECORATED = ("training_set", "test_set")
OTHER_NAMES = ("Train", "Validation", "Test")
#: name -> files, layout, counts by environment and class that were made
RIGHT: dict[str, tuple[list[str], str | None, int]] = {
    "plain": (USUAL, None, 2),
    "Mac's archive": ([*USUAL, "__MACOSX/north/fox/._0.jpg", ".DS_Store", "north/.DS_Store"], None,
        2),
    "Windows' thumbnails": ([*USUAL, "north/fox/Thumbs.db", "south/desktop.ini"], None, 2),
    "checkpoints of notebooks": ([*USUAL,
            *product("{e}/{c}/.ipynb_checkpoints/{i}-checkpoint.jpg")], None, 2),
    "checkpoints one level up": ([*USUAL, "north/.ipynb_checkpoints/0-checkpoint.jpg"], None, 2),
    "a repository": ([*USUAL, ".git/objects/aa.jpg", "README.md", "LICENSE"], None, 2),
    "Synology's folders": ([*USUAL, "north/@eaDir/fox/0.jpg", "@eaDir/north/0.jpg"], None, 2),
    "lists beside folders (PACS)": ([*USUAL, "art_train_kfold.txt", "north/list.csv"], None, 2),
    "annotations beside pictures": ([*USUAL, *product("{e}/{c}/{i}.xml")], None, 2),
    "arrays beside pictures (Office-Caltech)": ([*USUAL, *product("{e}/{c}/{i}.mat")], None, 2),
    "upper-case endings": (product("{e}/{c}/{i}.JPEG"), None, 2),
    "jfif": (product("{e}/{c}/{i}.jfif"), None, 2),
    "avif": (product("{e}/{c}/{i}.avif"), None, 2),
    "JPEG 2000": (product("{e}/{c}/{i}.jp2"), None, 2),
    "no ending": (product("{e}/{c}/{i:05}"), None, 2),
    "an ending of the web": (product("{e}/{c}/{i}.jpg_large"), None, 2),
    "blanks around names": ([path.replace("north/", "north /") for path in USUAL], None, 2),
    "pictures below classes too": ([*USUAL, *product("{e}/{c}/old/{i}.jpg")], None, 4),
    "a class that is called train": ([*USUAL, *product("{e}/train/{i}.jpg")], None, 2),
    "domain/images/class (Office-31)": (product("{e}/images/{c}/{i}.jpg"),
        "environment/images/class", 2),
    "domain/*/class": (product("{e}/batch_of_{e}/{c}/{i}.jpg"), "environment/*/class", 2),
    "domain/split/class": (product("{e}/{s}/{c}/{i}.jpg"), "environment/split/class", 4),
    "domain/split/class (VLCS)": (
        product("{e}/{s}/{c}/{i}.jpg", splits=("train", "crossval", "test", "full")),
        "environment/split/class", 6,
    ),
    "one split alone": (product("{e}/{s}/{c}/{i}.jpg"), "environment/train/class", 2),
    "full alone (VLCS)": (product("{e}/{s}/{c}/{i}.jpg", splits=("full",)),
        "environment/split/class", 2),
    "split/domain/class": (product("{s}/{e}/{c}/{i}.jpg"), "split/environment/class", 4),
    "split/class/domain": (product("{s}/{c}/{e}/{i}.jpg"), "split/class/environment", 4),
    "class/split/domain": (product("{c}/{s}/{e}/{i}.jpg"), "class/split/environment", 4),
    "class/domain/split": (product("{c}/{e}/{s}/{i}.jpg"), "class/environment/split", 4),
    "class/domain": (product("{c}/{e}/{i}.jpg"), "class/environment", 2),
    "domain/class/split": (product("{e}/{c}/{s}/{i}.jpg"), "environment/class/split", 4),
    "names of others for splits": (
        product("{e}/{s}/{c}/{i}.jpg", splits=OTHER_NAMES), "environment/split/class", 6,
    ),
    "decorated splits": (product("{e}/{s}/{c}/{i}.jpg", splits=DECORATED),
        "environment/split/class", 4),
    "years (COCO)": (product("{e}/{s}/{c}/{i}.jpg", splits=("train2017", "val2017")),
        "environment/split/class", 4),
    "clips": (product("{e}/{c}/clip1/{i}.jpg"), "environment/class", 2),
    "dates": (product("{e}/{c}/2024/05/{i}.jpg"), "environment/class", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_read_right(name: str, tmp_path: Path) -> None:
    paths, layout, count = RIGHT[name]
    table = read(tree(tmp_path, paths), layout)
    labels = {*CLASSES, "train"} if "train" in name.split() else set(CLASSES)
    assert table.environments == list(ENVS)
    assert set(table.classes) == labels
    counts = Counter(
        (table.environments[e], table.classes[k])
        for e, k in zip(table.env, table.label, strict=True)
    )
    assert counts == {(env, label): count for env in ENVS for label in labels}
    assert sum(counts.values()) + sum(table.left_out.counts.values()) <= len(paths)


def test_splits_become_subsets(tmp_path: Path) -> None:
    """train, val and test are 0, 1 and 2;
    full repeats the others, and is left out with its number.
    """
    root = tree(
        tmp_path, product("{e}/{s}/{c}/{i}.jpg", splits=("train", "crossval", "test", "full"))
    )
    table = read(root, "environment/split/class")
    expected = {"train": 0, "crossval": 1, "test": 2}
    assert table.listed.tolist() == [expected[path.split("/")[1]] for path in table.paths]
    assert table.left_out.counts["that repeat the splits"] == 12


SPLIT_CLASS = product("{s}/{c}/{i}.jpg", splits=("train", "val", "test"))
#: name -> files, what the line says
REFUSED: dict[str, tuple[list[str], str]] = {
    "domain/split/class": (
        product("{e}/{s}/{c}/{i}.jpg"),
        r"two ways.*are test, train.*layout=environment/split/class, if fox, hare, owl",
    ),
    "VLCS as it unpacks": (
        product("{e}/{s}/{c}/{i}.jpg", splits=("train", "crossval", "test", "full")),
        r"crossval, full, test, train.*environment/split/class",
    ),
    "one split below each domain": (
        product("{e}/train/{c}/{i}.jpg"),
        r"two ways.*environment/split/class",
    ),
    "split/class": (
        SPLIT_CLASS,
        r"first folders are test, train, val.*layout=environment/class, if these",
    ),
    "split/domain/class": (
        product("{s}/{e}/{c}/{i}.jpg"),
        r"split/environment/class, if north, south",
    ),
    "a domain among splits": (
        [*USUAL, "test/fox/0.jpg", "test/hare/0.jpg", "test/owl/0.jpg"],
        r"north, south, test",
    ),
    "domain/class/split": (
        product("{e}/{c}/{s}/{i}.jpg"),
        r"north/fox holds test, train.*environment/class/split",
    ),
    "domain/split, no classes": (
        product("{e}/{s}/{i}.jpg"),
        r"are test, train.*if these are the classes",
    ),
    "class folders of folders": (
        product("{e}/images/{c}/{i}.jpg"),
        r"hold only folders.*environment/\*/class",
    ),
    "a folder too high": (
        product("PACS/{e}/{c}/{i}.jpg"),
        r"hold only folders.*dataset\.root=.*/PACS",
    ),
    "no domains": (product("{c}/{i}.jpg"), r"no images two folders down.*folder above"),
    "all in one folder": (["0.jpg", "1.jpg"], r"no environment folders"),
    "arrays only": (product("{e}/{c}/{i}.npy"), r"no images.*12 of other kinds \(north/fox/0\.npy"),
    "a folder that is no domain": (
        [*USUAL, *product("Raw images/kfold/{c}/{i}.jpg")],
        r"no environments: Raw images .*dataset\.environments=\[north,south\]",
    ),
    "a folder of lists": (
        [*USUAL, "splits/north.txt"],
        r"splits holds no images.*environments=\[north,south\]",
    ),
    "all in one split": (
        [f"train/{label}.{i}.jpg" for label in CLASSES for i in range(3)],
        r"no images two folders down.*train/.*dataset\.manifest",
    ),
    "three spellings": (
        [*USUAL, *(f"south/{label}/9.jpg" for label in ("Fox", "HARE", "Owl ", "FOX"))],
        r"and 1 more of the dataset differ",
    ),
    "two spellings of a class": ([*USUAL, "south/Fox/9.jpg"], r"'Fox' and 'fox'.*rename"),
    "two Unicode forms": ([*USUAL, "north/\u00e9/0.jpg", "south/e\u0301/0.jpg"], r"Unicode form"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_line(name: str, tmp_path: Path) -> None:
    paths, said = REFUSED[name]
    root = tree(tmp_path, paths)
    with refused(said, DgbenchError):
        read(root)


def test_a_class_of_one_domain_is_refused(tmp_path: Path) -> None:
    table = read(tree(tmp_path, [*USUAL, "south/emu/0.jpg"]))
    with refused(r"north.*emu.*union", DgbenchError):
        subsets_of(table, np.ones(len(table), dtype=bool), 0.5, 0)


def test_what_is_said_decides(tmp_path: Path) -> None:
    """The same tree in two readings, each asked for: splits as environments, folders below a class
    as part of it.
    """
    root = tree(tmp_path, SPLIT_CLASS)
    assert read(root, "environment/class").environments == ["test", "train", "val"]
    assert read(root, environments=["train", "test"]).environments == ["train", "test"]
    assert read(
        tree(tmp_path / "b", product("{e}/{s}/{c}/{i}.jpg")), "environment/class"
    ).classes == ["test", "train"]


def test_hidden_and_foreign_files_are_counted_by_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tree(
        tmp_path,
        [
            *USUAL,
            "north/fox/.ipynb_checkpoints/0.jpg",
            "north/a.txt",
            "north/b.txt",
            "south/loose.jpg",
        ],
    )
    (root / "north" / "empty").mkdir()
    with caplog.at_level(logging.WARNING):
        table = read(root)
    expected = {
        "hidden": 1,
        "of other kinds": 2,
        "above the classes": 1,
        "folders without pictures": 1,
    }
    assert table.left_out.counts == expected
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        "2 of other kinds (north/a.txt, north/b.txt)" in line
        and "1 hidden (north/fox/.ipynb_checkpoints)" in line
    )


def test_linked_folders_are_read_and_circles_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree", USUAL)
    tree(tmp_path / "elsewhere", ["a.jpg", "deep/b.jpg"])
    for env in ENVS:
        (root / env / "ibex").symlink_to(tmp_path / "elsewhere")
    table = read(root)
    assert [path for path in table.paths if "ibex" in path] == [
        f"{env}/ibex/{name}" for env in ENVS for name in ("a.jpg", "deep/b.jpg")
    ]
    (tmp_path / "elsewhere" / "deep" / "back").symlink_to(root)
    (tmp_path / "elsewhere" / "up").symlink_to(root / "north")
    said = (
        r"4 linked to a folder .*north/ibex/deep/back, north/ibex/up, .*\.\.\.\); remove the links"
    )
    with refused(said, DgbenchError):
        read(root)


def test_folders_that_cannot_be_read_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, [*USUAL, *product("closed{e}/{c}/{i}.jpg")])
    scan = os.scandir

    def denied(place: str) -> object:
        if "closed" in place and place.endswith(CLASSES):
            raise PermissionError(13, "Permission denied", place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", denied)
    said = (
        r"6 not readable .*closednorth/fox, closednorth/hare, closednorth/owl, \.\.\.\); make it "
        r"readable"
    )
    with refused(said, DgbenchError):
        read(root)


def test_what_lies_below_a_class_that_holds_images_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tree(tmp_path, [*USUAL, *product("{e}/{c}/masks/{i}.jpg")])
    with caplog.at_level(logging.WARNING):
        assert len(read(root)) == 24
    (line,) = [record.getMessage() for record in caplog.records]
    assert "12 in folders below classes" in line and "north/fox/masks/0.jpg" in line
    caplog.clear()
    assert len(read(root, "environment/class")) == 24
    assert not caplog.records, "it was asked for"


def test_a_list_beside_folders_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tree(tmp_path, [*USUAL, "metadata.csv"])
    with caplog.at_level(logging.WARNING):
        read(root)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "metadata.csv is not read" in line and "dataset=manifest" in line


def test_files_without_ending_are_taken_by_their_first_bytes(tmp_path: Path) -> None:
    root = tree(tmp_path, product("{e}/{c}/{i}"), PNG)
    tree(root, ["north/fox/notes", "north/fox/paper.dvi"], b"no picture")
    os.mkfifo(root / "north" / "fox" / "pipe")
    table = read(root)
    assert len(table) == 12
    assert table.left_out.counts == {"of other kinds": 3}


def test_a_hundred_foreign_files_are_one_line(tmp_path: Path) -> None:
    root = tree(tmp_path, [f"north/fox/{i:03}.csv" for i in range(100)])
    with refused(
        (
            r"100 of other kinds \(north/fox/000\.csv, north/fox/001\.csv, north/fox/002\.csv, "
            r"\.\.\.\)"
        ),
        DgbenchError,
    ):
        read(root)


@pytest.mark.parametrize(
    ("name", "subset"),
    [
        ("Train", "train"),
        ("val2017", "val"),
        ("test_set", "test"),
        ("train-images_01", "train"),
        ("train2set", None),
        ("set", None),
        ("0" * 100_000 + "!", None),
    ],
)
def test_names_of_splits(name: str, subset: str | None) -> None:
    """The last is long: a pattern that tried every digit as a beginning would take minutes."""
    assert subset_of(name) == subset
