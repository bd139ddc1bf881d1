"""Whether predicted seeds are those that studies need, and how often looking after every seed
misleads.

    python benchmarks/seeds_needed.py [--studies 10000]

Simulates studies whose truth is known, calls the functions of ``report=power``, and prints the
tables of docs/concepts/simulations.md. One core; every table has a generator of its own.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import t

from dgbench.analysis import deviation_of, pairs, seeds_needed
from dgbench.analysis.comparison import error_of_each
from dgbench.analysis.evidence import e_process

LOOKS = 30  #: seeds at most
ALGORITHMS = (2, 5, 14)
Cells = Iterator[str]


def p_values(differences: np.ndarray) -> np.ndarray:
    """Compute one-sided p-values of the paired t-test after 1, 2, ... seeds; 1 for the first."""
    counts = np.arange(1, differences.shape[-1] + 1)
    mean = np.cumsum(differences, axis=-1) / counts
    squares = np.cumsum(differences**2, axis=-1) - counts * mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = mean / np.sqrt(np.maximum(squares, 1e-300) / (counts - 1) / counts)
        values = t.sf(statistic, counts - 1)
    return np.where(counts > 1, values, 1.0)


def needed_by_simulation(
    rng: np.random.Generator, difference: float, algorithms: int, studies: int, most: int
) -> int:
    """Find the fewest seeds with which 80% of simulated studies find a difference whose deviation
    is 1.

    Raises:
        ValueError: ``most`` seeds are too few.
    """
    significant = p_values(rng.normal(size=(studies, most)) + difference) <= error_of_each(
        algorithms, 0.05
    )
    enough = np.flatnonzero(significant.mean(axis=0) >= 0.8)
    if not len(enough):
        raise ValueError(
            f"{most} seeds are too few for a difference of {difference:g} among {algorithms} "
            "algorithms"
        )
    return 1 + int(enough[0])


def predictions(studies: int) -> Cells:
    """Compare predicted with simulated seeds: a table, and how many of 200 random cases differ by
    at most 20%, or 1.
    """
    yield "| predicted (simulated) seeds | 4 deviations | 2 | 1 | 0.5 |\n|---|--:|--:|--:|--:|"
    rng, close = np.random.default_rng(1), []
    for algorithms in ALGORITHMS:
        cells = []
        for difference in (4.0, 2.0, 1.0, 0.5):
            predicted = int(seeds_needed(1.0, difference, algorithms))
            simulated = needed_by_simulation(
                rng, difference, algorithms, studies, 2 * predicted + 3
            )
            cells.append(f"{predicted} ({simulated})")
        yield f"| {algorithms} algorithms | {' | '.join(cells)} |"
    for _ in range(200):
        algorithms, difference = (
            int(rng.integers(2, 21)),
            float(np.exp(rng.uniform(np.log(0.25), np.log(4)))),
        )
        predicted = int(seeds_needed(1.0, difference, algorithms))
        simulated = needed_by_simulation(
            rng, difference, algorithms, studies // 4, 2 * predicted + 3
        )
        close.append(
            (abs(predicted - simulated) <= 0.2 * simulated, abs(predicted - simulated) <= 1)
        )
    exact, either = np.mean(close, axis=0)[0], np.any(close, axis=1).mean()
    yield (
        f"\nOf 200 random cases {100 * exact:.1f}% are within 20%, {100 * either:.1f}% within 20% "
        "or one seed."
    )


def coverage(studies: int) -> Cells:
    """Count how often a deviation's interval from a pilot holds the true one, and how often the
    estimate is too low.
    """
    yield (
        "| holds the truth (estimate too low), % | 3 seeds | 5 seeds | 10 seeds "
        "|\n|---|--:|--:|--:|"
    )
    for title, algorithms, deviations in (
        ("2 algorithms", 2, np.ones(2)),
        ("5 algorithms", 5, np.ones(5)),
        ("14 algorithms", 14, np.ones(14)),
        ("14 algorithms, deviations from 0.2 to 4", 14, np.geomspace(0.2, 4, 14)),
    ):
        truth = float(
            np.median([math.hypot(*pair) for pair in itertools.combinations(deviations, 2)])
        )
        cells = []
        for seeds in (3, 5, 10):
            rng = np.random.default_rng([seeds, algorithms])
            intervals = []
            for _ in range(studies // 10):
                comparisons = pairs(rng.normal(size=(algorithms, seeds)) * deviations[:, None])
                intervals.append(deviation_of([pair.deviation for pair in comparisons], seeds))
            holds = np.mean([interval.low <= truth <= interval.high for interval in intervals])
            below = np.mean([interval.estimate < truth for interval in intervals])
            cells.append(f"{100 * holds:.1f} ({100 * below:.0f})")
        yield f"| {title} | {' | '.join(cells)} |"


def false_leads(studies: int) -> Cells:
    """Count how often one of normal algorithms that all tie is separated from the best, after each
    of 30 seeds.
    """
    heads = " | ".join(f"{algorithms} algorithms" for algorithms in ALGORITHMS)
    yield f"| misled, % | {heads} |\n|---|--:|--:|--:|"
    tests: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
        "evidence, after every seed": lambda differences, error: (
            e_process(differences) >= 1 / error
        ),
        "t-test, after every seed": lambda differences, error: p_values(differences) <= error,
        "t-test, after 30 seeds": lambda differences, error: (
            p_values(differences)[..., -1:] <= error
        ),
    }
    for title, test in tests.items():
        cells = []
        for algorithms in ALGORITHMS:
            rng, misled = np.random.default_rng(algorithms), []
            for _ in range(10):  # tables of a tenth of the studies
                values = rng.normal(size=(studies // 10, algorithms, LOOKS))
                differences = values[:, :1] - values[:, 1:]  # of one that is as good as all
                separated = test(differences, error_of_each(algorithms, 0.05)).any(axis=(1, 2))
                if algorithms == 2:  # either may be the one
                    separated |= test(-differences, error_of_each(algorithms, 0.05)).any(
                        axis=(1, 2)
                    )
                misled.append(separated.mean())
            cells.append(f"{100 * np.mean(misled):.1f}")
        yield f"| {title} | {' | '.join(cells)} |"


def speed(studies: int) -> Cells:
    """Average the seeds until a pair is decided, and count the share that is within 30; 2 and 14
    algorithms.
    """
    heading = "| mean seeds (decided within 30, %) | 4 deviations | 2 | 1 | 0.5 |"
    yield f"{heading}\n|---|--:|--:|--:|--:|"
    rng = np.random.default_rng(2)
    smallest = np.concatenate(
        [p_values(rng.normal(size=(5 * studies, LOOKS)))[:, 2:].min(axis=1) for _ in range(8)]
    )
    for algorithms in (2, 14):
        error = error_of_each(algorithms, 0.05)
        nominal = np.quantile(smallest, error)
        rows: dict[str, list[str]] = {
            "evidence": [],
            "group-sequential, at most 30 seeds": [],
            "fixed number, 80%": [],
        }
        for difference in (4.0, 2.0, 1.0, 0.5):
            differences = rng.normal(size=(studies, LOOKS)) + difference
            values = p_values(differences)
            values[:, :2] = 1.0
            for title, hit in (("evidence", e_process(differences) >= 1 / error),
                               ("group-sequential, at most 30 seeds",
                                   values <= nominal)):  # fmt: skip
                decided = hit.any(axis=1)
                seeds = np.where(decided, hit.argmax(axis=1) + 1, LOOKS)
                rows[title].append(f"{seeds.mean():.1f} ({100 * decided.mean():.0f})")
            rows["fixed number, 80%"].append(f"{seeds_needed(1.0, difference, algorithms):.0f}")
        for title, cells in rows.items():
            yield f"| {algorithms} algorithms, {title} | {' | '.join(cells)} |"


TABLES = (predictions, coverage, false_leads, speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=10_000, help="simulated studies of a cell")
    studies, start = parser.parse_args().studies, time.perf_counter()
    for make in TABLES:
        print(*make(studies), sep="\n", end="\n\n", flush=True)
    print(f"{studies:,} studies a cell, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
