"""Plain sentences that say what the tables of one setting can and cannot tell."""

from __future__ import annotations

import math
from fractions import Fraction

import pandas as pd

from dgbench.reports.settings.study_values import algorithms_of, candidates, matrices, ranked_by, seeds_of, values
from dgbench.statistics import MEASURES, Lead, lead


def on_measures(studies: pd.DataFrame) -> list[str]:
    """What the measure table supports: seeds, the best algorithm, what is absent."""
    count = len(seeds_of(studies))
    sentences = ["Lower is better."]
    if count == 1:
        sentences.append("1 seed: no standard deviation, so any difference here may be the luck of a seed.")
    else:
        sentences[0] += " Bold: the lowest, where the seeds separate it from every other one."
        sentences.append(f"Mean ± standard deviation (divisor n-1) over {count} seeds, n below {count} is marked.")
        sentences += _winner(studies)
    if sampled := sorted(set(studies.loc[studies["sampled"].astype(bool), "algorithm"])):
        sentences.append(
            f"{', '.join(sampled)}: a prediction depends on the images that are seen with it, so errors are those of a "
            "pool whose spurious feature was drawn once per environment, not expected ones."
        )
    return sentences + _absent(studies)


def on_selection(studies: pd.DataFrame) -> list[str]:
    """What the selection table supports."""
    sentences = [
        "Degradation: ideal error of the selected algorithm less the lowest one, in percentage points (0: truly best).",
        "Ties are shown as a = b, the first counts.",
    ]
    names, seeds = algorithms_of(studies), seeds_of(studies)
    if len(names) == 1:
        return ["1 algorithm: there is nothing to choose from; train another."]
    if not values(studies, "ideal"):
        sentences.append("No ideal errors: whether a selected algorithm is truly best cannot be known.")
    else:
        word = "seed" if len(seeds) == 1 else "seeds"
        sentences.append(
            f"{len(seeds)} {word}, {len(names)} algorithms: a blind guess among {len(names)} algorithms is right once "
            f"in {len(names)}, keep that in mind when counting correct selections."
        )
    for seed in seeds:
        if absent := sorted(set(names) - set(candidates(studies, [seed]))):
            sentences.append(f"Seed {seed} is incomplete for {', '.join(absent)}: not chosen among.")
    whole = candidates(studies, seeds)
    if not whole:
        sentences.append("No choice on the mean: fewer than 2 algorithms are complete in every seed.")
    elif absent := sorted(set(names) - set(whole)):
        sentences.append(f"The choice on the mean leaves out {', '.join(absent)}.")
    return sentences


def on_correlation(studies: pd.DataFrame) -> list[str]:
    """What the rank correlations support."""
    worst, ideal = values(studies, "worst"), values(studies, "ideal")
    count, seeds, several = len(worst.keys() & ideal.keys()), seeds_of(studies), len(algorithms_of(studies))
    if several == 1:
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
    if any(len(candidates(studies, [seed])) < several for seed in seeds):
        sentences.append("(k of n) marks a seed in which only k of the n algorithms are complete.")
    if len(seeds) == 1:
        sentences.append("1 seed: no standard deviation.")
    return sentences


def _winner(studies: pd.DataFrame) -> list[str]:
    measure, title = ranked_by(studies)
    names, _, tables = matrices(studies, [measure])
    if len(names) < 2:
        return []
    found = lead(tables[measure])
    first, second = names[found.first], names[found.second]
    return [
        f"Lowest {title}: {first}, then {second}, higher in {found.wins} of {found.seeds} seeds; one of two equal "
        f"algorithms would lead by as much in {chance_of(found)}."
    ]


def chance_of(found: Lead) -> str:
    """``1 of 4 cases (permutation test), the fewest that 3 seeds can show``."""
    share = Fraction(found.as_large, found.relabelings)
    if found.p_value <= 0.05:
        verdict = "few enough to tell the two apart"
    elif found.p_value == found.least:
        verdict = f"the fewest that {found.seeds} seeds can show"
    else:
        verdict = "too many to tell the two apart"
    return f"{share.numerator} of {share.denominator} cases (permutation test), {verdict}"


def _absent(studies: pd.DataFrame) -> list[str]:
    reasons = []
    for study in studies.to_dict("records"):
        own = dict.fromkeys(study[f"{name}.reason"] for name in MEASURES)
        reasons += [f"{study['algorithm']} seed {study['seed']}: {why}." for why in own if isinstance(why, str)]
    if len(reasons) > 6:
        reasons = [*reasons[:6], f"{len(reasons) - 6} more reasons stand in the table of every seed."]
    return reasons
