"""Drawn figures become SVG and PNG, in a process beside the one that makes the tables: it is a third of a report.

No pandas here, so that the other process is there soon.
"""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context, parent_process
from typing import Any

INK = "#1c2024"  # becomes currentColor in the SVG
Pictures = tuple[str, bytes]  # inline SVG without prolog, PNG

_beside: list[ProcessPoolExecutor] = []


@contextmanager
def saved_beside() -> Iterator[None]:
    """Let another process save the figures drawn within; elsewhere by their own, when they are first looked at."""
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)
    with _without_interrupts():
        pool.submit(_load)
    _beside.append(pool)
    try:
        yield
    finally:
        _beside.remove(pool)
        pool.shutdown(cancel_futures=True)


def save(drawn: Any, style: Mapping[Any, Any]) -> Callable[[], Pictures]:
    """Return what gives both formats of a matplotlib figure, once they are there."""
    future: Future[Pictures] | None = None
    with suppress(BrokenExecutor):
        future = _beside[-1].submit(pictures, drawn, style) if _beside else None

    @cache
    def wait() -> Pictures:
        with suppress(BrokenExecutor):  # the other process was killed, or cannot import the script that calls us
            if future is not None:
                return future.result()
        return pictures(drawn, style)

    return wait


def pictures(drawn: Any, style: Mapping[Any, Any]) -> Pictures:
    """Make both formats, the same to the byte for equal figures."""
    import matplotlib

    with matplotlib.rc_context(dict(style)):
        svg = _inline_svg(drawn)
        drawn.set_layout_engine("none")  # laid out by now, and laying out costs half of the drawing
        return svg, _png(drawn)


def _png(drawn: Any) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=160, facecolor="white", pil_kwargs={"compress_level": 4})
    return buffer.getvalue()


def _inline_svg(drawn: Any) -> str:
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"<!--.*?-->\n?", "", text)
    text = re.sub(r' id="[A-Za-z]+[\w.]*_\d+"', "", text)  # figure_1, axes_2: the same in every figure, never used
    for _ in range(2):
        text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", text)
    text = re.sub(r"(?<=[ \"(-])(\d+\.\d\d)\d+", r"\1", text)  # hundredths of a point are enough
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace(INK, "currentColor")


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process started within leaves Ctrl-C to the one that started it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    def end_with_parent() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _load() -> None:
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
