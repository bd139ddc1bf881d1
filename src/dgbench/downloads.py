"""Downloading one file: from the first of several addresses, continued and checked.

Own code, since pooch takes one address per file and starts a broken transfer from its beginning.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

from dgbench.errors import DataError

PROBE_SECONDS = 4.0  #: an unreachable download must be given up within 5 seconds in all
SILENCE_SECONDS = 60.0  #: of a transfer, which is then broken off
ATTEMPTS = 5  #: for an address, as long as each brings something
CHUNK_BYTES = 1 << 20
HUB = "https://huggingface.co"
HEADERS = {"User-Agent": "dgbench"}


class Unavailable(DataError):
    """A file that no address gave: none answers, none has it, or all have another file."""


def download(
    urls: Sequence[str],
    file: Path,
    sha256: str | None,
    md5: str | None = None,
    *,
    say: Callable[[str], None] = print,
    probe_seconds: float = PROBE_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
) -> str:
    """Get a file from the first address that has it.

    What has arrived lies in ``file.part``; the next call continues there if the address is the same
    or a checksum is known, and the server can. A transfer that breaks off is taken up again.
    Nothing is left of a file with a wrong checksum.

    Args:
        urls: addresses of the same file, tried in order; those of the Hugging Face hub follow
            HF_ENDPOINT.
        file: where it goes; left alone if it is there and its checksums are right or unknown.
        sha256: its checksum in hexadecimal; None if none was published.
        md5: likewise; it detects damage, not malice.
        say: gets one line for every address that failed.
        probe_seconds: how long to wait for any address to answer at all.
        silence_seconds: after which a transfer is broken off.

    Returns:
        The sha256 of the file.

    Raises:
        Unavailable: no address answers, none has the file, or all have another one.
        DataError: the disk is full.
    """
    published = {"sha256": sha256, "md5": md5}
    if file.is_file():
        if _checksum_fault(file, published) is None:
            return checksum(file)
        file.unlink()
    addresses = [_hub_mirror(url) for url in urls]
    need_answer(file.name, addresses, probe_seconds)
    part = file.with_name(file.name + ".part")
    checked = bool(sha256 or md5)
    for number, url in enumerate(addresses, start=1):
        reason = _fetch(url, part, published, checked, silence_seconds)
        if reason is None:
            digest = checksum(part)
            part.rename(file)
            _note(part).unlink(missing_ok=True)
            return digest
        next_one = "; trying the next address" if number < len(addresses) else ""
        say(f"{file.name}: {url}: {reason}{next_one}")
    continues = "; it continues where it stopped" if _size(part) else ""
    tried = "its only address" if len(addresses) == 1 else f"any of {len(addresses)} addresses"
    raise Unavailable(
        f"{file.name} could not be downloaded from {tried}; start again later{continues}"
    )


def checksum(file: Path, algorithm: str = "sha256") -> str:
    """Compute the checksum of a file, in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, algorithm).hexdigest()


def _hub_mirror(url: str) -> str:
    """Rewrite a Hugging Face hub address to the mirror that HF_ENDPOINT names.

    The hub's own library does the same.
    """
    mirror = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    if not url.startswith(f"{HUB}/"):
        return url
    return mirror + url.removeprefix(HUB)


def _fetch(
    url: str, part: Path, published: Mapping[str, str | None], checked: bool, silence: float
) -> str | None:
    """Complete ``part`` from one address, and return None or why that failed.

    After a failure no part of a wrong file is left.
    """
    begun = _size(part) > 0
    try:
        _transfer(url, part, checked, silence)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        return " ".join(str(reason).split())
    fault = _checksum_fault(part, published)
    if fault is None:
        return None
    _forget(part)
    # the wrong bytes may be an earlier go's
    return _fetch(url, part, published, checked, silence) if begun else fault


def _checksum_fault(file: Path, published: Mapping[str, str | None]) -> str | None:
    """Describe the checksum that is not the published one, or return None if all are."""
    for algorithm, expected in published.items():
        if expected is None:
            continue
        digest = checksum(file, algorithm)
        if digest != expected:
            return f"{algorithm} is {digest}, not {expected}"
    return None


def _transfer(url: str, part: Path, checked: bool, silence: float) -> None:
    """Complete ``part`` from one address, in several attempts if needed.

    ``checked`` tells whether a checksum is known.
    """
    for attempt in range(ATTEMPTS):
        before = _size(part)
        try:
            _one_go(url, part, checked, silence)
            return
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException):
            if _size(part) <= before or attempt + 1 == ATTEMPTS:
                raise


def _one_go(url: str, part: Path, checked: bool, silence: float) -> None:
    offset, state = _resumable(url, part, checked)
    headers = dict(HEADERS)
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if state.get("version"):
            headers["If-Range"] = state["version"]
    request = urllib.request.Request(url, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=silence)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not offset:
            raise
        if state.get("total") == offset:  # nothing is missing
            return
        _forget(part)
        _one_go(url, part, checked, silence)
        return
    with answer:
        if "text/html" in answer.headers.get("Content-Type", ""):
            raise OSError("sent a web page instead of the file")
        content_range = answer.headers.get("Content-Range", "")
        resumed = answer.status == 206 and content_range.startswith(f"bytes {offset}-")
        offset = offset if resumed else 0
        length = answer.headers.get("Content-Length")
        total = offset + int(length) if length else None
        if resumed and state.get("total") not in (None, total):  # another file by now
            _forget(part)
            _one_go(url, part, checked, silence)
            return
        _check_room(part, (total or 0) - offset)
        _write_note(part, url, total, answer.headers)
        _append(answer, part, "ab" if resumed else "wb", offset, total)
        if total is not None and _size(part) != total:
            raise OSError(f"broke off after {_size(part)} of {total} bytes")


def _write_note(part: Path, url: str, total: int | None, headers: Mapping[str, str]) -> None:
    """Note what a later attempt must know to continue."""
    version = headers.get("ETag") or headers.get("Last-Modified")
    # RFC 9110: a weak tag is no ground to resume on
    if not version or version.startswith("W/"):
        version = None
    _note(part).write_text(json.dumps({"url": url, "total": total, "version": version}))


def _append(answer: Any, part: Path, mode: str, offset: int, total: int | None) -> None:
    """Write what arrives from an address into ``part``, of which ``offset`` bytes are there."""
    with (
        part.open(mode) as out,
        tqdm(
            total=total,
            initial=offset,
            unit="B",
            unit_scale=True,
            desc=part.stem,
            disable=None,
            leave=False,
        ) as bar,
    ):
        chunk = answer.read(CHUNK_BYTES)
        while chunk:
            out.write(chunk)
            bar.update(len(chunk))
            chunk = answer.read(CHUNK_BYTES)


def _resumable(url: str, part: Path, checked: bool) -> tuple[int, dict[str, Any]]:
    """Count the bytes of an earlier attempt that may be kept, and read its note."""
    try:
        state: dict[str, Any] = json.loads(_note(part).read_text())
    except (OSError, ValueError):
        state = {}
    if not part.is_file() or (state.get("url") != url and not checked):
        return 0, {}
    if state.get("url") != url:
        state = {}
    return _size(part), state


def _check_room(part: Path, missing: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise DataError(
            f"{part.parent} has {free / 1e9:.1f} GB free, {part.stem} needs {missing / 1e9:.1f} "
            "GB more; free some space, or choose another folder with --to"
        )


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def need_answer(name: str, addresses: Sequence[str], seconds: float = PROBE_SECONDS) -> None:
    """Refuse to start if no address answers within ``seconds`` in all.

    Raises:
        Unavailable: none does.
    """
    if not any_answers([_hub_mirror(address) for address in addresses], seconds):
        hosts = [urlsplit(address).netloc or address for address in addresses]
        named = ", ".join(dict.fromkeys(hosts))
        raise Unavailable(f"{name}: {named} cannot be reached; check the network and start again")


def any_answers(addresses: Sequence[str], seconds: float) -> bool:
    """Return whether one of the addresses answers within ``seconds`` in all.

    Runs in threads of its own: a name lookup that hangs has no time limit that a caller could set.
    """
    answered = threading.Event()

    def ask(address: str) -> None:
        try:
            request = urllib.request.Request(address, headers=HEADERS)
            with urllib.request.urlopen(request, timeout=seconds):
                answered.set()
        except urllib.error.HTTPError:
            answered.set()  # a mirror's folder page may be forbidden while its files are not
        except (OSError, http.client.HTTPException, ValueError):  # also what is no address
            pass

    threads = [threading.Thread(target=ask, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    while not answered.wait(0.05) and time.monotonic() < deadline:
        if not any(thread.is_alive() for thread in threads):
            break
    return answered.is_set()
