"""The tables of the worst+gap study for one comparison (Hwang et al. 2024, Tables 1, 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dgbench.errors import MeasureError
from dgbench.measures import MEASURES, PRACTICAL_MEASURES, degradation, kendall, select, spearman
from dgbench.protocols.folds import LOO, tested_by_fold
from dgbench.reports import conclusions
from dgbench.reports.closing import TARGET_ORACLE
from dgbench.reports.comparisons import Comparison, candidates
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.seed_statistics import mean, over_seeds, with_best

_FORMULAS = {
    "average": "mean error over the held-out environments (eq. 2)",
    "worst": "largest error over the held-out environments",
    "gap": "largest less smallest error over the held-out environments",
    "worst_gap": "worst + gap / (N - 2), N given environments (eq. 6)",
    "ideal": "largest error over all environments of the model trained on all given ones (eq. 4)",
}


def measure_table(comparison: Comparison, how: str) -> Table:
    """One line per algorithm, lowest worst+gap first: every measure, mean ± std over seeds."""
    values = {name: comparison.values(name) for name in MEASURES}
    order = sorted(comparison.algorithms, key=lambda a: (_mean_or_inf(values["worst_gap"], a), a))
    columns = [Column("algorithm")]
    columns += [Column(f"{title} (%)", "percent", _FORMULAS[name]) for name, title in MEASURES.items()]
    columns += [Column("seeds", "count", "seeds with at least one finished fold")]
    body = [[Cell(algorithm)] for algorithm in order]
    for name in MEASURES:
        cells = [
            over_seeds(values[name].get(a, {}), _seeds_of(comparison, a), _reason(comparison, a, name)) for a in order
        ]
        for line, cell in zip(body, with_best(cells), strict=True):
            line.append(cell)
    for line, algorithm in zip(body, order, strict=True):
        line.append(Cell(float(_seeds_of(comparison, algorithm))))
    notes = conclusions.on_measures(comparison)
    return Table("measures", f"Measures of every algorithm ({how})", columns, body, notes)


def held_out_table(comparison: Comparison, how: str) -> Table:
    """One line per algorithm: the error in each given environment of the model that never saw it."""
    planned = tested_by_fold(comparison.identity)
    any_fold = {env for tests in planned or [comparison.identity["given"]] for env in tests}
    given = [env for env in comparison.identity["given"] if env in any_fold]
    tested = "trained on its other images" if comparison.trained_on_tested else "held out"
    columns = [
        Column("algorithm"),
        *(Column(f"{env} (%)", "percent", f"error in {env}, {tested}") for env in given),
    ]
    body = [[Cell(algorithm)] for algorithm in comparison.algorithms]
    for env in given:
        cells = []
        for algorithm in comparison.algorithms:
            studies = [study for study in comparison.studies if study.algorithm == algorithm]
            by_seed = {study.seed: study.held_out[env] for study in studies if env in study.held_out}
            why = next((study.missing[f] for study in studies for f in study.missing if env in _tests(f, planned)), "")
            cells.append(over_seeds(by_seed, len(studies), why))
        for line, cell in zip(body, with_best(cells), strict=True):
            line.append(cell)
    title = f"Error in each {'tested' if comparison.trained_on_tested else 'held-out'} environment ({how})"
    return Table("held_out_errors", title, columns, body, [_whose_models(comparison, planned)])


def _whose_models(comparison: Comparison, planned: Sequence[Sequence[str]] | None) -> str:
    """Which models the columns of held-out errors are of."""
    given = list(comparison.identity["given"])
    if comparison.trained_on_tested:
        return TARGET_ORACLE
    if comparison.identity["protocol"] == LOO:
        return f"Leave-one-environment-out: each column is a model trained on the other {len(given) - 1} environments."
    if planned is None:
        return f"protocol={comparison.identity['protocol']}: each column is of the models that held it out."
    often = max(sum(env in tests for tests in planned) for env in given)
    if often > 1:
        return f"Each column is the mean over the {often} models that held the environment out."
    return "Environments held out together, one model each: " + "; ".join(", ".join(tests) for tests in planned) + "."


def selection_table(comparison: Comparison, how: str) -> Table:
    """One line per measure: the algorithm it picks and what the pick costs (section 6.1, Table 6)."""
    seeds = comparison.seeds
    columns = [Column("measure"), *(Column(f"seed {seed}") for seed in seeds), Column("mean over seeds")]
    columns += [
        Column(
            "degradation",
            "points",
            "ideal error of the pick less the lowest ideal error, percentage points, over seeds",
        ),
        Column("degradation (mean)", "points", "the same for the pick on the mean over seeds"),
        Column("truly best", "count", "seeds in which the pick has the lowest ideal error"),
    ]
    pools = {seed: candidates(comparison, [seed]) for seed in seeds}
    whole = candidates(comparison, seeds)
    ideal = comparison.values("ideal")
    body = []
    for name, title in MEASURES.items():
        values = comparison.values(name)
        picks = {seed: _pick(_at(values, pools[seed], [seed])) for seed in seeds}
        overall = _pick(_at(values, whole, seeds))
        losses = {}
        for seed in seeds:
            if picks[seed] and (known := _at(ideal, pools[seed], [seed])):
                losses[seed] = degradation(known, picks[seed][0])
        known = _at(ideal, whole, seeds)
        hits = Cell(float(sum(loss == 0 for loss in losses.values())), n=len(losses), flag=f"of {len(losses)}")
        body.append(
            [
                Cell(title),
                *(_names(picks[seed]) for seed in seeds),
                _names(overall),
                over_seeds(losses, len(seeds), "no seed has both a pick and ideal errors"),
                Cell(degradation(known, overall[0])) if overall and known else Cell(reason="no pick or no ideal error"),
                hits if losses else Cell(reason="no ideal errors"),
            ]
        )
    return Table(
        "selected",
        f"Algorithm each measure selects ({how})",
        columns,
        _of_several(comparison, body),
        conclusions.on_selection(comparison),
    )


def correlation_table(comparison: Comparison, how: str) -> Table:
    """Rank correlation of each practical measure with the ideal one, per seed and mean ± std (Tables 1 and 5)."""
    seeds = comparison.seeds
    columns = [Column("measure"), Column("coefficient")]
    columns += [Column(f"seed {seed}", "correlation") for seed in seeds]
    columns += [Column("mean over seeds", "correlation", "mean ± standard deviation of the per-seed values")]
    ideal = comparison.values("ideal")
    body: list[list[Cell]] = []
    for coefficient, correlate in (("Spearman", spearman), ("Kendall", kendall)):
        count = len(comparison.algorithms)
        lines = [_correlations(comparison.values(name), ideal, seeds, count, correlate) for name in PRACTICAL_MEASURES]
        marked = [with_best(list(column), highest=True) for column in zip(*lines, strict=True)]
        for title, line in zip(PRACTICAL_MEASURES.values(), zip(*marked, strict=True), strict=True):
            body.append([Cell(title), Cell(coefficient), *line])
    title = f"Rank correlation with the ideal measure over algorithms ({how})"
    return Table("correlation", title, columns, _of_several(comparison, body), conclusions.on_correlation(comparison))


def seed_table(comparison: Comparison, how: str) -> Table:
    """Every study's measures, one line each: what the means are made of."""
    columns = [Column("algorithm"), Column("seed", "count")]
    columns += [Column(f"{title} (%)", "percent", _FORMULAS[name]) for name, title in MEASURES.items()]
    columns += [Column("ideal at"), Column("selected steps")]
    body = []
    for study in comparison.studies:
        line = [Cell(study.algorithm), Cell(float(study.seed))]
        line += [Cell(study.measures.value(name), reason=study.measures.reasons.get(name, "")) for name in MEASURES]
        steps = sorted(set(study.steps.values()))
        line += [Cell(study.measures.ideal_env), Cell(", ".join(map(str, steps)) or None)]
        body.append(line)
    return Table("seeds", f"Every seed ({how})", columns, body, detail=True)


def _correlations(
    values: Mapping[str, Mapping[int, float]],
    ideal: Mapping[str, Mapping[int, float]],
    seeds: list[int],
    algorithms: int,
    correlate: Callable[[Mapping[str, float], Mapping[str, float]], float],
) -> list[Cell]:
    cells = []
    known: dict[int, float] = {}
    why = ""
    for seed in seeds:
        both = [a for a in values if seed in values[a] and seed in ideal.get(a, {})]
        try:
            known[seed] = correlate({a: values[a][seed] for a in both}, {a: ideal[a][seed] for a in both})
            flag = f"({len(both)} of {algorithms})" if len(both) < algorithms else ""
            cells.append(Cell(known[seed], flag=flag))
        except MeasureError as problem:
            why = str(problem)
            cells.append(Cell(reason=why))
    return [*cells, over_seeds(known, len(seeds), why)]


def _of_several(comparison: Comparison, body: list[list[Cell]]) -> list[list[Cell]]:
    """No lines where there is one algorithm: nothing can be chosen or ranked, and the note says so."""
    return body if len(comparison.algorithms) > 1 else []


def _at(values: Mapping[str, Mapping[int, float]], algorithms: list[str], seeds: list[int]) -> dict[str, float]:
    """Mean over those seeds, for those algorithms that have the measure in each."""
    has = [a for a in algorithms if set(seeds) <= values.get(a, {}).keys()]
    return {a: mean([values[a][seed] for seed in seeds]) for a in has}


def _pick(values: Mapping[str, float]) -> tuple[str, ...]:
    return select(values) if values else ()


def _names(picks: tuple[str, ...]) -> Cell:
    return Cell(" = ".join(picks)) if picks else Cell(reason="no algorithm has this measure")


def _seeds_of(comparison: Comparison, algorithm: str) -> int:
    return sum(study.algorithm == algorithm for study in comparison.studies)


def _mean_or_inf(values: Mapping[str, Mapping[int, float]], algorithm: str) -> float:
    by_seed = values.get(algorithm)
    return mean(list(by_seed.values())) if by_seed else float("inf")


def _reason(comparison: Comparison, algorithm: str, measure: str) -> str:
    studies = [study for study in comparison.studies if study.algorithm == algorithm]
    return next((study.measures.reasons[measure] for study in studies if measure in study.measures.reasons), "")


def _tests(fold: str, planned: Sequence[Sequence[str]] | None) -> Sequence[str]:
    return planned[int(fold)] if planned and fold.isdecimal() and int(fold) < len(planned) else ()
