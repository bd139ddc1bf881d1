"""What every report says before its first table."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.closing import TARGET_ORACLE
from dgbench.selection.methods import Selection

ORACLE = "ORACLE SELECTION looks at the test environments: these numbers are no estimate of unseen performance."


def warnings(selection: Selection, trained_on_tested: bool) -> list[str]:
    """Why the numbers are no estimate of unseen performance; empty where they are one."""
    return [*([ORACLE] if selection.uses_test_environments else []), *([TARGET_ORACLE] if trained_on_tested else [])]


def leads(what: str, problems: Sequence[Problem]) -> list[str]:
    """What went into the report, and how much was left out."""
    plural = "s" * (len(problems) != 1)
    return [f"{what}.", f"{len(problems)} problem{plural}, listed at the end." if problems else "No problems."]
