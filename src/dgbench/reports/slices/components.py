"""``report=components``: what moves a measure most, of all that a study crosses.

Factors are keys of the rows: network, tuning, averaging, algorithm, adaptation at test time. How
far each moves a measure stands beside what the seed moves, see
:mod:`dgbench.analysis.components`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgbench.analysis import Measure, Statistics
from dgbench.analysis.components import Decomposition, decompose
from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.settings import FileName
from dgbench.records.run_identity import IDENTITY_CHECKS, Role, identity_key, keys
from dgbench.reports.document import (
    Document,
    Figure,
    ReportOfMeasures,
    Section,
    leads,
    problem_table,
    selection_text,
    warnings,
)
from dgbench.reports.evaluation import PAIRS, Evaluation, evaluate
from dgbench.reports.groups import Group, groups_of
from dgbench.reports.labels import dataset_titles, slug
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.drawing import COLORS, GRAY, INK, canvas, finish, grid
from dgbench.reports.tables import Column, Table, entry, interval_entry, percent, table
from dgbench.reports.words import WORDS, glossary
from dgbench.validation import NonBlank

ADAPTATION = "adaptation"  #: the factor whose levels are applied to one trained model
#: keys that are factors where they vary, in the order of their lines
FACTORS = ("backbone", "init", "head", "tuning", "averaging", "algorithm", ADAPTATION)
LEFT_OUT = "studies left out"  #: kind of problem
_SHOWN = 0.01  # shares of draws below this are left out of sentences


@dataclass(frozen=True, eq=False)
class CrossedStudies:
    """Studies of one dataset and protocol, whose levels are compared.

    ``frame`` has a line per study: a column per factor, ``seed``, and the measures (fractions).
    """

    title: str
    factors: Sequence[str]
    #: key that varies -> the factor that it follows from, whose part it is
    following: Mapping[str, str]
    frame: pd.DataFrame

    def complete(self, measure: str) -> tuple[pd.DataFrame, int]:
        """Return the studies that have a measure and every adaptation, and count the others."""
        frame = self.frame[self.frame[measure].notna()]
        if ADAPTATION in self.factors:
            model = [name for name in self.factors if name != ADAPTATION] + ["seed"]
            count = frame.groupby(model)[ADAPTATION].transform("nunique")
            frame = frame[count == frame[ADAPTATION].nunique()]
        return frame, len(self.frame) - len(frame)


class ComponentsReport(ReportOfMeasures):
    """Builds the tables and the figure of components.

    Args:
        factors: identity keys whose levels are compared; None takes those of :data:`FACTORS` that
            vary.
        statistics: of the intervals.
    """

    name: FileName = "components"
    factors: list[NonBlank] | None = None
    statistics: Statistics = Statistics()

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        wanted = _checked(self.factors, split_by)
        selected = select_runs(collection, selection, split_by)
        evaluation = evaluate(selected, split_by, self.choice)
        groups = groups_of(selected, split_by)
        of_settings = [group for group in groups if group.identity["protocol"] != PAIRS]
        crossed = crossed_studies(evaluation, of_settings, wanted, split_by)
        problems = [*collection.problems, *evaluation.problems]
        sections = []
        for studies in crossed:
            for measure in self.choice.compared:
                sections += self._sections(studies, measure, problems)
        if not sections:
            raise _nothing_crossed(problems)
        trained_on_tested = bool(evaluation.studies["trained_on_tested"].any())
        return Document(
            title="What moves a measure most",
            selection=selection_text(selection, collection),
            sections=sections,
            problems=problem_table(problems),
            warnings=warnings(selection, collection, trained_on_tested),
            lead=leads(f"{len(evaluation.studies)} studies", problems),
            words=glossary("components"),
        )

    def _sections(
        self, studies: CrossedStudies, measure: Measure, problems: list[Problem]
    ) -> list[Section]:
        """Build the section of a measure, or add the problem that there is none."""
        frame, left_out = studies.complete(measure.name)
        place = f"{studies.title}, {measure.title}"
        if left_out:
            reason = f"{left_out} studies lack the measure, or an adaptation that others have"
            problems.append(Problem(LEFT_OUT, place, reason))
        factors = [name for name in studies.factors if frame[name].nunique() > 1]
        if not factors or not _repeats(frame, factors):
            reason = "no factor has two levels, or no combination has two seeds"
            problems.append(Problem("not decomposed", place, reason))
            return []
        levels = {name: frame[name].tolist() for name in factors}
        within = ADAPTATION if ADAPTATION in factors else None
        result = decompose(
            frame[measure.name], levels, frame["seed"].tolist(), within, self.statistics
        )
        name = slug(place)
        components = component_table(result, measure)
        return [
            Section(
                name,
                place,
                [components, level_table(frame, factors, measure)],
                [component_figure(result, name, measure)],
                answer=_answer(result, measure),
                facts=_facts(result, studies.following, frame),
            )
        ]


def _nothing_crossed(problems: Sequence[Problem]) -> RecordError:
    reasons = [problem.reason for problem in problems if problem.kind == LEFT_OUT]
    because = f" ({reasons[0]})" if reasons else ""
    return RecordError(
        f"no runs here cross levels of a factor over two seeds or more{because}; train some that "
        f"differ in {', '.join(FACTORS[:-1])} or {ADAPTATION}, or name their folders with runs="
    )


def _checked(factors: Sequence[str] | None, split_by: str | None) -> Sequence[str]:
    """Return the keys whose levels may be compared; what is split by is kept apart.

    Raises:
        ConfigError: a key that studies do not differ in, or that is split by.
    """
    if not factors:
        return [name for name in FACTORS if name != split_by]
    if split_by in factors:
        raise ConfigError(
            f"split_by={split_by} keeps apart what report.factors compares; leave it out of one "
            "of the two"
        )
    for name in factors:
        if name not in IDENTITY_CHECKS or name in ("seed", "run", "fold", "held_out"):
            raise ConfigError(
                f"report.factors names {name}, which is no key that studies differ in; choose "
                f"from {', '.join(FACTORS)}"
            )
    return factors


def crossed_studies(
    evaluation: Evaluation,
    groups: Sequence[Group],
    factors: Sequence[str],
    split_by: str | None = None,
) -> list[CrossedStudies]:
    """Join the settings that differ in factors alone.

    Args:
        evaluation: of the runs.
        groups: their settings, in the order of the evaluation.
        factors: identity keys; those that vary are compared.
        split_by: one more identity key whose values are kept apart.

    Raises:
        RecordError: two studies have the same levels and seed.
    """
    of_factors = set(factors)
    shared = [name for name in keys(Role.SETTING, split_by) if name not in of_factors]
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    identities: dict[str, Mapping[str, Any]] = {}
    measures = [measure.name for measure in evaluation.measures.computed]
    for setting, group in zip(evaluation.settings, groups, strict=True):
        key = identity_key(group.identity, shared)
        identities[key] = {name: group.identity.get(name) for name in shared}
        values = evaluation.of(setting.title).studies.set_index(["algorithm", "seed"])
        for runs, _ in group.studies():
            run = runs[0]
            seed = run.identity["seed"]
            line: dict[str, Any] = {name: str(run.identity.get(name)) for name in of_factors}
            line |= {"label": run.label, "seed": seed}
            for measure in measures:
                line[measure] = values.at[(run.label, seed), measure]
            lines[key].append(line)
    titles = dataset_titles(list(identities.values()), shared)
    crossed = []
    for title, of_setting in zip(titles, lines.values(), strict=True):
        frame = pd.DataFrame(of_setting)
        varying, following = _varying(frame, factors)
        _refuse_twins(frame, varying)
        crossed.append(CrossedStudies(title, varying, following, frame))
    return crossed


def _varying(frame: pd.DataFrame, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """List the keys that vary as factors, and those whose level follows from an earlier one.

    The initial weights of a network are an example: nothing tells what they do from what it does.
    """
    factors: list[str] = []
    following: dict[str, str] = {}
    for name in names:
        if frame[name].nunique() < 2:
            continue
        for other in factors:
            if frame.groupby(other)[name].nunique().max() == 1:
                following[name] = other
                break
        else:
            factors.append(name)
    return factors, following


def _refuse_twins(frame: pd.DataFrame, factors: Sequence[str]) -> None:
    """Refuse two studies of one cell and seed: something else tells them apart."""
    twins = frame[frame.duplicated([*factors, "seed"], keep=False)]
    if twins.empty:
        return
    first, second = twins.sort_values([*factors, "seed"])["label"].tolist()[:2]
    raise RecordError(
        f"{first} and {second} of one seed have the same levels of {', '.join(factors) or 'all'}; "
        "name what they differ in with report.factors, choose among draws with "
        "selection=train_val, or leave one out of runs"
    )


def _repeats(frame: pd.DataFrame, factors: Sequence[str]) -> bool:
    """Return whether seeds leave noise over: more studies than cells and seeds explain."""
    cells = frame.groupby(list(factors)).ngroups
    adaptations = frame[ADAPTATION].nunique() if ADAPTATION in factors else 1
    models = len(frame) // adaptations
    return models > cells // adaptations + frame["seed"].nunique() - 1


def component_table(result: Decomposition, measure: Measure) -> Table:
    """List how far each component moves a measure, in the order of the factors."""
    most = result.most()
    lines = []
    for component in result.components:
        line: dict[str, Any] = {"component": component.name, "levels": component.levels}
        line |= interval_entry("moves", component.moves)
        line |= entry("most", most[component.name])
        lines.append(line)
    columns = [
        Column("component", key=True),
        Column("levels", unit="count", help="that were tried; cells for combinations"),
        Column("moves", "moves (points)", "points", WORDS["moves"]),
        Column(
            "most",
            "moves most",
            "percent",
            "how often it is the largest, in random draws within the intervals",
        ),
    ]
    notes = [
        f"Points of {measure.title}, over the levels that were tried and no others. Intervals "
        "assume normal noise, alike in all combinations; one that starts at 0 may be of no effect.",
    ]
    if any(component.within for component in result.components):
        notes.append("Adaptation is compared within models, the others in their mean over it.")
    if result.cells < result.possible:
        notes.append(
            f"{result.cells} of {result.possible} combinations were tried: a main effect is the "
            "one that remains after all others (type II)."
        )
    name = f"components_{measure.name}"
    return table(lines, name, f"What moves {measure.title}", columns, notes)


def level_table(frame: pd.DataFrame, factors: Sequence[str], measure: Measure) -> Table:
    """List the mean of a measure over the studies with each level."""
    lines = []
    for name in factors:
        for level, values in frame.groupby(name)[measure.name]:
            line: dict[str, Any] = {"factor": name, "level": str(level)}
            line |= entry(measure.name, float(values.mean()), n=len(values))
            lines.append(line | {"studies": len(values)})
    columns = [
        Column("factor", key=True),
        Column("level", key=True),
        Column(measure.name, measure.title, "percent", "mean over the studies with this level"),
        Column("studies", unit="count"),
    ]
    notes = ["Means over unequal combinations differ by these, too."]
    balanced = frame.groupby(list(factors)).size().nunique() == 1
    whole = frame.groupby(list(factors)).ngroups == _product(frame, factors)
    if balanced and whole:
        notes = ["Every level has the same combinations of the others, equally often."]
    return table(lines, f"levels_{measure.name}", f"{measure.title} by level", columns, notes)


def _product(frame: pd.DataFrame, factors: Sequence[str]) -> int:
    count = 1
    for name in factors:
        count *= frame[name].nunique()
    return count


def component_figure(result: Decomposition, name: str, measure: Measure) -> Figure:
    """Draw a bar with its interval for each component, the seed's in another color."""
    components = list(result.components)[::-1]
    with canvas(f"components_{name}", 6.5, 0.42 * len(components) + 1.0) as drawn:
        axes = drawn.subplots()
        for place, component in enumerate(components):
            moves = component.moves
            color = GRAY if component.name == "seed" else COLORS[0]
            axes.barh(place, 100 * moves.estimate, color=color, height=0.6)
            ends = [100 * moves.low, 100 * moves.high]
            axes.plot(ends, [place, place], color=INK, linewidth=1.4, marker="|")
        axes.set_yticks(range(len(components)), [component.name for component in components])
        axes.set_xlim(left=0)
        axes.set_xlabel(f"points of {measure.title} that it moves")
        grid(axes, "x")
        caption = (
            f"Root mean square of what the levels add to {measure.title}, with "
            f"{100 * components[0].moves.level:g}% intervals; gray: the deviation among seeds."
        )
        return finish(drawn, f"components_{name}", f"What moves {measure.title}", caption)


def _answer(result: Decomposition, measure: Measure) -> list[str]:
    """Say which component moves a measure most, how sure that is, and which may have no
    effect.
    """
    ordered = sorted(result.components, key=lambda component: -component.moves.estimate)
    listed = [f"{component.name} {percent(component.moves.estimate)}" for component in ordered]
    leader = ordered[0]
    sentences = [
        f"{measure.title} is moved most by {leader.name}: {', '.join(listed)} points.",
    ]
    most = result.most()
    if most[leader.name] < leader.moves.level:
        shares = sorted(most.items(), key=lambda item: -item[1])
        words = [f"{name} in {percent(share, 0)}%" for name, share in shares if share >= _SHOWN]
        sentences.append(f"Which one does is not sure; of random draws, {', '.join(words)}.")
    unclear = [component.name for component in ordered if not component.moves.excludes_zero]
    if unclear:
        sentences.append(f"May have no effect: {', '.join(unclear)}.")
    return sentences


def _facts(
    result: Decomposition, following: Mapping[str, str], frame: pd.DataFrame
) -> list[tuple[str, str]]:
    facts = [
        ("studies", str(result.studies)),
        ("combinations tried", f"{result.cells} of {result.possible}"),
        ("seeds", ", ".join(map(str, sorted(frame["seed"].unique().tolist())))),
    ]
    if following:
        words = [f"{name} with {factor}" for name, factor in following.items()]
        facts.append(("not separable", ", ".join(words)))
    return facts
