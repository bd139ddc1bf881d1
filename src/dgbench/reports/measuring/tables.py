"""The tables of one setting: measures, errors, selections and rank correlations (Hwang et al. 2024,
Tables 1, 5 and 6).

How sure they are, from paired resamples: differences, ranks and the chance of being lowest.

Beside each stand plain sentences that say what it can and cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import MEASURES, PRACTICAL_MEASURES, Resamples, Statistics, lead, resample
from dgbench.errors import MeasureError
from dgbench.plan.folds import LOO, tested_by_fold
from dgbench.reports.chance import with_errors, with_measures
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.evaluation import Evaluation, Setting
from dgbench.reports.measuring.expected import (
    OF_MEANS,
    expected_measures,
    expected_table,
    noise_sentences,
    of_means_cells,
    of_means_column,
)
from dgbench.reports.over_seeds import (
    COEFFICIENTS,
    algorithms_of,
    by_seed,
    candidates,
    complete,
    correlations,
    means,
    over_seeds,
    ranked_by,
    reasons,
    seed_columns,
    seed_counts,
    seeds_of,
    selections,
    side_by_side,
)
from dgbench.reports.resolution import below_noise, resolution, smallest_found
from dgbench.reports.standing import Verdict, chance_of, judge
from dgbench.reports.tables import Column, Table, entries, entry, interval_entry, table
from dgbench.validation import some_of

FORMULAS = {
    "average": "mean error over the held-out environments (eq. 2)",
    "worst": "largest error over the held-out environments",
    "gap": "largest less smallest error over the held-out environments",
    "worst_gap": "worst + gap / (N - 2), N given environments (eq. 6)",
    "ideal": "largest error over all environments of the model trained on all given ones (eq. 4)",
}
#: terms of the measure reports, explained where they first stand
WORDS = {
    "held-out environment": "a given environment that the judged model was not trained on.",
    "worst+gap": (
        "largest held-out error plus the spread of held-out errors over N - 2 (Hwang et al. 2024, "
        "eq. 6)."
    ),
    "ideal": (
        "largest error over all environments, known only where all can be tested: the truth that "
        "the other measures try to predict (eq. 4)."
    ),
    "selection": (
        "how the step and hyperparameters of each model were chosen, from validation data alone "
        "unless it says oracle."
    ),
}
VERDICTS = (
    "worse than the leader: its seeds separate the two; not separated: they do not; not the best: "
    "another algorithm beats it, though the leader does not"
)
#: the measures that are compared with each other
COMPARED = {"worst_gap": "worst+gap", "average": "average"}
ALGORITHM = Column("algorithm", key=True)


def setting_tables(
    evaluation: Evaluation, statistics: Statistics, noise: Sequence[str] = ()
) -> list[Table]:
    """Build all tables of one setting, those to read first in front; the first one also gets
    :func:`noise_notes`.
    """
    measures, (setting,) = measure_table(evaluation), evaluation.settings
    return [
        with_measures(
            replace(measures, notes=(*measures.notes, *setting.notes, *noise)),
            setting.chance,
            {OF_MEANS: "worst_gap"},
        ),
        with_errors(held_out_table(evaluation), setting.chance),
        selection_table(evaluation),
        correlation_table(evaluation),
        certainty_table(evaluation),
        seed_table(evaluation),
        expected_table(evaluation),
        lead_table(evaluation),
        resampled_table(evaluation, statistics),
        difference_table(evaluation, statistics),
    ]


def noise_notes(evaluation: Evaluation, setting: Setting) -> list[str]:
    """Say whether a setting's lead is below its noise floor, by the settings of the evaluation that
    repeat it.
    """
    studies = evaluation.of(setting.title).studies
    measure, title = ranked_by(studies)
    repetitions = {
        part: by_seed(lines, measure) for part, lines in evaluation.repetitions(setting).items()
    }
    return below_noise(by_seed(studies, measure), repetitions, title)


def measure_columns() -> list[Column]:
    """List one column for each measure."""
    return [Column(name, title, "percent", FORMULAS[name]) for name, title in MEASURES.items()]


def measure_table(evaluation: Evaluation) -> Table:
    """List every measure of each algorithm, mean ± std over seeds, best first (see
    :func:`ranked_by`).
    """
    studies = evaluation.studies
    level = means(by_seed(studies, ranked_by(studies)[0]))
    order = sorted(algorithms_of(studies), key=lambda a: (level.get(a, float("inf")), a))
    seeds = seed_counts(studies)
    parts = {
        name: seed_columns(by_seed(studies, name), name, order, seeds, reasons(studies, name))
        for name in MEASURES
    }
    estimates = expected_measures(evaluation, "worst_gap")
    columns = {column.name: column for column in measure_columns()}
    before, after = split_after("worst_gap", MEASURES)
    of_means = of_means_cells(estimates, order)
    shown = [*(parts[name] for name in before), of_means, *(parts[name] for name in after)]
    lines = side_by_side(order, shown).assign(seeds=[seeds[name] for name in order])
    titles = [
        ALGORITHM,
        *(columns[name] for name in before),
        of_means_column(),
        *(columns[name] for name in after),
        Column("seeds", unit="count", help="seeds with at least one run"),
    ]
    notes = [*on_measures(studies), *noise_sentences(studies, estimates)]
    return table(lines, "measures", "Measures of every algorithm", titles, notes)


def split_after(name: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split names behind one of them."""
    ordered = list(names)
    place = ordered.index(name) + 1
    return ordered[:place], ordered[place:]


def held_out_table(evaluation: Evaluation) -> Table:
    """List, for each algorithm, the error in each given environment of the model that never saw it."""
    (setting,) = evaluation.settings
    tested = evaluation.errors[evaluation.errors["role"] == "held_out"]
    oracle = bool(evaluation.studies["trained_on_tested"].any())
    environments = list(dict.fromkeys(map(str, tested["env"])))
    condition = "trained on its other images" if oracle else "held out"
    columns = [
        ALGORITHM,
        *(Column(env, unit="percent", help=f"error in {env}, {condition}") for env in environments),
    ]
    order = algorithms_of(evaluation.studies)
    seeds = seed_counts(evaluation.studies)
    parts = [
        seed_columns(
            by_seed(errors_of_env, "error"), str(env), order, seeds, reasons(errors_of_env, "error")
        )
        for env, errors_of_env in tested.groupby("env", sort=False)
    ]
    lines = side_by_side(order, parts)
    title = f"Error in each {'tested' if oracle else 'held-out'} environment"
    return table(
        lines, "held_out_errors", title, columns, [_models_note(setting, oracle), *setting.notes]
    )


def seed_table(evaluation: Evaluation) -> Table:
    """List the measures of every study, one line each: the values behind the means."""
    columns = [
        ALGORITHM, Column("seed", unit="count", key=True), *measure_columns(), Column("ideal_env", "ideal at"),
        Column("steps", "selected steps"),
    ]  # fmt: skip
    return table(
        evaluation.studies.drop(columns="setting"), "seeds", "Every seed", columns, detail=True
    )


def _models_note(setting: Setting, trained_on_tested: bool) -> str:
    """Say which models the columns of held-out errors belong to."""
    planned: Sequence[Sequence[str]] | None = tested_by_fold(setting.identity)
    protocol = setting.identity["protocol"]
    if trained_on_tested:
        return TARGET_ORACLE
    if protocol == LOO:
        return (
            f"Leave-one-out: each column is a model trained on the other {len(setting.given) - 1} "
            "environments."
        )
    if planned is None:
        return f"protocol={protocol}: each column is of the models that held it out."
    often = max(sum(env in tests for tests in planned) for env in setting.given)
    if often > 1:
        return f"Each column is the mean over the {often} models that held the environment out."
    return (
        "Environments held out together, one model each: "
        + "; ".join(", ".join(tests) for tests in planned)
        + "."
    )


def on_measures(studies: pd.DataFrame) -> list[str]:
    """Say what the measure table supports: seeds, the best algorithm, what is missing."""
    count = len(seeds_of(studies))
    sentences = ["Lower is better."]
    if count == 1:
        sentences.append(
            "1 seed: no standard deviation, so any difference here may be the luck of a seed."
        )
    else:
        sentences[0] += " Bold: the lowest, where the seeds separate it from every other one."
        sentences.append(
            f"Mean ± standard deviation (divisor n-1) over {count} seeds, n below {count} is "
            "marked."
        )
        measure, title = ranked_by(studies)
        sentences += resolution(by_seed(studies, measure), title)
    if sampled := sorted(set(studies.loc[studies["sampled"].astype(bool), "algorithm"])):
        sentences.append(
            f"{', '.join(sampled)}: a prediction depends on the images that are seen with it, so "
            "errors are those of a pool whose spurious feature was drawn once per environment, "
            "not expected ones."
        )
    return sentences + _absence_notes(studies)


def on_selection(studies: pd.DataFrame) -> list[str]:
    """Say what the selection table supports."""
    sentences = [
        (
            "Degradation: ideal error of the selected algorithm less the lowest one, in "
            "percentage points (0: truly best)."
        ),
        "Ties are shown as a = b, the first counts.",
    ]
    names, seeds = algorithms_of(studies), seeds_of(studies)
    if len(names) == 1:
        return ["1 algorithm: there is nothing to choose from; train another."]
    if not studies["ideal"].notna().any():
        sentences.append(
            "No ideal errors: whether a selected algorithm is truly best cannot be known."
        )
    else:
        word = "seed" if len(seeds) == 1 else "seeds"
        sentences.append(
            f"{len(seeds)} {word}, {len(names)} algorithms: a blind guess among {len(names)} "
            f"algorithms is right once in {len(names)}, keep that in mind when counting correct "
            "selections."
        )
    pools = candidates(studies)
    for seed in seeds:
        if incomplete := sorted(set(names) - set(pools[seed])):
            sentences.append(
                f"Seed {seed} is incomplete for {', '.join(incomplete)}: not chosen among."
            )
    pool_of_mean = pools[None]
    if not pool_of_mean:
        sentences.append(
            "No choice on the mean: fewer than 2 algorithms are complete in every seed."
        )
    elif incomplete := sorted(set(names) - set(pool_of_mean)):
        sentences.append(f"The choice on the mean leaves out {', '.join(incomplete)}.")
    return sentences


def on_correlation(studies: pd.DataFrame) -> list[str]:
    """Say what the rank correlations support."""
    common = by_seed(studies, "worst").index.intersection(by_seed(studies, "ideal").index)
    count, seeds, total = len(common), seeds_of(studies), len(algorithms_of(studies))
    if total == 1:
        return ["1 algorithm: a rank correlation needs 2 or more; train another."]
    sentences = [
        (
            "1 means that the measure orders the algorithms as the ideal one does. Negative ones "
            "are underlined."
        )
    ]
    if count < 2:
        sentences.append(f"{count} algorithm with all folds: a rank correlation needs 2 or more.")
    elif count == 2:
        sentences.append(
            "2 algorithms: a rank correlation can only be 1 or -1, so this is no evidence."
        )
    elif count <= 6:
        sentences.append(
            f"{count} algorithms: even a perfect correlation comes up by chance in 1 of "
            f"{math.factorial(count)} orders; compare more algorithms before ranking the measures."
        )
    pools = candidates(studies)
    if any(len(pools[seed]) < total for seed in seeds):
        sentences.append("(k of n) marks a seed in which only k of the n algorithms are complete.")
    if len(seeds) == 1:
        sentences.append("1 seed: no standard deviation.")
    return sentences


def _absence_notes(studies: pd.DataFrame) -> list[str]:
    lacking: dict[str, list[str]] = {}
    for study in studies.to_dict("records"):
        texts = dict.fromkeys(study[f"{name}.reason"] for name in MEASURES)
        for text in filter(lambda text: isinstance(text, str), texts):
            lacking.setdefault(text, []).append(f"{study['algorithm']} seed {study['seed']}")
    sentences = [
        (
            f"{'Every algorithm and seed' if 1 < len(labels) == len(studies) else some_of(labels, 3)}: "
            f"{text}."
        )
        for text, labels in lacking.items()
    ]
    if len(sentences) > 6:
        sentences = [
            *sentences[:6],
            f"{len(sentences) - 6} more sentences stand in the table of every seed.",
        ]
    return sentences


MEASURE = Column("measure", key=True)


def selection_table(evaluation: Evaluation) -> Table:
    """List, for each measure, the algorithm that it selects and what that costs."""
    studies = evaluation.studies
    seeds = seeds_of(studies)
    columns = [
        MEASURE,
        *(Column(f"seed {seed}") for seed in seeds),
        Column("mean over seeds"),
        Column(
            "degradation",
            unit="points",
            help="ideal error of the selected algorithm less the lowest, over seeds",
        ),
        Column(
            "degradation (mean)",
            unit="points",
            help="the same for the algorithm selected on the mean over seeds",
        ),
        Column(
            "truly best",
            unit="count",
            help="seeds in which the selected algorithm has the lowest ideal error",
        ),
        Column(
            "resolution",
            unit="points",
            help="smallest difference of the measure that the seeds find, 80% power",
        ),
    ]
    lines = []
    chosen = selections(studies, list(MEASURES))
    for name, title in MEASURES.items() if len(algorithms_of(studies)) > 1 else ():
        line: dict[str, Any] = {"measure": title}
        for seed, column in [
            *((seed, f"seed {seed}") for seed in seeds),
            (None, "mean over seeds"),
        ]:
            names = " = ".join(chosen[name, seed].names)
            line |= entry(column, names or None, reason="no algorithm has this measure")
        losses = [cost for seed in seeds if (cost := chosen[name, seed].cost) is not None]
        line |= over_seeds(
            "degradation", losses, len(seeds), "no seed has both a selection and ideal errors"
        )
        reason = "nothing selected or no ideal error"
        line |= entry("degradation (mean)", chosen[name, None].cost, reason=reason)
        right = float(losses.count(0.0))
        count = entry("truly best", right, n=len(losses), flag=f"of {len(losses)}")
        line |= count if losses else entry("truly best", reason="no ideal errors")
        smallest = smallest_found(by_seed(studies, name))
        unresolved = "no two algorithms differ over 2 seeds"
        lines.append(
            line
            | (
                interval_entry("resolution", smallest)
                if smallest
                else entry("resolution", reason=unresolved)
            )
        )
    notes = on_selection(studies)
    return table(lines, "selected", "Algorithm each measure selects", columns, notes)


def correlation_table(evaluation: Evaluation) -> Table:
    """Correlate the ranks of each practical measure with those of the ideal one, per seed and mean
    ± std.
    """
    studies = evaluation.studies
    seeds, count = seeds_of(studies), len(algorithms_of(studies))
    columns = [MEASURE, Column("coefficient", key=True)]
    columns += [Column(f"seed {seed}", unit="correlation") for seed in seeds]
    columns += [
        Column(
            "mean over seeds",
            unit="correlation",
            help="mean ± standard deviation of the values per seed",
        )
    ]
    parts = []
    for coefficient in COEFFICIENTS if count > 1 else ():
        rhos = {
            title: correlations(studies, name, coefficient)
            for name, title in PRACTICAL_MEASURES.items()
        }
        lines: list[dict[str, Any]] = []
        for (title, (rho, reason_of)), measure in zip(
            rhos.items(), PRACTICAL_MEASURES, strict=True
        ):
            lines.append({"measure": title, "coefficient": coefficient})
            mask = studies[[measure, "ideal"]].notna().all(axis=1)
            for seed in seeds:
                complete_count = int((mask & (studies["seed"] == seed)).sum())
                flag = (
                    f"({complete_count} of {count})"
                    if complete_count < count and seed in rho
                    else ""
                )
                lines[-1] |= entry(
                    f"seed {seed}", rho.get(seed), flag=flag, reason=reason_of.get(seed, "")
                )
        means_over = seed_columns(
            pd.DataFrame.from_dict(
                {title: rho for title, (rho, _) in rhos.items()}, orient="index"
            ),
            "mean over seeds",
            list(rhos),
            dict.fromkeys(rhos, len(seeds)),
            {title: next(iter(reason_of.values()), "") for title, (_, reason_of) in rhos.items()},
            highest=True,
        )
        parts.append(pd.DataFrame(lines, index=list(rhos)).join(means_over))
    title = "Rank correlation with the ideal measure over algorithms"
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table(frame, "correlation", title, columns, on_correlation(studies))


def certainty_table(evaluation: Evaluation) -> Table:
    """List each algorithm's difference to the leader and how it stands, by worst+gap and by
    average.

    Difference and verdict come from one test, so that an interval excludes 0 exactly where the two
    are separated.
    """
    studies = evaluation.studies
    names = algorithms_of(studies)
    ranking = means(by_seed(studies, ranked_by(studies)[0]))
    names.sort(key=lambda name: (ranking.get(name, np.inf), name))
    cells: dict[str, dict[str, Any]] = {name: {"algorithm": name} for name in names}
    columns, notes = [ALGORITHM], []
    for measure, title in COMPARED.items():
        difference, word = f"{title}: to the leader", f"{title}: verdict"
        columns += [
            Column(difference, unit="points", help=f"{title} less that of the leader"),
            Column(word, help=VERDICTS),
        ]
        verdict = judge(by_seed(studies, measure), absent=names)
        if verdict is None or not verdict.comparisons:
            reason = "fewer than 2 algorithms have a value"
            notes.append(f"{title}: not compared, {reason}.")
            for name in names:
                cells[name] |= entries((difference, word), reason)
            continue
        for name in names:
            cells[name] |= _against_leader(verdict, name, difference)
            cells[name][word] = verdict.word(name)
        notes.append(f"{title}: {verdict.leaders.text} {_leads(verdict)}; {verdict.apart()}")
    tests = f"paired t-tests over seeds, one-sided at 0.05 / {max(2, len(names) - 1)}"
    notes.append(
        f"One test for interval and verdict: {tests} (Bonferroni over the {len(names)} "
        "algorithms), so an interval excludes 0 exactly where the seeds separate the two."
    )
    return table(list(cells.values()), "certainty", "Which differences hold", columns, notes)


def _leads(verdict: Verdict) -> str:
    return "leads" if len(verdict.leaders.names) == 1 else "lead"


def _against_leader(verdict: Verdict, name: str, column: str) -> dict[str, Any]:
    """Fill the difference of one algorithm to the leader, or say why there is none."""
    if name in verdict.leaders.names:
        return entry(column, 0.0)
    rival = verdict.comparisons.get(name)
    if rival is None:
        return entry(column, reason="no complete seed: not ruled out")
    if rival.difference is None:
        return entry(
            column, reason=f"{rival.seeds} seeds in common with {verdict.leader}; 2 are needed"
        )
    cell = interval_entry(column, rival.difference)
    if name in verdict.remarks:
        cell[f"{column}.flag"] = f"({verdict.remarks[name]})"
    return cell


def lead_table(evaluation: Evaluation) -> Table:
    """Ask of the first two by each measure how often one of two equal algorithms would lead by as
    much.
    """
    columns = [
        MEASURE,
        Column("leader"),
        Column("next"),
        Column("lead", unit="points", help="mean over the seeds that both have"),
        Column("wins", help="seeds in which the leader is lower"),
        Column(
            "p", unit="probability", help="share of the relabelings of seeds with as large a lead"
        ),
        Column("in words"),
    ]
    lines = []
    for measure, title in COMPARED.items():
        verdict = judge(by_seed(evaluation.studies, measure))
        if verdict is None or not verdict.rivals or len(verdict.leaders.names) > 1:
            continue
        second = verdict.rivals[0]
        values = by_seed(evaluation.studies, measure).loc[[verdict.leader, second]].dropna(axis=1)
        if not values.shape[1]:
            continue
        leading = lead(values.to_numpy())
        lines.append(
            {
                "measure": title,
                "leader": verdict.leader,
                "next": second,
                "lead": leading.size,
                "wins": f"{leading.wins} of {leading.seeds}",
                "p": leading.p_value,
                "in words": chance_of(leading),
            }
        )
    notes = [
        "One of two equal algorithms would lead by as much in this share of all exchanges of their "
        "values within seeds: an exact test that assumes no normal values, of the first two alone."
    ]
    title = "Is the lead luck? A permutation test of the first two"
    return table(lines, "lead", title, columns, notes if lines else [], detail=True)


def resampled_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """List each algorithm's difference to the lowest and its rank, under resampled seeds and
    environments.
    """
    samples, absences = resamples(evaluation, statistics)
    names = sorted({name for sample in samples.values() for name in sample.names})
    lines: dict[str, dict[str, Any]] = {name: {"algorithm": name} for name in names}
    columns, notes = [ALGORITHM], []
    if samples:
        notes.append(_intervals_note(evaluation, statistics, samples))
    for measure, title in COMPARED.items():
        difference, rank = f"{title}: to the lowest", f"{title}: rank"
        columns += [
            Column(difference, unit="points", help=f"{title} less the lowest of all algorithms"),
            Column(rank, unit="rank", help="1 is the lowest"),
        ]
        if measure not in samples:
            notes.append(f"{title}: not computed, {absences[measure]}.")
            for line in lines.values():
                line |= entries((difference, rank), absences[measure])
            continue
        sample = samples[measure]
        best = sample.names[int(np.argmin(sample.estimate))]
        ranks = sample.ranks()
        for name, line in lines.items():
            if name in ranks:
                line |= interval_entry(difference, sample.difference(name, best))
                line |= interval_entry(rank, ranks[name])
            else:
                line |= entries((difference, rank), "not complete in every seed")
    incomplete = sorted(set(algorithms_of(evaluation.studies)) - set(names))
    if incomplete and samples:
        notes.append(f"Not complete in every seed, left out: {', '.join(incomplete)}.")
    title = "What might other seeds and environments show? A paired bootstrap"
    return table(list(lines.values()), "resampled", title, columns, notes, detail=True)


def difference_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """List every pair of algorithms with the interval of their difference."""
    samples, _ = resamples(evaluation, statistics)
    columns = [ALGORITHM, Column("less", key=True)]
    columns += [
        Column(title, unit="points", help=f"difference of {title}") for title in COMPARED.values()
    ]
    names = sorted({name for sample in samples.values() for name in sample.names})
    one_seed = evaluation.studies["seed"].nunique() < 2
    if one_seed:
        names = []  # of a thousand algorithms there are half a million pairs
    lines = []
    for first, second in combinations(names, 2):
        line: dict[str, Any] = {"algorithm": first, "less": second}
        for measure, title in COMPARED.items():
            sample = samples.get(measure)
            if sample is None or not {first, second} <= set(sample.names):
                line |= entry(title, reason="not computed, see the table above")
            else:
                interval = sample.difference(first, second)
                line |= {**interval_entry(title, interval), f"{title}.best": interval.excludes_zero}
        lines.append(line)
    notes = [
        f"Bold: the {statistics.percent} paired bootstrap interval excludes 0. {len(lines)} pairs, each judged by "
        'itself, so that of many pairs some exclude 0 by luck. Verdicts stand in "Which differences hold".'
    ]
    if not lines:
        notes = ["One seed judges no pair: none is listed."] if one_seed else []
    title = "How far apart are every two? A paired bootstrap, each pair by itself"
    return table(lines, "differences", title, columns, notes, detail=True)


def resamples(
    evaluation: Evaluation, statistics: Statistics
) -> tuple[dict[str, Resamples], dict[str, str]]:
    """Draw resamples of the complete algorithms: measure -> resamples, and measure -> why there are
    none.
    """
    samples, absences = {}, {}
    for measure in COMPARED:
        matrix = complete(evaluation.studies, [measure])[measure]
        names, values = list(map(str, matrix.index)), matrix.to_numpy()
        if measure == "average" and names:
            held_out = evaluation.errors[evaluation.errors["role"] == "held_out"]
            errors = (
                held_out.groupby(["algorithm", "seed"], sort=False)["error"].apply(list).to_dict()
            )
            values = np.array([[errors[name, seed] for seed in matrix.columns] for name in names])
        try:
            if len(names) < 2:
                counts = f"{len(names)} of {len(algorithms_of(evaluation.studies))}"
                raise MeasureError(
                    f"a difference needs 2 algorithms with a value in every seed, here are {counts}"
                )
            rng = statistics.rng("certainty", measure)
            samples[measure] = resample(
                names, values, rng, draws=statistics.draws, level=statistics.level
            )
        except MeasureError as problem:
            absences[measure] = str(problem)
    return samples, absences


def _intervals_note(
    evaluation: Evaluation, statistics: Statistics, samples: dict[str, Resamples]
) -> str:
    count = len(seeds_of(evaluation.studies))
    seeds = "seeds are" if count > 1 else "1 seed, only environments are"
    text = (
        f"[low, high]: {statistics.percent} paired bootstrap interval, {statistics.draws} "
        f"resamples, widened for the {min(sample.units for sample in samples.values())} units "
        f"resampled; {seeds} resampled"
    )
    addition = (
        " (for the average, held-out environments too)"
        if "average" in samples and count > 1
        else ""
    )
    return f"{text}{addition}. Each difference is judged by itself."
