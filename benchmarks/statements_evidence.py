"""What evidence, averages of published tables and the worst of several groups claim, where the
truth is known.

    python benchmarks/statements_evidence.py [--studies 10000]

Prints tables of docs/concepts/simulations.md. One core; every
table has a generator of its own. ``SECTIONS`` are those that benchmarks/statements.py runs with its
others.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import beta

from dgbench.analysis.comparison import error_of_each, welch
from dgbench.analysis.evidence import bounded_e_process, e_process

LOOKS = 30  #: seeds at most
MOST_LOOKS = 200  #: where a pair may take long
ALGORITHMS = (2, 5, 14)
DEVIATION = 0.005  #: over seeds, of an algorithm that does not fail
Cells = Iterator[str]
Generator = np.random.Generator
Process = Callable[[np.ndarray], np.ndarray]

#: evidence after 1, 2, ... seeds, of differences of errors
EVIDENCE: dict[str, Process] = {
    "evidence, if about normal": e_process,
    "without that": lambda differences: bounded_e_process(differences, 1.0),
    "more often lower": lambda differences: bounded_e_process(np.sign(differences), 1.0),
}


def normal(rng: Generator, shape: tuple[int, ...]) -> np.ndarray:
    return 0.4 + DEVIATION * rng.normal(size=shape)


def heavy_tails(rng: Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.clip(0.4 + DEVIATION * rng.standard_t(2, size=shape), 0, 1))


def exponential(rng: Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw errors that are mostly below their mean of 40%, and sometimes far above."""
    return np.asarray(np.clip(0.35 + 0.05 * rng.exponential(size=shape), 0, 1))


def failing(rng: Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw errors of 39%, and of 89% in 2% of the seeds: 40% on average."""
    return 0.39 + 0.5 * (rng.random(shape) < 0.02) + DEVIATION * rng.normal(size=shape)


#: what rivals of the same mean are like, and whether the first is lower as often as higher
RIVALS = {
    "normal": (normal, True),
    "heavy tails (Student's t, 2 degrees)": (heavy_tails, True),
    "exponential": (exponential, False),
    "fail in 2% of seeds": (failing, False),
}


def evidence(studies: int) -> Cells:
    """Count how often rivals of the same mean as a quiet, normal algorithm are called lower, after
    each of 30 seeds.
    """
    heads = " | ".join(f"{algorithms} algorithms" for algorithms in ALGORITHMS)
    yield f"| misled, %: rivals of the same mean | evidence | {heads} |\n|---|---|--:|--:|--:|"
    for kind, (rivals, symmetric) in RIVALS.items():
        for title, process in EVIDENCE.items():
            if title == "more often lower" and not symmetric:
                continue  # what it claims is true there
            shares = [_misled(rivals, process, algorithms, studies) for algorithms in ALGORITHMS]
            yield f"| {kind} | {title} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |"


def _misled(
    rivals: Callable[[Generator, tuple[int, ...]], np.ndarray],
    process: Process,
    algorithms: int,
    studies: int,
) -> float:
    """Simulate studies of one quiet algorithm and its rivals; return the share with a false
    verdict.
    """
    rng = np.random.default_rng(algorithms)
    needed = 1 / error_of_each(algorithms, 0.05)
    misled = []
    for _ in range(10):  # tables of a tenth of the studies
        quiet = normal(rng, (studies // 10, 1, LOOKS))
        differences = quiet - rivals(rng, (studies // 10, algorithms - 1, LOOKS))
        misled.append((process(differences) >= needed).any(axis=(1, 2)).mean())
    return float(np.mean(misled))


def evidence_power(studies: int) -> Cells:
    """Average the seeds until a pair of 2 algorithms is decided, at most 200, by difference and its
    deviation.
    """
    pairs = ((20, 10), (10, 5), (5, 2.5), (5, 5))  # points: difference, deviation
    heads = " | ".join(f"{difference} ± {deviation}" for difference, deviation in pairs)
    heading = f"| mean seeds (decided within {MOST_LOOKS}, %), points | {heads} |"
    yield f"{heading}\n|---|--:|--:|--:|--:|"
    needed = 1 / error_of_each(2, 0.05)
    for title, process in EVIDENCE.items():
        rng, cells = np.random.default_rng(3), []
        for difference, deviation in pairs:
            values = (difference + deviation * rng.normal(size=(studies // 5, MOST_LOOKS))) / 100
            hit = process(np.clip(values, -1, 1)) >= needed
            decided = hit.any(axis=1)
            seeds = np.where(decided, hit.argmax(axis=1) + 1, MOST_LOOKS)
            cells.append(f"{seeds.mean():.1f} ({100 * decided.mean():.0f})")
        yield f"| {title} | {' | '.join(cells)} |"


def degrees_of_freedom(studies: int) -> Cells:
    """Compare averages over k columns of 3 runs each that are equal, and that are 4 standard errors
    apart.
    """
    yield (
        "| average over k columns, 3 runs each, at 5% | k = 1 | 2 | 4 | 5 | 7 "
        "|\n|---|--:|--:|--:|--:|--:|"
    )
    for spread, widest in (("equal deviations", 1.0), ("deviations from 1 to 5", 5.0)):
        for apart, wanted in ((0.0, "false alarms"), (4.0, "power, 4 standard errors apart")):
            lines: dict[str, list[str]] = {
                "2 to 4 degrees of freedom": [],
                "Welch-Satterthwaite over 2k variances": [],
            }
            for columns in (1, 2, 4, 5, 7):
                rng = np.random.default_rng(columns)
                found = _separations(rng, np.geomspace(1, widest, columns), apart, studies)
                for title, share in zip(lines, found, strict=True):
                    lines[title].append(f"{100 * share:.1f}")
            for title, cells in lines.items():
                yield f"| {title}, {spread}: {wanted} | {' | '.join(cells)} |"


def _separations(
    rng: Generator, true: np.ndarray, apart: float, studies: int
) -> tuple[float, float]:
    """Return how often Welch's test separates two averages, with the freedom of one sample each,
    and of all columns.

    Args:
        rng: of the values.
        true: (k,) deviations of the columns, the same for both.
        apart: true difference of the averages, in standard errors.
        studies: that are simulated.
    """
    runs, columns = 3, len(true)
    shift = apart * math.sqrt(2 * np.sum(true**2) / runs) / columns
    one_sample, all_columns = 0, 0
    for _ in range(studies):
        values = true[:, None] * rng.normal(size=(2, columns, runs))
        means = values.mean(axis=(1, 2)) + np.array([0.0, shift])
        deviations = values.std(axis=2, ddof=1)
        of_average = np.sqrt((deviations**2).sum(axis=1)) / columns
        one_sample += welch(means, of_average, runs)[0, 1] < 0.05
        all_columns += welch(means, deviations, runs)[0, 1] < 0.05
    return one_sample / studies, all_columns / studies


def worst_group(studies: int) -> Cells:
    """Count how often the interval of the group with most errors misses that group's true error."""
    yield (
        "| misses the picked group's error, % | 95% of it alone | share too high | 1 - 0.05/G "
        "|\n|---|--:|--:|--:|"
    )
    for title, images, errors in (
        ("24 groups of 60 images, 20% each", 60, np.full(24, 0.2)),
        ("24 groups of 600 images, 20% each", 600, np.full(24, 0.2)),
        ("4 groups of 100 images, 20% each", 100, np.full(4, 0.2)),
        ("24 groups of 60 images, 10 to 30%", 60, np.linspace(0.1, 0.3, 24)),
    ):
        rng, groups = np.random.default_rng(images), len(errors)
        counts = rng.binomial(images, errors, size=(studies, groups))
        picked = counts.argmax(axis=1)
        wrong, truth = counts.max(axis=1), errors[picked]
        low, high = _exact(wrong, images, 0.05)
        wide_low, wide_high = _exact(wrong, images, 0.05 / groups)
        misses = (truth < low) | (truth > high)
        too_high = (truth < low).sum() / max(1, misses.sum())
        joint = (truth < wide_low) | (truth > wide_high)
        yield (
            f"| {title} | {100 * misses.mean():.1f} | {100 * too_high:.0f} | "
            f"{100 * joint.mean():.1f} |"
        )


def _exact(wrong: np.ndarray, images: int, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute Clopper and Pearson's intervals of several counts."""
    low = np.where(wrong > 0, beta.ppf(alpha / 2, wrong, images - wrong + 1), 0.0)
    high = np.where(wrong < images, beta.isf(alpha / 2, wrong + 1, images - wrong), 1.0)
    return low, high


SECTIONS = {
    "evidence": evidence,
    "evidence, power": evidence_power,
    "averages of published tables": degrees_of_freedom,
    "worst group": worst_group,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=10_000, help="simulated studies of a cell")
    studies, start = parser.parse_args().studies, time.perf_counter()
    for make in SECTIONS.values():
        print(*make(studies), sep="\n", end="\n\n", flush=True)
    print(f"{studies:,} studies a cell, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
