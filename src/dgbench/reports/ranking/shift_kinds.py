"""Which shift dominates a dataset of a leaderboard: as the configuration says, or as it was estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgbench.analysis.shift_verdicts import DOMINANT
from dgbench.errors import ConfigError
from dgbench.records.rows import identity_key
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import BY_SEED
from dgbench.reports.reading.shifts import ShiftSetting, read_shifts, shift_settings, verdicts

OTHER = "other"
_FORM = ("dataset", "variant", "base", "data_seed", "given")  # what a verdict is of


@dataclass(frozen=True)
class ShiftSplit:
    """The kind of shift of each dataset."""

    named: Mapping[str, str]  #: dataset -> kind; used where nothing is estimated
    #: form of a dataset -> kind, in place of ``named``; None where no estimates were asked for
    estimated: Mapping[str, str] | None = None
    source: str = ""  #: what the estimates are, in words
    problems: Sequence[Problem] = field(default=())  #: of the estimates' files

    def of(self, identity: Mapping[str, Any]) -> str:
        """``diversity``, ``correlation`` or :data:`OTHER`."""
        if self.estimated is None:
            return self.named.get(str(identity["dataset"]), OTHER)
        return self.estimated.get(identity_key(identity, _FORM), OTHER)

    @property
    def notes(self) -> list[str]:
        """Where the kinds come from, if not from the configuration."""
        if self.estimated is None:
            return []
        return [
            f"Kinds of shift: estimated ({self.source}). Under other: datasets that were not estimated in this form, "
            "and those whose intervals do not say that one kind dominates."
        ]


def shift_split(
    named: Mapping[str, str], folders: str | Path | Sequence[str | Path] | None, estimator: str | None
) -> ShiftSplit:
    """The split that a leaderboard uses.

    Args:
        named: dataset -> kind, of the configuration.
        folders: with ``shifts.jsonl``; None takes what is named.
        estimator: which estimates count where the folders hold several: its name, or the title of a section of
            ``report=shift``.

    Raises:
        RecordError: there are no rows.
        ConfigError: no estimator of the two shifts was run, or several were and none is chosen.
    """
    if folders is None:
        return ShiftSplit(named)
    estimates = read_shifts(folders)
    settings, odd = shift_settings(estimates.rows)
    setting = _chosen([setting for setting in settings if setting.axes], estimator)
    kinds: dict[str, set[str]] = {}
    identities = {line.title: line.identity for line in setting.lines}
    for title, verdict in verdicts(setting).items():
        identity = identities[title]
        for form in (identity, {**identity, "data_seed": BY_SEED}):  # of runs whose data are drawn for every seed
            kinds.setdefault(identity_key(form, _FORM), set()).add(verdict.kind)
    dominant = {
        form: next(iter(of_form)) for form, of_form in kinds.items() if len(of_form) == 1 and of_form <= set(DOMINANT)
    }
    source = f"{setting.title}; {', '.join(estimates.folders)}"
    return ShiftSplit(named, dominant, source, [*estimates.problems, *odd])


def _chosen(settings: Sequence[ShiftSetting], name: str | None) -> ShiftSetting:
    if not settings:
        raise ConfigError(
            "report.shifts_from holds no diversity and correlation shift; estimate them with estimator=[joint]"
        )
    kept = [setting for setting in settings if name in (None, setting.title, setting.identity["estimator"])]
    if len(kept) == 1:
        return kept[0]
    problem = f"={name} matches {len(kept)} estimates" if name else f" is needed, for there are {len(kept)} estimates"
    raise ConfigError(
        f"report.shifts_estimator{problem}; name one of: {'; '.join(setting.title for setting in settings)}"
    )
