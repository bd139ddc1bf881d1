"""Downloads from a server on this machine, with files that the tests make."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dgbench import downloads
from dgbench.data.fetch import __main__ as fetching
from dgbench.data.fetch.archives import extract
from dgbench.data.fetch.arrange import terra_incognita
from dgbench.data.fetch.fetching import (
    DATASETS,
    Archive,
    DatasetSource,
    Form,
    command_into,
    fetch,
    sources,
)
from dgbench.downloads import Unavailable, download
from dgbench.errors import ConfigError, DataError
from dgbench.records.locks import try_exclusive
from tests.complaints import one_line
from tests.studies import composed

CONTENT = bytes(range(256)) * 1024  # 256 KiB
SHA = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
DEAD = "http://127.0.0.1:9/a"  # the discard port, on which nobody listens


@dataclass
class Server:
    """Files by path; ``ranges`` lists the Range headers of the requests that were answered with
    content.

    ``cut`` holds, by path, after how many bytes to break the next answers off. ``etag`` marks
    versions.
    """

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, list[int]] = field(default_factory=dict)
    ranges: list[tuple[str, str | None]] = field(default_factory=list)
    etag: str | None = '"one"'
    can_resume: bool = True
    kind: str = "application/zip"

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path[1:]
            if path not in state.files:
                self.send_error(404)
                return
            content, wanted = state.files[path], self.headers["Range"]
            start = (
                int(re.findall(r"bytes=(\d+)-", wanted)[0]) if wanted and state.can_resume else 0
            )
            if self.headers["If-Range"] not in (None, state.etag):
                start = 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", state.kind)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            if state.etag:
                self.send_header("ETag", state.etag)
            self.end_headers()
            state.ranges.append((path, wanted))
            stops = state.cut.get(path, [])
            self.wfile.write(content[start:][: stops.pop(0) if stops else None])

        def log_message(self, *_: object) -> None:
            pass

    # the probe is a request of its own, which would disturb the counts below
    monkeypatch.setattr(downloads, "any_answers", lambda *_: True)
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{running.server_port}"
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    running.shutdown()
    thread.join()
    running.server_close()


# ---- one file


@pytest.mark.parametrize("sha256", [SHA, None])
def test_a_file_arrives_whole_and_is_got_once(
    server: Server, tmp_path: Path, sha256: str | None
) -> None:
    server.files["a"] = CONTENT
    for _ in range(2):
        assert download([server.url("a")], tmp_path / "a", sha256) == SHA
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges == [("a", None)]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_broken_transfer_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    """100,000 bytes, then 50,000 more, then the rest."""
    server.files["a"], server.cut["a"] = CONTENT, [100_000, 50_000]
    assert download([server.url("a")], tmp_path / "a", None) == SHA
    assert server.ranges == [("a", None), ("a", "bytes=100000-"), ("a", "bytes=150000-")]


def test_the_next_call_goes_on_where_the_last_one_stopped(server: Server, tmp_path: Path) -> None:
    server.files["a"], server.cut["a"] = CONTENT, [100_000, 0]
    with pytest.raises(Unavailable, match=r"downloaded.*address.*stopped$"):
        download([server.url("a")], tmp_path / "a", None)
    assert download([server.url("a")], tmp_path / "a", None) == SHA
    assert server.ranges[-1] == ("a", "bytes=100000-")


def test_a_process_that_is_killed_leaves_a_part_to_go_on_from(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT[:7])
    note = {"url": server.url("a"), "total": len(CONTENT), "version": '"one"'}
    (tmp_path / "a.part.json").write_text(json.dumps(note))
    server.files["a"] = CONTENT
    assert download([server.url("a")], tmp_path / "a", SHA) == SHA
    assert server.ranges == [("a", "bytes=7-")]


@pytest.mark.parametrize("etag", ['"two"', None])
def test_a_file_that_changed_meanwhile_is_got_anew(
    server: Server, tmp_path: Path, etag: str | None
) -> None:
    """Told by its tag, or by its length where the server gives no tag."""
    server.files["a"], server.cut["a"], server.etag = (
        CONTENT + b"old",
        [100_000, 0],
        '"one"' if etag else None,
    )
    with pytest.raises(DataError):
        download([server.url("a")], tmp_path / "a", None)
    server.files["a"], server.etag = CONTENT, etag
    assert download([server.url("a")], tmp_path / "a", None) == SHA


def test_a_server_that_cannot_resume_sends_all_of_it_again(server: Server, tmp_path: Path) -> None:
    server.files["a"], server.cut["a"], server.can_resume = CONTENT, [100_000], False
    assert download([server.url("a")], tmp_path / "a", None) == SHA


def test_a_part_that_is_complete_or_too_long(server: Server, tmp_path: Path) -> None:
    server.files["a"] = CONTENT
    for part in (CONTENT, CONTENT + b"more"):
        (tmp_path / "a.part").write_bytes(part)
        note = {"url": server.url("a"), "total": len(CONTENT), "version": '"one"'}
        (tmp_path / "a.part.json").write_text(json.dumps(note))
        assert download([server.url("a")], tmp_path / "a", None) == SHA
        (tmp_path / "a").unlink()


@pytest.mark.parametrize(
    "published", [{"sha256": SHA}, {"sha256": None, "md5": MD5}, {"sha256": SHA, "md5": MD5}]
)
def test_dead_then_wrong_then_right(
    server: Server, tmp_path: Path, published: dict[str, str | None]
) -> None:
    """One line for each address that failed, and only the right file is left."""
    server.files.update(bad=b"another file", good=CONTENT)
    said: list[str] = []
    urls = [DEAD, server.url("bad"), server.url("good")]
    assert download(urls, tmp_path / "a", **published, say=said.append) == SHA  # type: ignore[arg-type]
    algorithm = next(key for key, value in published.items() if value)
    found = hashlib.new(algorithm, b"another file").hexdigest()
    dead, bad = said
    one_line(dead, rf"^a: {DEAD}: \[Errno 111\] ")
    one_line(bad, f"^a: {server.url('bad')}: {algorithm} is {found}, not {published[algorithm]}; ")
    assert tree(tmp_path) == {"a": CONTENT}


def test_where_all_mirrors_fail_nothing_is_left(server: Server, tmp_path: Path) -> None:
    """A web page and a missing file beside the two above;
    the last line announces no other address.
    """
    server.files.update(bad=b"another file", also_bad=b"a third file")
    said: list[str] = []
    urls = [server.url("bad"), DEAD, server.url("nowhere"), server.url("also_bad")]
    with pytest.raises(Unavailable, match=r"^a.*downloaded.*4 addresses; start.*later$"):
        download(urls, tmp_path / "a", SHA, say=said.append)
    assert [line.endswith("the next address") for line in said] == [True, True, True, False]
    assert "404" in said[2] or "Not Found" in said[2]
    assert not list(tmp_path.iterdir())


def test_the_hub_is_asked_where_its_variable_says(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.address + "/")
    server.files["datasets/a"] = CONTENT
    assert download(["https://huggingface.co/datasets/a"], tmp_path / "a", SHA) == SHA


def test_a_mirror_goes_on_with_the_part_of_another_only_if_the_checksum_is_known(
    server: Server, tmp_path: Path
) -> None:
    server.files.update(one=CONTENT, two=CONTENT)
    for published, expected in (
        ((SHA, None), "bytes=100000-"),
        ((None, MD5), "bytes=100000-"),
        ((None, None), None),
    ):
        server.cut["one"] = [100_000, 0]
        with pytest.raises(DataError):
            download([server.url("one")], tmp_path / "a", *published)
        assert download([server.url("two")], tmp_path / "a", *published) == SHA
        assert server.ranges[-1] == ("two", expected)
        (tmp_path / "a").unlink()


def test_wrong_bytes_of_an_earlier_go_do_not_condemn_a_mirror(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(b"rubbish")
    server.files["a"] = CONTENT
    assert download([server.url("a")], tmp_path / "a", SHA) == SHA


def test_a_wrong_checksum_is_told(server: Server, tmp_path: Path) -> None:
    server.files["a"] = b"another file"
    said: list[str] = []
    with pytest.raises(Unavailable):
        download([server.url("a")], tmp_path / "a", SHA, say=said.append)
    found = hashlib.sha256(b"another file").hexdigest()
    assert said == [f"a: {server.url('a')}: sha256 is {found}, not {SHA}"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("published", [{"sha256": SHA}, {"sha256": None, "md5": MD5}])
def test_a_file_with_a_wrong_checksum_is_replaced(
    server: Server, tmp_path: Path, published: dict[str, str]
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    server.files["a"] = CONTENT
    for _ in range(2):
        assert download([server.url("a")], tmp_path / "a", **published) == SHA
    assert server.ranges == [("a", None)]


def test_a_web_page_is_not_taken_for_the_file(server: Server, tmp_path: Path) -> None:
    server.files["a"], server.kind = b"<html>quota exceeded</html>", "text/html; charset=utf-8"
    said: list[str] = []
    with pytest.raises(Unavailable):
        download([server.url("a")], tmp_path / "a", None, say=said.append)
    one_line(*said, f"^a: {server.url('a')}: .*web page")


def test_a_full_disk_is_told_before_anything_is_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["a"] = CONTENT
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"0.0 GB free.*needs 0.0 GB more; free.*space"):
        download([server.url("a")], tmp_path / "a", None)
    assert not list(tmp_path.iterdir())


def test_offline_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no-such-host\.invalid.*reached; check.*network"):
        download(["http://no-such-host.invalid/a"], tmp_path / "a", None)


# ---- archives


def zipped(
    path: Path, files: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] = lambda _: None
) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            change(info)
            archive.writestr(info, content)
    return path


def tarred(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


FILES = {"top/a/1.png": b"one", "top/b/2.png": b"two" * 1000, "top/empty": b""}


@pytest.mark.parametrize("mode", ["zip", "w", "w:gz", "w:bz2", "w:xz"])
def test_archives_are_unpacked(tmp_path: Path, mode: str) -> None:
    if mode == "zip":
        archive = zipped(tmp_path / "a", {**FILES, "top/c/": b"", "__MACOSX/top/._1.png": b"x"})
    else:
        folder = tarfile.TarInfo("top/c")
        folder.type = tarfile.DIRTYPE
        archive = tarred(
            tmp_path / "a",
            [(folder, b""), *((tarfile.TarInfo(n), c) for n, c in FILES.items())],
            mode,
        )
    assert extract(archive, tmp_path / "out") == 3
    assert tree(tmp_path / "out") == FILES
    assert (tmp_path / "out/top/c").is_dir()


@pytest.mark.parametrize(
    "name", ["../x", "top/../../x", "/tmp/x", "..\\x", "C:/x", "C:\\x", "a/\\x", ".."]
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_no_path_leaves_the_folder(tmp_path: Path, name: str, kind: str) -> None:
    files = {"ok": b"1", name: b"evil"}
    archive = (
        zipped(tmp_path / "a", files)
        if kind == "zip"
        else tarred(tmp_path / "a", [(tarfile.TarInfo(n), c) for n, c in files.items()])
    )
    (tmp_path / "deep").mkdir()
    with pytest.raises(DataError, match=r"leads.*folder.*trust"):
        extract(archive, tmp_path / "deep" / "out")
    assert set(tree(tmp_path)) <= {"a", "deep/out/ok"}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    """A link out of the folder and then a file through it."""
    link = tarfile.TarInfo("door")
    link.type, link.linkname = kind, str(tmp_path)
    archive = tarred(tmp_path / "a", [(link, b""), (tarfile.TarInfo("door/x"), b"evil")])
    with pytest.raises(DataError, match=r"link.*device, door"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "x").exists()


def test_links_in_zip_are_refused(tmp_path: Path) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = 0o120777 << 16

    archive = zipped(tmp_path / "a", {"door": str(tmp_path).encode()}, link)
    with pytest.raises(DataError, match=r"link.*device, door"):
        extract(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_bombs_are_refused(tmp_path: Path, kind: str) -> None:
    """20 MB of zeros in 20 kB: the first MB passes, being small, what follows does not."""
    files = {f"{i}": bytes(1_000_000) for i in range(20)}
    archive = (
        zipped(tmp_path / "a", files)
        if kind == "zip"
        else tarred(tmp_path / "a", [(tarfile.TarInfo(n), c) for n, c in files.items()])
    )
    with pytest.raises(DataError, match=r"100 times.*size.*trust"):
        extract(archive, tmp_path / "out")
    assert sum(map(len, tree(tmp_path / "out").values())) <= 100 * archive.stat().st_size


def test_what_the_disk_cannot_hold_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 2000})
    monkeypatch.setattr("dgbench.data.fetch.archives.shutil.disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"unpacks.*more; free"):
        extract(zipped(tmp_path / "a", FILES), tmp_path / "out")


@pytest.mark.parametrize("keep", [10, 60, -40])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_cut_short_are_told(tmp_path: Path, kind: str, keep: int) -> None:
    content = os.urandom(2000)
    archive = (
        zipped(tmp_path / "a", {"x": content})
        if kind == "zip"
        else tarred(tmp_path / "a", [(tarfile.TarInfo("x"), content)])
    )
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(DataError, match="cut short"):
        extract(archive, tmp_path / "out")


def test_a_damaged_zip_is_told(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a", {"x": os.urandom(2000)})
    content = bytearray(archive.read_bytes())
    content[500] ^= 255
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"cut short.*corrupt"):
        extract(archive, tmp_path / "out")


def test_a_zip_that_lies_about_its_sizes_writes_no_more_than_it_declares(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a", {"x": bytes(1000)})
    content = archive.read_bytes().replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"cut short.*corrupt|other sizes.*declares"):
        extract(archive, tmp_path / "out")
    assert (tmp_path / "out/x").stat().st_size <= 10


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"file.*folder"):
        extract(zipped(tmp_path / "a", {"x": b"1", "x/y": b"2"}), tmp_path / "out")


# ---- datasets


def served(server: Server, tmp_path: Path, **changes: object) -> DatasetSource:
    """A dataset in one archive on the server."""
    server.files["top.zip"] = zipped(tmp_path / "served.zip", FILES).read_bytes()
    keys = {
        "folder": "Pictures",
        "files": [Archive([server.url("top.zip")], "top.zip")],
        "inner": "top",
    }
    return DatasetSource(name="pictures", **{**keys, **changes})  # type: ignore[arg-type]


def test_fetch_unpacks_under_the_right_name_and_does_nothing_twice(
    server: Server, tmp_path: Path
) -> None:
    said: list[str] = []
    source, data = served(server, tmp_path, license="free"), tmp_path / "data"
    for _ in range(2):
        assert fetch(source, data, say=said.append) == data / "Pictures"
    assert tree(data / "Pictures") == {
        name.removeprefix("top/"): content for name, content in FILES.items()
    }
    assert len(server.ranges) == 1
    sha256 = hashlib.sha256(server.files["top.zip"]).hexdigest()
    assert said[0].startswith(f"top.zip: sha256 {sha256} ")
    assert said[1] == f"pictures: 3 files in {data / 'Pictures'} (license: free)"
    assert said[2:] == [f"pictures: {data / 'Pictures'} is there, nothing to do"]
    own = {f".fetch/pictures.{kind}" for kind in ("lock", "json", "sha256")}
    assert tree(data).keys() == {f"Pictures/{name.removeprefix('top/')}" for name in FILES} | own


def test_what_was_changed_or_lost_since_is_got_again(server: Server, tmp_path: Path) -> None:
    """And nothing else is touched; without the note all is taken as it is."""
    source, data = served(server, tmp_path), tmp_path / "data"
    folder = fetch(source, data, say=lambda _: None)
    whole = tree(data)
    whole.pop(".fetch/pictures.lock")
    changed, lost, extra = sorted(tree(folder))[0], sorted(tree(folder))[1], folder / "extra.txt"
    (folder / changed).write_bytes(b"x" * (folder / changed).stat().st_size)
    (folder / lost).unlink()
    extra.write_text("of the user")
    said: list[str] = []
    fetch(source, data, say=said.append)
    assert said[0].startswith(f"pictures: {changed}, {lost} is missing or was changed")
    assert extra.read_text() == "of the user"
    extra.unlink()
    assert tree(folder) == {
        path.removeprefix("Pictures/"): whole[path] for path in whole if "Pictures/" in path
    }
    assert not (data / ".fetch/pictures").exists()
    (folder / changed).write_bytes(b"")
    (data / ".fetch/pictures.sha256").unlink()
    fetch(source, data, say=said.append)
    assert said[-1].endswith("is there, nothing to do")


def test_a_second_download_of_other_files_replaces_nothing(server: Server, tmp_path: Path) -> None:
    source, data = served(server, tmp_path), tmp_path / "data"
    folder = fetch(source, data, say=lambda _: None)
    changed = folder / sorted(tree(folder))[0]
    changed.write_bytes(b"mine")
    others = {name: content + b"new" for name, content in FILES.items()}
    server.files["top.zip"] = zipped(tmp_path / "other.zip", others).read_bytes()
    with pytest.raises(DataError, match=r"is another file there by now .* move .* away"):
        fetch(source, data, say=lambda _: None)
    assert changed.read_bytes() == b"mine"


def test_archives_are_kept_if_asked(server: Server, tmp_path: Path) -> None:
    fetch(served(server, tmp_path), tmp_path / "data", keep=True, say=lambda _: None)
    assert (tmp_path / "data/.fetch/pictures/top.zip").is_file()


def test_several_archives_without_a_common_folder(server: Server, tmp_path: Path) -> None:
    server.files["b.zip"] = zipped(tmp_path / "b.zip", {"b/2.png": b"2"}).read_bytes()
    server.files["a.zip"] = zipped(tmp_path / "a.zip", {"a/1.png": b"1"}).read_bytes()
    files = [Archive([server.url(name)], name) for name in ("a.zip", "b.zip")]
    fetch(served(server, tmp_path, files=files, inner=""), tmp_path / "data", say=lambda _: None)
    assert tree(tmp_path / "data/Pictures") == {"a/1.png": b"1", "b/2.png": b"2"}


def test_a_fetch_that_stops_leaves_no_half_folder_and_goes_on(
    server: Server, tmp_path: Path
) -> None:
    source, data = served(server, tmp_path), tmp_path / "data"
    server.cut["top.zip"] = [100, 0]
    with pytest.raises(DataError):
        fetch(source, data, say=lambda _: None)
    assert not (data / "Pictures").exists()
    fetch(source, data, say=lambda _: None)
    assert server.ranges[-1] == ("top.zip", "bytes=100-")
    assert len(tree(data / "Pictures")) == 3


def test_an_empty_folder_is_filled(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data/Pictures").mkdir(parents=True)
    fetch(served(server, tmp_path), tmp_path / "data", say=lambda _: None)
    assert len(tree(tmp_path / "data/Pictures")) == 3


def test_what_goes_wrong_names_the_way_by_hand(server: Server, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for changes in (
        {"files": []},
        {"files": [Archive([server.url("gone")], "gone.zip")]},
        {"inner": "other"},
    ):
        assert (
            set(tree(data)) <= {".fetch/pictures.lock"}
            and not (data / ".fetch" / "pictures").exists()
        )
        source = served(server, tmp_path, manual="ask its makers.", **changes)
        with pytest.raises(DataError, match=rf"ask.*makers.*content lies.*{data / 'Pictures'}$"):
            fetch(source, data, say=lambda _: None)
    assert set(tree(data)) == {".fetch/pictures.lock", ".fetch/pictures/top.zip"}


def test_where_a_file_cannot_be_had_another_form_is(server: Server, tmp_path: Path) -> None:
    """The first form lacks the second of its files; the other form is a plain file that a function
    arranges.
    """
    server.files["plain"] = b"1"
    other = Form(
        files=[Archive([server.url("plain")], "plain")],
        unpack=False,
        arrange="tests.data.test_fetch.beside_its_name",
    )
    files = [Archive([server.url("top.zip")], "top.zip"), Archive([DEAD], "gone.zip")]
    source, data, said = (
        served(server, tmp_path, files=files, otherwise=[other]),
        tmp_path / "data",
        list[str](),
    )
    fetch(source, data, say=said.append)
    assert tree(data / "Pictures") == {"a/plain": b"1"}
    assert said[1] == f"gone.zip: {DEAD}: [Errno 111] Connection refused"
    one_line(said[2], "^pictures: gone.zip .*another form")
    missing = served(
        server, tmp_path, files=files, otherwise=[Form(files=other.files, needs="no_such_module")]
    )
    with pytest.raises(DataError, match=r"plain needs no_such_module.*installed; pip.*no_such_m"):
        fetch(missing, tmp_path / "elsewhere", say=lambda _: None)


def test_offline_is_told_once_for_all_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(
        downloads, "any_answers", lambda addresses, _: bool(asked.append(list(addresses)))
    )
    urls = ["http://a.invalid/x", "http://b.invalid/x", "http://c.invalid/x"]
    other = Form(files=[Archive(urls[2:], "z")])
    source = DatasetSource(
        name="pictures", folder="Pictures", files=[Archive(urls[:2], "y")], otherwise=[other]
    )
    with pytest.raises(
        DataError, match=r"^pictures: a\.invalid, b\.invalid, c\.invalid.*reached; check.*net"
    ):
        fetch(source, tmp_path, say=lambda _: None)
    assert asked == [urls]


def beside_its_name(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "plain").rename(folder / "a" / "plain")


def test_two_processes_do_not_fetch_the_same(server: Server, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / ".fetch" / "pictures").mkdir(parents=True)
    with (
        try_exclusive(data / ".fetch" / "pictures.lock"),
        pytest.raises(DataError, match=r"process.*fetching pictures"),
    ):
        fetch(served(server, tmp_path), data, say=lambda _: None)


ARRANGED = {"arrange.mnist", "arrange.terra_incognita", "arrange.camelyon17", "arrange.domains"}


def test_the_blocks_of_the_configuration() -> None:
    """All can be read; a folder is the last part of the dataset's root;
    a checksum is one, or null.
    """
    known = sources()
    assert {
        "pacs",
        "vlcs",
        "office_home",
        "terra_incognita",
        "domain_net",
        "nico_pp",
        "l_cifar10",
    } <= known.keys()
    assert known["vlcs_corrupted"] is known["vlcs"]  # what it builds on
    assert len(known["camelyon17"].otherwise[0].files) == 21
    for name, source in known.items():
        text = (DATASETS / f"{source.name}.yaml").read_text()
        root = rf"^(?:root|data_dir): \$\{{paths\.data_dir\}}.*\b{re.escape(source.folder)}\b"
        assert re.search(root, text, re.M), name
        assert source.license != "not stated", name
        assert source.manual, name
        for form in source.forms:
            assert len({archive.name for archive in form.files}) == len(form.files)
            for archive in form.files:
                assert archive.urls
                assert all(re.match(r"https?://", url) for url in archive.urls)
                for algorithm, value in archive.published.items():
                    assert (
                        re.fullmatch(r"[0-9a-f]*", value)
                        and len(value) == {"sha256": 64, "md5": 32}[algorithm]
                    )
            assert (
                form.arrange is None or form.arrange.removeprefix("dgbench.data.fetch.") in ARRANGED
            )


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("{folder: x, flies: []}", "flies is unknown"),
        ("{license: x}", "folder"),
        ("{folder: x, files: [{name: x, urls: [], crc: 1}]}", "crc"),
        ("{folder: x, otherwise: [{files: [], manual: x}]}", "manual is unknown"),
        ("{folder: x, otherwise: [{inner: x}]}", "form in otherwise"),
    ],
)
def test_a_block_that_cannot_be_read(tmp_path: Path, block: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(f"fetch: {block}\n")
    with pytest.raises(ConfigError, match=rf"cannot be read.*{said}"):
        sources(tmp_path)


def test_datasets_of_one_folder_have_one_source(tmp_path: Path) -> None:
    """A block of its own, a base that has one, and a reference to one; the file with the block is
    read last.
    """
    texts = {
        "z": "fetch: {folder: Z}",
        "built": "defaults: [image_folder, z, _self_, {override /backbone: mlp}]",
        "alike": "fetch: {like: z}",
        "none": "defaults: [image_folder]",
        "image_folder": "name: image_folder",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    found = sources(tmp_path)
    assert sorted(found) == ["alike", "built", "z"]
    assert {(source.name, source.folder) for source in found.values()} == {("z", "Z")}
    for block in ("{like: nowhere}", "{like: z, folder: x}", "{like: alike}"):
        (tmp_path / "wrong.yaml").write_text(f"fetch: {block}")
        with pytest.raises(ConfigError, match=r"wrong\.yaml.*\{like: NAME\}.*dataset.*own"):
            sources(tmp_path)


def test_the_command(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fetching, "sources", lambda: {"pictures": served(server, tmp_path)})
    data = ["--to", str(tmp_path / "data")]
    assert fetching.main(["list", *data]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "pictures",
        "Pictures",
        "no",
        "yes",
        "not",
        "stated",
    ]
    assert fetching.main(["nothing", "pictures", *data]) == 1
    one_line(capsys.readouterr().err.rstrip("\n"), "^dgbench: nothing has .*pictures, or list$")
    assert fetching.main(["pictures", *data]) == 0
    assert "is there, nothing" in capsys.readouterr().out


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    """The real command against a server that never answers."""
    code = f"""if True:
        import runpy, signal, sys, time
        import dgbench.downloads as downloads
        from pathlib import Path

        # a shell's background job ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def silent(*_):
            Path({str(tmp_path / "asked")!r}).touch()
            time.sleep(60)

        downloads.any_answers = silent
        sys.argv = ["fetch", "pacs", "--to", {str(tmp_path)!r}]
        runpy.run_module("dgbench.data.fetch", run_name="__main__")
    """
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "asked").exists():
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    one_line(process.communicate(timeout=30)[1].rstrip("\n"), "^dgbench: interrupted; ")
    assert process.returncode == 130


def test_ctrl_c_in_the_middle_and_once_more(tmp_path: Path) -> None:
    """The real command against a server that stops after 2 of 3 MB; the next one asks for the rest
    alone.
    """
    content = zipped(tmp_path / "a.zip", {"top/a.png": os.urandom(3_000_000)}).read_bytes()
    asked: list[str | None] = []
    go_on = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            start = int(re.findall(r"\d+", wanted)[0]) if wanted else 0
            asked.append(wanted)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("ETag", '"one"')
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            self.end_headers()
            self.wfile.write(content[start : 2_000_000 if not start else None])
            self.wfile.flush()
            if not start:
                go_on.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(
        target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    url = f"http://127.0.0.1:{running.server_port}/a.zip"
    block = {"folder": "Pictures", "inner": "top", "files": [{"name": "a.zip", "urls": [url]}]}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "pictures.yaml").write_text(json.dumps({"fetch": block}))
    code = f"""if True:
        import runpy, signal, sys
        from pathlib import Path
        import dgbench.data.fetch.fetching as fetching
        import dgbench.downloads as downloads
        from dgbench.data.fetch.fetching import sources

        # a shell's background job ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        downloads.any_answers = lambda *_: True
        fetching.sources = lambda: sources(Path({str(tmp_path / "conf")!r}))
        sys.argv = ["fetch", "pictures", "--to", {str(tmp_path / "data")!r}]
        runpy.run_module("dgbench.data.fetch", run_name="__main__")
    """
    part = tmp_path / "data/.fetch/pictures/a.zip.part"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not (part.is_file() and part.stat().st_size):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1].splitlines()[-1].startswith("dgbench: interrupted; ")
    have = part.stat().st_size
    assert 0 < have <= 2_000_000 and not (tmp_path / "data/Pictures").exists()
    go_on.set()
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr
    assert asked == [None, f"bytes={have}-"]
    assert (tmp_path / "data/Pictures/a.png").stat().st_size == 3_000_000
    running.shutdown()
    running.server_close()


def test_terra_incognita_is_arranged(tmp_path: Path) -> None:
    """Four images: two classes at one place, one image with both, one elsewhere, one of another
    class.
    """
    images = {"1.jpg": "38", "2.jpg": "38", "3.jpg": "7", "4.jpg": "100"}
    (tmp_path / "eccv_18_all_images_sm").mkdir()
    (tmp_path / "eccv_18_annotation_files").mkdir()
    for name in images:
        (tmp_path / "eccv_18_all_images_sm" / name).write_text(name)
    content = {
        "categories": [
            {"id": 1, "name": "bird"},
            {"id": 2, "name": "cat"},
            {"id": 3, "name": "car"},
        ],
        "images": [
            {"id": name[0], "file_name": name, "location": int(place)}
            for name, place in images.items()
        ],
        "annotations": [
            {"image_id": image, "category_id": kind}
            for image, kind in [("1", 1), ("2", 1), ("2", 2), ("3", 1), ("4", 3)]
        ],
    }
    for half in ("cis_test", "train"):
        own = {
            **content,
            "annotations": content["annotations"][:3]
            if half == "train"
            else content["annotations"][2:],
        }
        (tmp_path / "eccv_18_annotation_files" / f"{half}_annotations.json").write_text(
            json.dumps(own)
        )
    terra_incognita(tmp_path)
    assert tree(tmp_path) == {
        "location_38/bird/1.jpg": b"1.jpg",
        "location_38/bird/2.jpg": b"2.jpg",
        "location_38/cat/2.jpg": b"2.jpg",
    }
    with pytest.raises(DataError, match="lacks eccv_18_all_images_sm"):
        terra_incognita(tmp_path)


def test_every_dataset_is_fetched_to_where_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command that is printed where its images are absent."""
    monkeypatch.delenv("DGBENCH_DATA_DIR", raising=False)
    count = 0
    for name in sources():
        dataset = composed(f"dataset={name}", "paths.data_dir=my images").dataset
        root = dataset.get("root")
        if root is None:  # MNIST, which lies in the folder of datasets
            continue
        count += 1
        command = command_into(name, Path(root))
        assert command == f"dgbench fetch {name} --to 'my images'"
        assert command_into(name, Path("data") / Path(root).name) == f"dgbench fetch {name}"
        assert command_into(name, Path("elsewhere")) is None
    assert count > 10
    assert command_into("mine", Path("data/mine")) is None
