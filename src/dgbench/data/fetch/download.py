"""Downloading one file: several addresses, continues where it stopped, checked by its sha256.

Own code, since pooch takes one address per file and starts a broken transfer from its beginning.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dgbench.errors import DataError

PROBE_SECONDS = 4.0  # an unreachable download must be given up within 5 seconds in all
SILENCE_SECONDS = 60.0  # a transfer that says nothing for so long is broken off
ATTEMPTS = 5  # per address, as long as each brings something
CHUNK = 1 << 20
AGENT = {"User-Agent": "dgbench"}


def download(urls: Sequence[str], file: Path, sha256: str | None, probe_seconds: float = PROBE_SECONDS) -> str:
    """Get a file from the first address that has it.

    What has arrived lies in ``file.part``; the next call continues there if the address (or the checksum, if known) is
    the same and the server can. A transfer that breaks off is taken up again.

    Args:
        urls: addresses of the same file, tried in order.
        file: where it goes; left alone if it is there and its checksum is right or unknown.
        sha256: its checksum in hexadecimal; None if none was published.
        probe_seconds: how long to wait for any address to answer at all.

    Returns:
        The sha256 of the file.

    Raises:
        DataError: no address answers, none has the file, all have another file, or the disk is full.
    """
    if file.is_file():
        found = checksum(file)
        if sha256 in (None, found):
            return found
        file.unlink()
    if not any_answers(urls, probe_seconds):
        hosts = ", ".join(dict.fromkeys(url.split("/")[2] for url in urls))
        raise DataError(f"{file.name}: {hosts} cannot be reached; check the network and start again")
    part, reasons = file.with_name(file.name + ".part"), []
    for url in urls:
        for _ in range(2):
            begun = _size(part) > 0
            try:
                _transfer(url, part, sha256)
            except (OSError, http.client.HTTPException) as error:
                reasons.append(f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}")
                break
            found = checksum(part)
            if sha256 in (None, found):
                part.rename(file)
                _note(part).unlink(missing_ok=True)
                return found
            _forget(part)
            if not begun:  # else the wrong bytes may be an earlier go's: once more from the start
                reasons.append(f"{url}: sha256 is {found}, not {sha256}")
                break
    raise DataError(
        f"{file.name} could not be downloaded ({'; '.join(reasons)}); start again later, it continues where it stopped"
    )


def checksum(file: Path) -> str:
    """sha256 of a file in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _transfer(url: str, part: Path, sha256: str | None) -> None:
    """Complete ``part`` from one address, in several goes if need be."""
    for attempt in range(ATTEMPTS):
        before = _size(part)
        try:
            _one_go(url, part, sha256)
            return
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException):
            if _size(part) <= before or attempt + 1 == ATTEMPTS:
                raise


def _one_go(url: str, part: Path, sha256: str | None) -> None:
    have, state = _resumable(url, part, sha256)
    headers = dict(AGENT)
    if have:
        headers["Range"] = f"bytes={have}-"
        if state.get("version"):
            headers["If-Range"] = state["version"]
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        if state.get("total") == have:  # nothing is missing
            return
        _forget(part)
        _one_go(url, part, sha256)
        return
    with answer:
        if "text/html" in answer.headers.get("Content-Type", ""):
            raise OSError("sent a web page instead of the file")
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        if resumed and state.get("total") not in (None, total):  # another file by now
            _forget(part)
            _one_go(url, part, sha256)
            return
        _check_room(part, (total or 0) - have)
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        usable = version and not version.startswith("W/")  # RFC 9110: a weak tag is no ground to resume on
        _note(part).write_text(json.dumps({"url": url, "total": total, "version": version if usable else None}))
        with (
            part.open("ab" if resumed else "wb") as out,
            tqdm(
                total=total, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=None, leave=False
            ) as bar,
        ):
            while chunk := answer.read(CHUNK):
                out.write(chunk)
                bar.update(len(chunk))
        if total is not None and _size(part) != total:
            raise OSError(f"broke off after {_size(part)} of {total} bytes")


def _resumable(url: str, part: Path, sha256: str | None) -> tuple[int, dict[str, Any]]:
    """How many bytes of an earlier go may be kept, and what is known of them."""
    try:
        state: dict[str, Any] = json.loads(_note(part).read_text())
    except (OSError, ValueError):
        state = {}
    if not part.is_file() or (state.get("url") != url and sha256 is None):
        return 0, {}
    return _size(part), state if state.get("url") == url else {}


def _check_room(part: Path, missing: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise DataError(
            f"{part.parent} has {free / 1e9:.1f} GB free, {part.stem} needs {missing / 1e9:.1f} GB more; "
            "free some space, or choose another folder with --to"
        )


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def any_answers(addresses: Sequence[str], seconds: float) -> bool:
    """Whether one of the addresses answers within ``seconds`` in all.

    Runs in threads of its own: a name lookup that hangs has no time limit that a caller could set.
    """
    answered = threading.Event()

    def ask(address: str) -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=AGENT), timeout=seconds):
                answered.set()
        except urllib.error.HTTPError:
            answered.set()  # a mirror's folder page may be forbidden while its files are not
        except (OSError, http.client.HTTPException):
            pass

    threads = [threading.Thread(target=ask, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    while not answered.wait(0.05) and time.monotonic() < deadline:
        if not any(thread.is_alive() for thread in threads):
            break
    return answered.is_set()
