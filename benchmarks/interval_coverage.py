"""How often the intervals of a report hold the truth, and how often its tests find what is not
there.

    python benchmarks/interval_coverage.py [--trials 3000]

Simulates tables of A algorithms and n seeds (blocks, configurations) whose truth is known, calls
the functions that the reports call, and prints the tables of docs/concepts/simulations.md. One
core; each cell has a generator of its own.
"""

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dgbench.analysis import (
    SampleSummary,
    compatible,
    correlation_difference,
    correlation_interval,
    critical_difference,
    friedman,
    lead,
    pick_probability,
    ranking_score,
    resample,
    separated,
    sign_test,
    spread,
)
from dgbench.analysis.intervals import Interval

COLUMNS = [(n, a) for n in (3, 5, 10) for a in (3, 14)]
RHO = 0.6  #: correlation of a measure with the ideal, over algorithms, within a seed
#: of a binormal population
SPEARMAN, KENDALL = (
    6 / math.pi * math.asin(RHO / 2),
    2 / math.pi * math.asin(RHO),
)

Generator = np.random.Generator
# (rng, n, A) -> 1 or 0, or a number whose mean is wanted
Trial = Callable[[Generator, int, int], float]


@dataclass(frozen=True)
class Line:
    """One line of a table: what is simulated, in words, and one simulation of it."""

    title: str
    trial: Trial
    share: float = 1.0  #: of --trials, for what takes long


def noise(rng: Generator, n: int, a: int, kind: str) -> np.ndarray:
    """Draw (A, n) values of mean 0 with effects that the algorithms of a seed share."""
    unequal = np.geomspace(0.025, 1, a)[:, None] if "unequal" in kind else 1.0
    errors = rng.exponential(size=(a, n)) - 1 if "skewed" in kind else rng.normal(size=(a, n))
    return np.asarray(rng.normal(size=(1, n)) + unequal * errors)


def names(a: int) -> list[str]:
    return [str(index) for index in range(a)]


def two_tie(a: int) -> np.ndarray:
    """Return (A, 1) true means: two that tie, the others far off."""
    return np.where(np.arange(a) < 2, 0.0, 100.0)[:, None]


def holds(interval: Interval, truth: float = 0.0) -> float:
    return float(interval.low <= truth <= interval.high)


def difference(kind: str) -> Trial:
    """Make a trial of the first algorithm less the last, whose deviation is the largest where they
    are unequal.
    """
    return lambda rng, n, a: holds(
        resample(names(a), noise(rng, n, a, kind), rng).difference("0", str(a - 1))
    )


def difference_of_averages(rng: Generator, n: int, a: int) -> float:
    """Draw effects of algorithm x seed, algorithm x environment and each value; resample seeds and
    4 environments.
    """
    parts = [rng.normal(size=shape) for shape in ((a, n, 1), (a, 1, 4), (a, n, 4))]
    return holds(resample(names(a), sum(parts), rng).difference("0", "1"))


def to_the_lowest(rng: Generator, n: int, a: int) -> float:
    """Simulate the difference of the highest mean to the lowest one, of algorithms that the data
    choose.
    """
    resamples = resample(names(a), noise(rng, n, a, "normal"), rng)
    return holds(
        resamples.difference(
            str(int(resamples.estimate.argmax())), str(int(resamples.estimate.argmin()))
        )
    )


def rank(rng: Generator, n: int, a: int) -> float:
    """Simulate the rank of a random one of the algorithms, whose means are one standard deviation
    apart.
    """
    index = int(rng.integers(a))
    ranks = resample(names(a), noise(rng, n, a, "normal") + np.arange(a)[:, None], rng).ranks()
    return holds(ranks[str(index)], index + 1)


def measures(rng: Generator, n: int, a: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw two measures and the ideal, (A, n): algorithms from a normal population, half of the
    variance the seed's.
    """
    ideal, *errors = rng.normal(size=(3, a, 1)) + rng.normal(size=(3, a, n))
    first, second = (RHO * ideal + math.sqrt(1 - RHO**2) * error for error in errors)
    return first, second, ideal


def correlation(coefficient: str, truth: float) -> Trial:
    def trial(rng: Generator, n: int, a: int) -> float:
        first, _, ideal = measures(rng, n, a)
        return holds(correlation_interval(first, ideal, rng, coefficient=coefficient), truth)  # type: ignore[arg-type]

    return trial


def equal_correlations(rng: Generator, n: int, a: int) -> float:
    return holds(correlation_difference(*measures(rng, n, a), rng))


def welch(ratio: float) -> Trial:
    def trial(rng: Generator, n: int, a: int) -> float:
        first, second = rng.normal(size=n), ratio * rng.normal(size=n)
        return holds(
            compatible(
                *(SampleSummary(float(v.mean()), float(v.std(ddof=1)), n) for v in (first, second))
            )
        )

    return trial


def best_is_in_the_set(kind: str) -> Trial:
    """Make a trial in which all tie, and the one that varies least counts as the best."""
    return lambda rng, n, a: float(0 in separated(noise(rng, n, a, kind)).candidates)


def leads(means: Callable[[int], np.ndarray], kind: str, *, every: bool = False) -> Trial:
    """Make a trial of a lead that is significant at 5%, or, with ``every``, that holds in every
    seed.
    """

    def trial(rng: Generator, n: int, a: int) -> float:
        result = lead(noise(rng, n, a, kind) + means(a))
        return float(result.wins == n if every else result.p_value <= 0.05)

    return trial


def all_tie(a: int) -> np.ndarray:
    return np.zeros((a, 1))


def crowned(rng: Generator, n: int, a: int) -> float:
    return float(len(separated(noise(rng, n, a, "normal") + two_tie(a)).candidates) == 1)


def any_above_the_lowest(rng: Generator, n: int, a: int) -> float:
    resamples = resample(names(a), noise(rng, n, a, "normal"), rng)
    lowest = str(int(resamples.estimate.argmin()))
    return float(
        any(
            resamples.difference(name, lowest).excludes_zero
            for name in resamples.names
            if name != lowest
        )
    )


def nemenyi(rng: Generator, n: int, a: int) -> float:
    return float(np.ptp(friedman(rng.normal(size=(n, a))).mean_ranks) > critical_difference(a, n))


def signs(rng: Generator, n: int, a: int) -> float:
    wins = int(rng.binomial(n, 0.5))
    return float(sign_test(wins, n - wins) < 0.05)


def scored(rng: Generator, n: int, a: int) -> float:
    """Return whether OoD-Bench's score of an algorithm that equals the reference is not 0."""
    values, reference = (list(map(float, rng.normal(size=n))) for _ in range(2))
    return float(
        ranking_score(
            float(np.mean(values)), float(np.mean(reference)), spread(reference, "domainbed") or 0
        )
        != 0
    )


def p_best(rng: Generator, n: int, a: int) -> float:
    first, _, ideal = measures(rng, n, a)
    return pick_probability(first, ideal, rng)


def selected_is_best(rng: Generator, n: int, a: int) -> float:
    first, _, ideal = measures(rng, n, a)
    return float(first.mean(axis=1).argmin() == ideal.mean(axis=1).argmin())


TABLES = {
    "Coverage of 95% intervals (%)": [
        Line("difference over seeds", difference("normal")),
        Line("difference, skewed and unequal", difference("skewed unequal")),
        Line("difference of averages, seeds and environments", difference_of_averages),
        Line("highest less lowest mean, all tie", to_the_lowest),
        Line("rank, means 1 deviation apart", rank, 0.5),
        Line("Spearman", correlation("spearman", SPEARMAN), 0.5),
        Line("Kendall", correlation("kendall", KENDALL), 0.5),
        Line("difference of two Spearman, equal", equal_correlations, 0.5),
        Line("set of the best, all tie", best_is_in_the_set("normal")),
        Line("set of the best, unequal", best_is_in_the_set("unequal")),
        Line("set of the best, skewed and unequal", best_is_in_the_set("skewed unequal")),
        Line("Welch", welch(1)),
        Line("Welch, deviations 1 and 3", welch(3)),
    ],
    "False alarms of tests at 5% (%)": [
        Line("lead, two tie", leads(two_tie, "normal")),
        Line("lead, all tie", leads(all_tie, "normal")),
        Line("lead, all tie, unequal", leads(all_tie, "unequal")),
        Line("lead, all tie, skewed and unequal", leads(all_tie, "skewed unequal")),
        Line("leads in every seed, two tie", leads(two_tie, "normal", every=True)),
        Line("set of the best is one, two tie", crowned),
        Line("any interval to the lowest excludes 0, all tie", any_above_the_lowest),
        Line(
            "Friedman, chi-square",
            lambda rng, n, a: float(friedman(rng.normal(size=(n, a))).p_value < 0.05),
        ),
        Line(
            "Friedman, Iman-Davenport",
            lambda rng, n, a: float(friedman(rng.normal(size=(n, a))).p_value_f < 0.05),
        ),
        Line("Nemenyi, any pair", nemenyi),
        Line("sign test over n configurations", signs),
        Line("OoD-Bench score is not 0", scored),
    ],
    "P(best) (%)": [
        Line("printed, mean", p_best, 0.5),
        Line("the selected one is the best", selected_is_best),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=3000,
        help="data sets for each cell, half as many for slow ones",
    )
    trials = parser.parse_args().trials
    start = time.perf_counter()
    for title, lines in TABLES.items():
        heads = [f"n={n} A={a}" for n, a in COLUMNS]
        print(f"| {title} | {' | '.join(heads)} |\n|---|{'--:|' * len(heads)}", flush=True)
        for line in lines:
            print(
                f"| {line.title} | {' | '.join(cells(line, max(1, int(trials * line.share))))} |",
                flush=True,
            )
        print()
    print(
        f"{trials:,} data sets a cell, half as many for ranks and correlations, "
        f"{time.perf_counter() - start:.0f} s"
    )


def cells(line: Line, trials: int) -> list[str]:
    percents = []
    for n, a in COLUMNS:
        rng = np.random.default_rng([n, a, zlib.crc32(line.title.encode())])
        percents.append(
            f"{100 * float(np.mean([line.trial(rng, n, a) for _ in range(trials)])):.1f}"
        )
    return percents


if __name__ == "__main__":
    main()
