"""What studies lack, and the command that fills it: one account for all reports.

An evaluation only notes which folds are missing and why (:class:`MissingFolds`). What was typed
for the runs that are there stands in their folders, and is read when a report makes its account.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgbench.plan.folds import FULL, tested_by_fold
from dgbench.reports.importers import IMPORTED, is_from_table
from dgbench.reports.labels import variant_text
from dgbench.reports.reading.commands import filling_command
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import SelectedRun
from dgbench.validation import some_of

NO_ROWS = "no rows"  #: why a fold has no errors of which nothing is there
_ADD_LINES = "To fill: add the lines to the table"
#: missing folds that are named with their environments; more are given as ranges
_MOST_NAMED = 4


@dataclass(frozen=True)
class MissingFolds:
    """The folds of one study that have no errors."""

    run: SelectedRun  #: any run of the study
    reasons: Mapping[str, str]  #: fold -> why it has no errors

    @property
    def is_imported(self) -> bool:
        """Whether the study was trained by another program."""
        return str(self.run.identity["code"]).startswith(IMPORTED)

    @property
    def is_from_table(self) -> bool:
        """Whether a table describes the study, which lacks lines."""
        return is_from_table(self.run.identity)

    @property
    def who(self) -> str:
        """Name algorithm and seed of the study."""
        return f"{self.run.label} seed {self.run.identity['seed']}"

    @property
    def gaps(self) -> str:
        """Name the environments of which a table has no line, and other reasons."""
        return missing_lines(self.run.identity, self.reasons)

    def problem(self) -> Problem:
        """Make the problem that a report lists, with the command that fills it.

        It reads the folder of the run.
        """
        identity = self.run.identity
        place = f"{variant_text(identity)}, {self.who}"
        return Problem("missing folds", place, f"{self._text()}. {advice(self.run, self.reasons)}")

    def _text(self) -> str:
        if len(self.reasons) > _MOST_NAMED:
            return grouped_reasons(self.reasons)
        planned = tested_by_fold(self.run.identity)
        role = "tested" if self.run.identity.get("folds") else "held out"
        parts = []
        for fold, reason in self.reasons.items():
            environments = ", ".join(planned_tests(fold, planned))
            place = f" ({environments} {role})" if environments else ""
            parts.append(f"fold {fold}{place}: {reason}")
        return "; ".join(parts)


def account_of(left_out: Iterable[Problem | MissingFolds]) -> list[Problem]:
    """List as problems what was left out and what is missing, in order."""
    problems = []
    lacking: dict[tuple[str, str], list[MissingFolds]] = defaultdict(list)
    for item in left_out:
        if not isinstance(item, MissingFolds):
            problems.append(item)
        elif item.is_from_table:
            lacking[variant_text(item.run.identity), item.gaps].append(item)
        else:
            problems.append(item.problem())
    for (dataset, gaps), studies in lacking.items():
        who = some_of([study.who for study in studies])
        problems.append(Problem("missing lines", f"{dataset}, {who}", f"{gaps}. {_ADD_LINES}"))
    return problems


def missing_lines(identity: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """List the environments that a table has no line for: ``no line for photo, sketch``.

    Args:
        identity: of a run of the study.
        reasons: fold -> why it has no errors.
    """
    planned = tested_by_fold(identity)
    by_reason: dict[str, list[str]] = defaultdict(list)
    for fold, reason in reasons.items():
        if fold != FULL:
            by_reason[reason] += planned_tests(fold, planned) or [f"fold {fold}"]
    parts = []
    for reason, environments in by_reason.items():
        named = some_of(environments, _MOST_NAMED)
        if reason == NO_ROWS:
            parts.append(f"no line for {named}")
        else:
            parts.append(f"{named}: {reason}")
    return "; ".join(parts)


def advice(run: SelectedRun, folds: Iterable[str]) -> str:
    """Tell how the missing folds of a study are filled: ``To fill: COMMAND``.

    Args:
        run: any run of the study, whose folder is read.
        folds: to train; empty if they are not known.
    """
    if is_from_table(run.identity):
        return _ADD_LINES
    if str(run.identity["code"]).startswith(IMPORTED):
        return "To fill: run it where the sweep was made and import the folder again"
    return f"To fill: {filling_command(Path(run.folder), sorted(folds, key=_place))}"


def _place(fold: str) -> tuple[bool, int, str]:
    """Make a sort key of a fold: numbers by size, then what is no number."""
    return (False, int(fold), "") if fold.isdecimal() else (True, 0, fold)


def planned_tests(fold: str, planned: Sequence[Sequence[str]] | None) -> Sequence[str]:
    """List the environments that the protocol tests in a fold.

    The list is empty for ``full``, and if the protocol does not tell.
    """
    if planned and fold.isdecimal() and int(fold) < len(planned):
        return planned[int(fold)]
    return ()


def grouped_reasons(missing: Mapping[str, str]) -> str:
    """Write every reason once, with the folds that have it: ``folds 0-2, 5: no rows``."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for fold, reason in missing.items():
        by_reason[reason].append(fold)
    return "; ".join(f"{folds_in_words(folds)}: {reason}" for reason, folds in by_reason.items())


def folds_in_words(folds: Sequence[str]) -> str:
    """Write ``folds 0-2, 5``, ``fold 3`` or ``fold full (trained on all given environments)``."""
    text = f"fold{'s' * (len(folds) > 1)} {fold_ranges(folds)}"
    return f"{text} (trained on all given environments)" if list(folds) == [FULL] else text


def fold_ranges(folds: Sequence[str]) -> str:
    """Format ``0-2, 5, full``: numbers first, then names.

    Three or more consecutive numbers are written as a range.
    """
    names = sorted(fold for fold in folds if not fold.isdecimal())
    runs: list[list[int]] = []  # of consecutive numbers
    for number in sorted(int(fold) for fold in folds if fold.isdecimal()):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = []
    for run in runs:
        if len(run) > 2:
            words.append(f"{run[0]}-{run[-1]}")
        else:
            words += map(str, run)
    return ", ".join([*words, *names])
