"""Plain sentences that say what a table can and cannot tell."""

from __future__ import annotations

import math

from dgbench.reports.comparisons import Comparison, candidates
from dgbench.reports.seed_statistics import mean


def on_measures(comparison: Comparison) -> list[str]:
    """What the measure table supports: seeds, the winner by worst+gap, what is absent."""
    count = len(comparison.seeds)
    sentences = ["Lower is better. Best in bold, among the algorithms with the most seeds."]
    if count == 1:
        sentences.append("1 seed: no standard deviation, so no difference here can be told from the luck of a seed.")
    else:
        sentences.append(f"Mean ± standard deviation (divisor n-1) over {count} seeds, n below {count} is marked.")
        sentences += _winner(comparison)
    if sampled := sorted({study.algorithm for study in comparison.studies if study.sampled}):
        sentences.append(
            f"{', '.join(sampled)}: a prediction depends on the images that are seen with it, so errors are those of a "
            "pool whose spurious feature was drawn once per environment, not expected ones."
        )
    return sentences + _absent(comparison)


def on_selection(comparison: Comparison) -> list[str]:
    """What the selection table supports."""
    sentences = [
        "Degradation: ideal error of the selected algorithm less the lowest one, in percentage points (0: truly best).",
        "Ties are shown as a = b, the first counts.",
    ]
    algorithms, seeds = len(comparison.algorithms), len(comparison.seeds)
    if algorithms == 1:
        return ["1 algorithm: there is nothing to choose from; train another."]
    if not comparison.values("ideal"):
        sentences.append("No ideal errors: whether a pick is truly best cannot be known.")
    else:
        chance = f"a blind guess among {algorithms} algorithms is right once in {algorithms}"
        word = "seed" if seeds == 1 else "seeds"
        sentences.append(f"{seeds} {word}, {algorithms} algorithms: {chance}, keep that in mind when counting hits.")
    for seed in comparison.seeds:
        if absent := sorted(set(comparison.algorithms) - set(candidates(comparison, [seed]))):
            sentences.append(f"Seed {seed} is incomplete for {', '.join(absent)}: not chosen among.")
    whole = candidates(comparison, comparison.seeds)
    if not whole:
        sentences.append("No choice on the mean: fewer than 2 algorithms are complete in every seed.")
    elif absent := sorted(set(comparison.algorithms) - set(whole)):
        sentences.append(f"The choice on the mean leaves out {', '.join(absent)}.")
    return sentences


def on_correlation(comparison: Comparison) -> list[str]:
    """What the rank correlations support."""
    count = len([a for a in comparison.values("ideal") if a in comparison.values("worst")])
    several = len(comparison.algorithms)
    if several == 1:
        return ["1 algorithm: a rank correlation needs 2 or more; train another."]
    sentences = [
        "1 means that the measure orders the algorithms as the ideal one does. Highest in bold, negative underlined."
    ]
    if count < 2:
        sentences.append(f"{count} algorithm with all folds: a rank correlation needs 2 or more.")
    elif count == 2:
        sentences.append("2 algorithms: a rank correlation can only be 1 or -1, so this is no evidence.")
    elif count <= 6:
        orders = math.factorial(count)
        sentences.append(
            f"{count} algorithms: even a perfect correlation comes up by chance in 1 of {orders} orders; "
            "compare more algorithms before ranking the measures."
        )
    if any(len(candidates(comparison, [seed])) < several for seed in comparison.seeds) and several > 1:
        sentences.append("(k of n) marks a seed in which only k of the n algorithms are complete.")
    if len(comparison.seeds) == 1:
        sentences.append("1 seed: no standard deviation.")
    return sentences


def _winner(comparison: Comparison) -> list[str]:
    values = comparison.values("worst_gap")
    seeds = set(comparison.seeds)
    whole = {a: by for a, by in values.items() if set(by) == seeds}
    if len(whole) < 2:
        return []
    first, second = sorted(whole, key=lambda a: (mean(list(whole[a].values())), a))[:2]
    wins = sum(whole[first][seed] < whole[second][seed] for seed in seeds)
    if wins == len(seeds):
        # one-sided sign test under "either may win with probability 1/2"
        verdict = f"it wins in every seed, which fair coins would also do in 1 of {2 ** len(seeds)} cases"
    else:
        verdict = f"it wins in {wins} of {len(seeds)} seeds, so these seeds do not separate the two"
    return [f"Lowest worst+gap: {first}, then {second}; {verdict}."]


def _absent(comparison: Comparison) -> list[str]:
    reasons = []
    for study in comparison.studies:
        for why in dict.fromkeys(study.measures.reasons.values()):
            reasons.append(f"{study.algorithm} seed {study.seed}: {why}.")
    if len(reasons) > 6:
        reasons = [*reasons[:6], f"{len(reasons) - 6} more reasons stand in the table of every seed."]
    return reasons
