"""Processes that a command of the tests starts are forks of it: they need not import PyTorch or
matplotlib again.

Importing this makes it so in the processes that are forked from here. The commands of
``end_to_end``, ``chaos`` and ``launchers`` that are started in processes of their own start theirs
as users' do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from typing import Any

import dgbench.reports.render.drawing as drawing

context_of = multiprocessing.get_context


def forked(method: str | None = None) -> Any:
    return context_of("fork" if method == "forkserver" else method)


multiprocessing.get_context = forked
drawing.saved_beside = contextlib.nullcontext
