"""Tables of finished runs from Python: each function takes a frame of :func:`dgbench.results` and
gives a data frame.

Values are fractions; beside a column ``NAME`` may stand ``NAME.std``, ``NAME.n``, ``NAME.reason``
and others, see :mod:`dgbench.reports.tables`. Where the runs belong to several settings (or
leaderboards), a column ``setting`` comes first. ``frame.attrs`` has ``title``, ``notes``
(sentences), ``selection`` and ``problems`` (what was left out and why, in one line each). Frames
hold algorithms alone: what they must beat stands in ``frame.attrs["chance"]``, setting -> reference
(``blind guess``, ``most frequent class``) -> measure -> value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pandas as pd
from pydantic import InstanceOf

from dgbench.analysis import Statistics
from dgbench.errors import RecordError
from dgbench.plan.measures import MeasureChoice, Measures, choose
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.frames import selected_of_frame
from dgbench.reports.measuring.certainty import certainty_table, difference_table
from dgbench.reports.measuring.choices import selection_table
from dgbench.reports.measuring.correlations import correlation_table
from dgbench.reports.measuring.tables import held_out_table, measure_table, seed_table
from dgbench.reports.ranking.leaderboards import leaderboards
from dgbench.reports.ranking.stated import standing_table
from dgbench.reports.ranking.tables import leaderboard_table
from dgbench.reports.reading.folders import Problem
from dgbench.reports.tables import Table
from dgbench.validation import checked

Settings = InstanceOf[Statistics]


@checked
def leaderboard(
    frame: pd.DataFrame, spread: str = "domainbed", split_by: str | None = None
) -> pd.DataFrame:
    """Rank algorithms by test accuracy: on every dataset, on average, and their place, best first.

    Args:
        frame: of :func:`dgbench.results`, or a part of its lines.
        spread: error bar over seeds, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
        split_by: one more column whose values get leaderboards of their own, e.g. ``code``.

    Raises:
        RecordError: no run was tested, or results of several code versions would share a
            leaderboard.
        MeasureError: there is no such error bar.
    """
    chosen = selected_of_frame(frame)
    if chosen.published:
        return _joined(
            {paper.title: standing_table(paper) for paper in chosen.published},
            frame,
            chosen.problems,
        )
    settings, problems = leaderboards(
        chosen, frame.attrs.get("validation_environments", ()), split_by
    )
    return _joined(
        {setting.title: leaderboard_table(setting, spread) for setting in settings}, frame, problems
    )


@checked
def measures(
    frame: pd.DataFrame,
    split_by: str | None = None,
    measures: Measures | None = None,
    compared: Measures | None = None,
) -> pd.DataFrame:
    """Compute the measures of every algorithm, as means over its seeds.

    These are average, worst, gap, worst+gap and ideal, or others. The lowest worst+gap comes first,
    or the lowest average if no study has worst+gap. :func:`dgbench.measures` gives each seed's.

    Args:
        frame: of :func:`dgbench.results`, or a part of its lines.
        split_by: one more column whose values get settings of their own, e.g. ``code``.
        measures: that are shown: names of files in ``conf/measure``, or measures of your own
            (:class:`dgbench.analysis.Measure`); None takes all files.
        compared: that rank and compare algorithms, the first one first; None takes worst+gap and
            the average.

    Raises:
        RecordError: no run was tested, or results of several code versions would share a setting.
        ConfigError: ``split_by`` is no column, or something is no measure.
    """
    return _for_each_setting(frame, measure_table, split_by, choose(measures, compared))


@checked
def held_out_errors(frame: pd.DataFrame, split_by: str | None = None) -> pd.DataFrame:
    """Compute the error in each given environment of the model that never saw it.

    Arguments as in :func:`measures`.
    """
    return _for_each_setting(frame, held_out_table, split_by, choose())


@checked
def selected(
    frame: pd.DataFrame, split_by: str | None = None, measures: Measures | None = None
) -> pd.DataFrame:
    """Find the algorithm that each measure selects, and what that costs.

    Arguments as in :func:`measures`.
    """
    return _for_each_setting(frame, selection_table, split_by, choose(measures))


@checked
def correlation(
    frame: pd.DataFrame, split_by: str | None = None, measures: Measures | None = None
) -> pd.DataFrame:
    """Compute the rank correlation of each measure with the ideal one.

    Arguments as in :func:`measures`.
    """
    return _for_each_setting(frame, correlation_table, split_by, choose(measures))


@checked
def seeds(
    frame: pd.DataFrame, split_by: str | None = None, measures: Measures | None = None
) -> pd.DataFrame:
    """List the measures of every algorithm and seed; arguments as in :func:`measures`."""
    return _for_each_setting(frame, seed_table, split_by, choose(measures))


@checked
def certainty(
    frame: pd.DataFrame, split_by: str | None = None, compared: Measures | None = None
) -> pd.DataFrame:
    """Compare every algorithm with the one that leads: difference, its interval, and the verdict of
    the same test.

    Arguments as in :func:`measures`.
    """
    return _for_each_setting(frame, certainty_table, split_by, choose(None, compared))


@checked
def differences(
    frame: pd.DataFrame,
    statistics: Settings | None = None,
    split_by: str | None = None,
    compared: Measures | None = None,
) -> pd.DataFrame:
    """Compute the difference of every pair of algorithms with its bootstrap interval.

    Args:
        frame: of :func:`dgbench.results`, or a part of its lines.
        statistics: settings of the bootstrap; 1000 resamples and 95% by default.
        split_by: one more column whose values get settings of their own, e.g. ``code``.
        compared: as in :func:`measures`.

    Raises:
        RecordError: no run was tested, or results of several code versions would share a setting.
        ConfigError: ``split_by`` is no column, or something is no measure.
    """
    settings = statistics or Statistics()

    def table_of(evaluation: Evaluation) -> Table:
        return difference_table(evaluation, settings)

    return _for_each_setting(frame, table_of, split_by, choose(None, compared))


def _for_each_setting(
    frame: pd.DataFrame,
    make: Callable[[Evaluation], Table],
    split_by: str | None,
    choice: MeasureChoice,
) -> pd.DataFrame:
    evaluation = evaluate(selected_of_frame(frame), split_by, choice)
    parts = {setting.title: make(evaluation.of(setting.title)) for setting in evaluation.settings}
    joined = _joined(parts, frame, evaluation.problems)
    chance = {}
    for setting in evaluation.settings:
        if setting.chance:
            references = setting.chance.references
            chance[setting.title] = {each.name: dict(each.measures) for each in references}
    joined.attrs["chance"] = chance
    return joined


def _joined(
    parts: Mapping[str, Table], frame: pd.DataFrame, problems: Iterable[Problem]
) -> pd.DataFrame:
    """Join the tables of several settings in one frame.

    Its ``attrs`` hold title, notes, selection and problems.

    Args:
        parts: title of the setting -> its table.
        frame: that they were made of.
        problems: what is missing in them.
    """
    if not parts:
        raise RecordError("no run of this frame was tested; keep the lines whose subset is test")
    tables = list(parts.values())
    names = {"setting": None} if len(parts) > 1 else {}
    for table in tables:
        names |= dict.fromkeys(column.name for column in table.columns)
    columns = list(names)
    notes: dict[str, None] = {}
    for setting, table in parts.items():
        for note in table.notes:
            shared = all(note in other.notes for other in tables)
            notes[note if shared else f"{setting}: {note}"] = None
    lines = []
    for setting, table in parts.items():
        for line in table.frame.to_dict("records"):
            lines.append({"setting": setting, **line})
    joined = pd.DataFrame(lines) if lines else pd.DataFrame(columns=columns)
    joined = joined[[*columns, *(c for c in joined.columns if c not in columns and c != "setting")]]
    selection = frame.attrs.get("selection")
    texts = [f"{problem.kind}: {problem.where}: {problem.reason}" for problem in problems]
    joined.attrs = {
        "title": f"{tables[0].title} ({selection})" if selection else tables[0].title,
        "notes": list(notes),
        "selection": selection,
        "problems": [*frame.attrs.get("problems", ()), *texts],
    }
    return joined
