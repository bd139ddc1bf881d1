"""Figures are saved by another process, or by the own one: the same bytes, and no figure is lost
with a process.
"""

from __future__ import annotations

import os
import signal
import time

from dgbench.reports.document import Figure
from dgbench.reports.render import drawing as saving
from dgbench.reports.render.drawing import canvas, finish


def drawing() -> Figure:
    with canvas("one", 3.0, 2.0) as drawn:
        axes = drawn.add_subplot()
        axes.plot([0, 1, 2], [0.2, 0.1, 0.4], label="a$b")
        axes.legend()
        return finish(drawn, "one", "One", "A curve.")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_another_process_saves_the_same_bytes_and_ends_with_the_report() -> None:
    own = drawing()
    with saving.saved_beside():
        other = drawing()
        (process,) = saving._pools[-1]._processes
        assert process != os.getpid() and (other.svg, other.png) == (own.svg, own.png)
    assert (
        own.png.startswith(b"\x89PNG")
        and own.svg.startswith("<svg style=")
        and "currentColor" in own.svg
    )
    deadline = time.monotonic() + 30
    while alive(process):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_process_costs_no_figure() -> None:
    with saving.saved_beside():
        (process,) = saving._pools[-1]._processes
        os.kill(process, signal.SIGKILL)
        figures = [drawing() for _ in range(3)]
        assert {figure.svg for figure in figures} == {drawing().svg}
        time.sleep(0.5)  # by now the pool knows
        assert drawing().png == figures[0].png
