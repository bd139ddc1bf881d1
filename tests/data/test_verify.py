"""A dataset of pictures made by hand, as fetched, and changed afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dgbench.data.description import unlike_published
from dgbench.data.fetch import __main__ as fetching
from dgbench.data.fetch import __main__ as verifying
from dgbench.data.fetch.__main__ import dataset_keys, verify
from dgbench.data.fetch.checksums import write_checksums
from dgbench.data.fetch.fetching import Archive, DatasetSource, Fetched, listing, note, noted
from tests.complaints import one_line

ARCHIVE = b"an archive"
SHA, MD5 = hashlib.sha256(ARCHIVE).hexdigest(), hashlib.md5(ARCHIVE).hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
PUBLISHED = {"images": 8, "classes": 2, "environments": ["b", "a"]}

Make = Callable[..., tuple[DatasetSource, Path]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """``make(published=..., sha256=...)``: two environments of two classes of two pictures, in
    place of PACS.
    """
    rng = np.random.default_rng(0)
    for env in "ab":
        for label in ("cat", "dog"):
            (tmp_path / "Pictures" / env / label).mkdir(parents=True)
            for i in range(2):
                pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "Pictures" / env / label / f"{i}.png")

    def made(
        published: object = None, sha256: str | None = None, md5: str | None = None
    ) -> tuple[DatasetSource, Path]:
        changes = {"published": published, "root": str(tmp_path / "Pictures"), "val_fraction": 0.5}
        own = {**dataset_keys("pacs", tmp_path), **changes}
        monkeypatch.setattr(verifying, "dataset_keys", lambda *_: own)
        files = [Archive(["http://127.0.0.1:9/x.zip"], "x.zip", sha256, md5)]
        return DatasetSource(name="pictures", folder="Pictures", files=files), tmp_path

    return made


def found(source: DatasetSource, data: Path, **options: Any) -> list[tuple[str, str]]:
    return [(finding.verdict, finding.text) for finding in verify(source, data, **options)]


def fetched(
    source: DatasetSource, data: Path, sha256: str = SHA, compared: str | None = None
) -> str:
    """As a download leaves it; returns what the listing is said to be."""
    (data / ".fetch").mkdir(exist_ok=True)
    write_checksums(data / ".fetch/pictures.sha256", data / "Pictures", "Pictures")
    came = note(source, data, {"x.zip": Fetched(sha256, compared)})
    return f"{came.files} files, listing {came.sha256}"


def test_a_listing_is_of_paths_and_sizes(tmp_path: Path) -> None:
    """Worked out by hand: lines of size and path, sorted by path; a link counts as itself."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"123")
    (tmp_path / "a").write_bytes(b"")
    os.symlink("b/x", tmp_path / "c")
    assert vars(listing(tmp_path)) == {
        "files": 3,
        "bytes": 6,
        "sha256": hashlib.sha256(b"0 a\n3 b/x\n3 c\n").hexdigest(),
    }


def test_a_copy_that_is_as_published(make: Make) -> None:
    source, data = make(PUBLISHED, sha256=SHA)
    text = fetched(source, data, compared="sha256")
    assert found(source, data, decode=True) == [
        ("ok", "8 images, 2 classes, 2 environments: as published"),
        ("ok", "8 images can be decoded"),
        ("ok", f"{text}: as downloaded"),
        ("ok", "8 files have the checksums of the download"),
        ("ok", "x.zip: sha256 was as published; not kept"),
    ]


def test_what_nobody_published_is_said_to_be_unverified(make: Make) -> None:
    source, data = make()
    text = fetched(source, data)
    assert found(source, data) == [
        ("unverified", "conf/dataset/pictures.yaml states no published counts"),
        ("unverified", "8 images are not decoded; --decode does"),
        ("ok", f"{text}: as downloaded"),
        ("ok", "8 files have the checksums of the download"),
        ("unverified", f"x.zip: no checksum is published; it came with sha256 {SHA}"),
    ]
    (data / ".fetch" / "pictures.sha256").unlink()
    assert found(source, data)[3] == (
        "unverified",
        "no note of the checksums of its files: a changed byte cannot be seen",
    )
    (data / ".fetch" / "pictures.json").write_text("[]")
    assert found(source, data)[2:] == [
        ("unverified", f"{text}: no note of a download; compare it with that of another machine"),
        ("unverified", "no note of its archives: their checksums cannot be compared"),
    ]


def test_an_image_that_is_missing_and_one_that_is_empty(make: Make) -> None:
    source, data = make(PUBLISHED)
    fetched(source, data)
    (data / "Pictures/a/cat/0.png").unlink()
    first, *_ = [text for verdict, text in found(source, data) if verdict == "wrong"]
    assert first == "images 7, published 8"
    (data / "Pictures/b/dog/1.png").write_bytes(b"")
    now = listing(data / "Pictures")
    empty, files, lost, changed = [
        text for verdict, text in found(source, data) if verdict == "wrong"
    ]
    assert empty == "b/dog/1.png: empty"
    again = "; dgbench fetch pictures gets it again"
    assert lost == f"Pictures/a/cat/0.png is missing or cannot be read{again}"
    assert changed == f"Pictures/b/dog/1.png was changed since it was downloaded{again}"
    one_line(files, f"^7 files, listing {now.sha256}: .*8 files")


def test_an_image_that_is_cut_short_is_found_by_decoding(make: Make) -> None:
    source, data = make(PUBLISHED)
    file = data / "Pictures/b/dog/1.png"
    file.write_bytes(file.read_bytes()[:60])
    assert not [text for verdict, text in found(source, data) if verdict == "wrong"]
    (text,) = [text for verdict, text in found(source, data, decode=True) if verdict == "wrong"]
    assert text.startswith("b/dog/1.png: ") and "Error" in text


def test_many_broken_images_are_counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "MOST_NAMED", 1)
    source, data = make()
    for name in ("a/cat/0", "a/cat/1", "a/dog/0"):
        (data / f"Pictures/{name}.png").write_bytes(b"")
    first, others = [text for verdict, text in found(source, data) if verdict == "wrong"]
    assert first == "a/cat/0.png: empty" and "2 more of 3 images" in others


def test_broken_images_that_training_leaves_out_are_no_fault(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, data = make()
    own = {**verifying.dataset_keys("", data), "on_bad_image": "skip"}
    monkeypatch.setattr(verifying, "dataset_keys", lambda *_: own)
    (data / "Pictures/a/cat/0.png").write_bytes(b"")
    verdict, text = found(source, data)[1]
    assert verdict == "ok" and text.startswith("a/cat/0.png: empty; ")


@pytest.mark.parametrize(
    ("published", "kept", "finding"),
    [
        ({"sha256": SHA, "md5": MD5}, ARCHIVE, ("ok", "x.zip: sha256 and md5 as published")),
        ({"md5": MD5}, ARCHIVE, ("ok", "x.zip: md5 as published")),
        ({"sha256": SHA}, b"another", ("wrong", f"x.zip: sha256 is {OTHER}, not {SHA}")),
        ({}, ARCHIVE, ("unverified", f"x.zip: no checksum is published; sha256 {SHA}")),
        ({"sha256": OTHER}, None, ("wrong", f"x.zip: came with sha256 {SHA}, not {OTHER}")),
        ({"md5": MD5}, None, ("ok", "x.zip: md5 was as published; not kept")),
    ],
)
def test_archives(
    make: Make, published: dict[str, str], kept: bytes | None, finding: tuple[str, str]
) -> None:
    """A kept archive is read again; of another, what was noted is compared."""
    source, data = make(**published)
    fetched(source, data, compared=next(iter(published), None))
    if kept is not None:
        (data / ".fetch" / "pictures").mkdir()
        (data / ".fetch" / "pictures" / "x.zip").write_bytes(kept)
    assert found(source, data)[-1] == finding


def test_a_folder_that_is_not_there_or_cannot_be_listed(make: Make) -> None:
    source, data = make(PUBLISHED)
    for file in (data / "Pictures").rglob("*.png"):
        file.unlink()
    verdict, text = found(source, data)[0]
    assert verdict == "wrong" and "image" in text
    absent = DatasetSource(name="pictures", folder="Elsewhere", files=[])
    ((verdict, text),) = found(absent, data)
    assert verdict == "wrong"
    one_line(text, f"^{data / 'Elsewhere'} .*; dgbench fetch pictures --to {data}$")


def test_notes_that_are_not_there(tmp_path: Path) -> None:
    source = DatasetSource(name="x", folder="x", files=[])
    assert noted(source, tmp_path) == (None, {})


def test_what_differs_from_the_published_form() -> None:
    """Environments in any order; what the published form does not state is compared with
    nothing.
    """
    assert unlike_published(PUBLISHED, 8, 2, ["a", "b"]) == []
    assert unlike_published({}, 8, 2, ["a"]) == []
    assert unlike_published(PUBLISHED, 8, 3, ["a"]) == [
        ("classes", 3, 2),
        ("environments", ["a"], ["a", "b"]),
    ]


def test_the_command(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without names all that is there, each once; 1 if anything is wrong, and what is unverified is
    not.
    """
    source, data = make(PUBLISHED)
    absent = DatasetSource(name="absent", folder="absent", files=[])
    known = {"pictures": source, "same_pictures": source, "absent": absent}
    monkeypatch.setattr(fetching, "sources", lambda: known)
    assert fetching.main(["verify", "--to", str(data)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok          pictures: 8 images, 2 classes, 2 environments: as published"
    assert {line.split()[1] for line in lines} == {"pictures:"}
    assert fetching.main(["verify", "pictures", "absent", "nothing", "--to", str(data)]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].startswith("wrong       absent: ")
    one_line(told.err.rstrip("\n"), "^dgbench: nothing .*pictures, same_pictures, absent, or list$")
    assert fetching.main(["verify", "same_pictures", "--decode", "--to", str(data)]) == 0
    assert "same_pictures: 8 images can" in capsys.readouterr().out
    assert fetching.main(["verify", "--to", str(data / "empty")]) == 1
    one_line(capsys.readouterr().err.rstrip("\n"), "empty holds nothing to verify")
