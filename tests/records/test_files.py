"""Files that are replaced whole: order of the writes, and what errors leave behind."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from dgbench.records.files import (
    Checksum,
    WholeFile,
    check_seal,
    open_regular,
    read_regular,
    write_sealed,
    write_whole,
    write_whole_with,
)

FULL = OSError(28, "No space left on device")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for content, read in (
        ("old", b"old"),
        ("é\n", b"\xc3\xa9\n"),
        (b"\0\xff", b"\0\xff"),
        ("", b""),
    ):
        write_whole(file, content)
        assert file.read_bytes() == read
    write_whole_with(file, lambda handle: handle.write(b"whole"))
    assert file.read_bytes() == b"whole" and names(tmp_path) == ["plan.json"]


def test_a_file_that_is_written_bit_by_bit(tmp_path: Path) -> None:
    """It has its name once it is whole; what a killed process left behind is overwritten."""
    file = tmp_path / "file"
    (tmp_path / "file.partial").write_bytes(b"of a killed process")
    whole = WholeFile(file)
    whole.write(b"one ")
    whole.flush()
    assert names(tmp_path) == ["file.partial"]
    whole.write(b"two")
    whole.commit()
    whole.discard()
    assert file.read_bytes() == b"one two" and names(tmp_path) == ["file"]
    other = WholeFile(file)
    other.write(b"no")
    other.discard()
    assert file.read_bytes() == b"one two" and names(tmp_path) == ["file"]


def test_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is synced holds all content at that moment; the old content stands under the name until
    then.
    """
    file, calls = tmp_path / "file", []
    file.write_bytes(b"old")
    replace = os.replace

    def fsync(handle: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{handle}"))
        calls.append(
            "sync folder"
            if target == tmp_path
            else f"sync {target.read_bytes()!r} over {file.read_bytes()!r}"
        )

    def rename(source: Path, target: Path) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    order = ["sync b'new' over b'old'", "rename", "sync folder"]
    write_whole(file, "new")
    assert calls == order
    calls.clear()
    file.write_bytes(b"old")
    write_whole_with(file, lambda handle: handle.write(b"new"))
    assert calls == order
    calls.clear()
    write_whole(file, "beat", sync=False)
    assert calls == ["rename"] and file.read_bytes() == b"beat"


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_replaced_whole_or_not_at_all(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the second write, as a sync or a rename finds: the old content stays, and
    nothing else.
    """
    file = tmp_path / "plan.json"
    write_whole(file, "old")

    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(os, where, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, "new")
    assert file.read_bytes() == b"old" and names(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("error", [FULL, RuntimeError("cannot be pickled"), KeyboardInterrupt()])
def test_a_writer_that_breaks_off_leaves_the_old_content(
    tmp_path: Path, error: BaseException
) -> None:
    file = tmp_path / "last.ckpt"
    write_whole_with(file, lambda handle: handle.write(b"old"))

    def half(handle: BinaryIO) -> None:
        handle.write(b"PK")
        raise error

    with pytest.raises(type(error)):
        write_whole_with(file, half)
    assert file.read_bytes() == b"old" and names(tmp_path) == ["last.ckpt"]


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    """Else every kill would leave a checkpoint's worth of disk."""
    (tmp_path / "last.ckpt.partial").write_bytes(b"half of a long checkpoint")
    write_whole_with(tmp_path / "last.ckpt", lambda handle: handle.write(b"whole"))
    assert names(tmp_path) == ["last.ckpt"] and (tmp_path / "last.ckpt").read_bytes() == b"whole"


def test_a_folder_that_cannot_be_synced_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def fsync(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")) == tmp_path:
            raise OSError(22, "Invalid argument")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "circle", "absent"])
def test_only_ordinary_files_are_opened(kind: str, tmp_path: Path) -> None:
    """A pipe without a writer would wait for one."""
    file = tmp_path / "status"
    {
        "pipe": lambda: os.mkfifo(file),
        "folder": file.mkdir,
        "device": lambda: file.symlink_to("/dev/zero"),
        "circle": lambda: file.symlink_to(file),
        "absent": lambda: None,
    }[kind]()
    with pytest.raises(
        OSError, match=r"not a regular file|Is a directory|symbolic links|No such file"
    ):
        open_regular(file)
    (tmp_path / "real").write_bytes(b"x\0")
    (tmp_path / "link").symlink_to("real")
    assert read_regular(tmp_path / "link") == b"x\0"


# ---- damage


def test_a_seal_tells_any_changed_bit(tmp_path: Path) -> None:
    """In the content it is an error; in the seal itself, an error or no seal.

    Written in parts as in one.
    """
    file, content = tmp_path / "file", random.Random(0).randbytes(200)
    write_sealed(
        file, lambda handle: [handle.write(content[:70]), handle.write(memoryview(content)[70:])]
    )
    assert file.read_bytes().startswith(content) and check_seal(file)
    sealed = file.read_bytes()
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with suppress(OSError):
            assert not check_seal(file) and bit // 8 >= len(content)
    for size in range(len(sealed)):
        file.write_bytes(sealed[:size])
        assert not check_seal(file)


def test_a_checksum_of_the_beginning_of_a_file(tmp_path: Path) -> None:
    file, checksum = tmp_path / "file", Checksum() + b"one\n" + b"two\n"
    for content, begins in (
        (b"one\ntwo\n", True),
        (b"one\ntwo\nthree", True),
        (b"one\ntwo", False),
        (b"", False),
    ):
        file.write_bytes(content)
        assert checksum.begins(file) is begins
    file.write_bytes(b"one\ntvo\n")
    assert not checksum.begins(file) and Checksum().begins(file)


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: None], ids=["folder", "pipe", "nothing"]
)
def test_what_is_no_file_begins_with_nothing(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path / "file")
    assert Checksum().begins(tmp_path / "file") and not (Checksum() + b"a").begins(
        tmp_path / "file"
    )
    with pytest.raises(OSError):
        check_seal(tmp_path / "file")


def test_a_pipe_in_the_place_of_a_partial_file_is_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.partial")
    with pytest.raises(OSError):
        write_whole_with(tmp_path / "file", lambda handle: handle.write(b"whole"))
