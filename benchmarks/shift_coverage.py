"""How often nominal 95 % intervals of estimated shift hold the true value, on pairs whose shift is
known.

Labels are flipped with probability 0.25, a color differs from the label with 0.1 on one side and
with e on the other; features are color, noise-free class and eight numbers that say nothing, all
with noise. Prints a table.

    python benchmarks/shift_coverage.py [--sets 20] [--images 1500] [--estimator joint ood_bench]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from dgbench.analysis.shift_verdicts import half_sampling
from dgbench.records.shift_rows import HALF, HALVES, NO_NULL, TRIAL, ShiftRow
from dgbench.shift.exact import colored_table, exact_shift
from dgbench.shift.job import estimate_shift

NOISE, DIMENSIONS, E_P = 0.25, 10, 0.1


def side(e: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw (n, 10) features and (n,) labels where the color differs from the label with probability
    e.
    """
    clean = rng.integers(0, 2, n)
    y = np.where(rng.random(n) < NOISE, 1 - clean, clean)
    color = np.where(rng.random(n) < e, 1 - y, y)
    x = 0.1 * rng.standard_normal((n, DIMENSIONS))
    x[:, 0] += 2 * color - 1
    x[:, 1] += 2 * clean - 1
    return x, y


def interval(rows: list[ShiftRow], null: str) -> tuple[float, float, float] | None:
    """Average the estimates of correlation shift, and add the ends of their interval; None where it
    was refused.
    """
    estimates = {
        kind: [
            row.values["cor"]
            for row in rows
            if (row.kind, row.null) == (kind, null) and "cor" in row.values
        ]
        for kind in (TRIAL, HALF)
    }
    if not estimates[TRIAL] or len(estimates[HALF]) < 2:
        return None
    value = statistics.fmean(estimates[TRIAL])
    return value, *half_sampling(value, estimates[HALF])


def main() -> None:
    """Estimate shift on all sets, and count how often the intervals hold the truth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--images", type=int, default=1500, help="of a side")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--estimator", nargs="+", default=["joint"])
    parser.add_argument("--e", type=float, nargs="+", default=[0.5])
    options = parser.parse_args()
    print(
        f"{'estimator':10} {'e_q':>4} {'exact':>6} {'mean':>6} {'covered':>8} "
        f"{'null mean':>10} {'null holds 0':>13} {'s/set':>6}"
    )
    for estimator in options.estimator:
        for e in options.e:
            exact = exact_shift(*(colored_table(probability, NOISE) for probability in (E_P, e)))[
                "cor"
            ]
            covered, nulls_covered, values, nulls, begun = 0, 0, [], [], time.perf_counter()
            for number in range(options.sets):
                rng = np.random.default_rng([number, int(100 * e)])
                sides = [*side(E_P, options.images, rng), *side(e, options.images, rng)]
                rows = estimate_shift(
                    *sides, estimator, trials=options.trials, seed=number, device="cpu"
                )
                if estimate := interval(rows, NO_NULL):
                    values.append(estimate[0])
                    covered += estimate[1] <= exact <= estimate[2]
                if estimate := interval(rows, HALVES):
                    nulls.append(estimate[0])
                    nulls_covered += estimate[1] <= 0 <= estimate[2]
            seconds = (time.perf_counter() - begun) / options.sets
            print(
                (
                    f"{estimator:10} {e:4.1f} {exact:6.3f} {mean(values)} {covered:4} of "
                    f"{len(values):2} {mean(nulls):>9} {nulls_covered:8} of {len(nulls):2} "
                    f"{seconds:6.1f}"
                ),
                flush=True,
            )


def mean(values: list[float]) -> str:
    """Format the mean as text; a dash where all were refused."""
    return f"{statistics.fmean(values):6.3f}" if values else "     -"


if __name__ == "__main__":
    main()
