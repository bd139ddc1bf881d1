"""What the sentences about leaders and worst cases are worth, on simulated studies whose truth is
known.

    python benchmarks/statements.py [--trials 2000]

Prints the tables of docs/concepts/simulations.md: how often an algorithm is called worse though it
is not, and bias and coverage of the two worst+gaps. Calls the functions that reports call. One
core.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.stats import t

from dgbench.analysis import separated, standing
from dgbench.analysis.expected import expected
from dgbench.analysis.intervals import widening
from dgbench.plan.measures import choose

SEEDS = (3, 5, 10)
ENVIRONMENTS = (3, 4, 8, 16)
Generator = np.random.Generator
WORST_GAP = choose().named("worst_gap")


def worst_gap(errors: np.ndarray) -> np.ndarray:
    """Compute worst+gap of many errors at once: (..., N) to (...)."""
    highest, lowest = errors.max(axis=-1), errors.min(axis=-1)
    return np.asarray(highest + (highest - lowest) / (errors.shape[-1] - 2))


def table(title: str, heads: list[str], lines: list[list[str]]) -> None:
    print(f"\n| {title} | {' | '.join(heads)} |")
    print(f"|---|{'--:|' * len(heads)}")
    for line in lines:
        print(f"| {' | '.join(line)} |", flush=True)


def noisy_leader(rng: Generator, algorithms: int, seeds: int) -> np.ndarray:
    """Draw a noisy algorithm, its equal, a better one, and others far off: (A, S)."""
    means = np.array([0.0, 0.0, -2.0, *[50.0] * (algorithms - 3)])[:, None]
    deviations = np.array([10.0, *[0.3] * (algorithms - 1)])[:, None]
    return np.asarray(means + deviations * rng.normal(size=(algorithms, seeds)))


def called_worse(algorithms: int, seeds: int, trials: int) -> tuple[str, str]:
    """Count how often the equal of a noisy leader is called worse: by the set of the best, and by
    its own test.
    """
    rng = np.random.default_rng([algorithms, seeds, 1])
    leads = outside = beaten = 0
    while leads < trials:
        values = noisy_leader(rng, algorithms, seeds)
        if values.mean(axis=1).argmin() != 0:
            continue
        leads += 1
        outside += 1 not in separated(values).candidates
        beaten += next(rival for rival in standing(values).rivals if rival.position == 1).separated
    return percent(outside / leads), percent(beaten / leads)


def false_claims(algorithms: int, seeds: int, trials: int) -> tuple[str, str]:
    """Count, of algorithms that all tie, how often one is "decided", and how often the leader beats
    at least one.
    """
    rng = np.random.default_rng([algorithms, seeds, 2])
    decided = beats = 0
    for _ in range(trials):
        verdict = standing(rng.normal(size=(algorithms, seeds)))
        decided += verdict.decided
        beats += any(rival.separated for rival in verdict.rivals)
    return percent(decided / trials), percent(beats / trials)


def leader_section(trials: int) -> None:
    columns = [(seeds, algorithms) for seeds in SEEDS for algorithms in (3, 4, 14)]
    heads = [f"n={seeds} A={algorithms}" for seeds, algorithms in columns]
    by_set, by_test = zip(*(called_worse(a, n, trials) for n, a in columns), strict=True)
    decided, beats = zip(*(false_claims(a, n, trials) for n, a in columns), strict=True)
    lines = [
        ["its equal called worse, by the set of the best", *by_set],
        ["its equal called worse, by the leader's own test", *by_test],
        ["all tie: decided", *decided],
        ["all tie: the leader beats at least one", *beats],
    ]
    table("A noisy leader (%)", heads, lines)


def errors(
    rng: Generator, kind: str, seeds: int, environments: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (S, N) errors in fractions, and the (N,) expected ones."""
    truth = np.full(environments, 0.40)
    deviations = np.full(environments, 0.03)
    if kind == "spread":
        truth = np.linspace(0.2, 0.6, environments)
    if kind == "two near the worst":
        truth = np.array([0.60, 0.59, *np.linspace(0.2, 0.4, environments - 2)])
    if kind == "noisy worst":
        truth = np.array([0.60, *np.linspace(0.2, 0.57, environments - 1)])
        deviations = np.array([0.10, *[0.01] * (environments - 1)])
    shared = 0.03 * rng.normal(size=(seeds, 1)) if kind == "equal, shared noise" else 0.0
    drawn = truth + deviations * rng.normal(size=(seeds, environments)) + shared
    return np.clip(drawn, 0.0, 1.0), truth


KINDS = ("equal", "equal, shared noise", "spread", "two near the worst", "noisy worst")


def intervals(values: np.ndarray, rng: Generator) -> dict[str, tuple[float, float]]:
    """Build 95% intervals of worst+gap of the expected errors in every way that was tried."""
    seeds = len(values)
    mean = values.mean(axis=0)
    estimate = float(worst_gap(mean))
    quantile = float(t.ppf(0.975, seeds - 1))
    per_run = worst_gap(values)
    half_run = quantile * per_run.std(ddof=1) / np.sqrt(seeds)
    pseudo = seeds * estimate - (seeds - 1) * worst_gap((seeds * mean - values) / (seeds - 1))
    half_jackknife = quantile * pseudo.std(ddof=1) / np.sqrt(seeds)
    counts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=300) / seeds
    drawn = worst_gap(counts @ values)
    factor = widening(seeds, 0.95)
    low, high = np.quantile(estimate + factor * (drawn - estimate), [0.025, 0.975])
    box = expected(values, WORST_GAP).interval
    assert box is not None
    return {
        "t, of runs": (per_run.mean() - half_run, per_run.mean() + half_run),
        "jackknife": (pseudo.mean() - half_jackknife, pseudo.mean() + half_jackknife),
        "bootstrap, percentiles": (low, high),
        "bootstrap, reflected": (2 * estimate - high, 2 * estimate - low),
        "box (used)": (box.low, box.high),
    }


def worst_gap_section(trials: int) -> None:
    columns = [(n, seeds) for n in ENVIRONMENTS for seeds in SEEDS]
    heads = [f"N={n} n={seeds}" for n, seeds in columns]
    biases: dict[str, list[list[float]]] = {}
    covered: dict[str, list[list[float]]] = {}
    widths: dict[str, list[list[float]]] = {}
    for kind in KINDS:
        for place, (environments, seeds) in enumerate(columns):
            rng = np.random.default_rng([environments, seeds, KINDS.index(kind)])
            for _ in range(trials):
                values, truth = errors(rng, kind, seeds, environments)
                true = float(worst_gap(truth))
                estimate = expected(values, WORST_GAP)
                assert estimate.bias is not None
                for name, value in (
                    (f"{kind}: of a run", estimate.of_a_run),
                    (f"{kind}: of mean errors", estimate.value),
                ):
                    biases.setdefault(name, [[] for _ in columns])[place].append(value - true)
                for name, (low, high) in intervals(values, rng).items():
                    held = covered.setdefault(f"{kind}: {name}", [[] for _ in columns])
                    held[place].append(low <= true <= high)
                    widths.setdefault(name, [[] for _ in columns])[place].append(high - low)
    table("Bias of worst+gap (points)", heads, rows_of(biases, points))
    table("Coverage of 95% intervals (%)", heads, rows_of(covered, percent))
    table("Mean width (points)", heads, rows_of(widths, points))


def rows_of(cells: dict[str, list[list[float]]], show: object) -> list[list[str]]:
    assert callable(show)
    return [
        [name, *(show(float(np.mean(values))) for values in line)] for name, line in cells.items()
    ]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def points(value: float) -> str:
    return f"{100 * value:.1f}"


def quiet_and_noisy(trials: int) -> None:
    """Compare two algorithms of equal expected errors, a quiet and a noisy one, by worst+gaps."""
    lines = []
    for seeds in SEEDS:
        rng = np.random.default_rng(seeds)
        shown, best, of_means = [], 0, []
        for _ in range(trials):
            quiet = 0.40 + 0.005 * rng.normal(size=(seeds, 4))
            noisy = 0.40 + 0.03 * rng.normal(size=(seeds, 4))
            shown.append([worst_gap(quiet).mean(), worst_gap(noisy).mean()])
            of_means.append([worst_gap(quiet.mean(axis=0)), worst_gap(noisy.mean(axis=0))])
            best += standing([worst_gap(quiet), worst_gap(noisy)]).decided
        run, means = np.mean(shown, axis=0), np.mean(of_means, axis=0)
        lines.append([str(seeds), *map(points, run), percent(best / trials), *map(points, means)])
    heads = ["of a run: quiet", "noisy", "decided (%)", "of mean errors: quiet", "noisy"]
    table("Equal errors of 40%, deviations 0.5 and 3 points, N=4: seeds", heads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="simulated studies for each cell")
    trials = parser.parse_args().trials
    start = time.perf_counter()
    leader_section(trials)
    quiet_and_noisy(trials)
    worst_gap_section(trials // 4)
    print(
        f"\n{trials:,} studies a cell, {trials // 4:,} for worst+gap, "
        f"{time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
