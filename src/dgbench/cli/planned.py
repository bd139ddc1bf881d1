"""``planned.json`` in a job's folder: what it means to train."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from dgbench.cli.study import Study
from dgbench.records import PLAN_FILE, write_whole


def keep_plan(folder: Path, studies: Sequence[Study]) -> None:
    """Add what a job means to train to the plan in its folder, so that what was never begun can be missed."""
    file = folder / PLAN_FILE
    try:
        known = list(json.loads(file.read_text())["members"])
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short
        known = []
    planned = [os.path.relpath(member.folder, folder) for study in studies for member in study.members]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"members": list(dict.fromkeys([*known, *planned]))}, indent=1) + "\n")
