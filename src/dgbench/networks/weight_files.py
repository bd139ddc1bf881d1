"""A file from the network, once: into a cache, whole or not at all, with an error in seconds when it cannot be had."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import tempfile
import threading
import urllib.request
from concurrent.futures import Future
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

from dgbench.errors import WeightsError

log = logging.getLogger("dgbench")

BLOCK = 2**20
HUB = re.compile(r"^https://huggingface\.co/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)$")


def fetched(url: str, folder: Path, timeout: float) -> Path:
    """The file at an address: as it lies in ``folder`` or in the Hugging Face cache, else downloaded.

    Args:
        url: http, https or file address. Those of the Hugging Face hub follow the variable HF_ENDPOINT.
        folder: where downloads are kept.
        timeout: seconds to wait for an answer, and for each piece.

    Raises:
        WeightsError: it cannot be had, or the download broke off; nothing is left behind.
    """
    found, target = here(url, folder), _target(url, folder)
    if found:
        return found
    if HUB.match(url):
        url = url.replace("https://huggingface.co", os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/"))
    fix = "give a local file with init.path=FILE, or start from random weights with init=random"
    try:
        with _answer(url, timeout) as answer:
            folder.mkdir(parents=True, exist_ok=True)
            _save(answer, url, target)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise WeightsError(
                f"{url} gave no answer for {timeout:g} s; {fix}; init.timeout=SECONDS waits longer"
            ) from error
        text = " ".join(str(getattr(reason, "strerror", None) or reason).split())
        raise WeightsError(f"{url} cannot be downloaded ({text}); {fix}") from error
    return target


def here(url: str, folder: Path) -> Path | None:
    """The file at an address, if it lies in ``folder`` or in the Hugging Face cache; asks no network."""
    target, hub = _target(url, folder), HUB.match(url)
    if target.exists():
        return target
    return _in_hub_cache(hub["repo"], hub["file"]) if hub else None


def fetch_command(url: str, folder: Path) -> str:
    """What to type for the file at an address to lie where :func:`here` looks."""
    return shlex.join(["curl", "-fL", "--create-dirs", "-o", str(_target(url, folder)), url])


def _target(url: str, folder: Path) -> Path:
    return folder / f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{url.rstrip('/').rsplit('/', 1)[-1]}"


def _answer(url: str, timeout: float) -> HTTPResponse:
    """The opened address; also looking up the host and trying all its addresses is limited to ``timeout``."""
    asked: Future[HTTPResponse] = Future()

    def ask() -> None:
        try:
            answer = urllib.request.urlopen(url, timeout=timeout)
        except Exception as error:  # handed over to whoever waits
            if isinstance(error, HTTPError):
                error.close()
            if asked.set_running_or_notify_cancel():
                asked.set_exception(error)
        else:
            if asked.set_running_or_notify_cancel():
                asked.set_result(answer)
            else:
                answer.close()

    threading.Thread(target=ask, daemon=True).start()
    try:
        return asked.result(timeout)
    except TimeoutError:
        asked.cancel()  # no one waits any more
        raise


def _save(answer: HTTPResponse, url: str, target: Path) -> None:
    expected = answer.headers.get("Content-Length")
    size = f"{int(expected) / 1e6:.0f} MB" if expected else "of unknown size"
    log.info("downloading %s (%s) to %s", url, size, target)
    descriptor, partial = tempfile.mkstemp(prefix=target.name, suffix=".partial", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
            received = file.tell()
        if expected and received != int(expected):
            raise OSError(f"the connection broke after {received} of {expected} bytes")
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)


def _in_hub_cache(repo: str, file: str) -> Path | None:
    """Where the Hugging Face cache of this machine has a file, if it has; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file)
    return Path(found) if isinstance(found, str) else None
