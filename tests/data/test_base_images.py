"""Reading MNIST and the digits: what is broken is named, what is out of reach is given up."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dgbench import downloads
from dgbench.data.datasets import base_images as base_files
from dgbench.data.datasets.base_images import load_base_images
from dgbench.data.datasets.spurious import SRCMNIST
from dgbench.data.fetch.fetching import Archive
from dgbench.downloads import any_answers
from dgbench.errors import DataError
from tests.complaints import one_line

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SHAPES = {
    FILES[0]: (60_000, 28, 28),
    FILES[1]: (60_000,),
    FILES[2]: (10_000, 28, 28),
    FILES[3]: (10_000,),
}


def idx(shape: tuple[int, ...], *, kind: int = 8, fill: int = 0) -> bytes:
    """An IDX file of unsigned bytes: two zeros, type 8, number of dimensions, big-endian sizes, the
    values.
    """
    header = bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return header + bytes([fill]) * int(np.prod(shape))


@pytest.fixture(autouse=True)
def closed_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No test reaches the network: the mirror is a port of this machine that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        address = f"http://127.0.0.1:{free.getsockname()[1]}/"
        source = base_files.sources()["sr_cmnist"]
        files = [replace(file, urls=[address]) for file in source.files]
        monkeypatch.setattr(
            base_files, "sources", lambda: {"sr_cmnist": replace(source, files=files)}
        )
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield address


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A tree whose files have the right names and shapes; all pixels and labels are 0, label files
    7.
    """
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name, shape in SHAPES.items():
        (folder / name).write_bytes(idx(shape, fill=7 if len(shape) == 1 else 0))
    return folder


@pytest.mark.parametrize("resolution", [28, 14])
def test_a_whole_tree_is_read(raw: Path, resolution: int) -> None:
    """Image 60,000 is the first of the test file; its pixel in row 2, column 4 stays at 14 x 14 in
    row 1, column 2.
    """
    data = bytearray((raw / FILES[2]).read_bytes())
    data[16 + 2 * 28 + 4] = 200
    (raw / FILES[2]).write_bytes(data)
    found = load_base_images("mnist", raw.parents[1], resolution)
    assert (found.name, found.peak) == ("mnist", 255)
    assert found.images.shape == (70_000, 1, resolution, resolution)
    assert found.classes.tolist() == [7] * 70_000
    step = 28 // resolution
    assert found.images[60_000].nonzero().tolist() == [[0, 2 // step, 4 // step]]
    assert int(found.images.count_nonzero()) == 1


BREAKS = {
    "empty": lambda data: b"",
    "header only": lambda data: data[:16],
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "compressed": gzip.compress,
    "text": lambda data: b"<html>404 not found</html>",
    "other type": lambda data: b"\0\0\x0d" + data[3:],
    "no such type": lambda data: b"\0\0\x77" + data[3:],
    "no dimensions": lambda data: data[:3] + b"\0" + data[4:],
    "more dimensions": lambda data: data[:3] + b"\xff" + data[4:],
    "other count": lambda data: idx((100, 28, 28) if data[3] == 3 else (100,)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", [FILES[2], FILES[3]])
@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_file_is_one_line_that_names_it(raw: Path, name: str, kind: str) -> None:
    (raw / FILES[0]).write_bytes(idx((60_000, 28, 28)))
    path = raw / name
    path.write_bytes(BREAKS[kind](path.read_bytes()))
    with pytest.raises(DataError) as caught:
        load_base_images("mnist", raw.parents[1], 28)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith("it and fetch MNIST again")
    assert len(message.splitlines()) == 1


def test_a_folder_in_the_place_of_a_file(raw: Path) -> None:
    (raw / FILES[3]).unlink()
    (raw / FILES[3]).mkdir()
    with pytest.raises(DataError, match="cannot be downloaded"):
        load_base_images("mnist", raw.parents[1], 28)


@pytest.mark.parametrize("gone", FILES)
def test_a_missing_file_out_of_reach(raw: Path, gone: str) -> None:
    (raw / gone).unlink()
    with pytest.raises(DataError, match=r"downloaded.*paths\.data_dir.*base=digits"):
        load_base_images("mnist", raw.parents[1], 28)


def test_digits() -> None:
    """1,797 images of 8 x 8 with values 0..16; the first ten are the digits 0 to 9 in order."""
    found = load_base_images("digits", "none", 28)
    assert found.images.shape == (1797, 1, 8, 8)
    assert (int(found.images.min()), int(found.images.max()), found.peak) == (0, 16, 16)
    assert found.classes[:10].tolist() == list(range(10))
    assert found.classes.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


# ---- downloads


def test_a_refused_connection_gives_up(closed_port: str) -> None:
    assert any_answers([closed_port, closed_port], seconds=30) is False


def test_a_server_that_never_answers_gives_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert any_answers([address], seconds=0.3) is False


def test_a_name_that_cannot_be_looked_up_gives_up() -> None:
    assert any_answers(["http://no-such-host.invalid/"], seconds=5) is False


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
def test_a_server_that_answers_anything_is_reachable(status: str, closed_port: str) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(
                    f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                )

        thread = threading.Thread(target=answer)
        thread.start()
        assert (
            any_answers([closed_port, f"http://127.0.0.1:{server.getsockname()[1]}/"], seconds=30)
            is True
        )
        thread.join()


def test_auto_falls_back_to_digits_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        environments = SRCMNIST(
            name="sr_cmnist", base="auto", data_dir=str(tmp_path), resolution=28, given=None,
            ratio=3, scale=1, label_noise=0.25, pool_fraction=0.142857, val_fraction=0.2,
            evaluation="exact", data_seed=0, split_seed=0,
        ).build()  # fmt: skip
    assert environments.info.identity()["base"] == "digits"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    one_line(record.getMessage(), r"MNIST.*digits.*dataset\.base=auto.*dgbench fetch sr_cmnist")
    assert not list(tmp_path.iterdir())


def test_auto_takes_mnist_when_it_is_on_disk(raw: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = load_base_images("auto", raw.parents[1], 14)
    assert found.name == "mnist"
    assert not caplog.records


def test_a_download_that_breaks_off_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mirror answers, then fails to deliver: that is told, and the digits are used."""
    monkeypatch.setattr(base_files, "any_answers", lambda *_: True)
    assert load_base_images("auto", tmp_path, 28).name == "digits"
    first, _ = caplog.records
    assert first.getMessage().startswith("MNIST could not be downloaded: ") and not list(
        tmp_path.glob("MNIST*")
    )


def test_mnist_is_fetched_into_the_layout_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its four files as they are served, packed, by a file server."""
    monkeypatch.setattr(base_files, "any_answers", lambda *_: True)
    monkeypatch.setattr(downloads, "any_answers", lambda *_: True)
    files = []
    for name, shape in SHAPES.items():
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress(idx(shape), 1))
        files.append(
            Archive(
                [packed.as_uri()], packed.name, md5=hashlib.md5(packed.read_bytes()).hexdigest()
            )
        )
    source = replace(base_files.sources()["sr_cmnist"], files=files)
    monkeypatch.setattr(base_files, "sources", lambda: {"sr_cmnist": source})
    found = load_base_images("auto", tmp_path / "data", 14)
    assert (found.name, found.images.shape) == ("mnist", (70_000, 1, 14, 14))
    assert sorted(path.name for path in (tmp_path / "data" / "MNIST").rglob("*")) == sorted(
        [*FILES, "raw"]
    )


# ---- the real thing


@pytest.mark.mnist
@pytest.mark.skipif(
    not (Path(os.environ.get("DGBENCH_DATA_DIR", "")) / "MNIST" / "raw" / FILES[0]).is_file(),
    reason="no MNIST in DGBENCH_DATA_DIR",
)
def test_real_mnist() -> None:
    """MNIST's published class counts, training and test images together, and the label of the first
    image (5).
    """
    found = load_base_images("mnist", os.environ["DGBENCH_DATA_DIR"], 28)
    assert found.images.shape == (70_000, 1, 28, 28)
    assert found.classes.bincount().tolist() == [
        6903,
        7877,
        6990,
        7141,
        6824,
        6313,
        6876,
        7293,
        6825,
        6958,
    ]
    assert int(found.classes[0]) == 5
    assert float(found.images[:60_000].double().mean() / 255) == pytest.approx(0.1307, abs=5e-5)
