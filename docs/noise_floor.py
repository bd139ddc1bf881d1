"""How far each part of chance moves the numbers: ``python docs/noise_floor.py`` prints a table.

With ``--figure`` it also draws docs/figures/noise_floor.png. All follows from the numbers of
committed entries of results/. Deviations are those of single studies, in points.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import t

from dgbench.analysis import floor_of_lead
from dgbench.reports.render.drawing import COLORS, canvas, grid

ROOT = Path(__file__).resolve().parents[1]
STUDY = "noise_floor_digits"
#: seeds 0 of these have the same images, initial weights and minibatches, trained by two versions
#: of the code
TWICE = ("hwang2024_table1_scale1", "hwang2024_table1_scale1_fixed_data")
#: in the setting of the ratio 3:1 of the two, with one draw of the data
FOUR = "sr_cmnist_14_four_algorithms"
PARTS = {"nothing": "rounding", "order": "order", "weights": "weights", "all": "seed"}
MEASURES = {"average": "average", "worst": "worst", "worst_gap": "worst+gap"}
LEAST = 0.01  #: points; what moves less is drawn there


def numbers(entry: str) -> pd.DataFrame:
    """Read one line per setting, algorithm and seed of an entry, with its ratio and with measures
    in points.
    """
    lines = pd.read_csv(ROOT / "results" / entry / "measures.csv")
    lines["ratio"] = lines["variant"].str.extract(r"ratio=(\d)").astype(int)
    return lines.assign(**{measure: 100 * lines[measure] for measure in MEASURES})


def with_seed_0(study: pd.DataFrame) -> pd.DataFrame:
    """Add the first repetition in which nothing moves to every part of chance, as its seed 0."""
    rounding = study[study["seed_moves"] == "nothing"]
    base = rounding[rounding["seed"] == rounding["seed"].min()]
    copies = [base.assign(seed_moves=part, seed=0) for part in PARTS if part != "nothing"]
    return pd.concat([study, *copies], ignore_index=True)


def matrix(lines: pd.DataFrame, ratio: int, measure: str) -> pd.DataFrame:
    """Arrange a measure at one ratio as algorithm x seed, lowest mean first."""
    values = lines[lines["ratio"] == ratio].pivot(index="algorithm", columns="seed", values=measure)
    return values.loc[values.mean(axis=1).sort_values().index]


def leads(entry: str, measure: str) -> Iterator[dict[str, Any]]:
    """Yield each algorithm's lead over the next, and the 95% floors of leads by rounding alone and
    by a whole seed.
    """
    study, first, second = map(numbers, (entry, *TWICE))
    moves = {
        r: matrix(first, r, measure)[0] - matrix(second, r, measure)[0]
        for r in sorted(set(first["ratio"]))
    }
    for ratio in sorted(set(study["ratio"])):
        values = matrix(study, ratio, measure)
        for leader, follower in pairwise(values.index):
            differences = values.loc[follower] - values.loc[leader]
            # variance of one run
            variances = [(move[leader] - move[follower]) ** 2 / 2 for move in moves.values()]
            deviation = math.sqrt(sum(variances) / len(variances))
            yield {
                "algorithm": leader,
                "lead": differences.mean(),
                "rounding": t.ppf(0.975, len(variances)) * deviation / math.sqrt(len(differences)),
                "seed": floor_of_lead(differences, len(differences)),
            }


def above(entry: str, measure: str) -> pd.DataFrame:
    """Count the leads of each algorithm, and those above each floor; a line per algorithm."""
    lines = pd.DataFrame(leads(entry, measure))
    counts = lines.assign(
        leads=1, **{part: lines["lead"] > lines[part] for part in ("rounding", "seed")}
    )
    return counts.groupby("algorithm")[["leads", "rounding", "seed"]].sum()


def draw(deviations: pd.DataFrame, out: Path) -> None:
    """Draw a line for each algorithm, a point for each part of chance; average to the left,
    worst+gap to the right.
    """
    order = deviations["worst_gap", "all"].sort_values().index
    with canvas("noise_floor", 9, 0.2 * len(order) + 1.2) as figure:
        for place, measure in enumerate(("average", "worst_gap"), start=1):
            axes = figure.add_subplot(1, 2, place)
            for (part, name), color, marker in zip(PARTS.items(), COLORS, "|osD", strict=False):
                values = deviations[measure, part].loc[order].clip(lower=LEAST)
                axes.plot(
                    values,
                    range(len(order)),
                    marker,
                    color=color,
                    label=name,
                    markersize=5,
                    alpha=0.9,
                )
            axes.set_xscale("log")
            axes.set_yticks(
                range(len(order)), order if place == 1 else [""] * len(order), fontsize=8
            )
            axes.set_ylim(-0.7, len(order) - 0.3)
            axes.set_xlabel(f"standard deviation of {MEASURES[measure]} (points)")
            axes.xaxis.set_major_formatter("{x:g}")
            grid(axes)
        marks = axes.get_legend_handles_labels()
        figure.legend(*marks, frameon=False, loc="outside upper center", ncols=len(PARTS))
        figure.savefig(out, dpi=110)


def main() -> None:
    study = with_seed_0(numbers(STUDY))
    deviations = study.groupby(["algorithm", "seed_moves"])[list(MEASURES)].std(ddof=1).unstack()
    if "--figure" in sys.argv:
        draw(deviations, ROOT / "docs" / "figures" / "noise_floor.png")
    repetitions = study.groupby("seed_moves")["seed"].nunique()
    print("repetitions:", ", ".join(f"{name} {repetitions[part]}" for part, name in PARTS.items()))
    table = (
        deviations[["average", "worst_gap"]]
        .rename(columns=PARTS, level=1)
        .rename(columns=MEASURES, level=0)
    )
    table = table.reindex(columns=list(PARTS.values()), level=1)
    counts = above(TWICE[0], "worst_gap").reindex(table.index)
    for part in ("rounding", "seed"):
        table["leads above", part] = [
            "" if math.isnan(n) else f"{k:.0f} of {n:.0f}"
            for k, n in zip(counts[part], counts["leads"], strict=True)
        ]
    medians = deviations.median()
    for measure, title in MEASURES.items():
        print(
            f"{title}, median:",
            ", ".join(f"{name} {medians[measure, part]:.2f}" for part, name in PARTS.items()),
        )
    for entry in (TWICE[0], FOUR):
        for measure, title in MEASURES.items():
            total = above(entry, measure).sum()
            numbers_above = f"{total['rounding']} above rounding, {total['seed']} above a seed"
            print(f"{entry}, {title}: {total['leads']} leads, {numbers_above}")
    print(table.to_string(float_format="%.2f", na_rep=""))


if __name__ == "__main__":
    main()
