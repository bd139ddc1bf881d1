"""What each measure selects in every configuration, and what it costs (Hwang et al. 2024, section 6.1, Table 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dgbench.measures import degradation, select
from dgbench.reports.comparisons import candidates
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.seed_statistics import mean, over_seeds, with_best
from dgbench.reports.survey_conclusions import on_survey_hits, on_survey_picks
from dgbench.reports.survey_tables import SHOWN, key_cells, key_columns
from dgbench.reports.surveys import Configuration, Survey

#: the measures whose picks Table 6 shows
_PICKED = {"ideal": "ideal", "worst_gap": "worst+gap", "average": "average"}


def survey_pick_table(survey: Survey, how: str) -> Table:
    """The algorithm that each measure selects, per seed and on the mean over seeds (Table 6)."""
    columns = key_columns(survey)
    groups = [*(f"seed {seed}" for seed in survey.seeds), "mean"]
    columns += [Column(f"{group}: {title}") for group in groups for title in _PICKED.values()]
    body = []
    for line in survey.configurations:
        row = key_cells(survey, line)
        for seeds in [*([seed] for seed in survey.seeds), survey.seeds]:
            picks = {measure: picked(line, measure, seeds) for measure in _PICKED}
            for measure, pick in picks.items():
                if not pick:
                    row.append(Cell(reason=_no_pick(line, seeds)))
                else:
                    hit = measure != "ideal" and pick[0] in picks["ideal"]
                    row.append(Cell(" = ".join(pick), best=hit))
        body.append(row)
    title = f"Algorithm each measure selects, every configuration ({how})"
    return Table("survey_selected", title, columns, body, on_survey_picks(survey))


@dataclass(frozen=True)
class Hits:
    """How often and how well one measure picked. Degradations are fractions."""

    per_seed: dict[tuple[int, int], float]  #: (configuration, seed) -> degradation
    on_mean: dict[int, float]  #: configuration -> degradation of the pick on the mean over seeds
    right: int  #: picks per seed that are truly best
    right_on_mean: int


def hits(survey: Survey, measure: str) -> Hits:
    """Degradations of a measure's picks. A pick is truly best when its ideal error ties with the lowest."""
    per_seed: dict[tuple[int, int], float] = {}
    on_mean: dict[int, float] = {}
    for at, line in enumerate(survey.configurations):
        for seed in line.comparison.seeds:
            loss = pick_degradation(line, measure, [seed])
            if loss is not None:
                per_seed[at, seed] = loss
        loss = pick_degradation(line, measure, line.comparison.seeds)
        if loss is not None:
            on_mean[at] = loss
    return Hits(
        per_seed, on_mean, sum(v <= 1e-12 for v in per_seed.values()), sum(v <= 1e-12 for v in on_mean.values())
    )


def survey_hit_table(survey: Survey, how: str) -> Table:
    """How often each measure picks the truly best algorithm, and what its picks cost."""
    columns = [
        Column("measure"),
        Column("truly best", "count", "picks with the lowest ideal error, over configurations x seeds"),
        Column("truly best on the mean", "count", "the same for picks on the mean over seeds, over configurations"),
        Column("degradation", "points", "ideal error of the pick less the lowest, percentage points, mean ± std"),
        Column("largest degradation", "points", "the costliest single pick, percentage points"),
    ]
    body = []
    for measure, title in SHOWN.items():
        found = hits(survey, measure)
        losses = list(found.per_seed.values())
        if not losses:
            body.append([Cell(title), *(Cell(reason="no configuration has ideal errors") for _ in columns[1:])])
            continue
        cost = over_seeds(dict(enumerate(losses)), len(losses))
        body.append(
            [
                Cell(title),
                Cell(float(found.right), n=len(losses), flag=f"of {len(losses)}"),
                Cell(float(found.right_on_mean), n=len(found.on_mean), flag=f"of {len(found.on_mean)}"),
                cost,
                Cell(max(losses), n=len(losses)),
            ]
        )
    for column, highest in ((1, True), (2, True), (3, False), (4, False)):
        for row, cell in zip(body, with_best([row[column] for row in body], highest=highest), strict=True):
            row[column] = replace(cell)
    title = f"How often each measure picks the truly best algorithm ({how})"
    return Table("survey_hits", title, columns, body, on_survey_hits(survey, [hits(survey, m) for m in SHOWN]))


def picked(line: Configuration, measure: str, seeds: Sequence[int]) -> tuple[str, ...]:
    """The algorithms with the lowest mean over those seeds; none where the choice cannot be made."""
    pool = candidates(line.comparison, seeds)
    values = line.comparison.values(measure)
    has = {a: mean([values[a][s] for s in seeds]) for a in pool if set(seeds) <= values.get(a, {}).keys()}
    return select(has) if has else ()


def pick_degradation(line: Configuration, measure: str, seeds: Sequence[int]) -> float | None:
    """What the pick costs in ideal error, a fraction; None where there is no pick or no ideal error."""
    pick, ideal = picked(line, measure, seeds), line.comparison.values("ideal")
    pool = [a for a in candidates(line.comparison, seeds) if set(seeds) <= ideal.get(a, {}).keys()]
    if not pick or pick[0] not in pool:
        return None
    return degradation({a: mean([ideal[a][s] for s in seeds]) for a in pool}, pick[0])


def _no_pick(line: Configuration, seeds: Sequence[int]) -> str:
    absent = set(seeds) - set(line.comparison.seeds)
    if absent:
        return f"seed {', '.join(map(str, sorted(absent)))} was not trained in this configuration"
    return "fewer than 2 algorithms have this measure and the ideal one for these seeds"
