"""What report=claims of the runs of a sweep says, on simulated sweeps whose truth is known.

    python benchmarks/paired_claims.py [--sweeps 300]

Sweeps are those of benchmarks/domainbed_sweep.py: 14 algorithms, of which 12 are equal, one is 2
points better and one 2 points worse, 20 draws of hyperparameters chosen by training-domain
validation. Prints the tables of docs/concepts/simulations.md: how often orders are decided that are
none, or that are there, whether the trials that an order is said to need suffice, and what draws of
hyperparameters yield beside the truth. Calls the functions that the report calls. One core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
from domainbed_sweep import ALGORITHMS, DRAW, LEVELS, STUDY, TRIAL, TRUTH, accuracies_of
from statements import table

from dgbench.analysis import pairs, seeds_needed
from dgbench.analysis.comparison import holm
from dgbench.analysis.paired_claims import (
    expected_result,
    paired_p_values,
    ranked_by,
    same_leader,
    unpaired_p_values,
)

DRAWS = 20
RECORDS = 25
SUBSETS = (1, 2, 5, 10, 20)
TRIALS = (3, 5, 10)
DATASET = "PACS"
ALPHA = 0.05
Array = np.ndarray
BETTER = np.array([TRUTH.get(name, 0.0) for name in ALGORITHMS])
TWO = np.array([0.0, max(TRUTH.values())])  #: two algorithms, the second one better
ABOVE = np.triu_indices(len(ALGORITHMS), 1)
#: of every order of two algorithms, by how many points they truly differ
APART = np.rint(100 * np.abs(BETTER[ABOVE[0]] - BETTER[ABOVE[1]])).astype(int)


def sweep(
    rng: np.random.Generator, dataset: str, trials: int, draws: int, truth: Array = BETTER
) -> tuple[Array, Array]:
    """Draw a sweep: validation accuracy and accuracy where nothing was seen.

    Args:
        rng: of all that is drawn.
        dataset: a key of ``LEVELS``.
        trials, draws: how many.
        truth: (A,) accuracy of each algorithm above that of all others.

    Returns:
        Two arrays (A, S, N, n) of algorithms, trials, held-out environments and draws, each at the
        step that validation chooses.
    """
    levels = np.array(LEVELS[dataset])
    shape = (len(truth), trials, draws)
    better = truth[:, None, None] + TRIAL * rng.standard_normal((1, trials, 1))
    better = better + STUDY * rng.standard_normal((*shape[:2], 1))
    better = better + DRAW * rng.standard_normal(shape)
    validation, tested = [], []
    for held_out in range(len(levels)):
        accuracy = accuracies_of(levels, (held_out,), better, rng, RECORDS)
        by_step = np.delete(accuracy[..., 1], held_out, axis=-1).mean(axis=-1)
        step = by_step.argmax(axis=-1)[..., None]
        validation.append(np.take_along_axis(by_step, step, axis=-1)[..., 0])
        unseen = accuracy[..., held_out, 0]
        tested.append(np.take_along_axis(unseen, step, axis=-1)[..., 0])
    return np.stack(validation, axis=2), np.stack(tested, axis=2)


def chosen(validation: Array, tested: Array) -> Array:
    """Choose the draw with the highest validation accuracy: (..., n) to (...)."""
    best = validation.argmax(axis=-1)[..., None]
    return np.asarray(np.take_along_axis(tested, best, axis=-1)[..., 0])


def average_errors(
    rng: np.random.Generator, dataset: str, trials: int, truth: Array = BETTER
) -> Array:
    """Draw the average errors of a sweep, (A, S), of the chosen draws."""
    return np.asarray(1 - chosen(*sweep(rng, dataset, trials, DRAWS, truth)).mean(axis=2))


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


class Counts:
    """How often orders of two algorithms are decided, by how far apart they are."""

    def __init__(self) -> None:
        self._decided: list[Array] = []
        self._any_tie: list[bool] = []

    def add(self, p_values: Array) -> None:
        """Count the p-values of one sweep, of every order."""
        decided = p_values < ALPHA
        self._decided.append(decided)
        self._any_tie.append(bool(decided[APART == 0].any()))

    def rate(self, points: int) -> str:
        """Percent of the orders that are so far apart."""
        return percent(float(np.mean(np.array(self._decided)[:, points == APART])))

    @property
    def any_tie(self) -> str:
        """Percent of the sweeps in which any two equal algorithms are told apart."""
        return percent(float(np.mean(self._any_tie)))


def order_section(sweeps: int) -> None:
    """Print how often orders are decided: alone, with all others of their line, and unpaired."""
    tests: dict[str, Callable[[Array], Array]] = {
        "alone": lambda values: paired_p_values(values)[ABOVE],
        "with all": lambda values: np.asarray(holm(paired_p_values(values)[ABOVE])),
        "alone, unpaired": lambda values: unpaired_p_values(values)[ABOVE],
    }
    heads = [f"{trials} trials" for trials in TRIALS]
    heads.append("3 trials of 7 datasets")
    columns: list[dict[str, Counts]] = []
    for trials in TRIALS:
        rng = np.random.default_rng(trials)
        counts = {name: Counts() for name in tests}
        for _ in range(sweeps):
            values = average_errors(rng, DATASET, trials)
            for name, test in tests.items():
                counts[name].add(test(values))
        columns.append(counts)
    rng = np.random.default_rng(7)
    counts = {name: Counts() for name in tests if name != "alone, unpaired"}
    for _ in range(sweeps // 4):
        values = np.stack([average_errors(rng, dataset, 3) for dataset in LEVELS])
        for name in counts:
            counts[name].add(tests[name](values))
    columns.append(counts)
    lines = []
    for points in (0, 2, 4):
        for name in tests:
            title = "equal" if points == 0 else f"{points} points apart"
            rates = [column[name].rate(points) if name in column else "-" for column in columns]
            lines.append([f"{title}: decided {name}", *rates])
    ties = [column["with all"].any_tie for column in columns]
    lines.append(["equal: any of 66 orders decided with all", *ties])
    table("Orders that are decided (%)", heads, lines)


def needed_section(sweeps: int) -> None:
    """Print whether the trials that an order of two points is said to need suffice."""
    rng = np.random.default_rng(11)
    errors = average_errors(rng, DATASET, 4 * sweeps, TWO)
    differences = errors[0] - errors[1]
    deviation = float(differences.std(ddof=1))
    truth = int(seeds_needed(deviation, float(differences.mean()), power=0.8))
    lines = [["the true difference and deviation", str(truth), "-", _power(rng, truth, sweeps)]]
    for trials in TRIALS:
        needed = []
        for _ in range(sweeps):
            (pair,) = pairs(average_errors(rng, DATASET, trials, TWO))
            needed.append(seeds_needed(pair.deviation, pair.size, power=0.8))
        low, middle, high = np.quantile(needed, (0.1, 0.5, 0.9), method="higher")
        power = _power(rng, int(middle), sweeps)
        lines.append([f"{trials} trials", f"{middle:.0f}", f"{low:.0f} to {high:,.0f}", power])
    heads = ["median", "10 to 90% of sweeps", "power with the median (%)"]
    table("Trials that 2 points need, by", heads, lines)


def _power(rng: np.random.Generator, trials: int, sweeps: int) -> str:
    """Compute in how many sweeps so many trials decide an order of two points alone."""
    decided = 0
    for _ in range(sweeps):
        values = average_errors(rng, DATASET, trials, TWO)
        decided += float(paired_p_values(values)[0, 1]) < ALPHA
    return percent(decided / sweeps)


def draw_section(sweeps: int) -> None:
    """Print what draws yield: the truth by fresh sweeps, and the report's figure by one of 20."""
    rng = np.random.default_rng(20)
    fresh = {subset: [chosen(*_first(rng, subset)) for _ in range(sweeps)] for subset in SUBSETS}
    said: dict[int, list[float]] = {subset: [] for subset in SUBSETS}
    best: dict[int, list[float]] = {subset: [] for subset in SUBSETS}
    agreed: dict[int, list[float]] = {subset: [] for subset in SUBSETS}
    searches = 0
    for _ in range(sweeps):
        validation, tested = (part.reshape(-1, DRAWS) for part in sweep(rng, DATASET, 3, DRAWS))
        searches = len(validation)
        algorithm = np.repeat(np.arange(len(ALGORITHMS)), searches // len(ALGORITHMS))
        ranked = ranked_by(validation, tested)
        by_result = -np.sort(-tested, axis=1)
        for subset in SUBSETS:
            said[subset].append(float(expected_result(ranked, subset).mean()))
            best[subset].append(float(expected_result(by_result, subset).mean()))
            agreed[subset].append(same_leader(ranked, algorithm, subset, rng, 50))
    leader = int(np.argmax(BETTER))
    lines = []
    for subset in SUBSETS:
        results = np.array(fresh[subset])  # (sweeps, A, S, N)
        true = float(results.mean())
        gain = float(np.mean(np.array(said[subset]) - np.array(said[1])))
        leads = float(np.mean(results.mean(axis=(2, 3)).argmax(axis=1) == leader))
        lines.append(
            [
                str(subset),
                f"{subset * searches:,}",
                percent(true),
                f"{percent(float(np.mean(said[subset])))} ± {percent(float(np.std(said[subset])))}",
                percent(gain),
                percent(float(np.mean(best[subset]))),
                percent(float(np.mean(agreed[subset]))),
                percent(leads),
            ]
        )
    heads = [
        *("models", "accuracy, fresh sweeps", "of subsets of 20", "gain", "best of them"),
        *("same leader as 20", "the best algorithm leads"),
    ]
    table("Draws", heads, lines)


def _first(rng: np.random.Generator, draws: int) -> tuple[Array, Array]:
    return sweep(rng, DATASET, 3, draws)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=300)
    sweeps = parser.parse_args(arguments).sweeps
    start = time.process_time()
    order_section(sweeps)
    needed_section(sweeps)
    draw_section(sweeps)
    print(f"\n{sweeps} sweeps a cell, {time.process_time() - start:.0f} s")


if __name__ == "__main__":
    main()
