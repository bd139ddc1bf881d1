"""The tables of one setting: measures, errors, selections and rank correlations (Hwang et al. 2024, Tables 1, 5 and 6).

How sure they are, from paired resamples: differences, ranks and the chance of being lowest.

Beside each stand plain sentences that say what it can and cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import MEASURES, PRACTICAL_MEASURES, Resamples, Statistics, lead, resample, separated
from dgbench.errors import MeasureError
from dgbench.plan.folds import LOO, tested_by_fold
from dgbench.reports.chance import with_errors, with_measures
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.evaluation import Evaluation, Setting
from dgbench.reports.over_seeds import (
    COEFFICIENTS,
    Leaders,
    algorithms_of,
    by_seed,
    candidates,
    chance_of,
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
    separation_words,
    side_by_side,
)
from dgbench.reports.power import below_noise, resolution, smallest_found
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
    "worst+gap": "largest held-out error plus the spread of held-out errors over N - 2 (Hwang et al. 2024, eq. 6).",
    "ideal": "largest error over all environments, known only where all can be tested: the truth that the other "
    "measures try to predict (eq. 4).",
    "selection": "how the step and hyperparameters of each model were chosen, from validation data alone unless it "
    "says oracle.",
}
#: the measures that are compared with each other
COMPARED = {"worst_gap": "worst+gap", "average": "average"}
ALGORITHM = Column("algorithm", key=True)


def setting_tables(evaluation: Evaluation, statistics: Statistics, noise: Sequence[str] = ()) -> list[Table]:
    """Build all tables of one setting, those to read first in front; the first one also gets :func:`noise_notes`."""
    measures, (setting,) = measure_table(evaluation), evaluation.settings
    return [
        with_measures(replace(measures, notes=(*measures.notes, *noise)), setting.chance),
        with_errors(held_out_table(evaluation), setting.chance),
        selection_table(evaluation),
        correlation_table(evaluation),
        certainty_table(evaluation, statistics),
        seed_table(evaluation),
        difference_table(evaluation, statistics),
    ]


def noise_notes(evaluation: Evaluation, setting: Setting) -> list[str]:
    """Say whether a setting's lead is below its noise floor, by the settings of the evaluation that repeat it."""
    studies = evaluation.of(setting.title).studies
    measure, title = ranked_by(studies)
    repetitions = {part: by_seed(lines, measure) for part, lines in evaluation.repetitions(setting).items()}
    return below_noise(by_seed(studies, measure), repetitions, title)


def measure_columns() -> list[Column]:
    """List one column for each measure."""
    return [Column(name, title, "percent", FORMULAS[name]) for name, title in MEASURES.items()]


def measure_table(evaluation: Evaluation) -> Table:
    """List every measure of each algorithm, mean ± std over seeds, best first (see :func:`ranked_by`)."""
    studies = evaluation.studies
    level = means(by_seed(studies, ranked_by(studies)[0]))
    order = sorted(algorithms_of(studies), key=lambda a: (level.get(a, float("inf")), a))
    seeds = seed_counts(studies)
    parts = [seed_columns(by_seed(studies, m), m, order, seeds, reasons(studies, m)) for m in MEASURES]
    lines = side_by_side(order, parts).assign(seeds=[seeds[name] for name in order])
    columns = [ALGORITHM, *measure_columns(), Column("seeds", unit="count", help="seeds with at least one run")]
    return table(lines, "measures", "Measures of every algorithm", columns, on_measures(studies))


def held_out_table(evaluation: Evaluation) -> Table:
    """List, for each algorithm, the error in each given environment of the model that never saw it."""
    (setting,) = evaluation.settings
    tested = evaluation.errors[evaluation.errors["role"] == "held_out"]
    oracle = bool(evaluation.studies["trained_on_tested"].any())
    environments = list(dict.fromkeys(map(str, tested["env"])))
    condition = "trained on its other images" if oracle else "held out"
    columns = [ALGORITHM, *(Column(env, unit="percent", help=f"error in {env}, {condition}") for env in environments)]
    order = algorithms_of(evaluation.studies)
    seeds = seed_counts(evaluation.studies)
    parts = [
        seed_columns(by_seed(errors_of_env, "error"), str(env), order, seeds, reasons(errors_of_env, "error"))
        for env, errors_of_env in tested.groupby("env", sort=False)
    ]
    lines = side_by_side(order, parts)
    title = f"Error in each {'tested' if oracle else 'held-out'} environment"
    return table(lines, "held_out_errors", title, columns, [_models_note(setting, oracle)])


def seed_table(evaluation: Evaluation) -> Table:
    """List the measures of every study, one line each: the values behind the means."""
    columns = [
        ALGORITHM, Column("seed", unit="count", key=True), *measure_columns(), Column("ideal_env", "ideal at"),
        Column("steps", "selected steps"),
    ]  # fmt: skip
    return table(evaluation.studies.drop(columns="setting"), "seeds", "Every seed", columns, detail=True)


def _models_note(setting: Setting, trained_on_tested: bool) -> str:
    """Say which models the columns of held-out errors belong to."""
    planned: Sequence[Sequence[str]] | None = tested_by_fold(setting.identity)
    protocol = setting.identity["protocol"]
    if trained_on_tested:
        return TARGET_ORACLE
    if protocol == LOO:
        return f"Leave-one-out: each column is a model trained on the other {len(setting.given) - 1} environments."
    if planned is None:
        return f"protocol={protocol}: each column is of the models that held it out."
    often = max(sum(env in tests for tests in planned) for env in setting.given)
    if often > 1:
        return f"Each column is the mean over the {often} models that held the environment out."
    return "Environments held out together, one model each: " + "; ".join(", ".join(tests) for tests in planned) + "."


def on_measures(studies: pd.DataFrame) -> list[str]:
    """Say what the measure table supports: seeds, the best algorithm, what is missing."""
    count = len(seeds_of(studies))
    sentences = ["Lower is better."]
    if count == 1:
        sentences.append("1 seed: no standard deviation, so any difference here may be the luck of a seed.")
    else:
        sentences[0] += " Bold: the lowest, where the seeds separate it from every other one."
        sentences.append(f"Mean ± standard deviation (divisor n-1) over {count} seeds, n below {count} is marked.")
        measure, title = ranked_by(studies)
        sentences += [*_winner(studies), *resolution(by_seed(studies, measure), title)]
    if sampled := sorted(set(studies.loc[studies["sampled"].astype(bool), "algorithm"])):
        sentences.append(
            f"{', '.join(sampled)}: a prediction depends on the images that are seen with it, so errors are those of a "
            "pool whose spurious feature was drawn once per environment, not expected ones."
        )
    return sentences + _absence_notes(studies)


def on_selection(studies: pd.DataFrame) -> list[str]:
    """Say what the selection table supports."""
    sentences = [
        "Degradation: ideal error of the selected algorithm less the lowest one, in percentage points (0: truly best).",
        "Ties are shown as a = b, the first counts.",
    ]
    names, seeds = algorithms_of(studies), seeds_of(studies)
    if len(names) == 1:
        return ["1 algorithm: there is nothing to choose from; train another."]
    if not studies["ideal"].notna().any():
        sentences.append("No ideal errors: whether a selected algorithm is truly best cannot be known.")
    else:
        word = "seed" if len(seeds) == 1 else "seeds"
        sentences.append(
            f"{len(seeds)} {word}, {len(names)} algorithms: a blind guess among {len(names)} algorithms is right once "
            f"in {len(names)}, keep that in mind when counting correct selections."
        )
    pools = candidates(studies)
    for seed in seeds:
        if incomplete := sorted(set(names) - set(pools[seed])):
            sentences.append(f"Seed {seed} is incomplete for {', '.join(incomplete)}: not chosen among.")
    pool_of_mean = pools[None]
    if not pool_of_mean:
        sentences.append("No choice on the mean: fewer than 2 algorithms are complete in every seed.")
    elif incomplete := sorted(set(names) - set(pool_of_mean)):
        sentences.append(f"The choice on the mean leaves out {', '.join(incomplete)}.")
    return sentences


def on_correlation(studies: pd.DataFrame) -> list[str]:
    """Say what the rank correlations support."""
    common = by_seed(studies, "worst").index.intersection(by_seed(studies, "ideal").index)
    count, seeds, total = len(common), seeds_of(studies), len(algorithms_of(studies))
    if total == 1:
        return ["1 algorithm: a rank correlation needs 2 or more; train another."]
    sentences = ["1 means that the measure orders the algorithms as the ideal one does. Negative ones are underlined."]
    if count < 2:
        sentences.append(f"{count} algorithm with all folds: a rank correlation needs 2 or more.")
    elif count == 2:
        sentences.append("2 algorithms: a rank correlation can only be 1 or -1, so this is no evidence.")
    elif count <= 6:
        sentences.append(
            f"{count} algorithms: even a perfect correlation comes up by chance in 1 of {math.factorial(count)} orders"
            "; compare more algorithms before ranking the measures."
        )
    pools = candidates(studies)
    if any(len(pools[seed]) < total for seed in seeds):
        sentences.append("(k of n) marks a seed in which only k of the n algorithms are complete.")
    if len(seeds) == 1:
        sentences.append("1 seed: no standard deviation.")
    return sentences


def _winner(studies: pd.DataFrame) -> list[str]:
    measure, title = ranked_by(studies)
    values = complete(studies, [measure])[measure]
    if len(values) < 2:
        return []
    leaders = Leaders.of(means(values))
    if not leaders.others:
        return [f"Lowest {title}: {leaders.text}."]
    leading = lead(values.loc[leaders.order].to_numpy())
    return [
        f"Lowest {title}: {leaders.text}, then {leaders.others[0]}, higher in {leading.wins} of {leading.seeds} seeds; "
        f"one of two equal algorithms would lead by as much in {chance_of(leading)}."
    ]


def _absence_notes(studies: pd.DataFrame) -> list[str]:
    lacking: dict[str, list[str]] = {}
    for study in studies.to_dict("records"):
        texts = dict.fromkeys(study[f"{name}.reason"] for name in MEASURES)
        for text in filter(lambda text: isinstance(text, str), texts):
            lacking.setdefault(text, []).append(f"{study['algorithm']} seed {study['seed']}")
    sentences = [
        f"{'Every algorithm and seed' if 1 < len(labels) == len(studies) else some_of(labels, 3)}: {text}."
        for text, labels in lacking.items()
    ]
    if len(sentences) > 6:
        sentences = [*sentences[:6], f"{len(sentences) - 6} more sentences stand in the table of every seed."]
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
        Column("degradation", unit="points", help="ideal error of the selected algorithm less the lowest, over seeds"),
        Column("degradation (mean)", unit="points", help="the same for the algorithm selected on the mean over seeds"),
        Column("truly best", unit="count", help="seeds in which the selected algorithm has the lowest ideal error"),
        Column("resolution", unit="points", help="smallest difference of the measure that the seeds find, 80% power"),
    ]
    lines = []
    chosen = selections(studies, list(MEASURES))
    for name, title in MEASURES.items() if len(algorithms_of(studies)) > 1 else ():
        line: dict[str, Any] = {"measure": title}
        for seed, column in [*((seed, f"seed {seed}") for seed in seeds), (None, "mean over seeds")]:
            names = " = ".join(chosen[name, seed].names)
            line |= entry(column, names or None, reason="no algorithm has this measure")
        losses = [cost for seed in seeds if (cost := chosen[name, seed].cost) is not None]
        line |= over_seeds("degradation", losses, len(seeds), "no seed has both a selection and ideal errors")
        reason = "nothing selected or no ideal error"
        line |= entry("degradation (mean)", chosen[name, None].cost, reason=reason)
        right = float(losses.count(0.0))
        count = entry("truly best", right, n=len(losses), flag=f"of {len(losses)}")
        line |= count if losses else entry("truly best", reason="no ideal errors")
        smallest = smallest_found(by_seed(studies, name))
        unresolved = "no two algorithms differ over 2 seeds"
        lines.append(
            line | (interval_entry("resolution", smallest) if smallest else entry("resolution", reason=unresolved))
        )
    notes = on_selection(studies)
    return table(lines, "selected", "Algorithm each measure selects", columns, notes)


def correlation_table(evaluation: Evaluation) -> Table:
    """Correlate the ranks of each practical measure with those of the ideal one, per seed and mean ± std."""
    studies = evaluation.studies
    seeds, count = seeds_of(studies), len(algorithms_of(studies))
    columns = [MEASURE, Column("coefficient", key=True)]
    columns += [Column(f"seed {seed}", unit="correlation") for seed in seeds]
    columns += [Column("mean over seeds", unit="correlation", help="mean ± standard deviation of the values per seed")]
    parts = []
    for coefficient in COEFFICIENTS if count > 1 else ():
        rhos = {title: correlations(studies, name, coefficient) for name, title in PRACTICAL_MEASURES.items()}
        lines: list[dict[str, Any]] = []
        for (title, (rho, reason_of)), measure in zip(rhos.items(), PRACTICAL_MEASURES, strict=True):
            lines.append({"measure": title, "coefficient": coefficient})
            mask = studies[[measure, "ideal"]].notna().all(axis=1)
            for seed in seeds:
                complete_count = int((mask & (studies["seed"] == seed)).sum())
                flag = f"({complete_count} of {count})" if complete_count < count and seed in rho else ""
                lines[-1] |= entry(f"seed {seed}", rho.get(seed), flag=flag, reason=reason_of.get(seed, ""))
        means_over = seed_columns(
            pd.DataFrame.from_dict({title: rho for title, (rho, _) in rhos.items()}, orient="index"),
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


def certainty_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """List each algorithm's difference to the lowest, rank, and if it may be lowest, by worst+gap and by average."""
    samples, absences = resamples(evaluation, statistics)
    names = sorted({name for sample in samples.values() for name in sample.names})
    if samples:
        first = next(iter(samples.values()))
        level = dict(zip(first.names, first.estimate, strict=True))
        names.sort(key=lambda name: (level.get(name, np.inf), name))
    lines: list[dict[str, Any]] = [{"algorithm": name} for name in names]
    columns, notes = [ALGORITHM], [_intervals_note(evaluation, statistics, samples)] if samples else []
    for measure, title in COMPARED.items():
        difference, rank, verdict = (f"{title}: {kind}" for kind in ("to the lowest", "rank", "verdict"))
        columns += [
            Column(difference, unit="points", help=f"{title} less the lowest of all algorithms"),
            Column(rank, unit="rank", help="1 is the lowest"),
            Column(verdict, help="lowest: no other may be; may be lowest: the seeds cannot exclude it; worse: they do"),
        ]
        if measure not in samples:
            notes.append(f"{title}: not computed, {absences[measure]}.")
            for line in lines:
                line |= entries((difference, rank, verdict), absences[measure])
            continue
        sample = samples[measure]
        best = sample.names[int(np.argmin(sample.estimate))]
        values = complete(evaluation.studies, [measure])[measure]
        leaders = Leaders.of(means(values))
        separation = separated(values.loc[leaders.order].to_numpy())
        candidates = {leaders.order[at] for at in separation.candidates}
        candidate, ranks = "lowest" if len(candidates) == 1 else "may be lowest", sample.ranks()
        for line in lines:
            if (name := line["algorithm"]) in ranks:
                line |= interval_entry(difference, sample.difference(name, best)) | interval_entry(rank, ranks[name])
                line[verdict] = candidate if name in candidates else "worse"
            else:
                line |= entries((difference, rank, verdict), "not complete in every seed")
        words = separation_words(leaders.order, separation) if leaders.others else "nothing tells them apart."
        notes.append(f"{title}: {leaders.text} {'is' if len(leaders.names) == 1 else 'are'} lowest; {words}")
    if samples:
        notes.append(
            "Verdicts: the confidence set of the lowest, by paired t-tests of each algorithm against all others "
            "(Bonferroni, 0.05 in all)."
        )
    incomplete = sorted(set(algorithms_of(evaluation.studies)) - set(names))
    if incomplete and samples:
        notes.append(f"Not complete in every seed, left out: {', '.join(incomplete)}.")
    return table(lines, "certainty", "Which differences hold", columns, notes)


def difference_table(evaluation: Evaluation, statistics: Statistics) -> Table:
    """List every pair of algorithms with the interval of their difference."""
    samples, _ = resamples(evaluation, statistics)
    columns = [ALGORITHM, Column("less", key=True)]
    columns += [Column(title, unit="points", help=f"difference of {title}") for title in COMPARED.values()]
    names = sorted({name for sample in samples.values() for name in sample.names})
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
        "itself; which algorithms may be the lowest is judged for all together, in the table above."
    ]
    return table(lines, "differences", "Every difference", columns, notes if lines else [], detail=True)


def resamples(evaluation: Evaluation, statistics: Statistics) -> tuple[dict[str, Resamples], dict[str, str]]:
    """Draw resamples of the complete algorithms: measure -> resamples, and measure -> why there are none."""
    samples, absences = {}, {}
    for measure in COMPARED:
        matrix = complete(evaluation.studies, [measure])[measure]
        names, values = list(map(str, matrix.index)), matrix.to_numpy()
        if measure == "average" and names:
            held_out = evaluation.errors[evaluation.errors["role"] == "held_out"]
            errors = held_out.groupby(["algorithm", "seed"], sort=False)["error"].apply(list).to_dict()
            values = np.array([[errors[name, seed] for seed in matrix.columns] for name in names])
        try:
            if len(names) < 2:
                counts = f"{len(names)} of {len(algorithms_of(evaluation.studies))}"
                raise MeasureError(f"a difference needs 2 algorithms with a value in every seed, here are {counts}")
            rng = statistics.rng("certainty", measure)
            samples[measure] = resample(names, values, rng, draws=statistics.draws, level=statistics.level)
        except MeasureError as problem:
            absences[measure] = str(problem)
    return samples, absences


def _intervals_note(evaluation: Evaluation, statistics: Statistics, samples: dict[str, Resamples]) -> str:
    count = len(seeds_of(evaluation.studies))
    seeds = "seeds are" if count > 1 else "1 seed, only environments are"
    text = (
        f"[low, high]: {statistics.percent} paired bootstrap interval, {statistics.draws} resamples, widened for the "
        f"{min(sample.units for sample in samples.values())} units resampled; {seeds} resampled"
    )
    addition = " (for the average, held-out environments too)" if "average" in samples and count > 1 else ""
    return f"{text}{addition}. Each difference is judged by itself."
