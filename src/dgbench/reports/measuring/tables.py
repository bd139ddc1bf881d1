"""The tables of one setting: measures, errors, selections and rank correlations (Hwang et al. 2024,
Tables 1, 5 and 6).

Beside each stand plain sentences that say what it can and cannot tell. How sure they are:
:mod:`.certainty`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dgbench.analysis import Measure, Statistics
from dgbench.plan.folds import LOO, tested_by_fold
from dgbench.plan.measures import IDEAL
from dgbench.reports.chance import with_errors, with_measures
from dgbench.reports.document import TARGET_ORACLE
from dgbench.reports.evaluation import Evaluation, Setting
from dgbench.reports.importers import is_from_table
from dgbench.reports.measuring.certainty import (
    certainty_table,
    difference_table,
    lead_table,
    resampled_table,
)
from dgbench.reports.measuring.choices import selection_table
from dgbench.reports.measuring.correlations import correlation_table
from dgbench.reports.measuring.expected import (
    expected_measures,
    expected_table,
    noise_sentences,
    of_means_cells,
)
from dgbench.reports.over_seeds import (
    algorithms_of,
    by_seed,
    means,
    ranked_by,
    reasons,
    seed_columns,
    seed_counts,
    seeds_of,
    side_by_side,
)
from dgbench.reports.predictions import why_no_ideal
from dgbench.reports.resolution import below_noise, resolution
from dgbench.reports.studies import has_no_ideal
from dgbench.reports.tables import Column, Table, table
from dgbench.validation import some_of

_MOST_ABSENCES = 6  # sentences on missing values; more are counted
ALGORITHM = Column("algorithm", key=True)


def setting_tables(
    evaluation: Evaluation, statistics: Statistics, noise: Sequence[str] = ()
) -> list[Table]:
    """Build all tables of one setting, those to read first in front; the first one also gets
    :func:`noise_notes`.
    """
    (setting,) = evaluation.settings
    measures = measure_table(evaluation, [*setting.notes, *noise])
    choice = evaluation.measures
    of_means = [measure for measure in choice.shown if measure.of == "means"]
    # references have no seeds, whose mean errors would be others
    equal = {measure.name: choice.of_a_run(measure).name for measure in of_means}
    on_certainty = [
        certainty_table(evaluation),
        lead_table(evaluation),
        resampled_table(evaluation, statistics),
        difference_table(evaluation, statistics),
        expected_table(evaluation),
        seed_table(evaluation),
    ]
    return [
        with_measures(measures, setting.chance, equal),
        with_errors(held_out_table(evaluation), setting.chance),
        selection_table(evaluation),
        *([] if has_no_ideal(evaluation.studies) else [correlation_table(evaluation)]),
        *(replace(item, certainty=True) for item in on_certainty),
    ]


def noise_notes(evaluation: Evaluation, setting: Setting) -> list[str]:
    """Warn if a setting's lead is below its noise floor, as the settings that repeat it show."""
    studies = evaluation.of(setting.title).studies
    measure = ranked_by(studies, evaluation.measures)
    repetitions = {
        part: by_seed(lines, measure.name)
        for part, lines in evaluation.repetitions(setting).items()
    }
    return below_noise(by_seed(studies, measure.name), repetitions, measure.in_prose)


def measure_columns(measures: Sequence[Measure]) -> list[Column]:
    """List one column for each measure."""
    return [Column(measure.name, measure.title, "percent", measure.formula) for measure in measures]


def measure_table(evaluation: Evaluation, warnings: Sequence[str] = ()) -> Table:
    """List every measure of each algorithm, mean ± std over seeds, best first.

    The measure that ranks (:func:`ranked_by`) stands right after the name.

    Args:
        evaluation: of one setting.
        warnings: notes that stand below the table in any case.
    """
    studies = evaluation.studies
    choice = evaluation.measures
    ranking = ranked_by(studies, choice)
    level = means(by_seed(studies, ranking.name))
    order = sorted(algorithms_of(studies), key=lambda a: (level.get(a, float("inf")), a))
    seeds = seed_counts(studies)
    parts = []
    notes = on_seeds(evaluation)
    for measure in choice.shown:
        if measure.of == "means":
            of_a_run = choice.of_a_run(measure)
            estimates = expected_measures(evaluation, of_a_run)
            parts.append(of_means_cells(measure.name, estimates, order, f"no {of_a_run.title}"))
            notes += noise_sentences(studies, of_a_run, estimates)
            continue
        values = by_seed(studies, measure.name)
        absences = reasons(studies, measure.name)
        parts.append(seed_columns(values, measure.name, order, seeds, absences))
    lines = side_by_side(order, parts).assign(seeds=[seeds[name] for name in order])
    columns = [
        ALGORITHM,
        *measure_columns(_columns_shown(evaluation, ranking)),
        Column("seeds", unit="count", help="seeds with at least one run"),
    ]
    shown = [_on_deviations(evaluation), *_absence_notes(evaluation), *warnings]
    made = table(lines, "measures", "Measures of every algorithm", columns, [*shown, *notes])
    return replace(made, shown_notes=len(shown))


def _columns_shown(evaluation: Evaluation, ranking: Measure) -> list[Measure]:
    """Order the measures of a table: the one that ranks, the ideal, the others, and those of mean
    errors; none that cannot be known.
    """
    first = [measure for measure in evaluation.measures.shown if measure.name == ranking.name]
    measures = [measure for measure in evaluation.measures.shown if measure not in first]
    if has_no_ideal(evaluation.studies):
        measures = [measure for measure in measures if measure.needs != "everywhere"]
    truth = [measure for measure in measures if measure.name == IDEAL]
    of_runs = [measure for measure in measures if measure.of == "runs" and measure not in truth]
    of_means = [measure for measure in measures if measure.of == "means"]
    return [*first, *truth, *of_runs, *of_means]


def held_out_table(evaluation: Evaluation) -> Table:
    """List the error in each given environment of the model that never saw it, by algorithm."""
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
        ALGORITHM,
        Column("seed", unit="count", key=True),
        *measure_columns(evaluation.measures.of_runs),
        Column("ideal_env", "ideal at"),
        Column("steps", "selected steps"),
    ]
    if has_no_ideal(evaluation.studies):
        columns = [column for column in columns if column.name not in (IDEAL, "ideal_env")]
    studies = evaluation.studies.drop(columns="setting")
    is_imported = is_from_table(evaluation.settings[0].identity)
    if is_imported and set(studies["steps"].map(str)) == {"0"}:  # the table had no column of steps
        columns = [column for column in columns if column.name != "steps"]
    return table(studies, "seeds", "Every seed", columns, detail=True)


def _models_note(setting: Setting, trained_on_tested: bool) -> str:
    """Describe the models that the columns of held-out errors belong to."""
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
    held_out = Counter(env for tests in planned for env in tests)
    often = max(held_out[env] for env in setting.given)
    if often > 1:
        return f"Each column is the mean over the {often} models that held the environment out."
    together = "; ".join(map(", ".join, planned))
    return f"Environments held out together, one model each: {together}."


def _on_deviations(evaluation: Evaluation) -> str:
    """Explain the numbers and the bold ones of the measure table in one line."""
    count = len(seeds_of(evaluation.studies))
    if count == 1:
        return (
            "Lower is better. 1 seed: no standard deviation, so any difference here may be the "
            "luck of a seed."
        )
    return (
        f"Lower is better. Mean ± standard deviation over {count} seeds. Bold: the lowest, where "
        "the seeds separate it from every other one."
    )


def on_seeds(evaluation: Evaluation) -> list[str]:
    """Describe how sure the measure table is: which differences its seeds find."""
    studies = evaluation.studies
    count = len(seeds_of(studies))
    sentences = []
    if count > 1:
        sentences.append(f"Standard deviation: divisor n-1; n below {count} is marked.")
        measure = ranked_by(studies, evaluation.measures)
        sentences += resolution(by_seed(studies, measure.name), measure.in_prose)
    if has_no_ideal(studies):
        sentences.append(f"No ideal: {why_no_ideal(studies)}.")
    sampled = sorted(set(studies.loc[studies["sampled"].astype(bool), "algorithm"]))
    if sampled:
        sentences.append(
            f"{', '.join(sampled)}: a prediction depends on the images that are seen with it, so "
            "errors are those of a pool whose spurious feature was drawn once per environment, "
            "not expected ones."
        )
    return sentences


def _absence_notes(evaluation: Evaluation) -> list[str]:
    """Explain which values of the measure table are missing, and why."""
    studies = evaluation.studies
    measures = evaluation.measures.of_runs
    if has_no_ideal(studies):
        measures = [measure for measure in measures if measure.needs != "everywhere"]
    columns = [f"{measure.name}.reason" for measure in measures]
    lacking: dict[str, list[str]] = {}
    for study in studies.to_dict("records"):
        for text in dict.fromkeys(study[column] for column in columns):
            if isinstance(text, str):
                lacking.setdefault(text, []).append(f"{study['algorithm']} seed {study['seed']}")
    sentences = []
    for text, labels in lacking.items():
        everything = 1 < len(labels) == len(studies)
        whose = "Every algorithm and seed" if everything else some_of(labels, 3)
        sentences.append(f"{whose}: {text}.")
    more = len(sentences) - _MOST_ABSENCES
    if more > 0:
        sentences[_MOST_ABSENCES:] = [f"{more} more sentences stand in the table of every seed."]
    return sentences
