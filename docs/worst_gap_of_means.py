"""Both worst+gaps of every entry of the archive: of a training run, and of mean errors.

    python docs/worst_gap_of_means.py

Writes ``docs/data/worst_gap_of_means.csv``, a line for each entry, setting and algorithm, and
prints the tables of docs/concepts/worst_gap.md: by how much the noise of seeds raises worst+gap,
whose place changes, and which of the two predicts the ideal better.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from dgbench.analysis import select, spearman
from dgbench.analysis.selection import Last
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.measuring.expected import expected_measures
from dgbench.reports.over_seeds import by_seed, seeds_of
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.seeding import ALL

RESULTS = Path("results")
FILE = Path("docs/data/worst_gap_of_means.csv")
OF_RUN, OF_MEANS = "of a run", "of mean errors"


def settings_of(entry: Path) -> list[Evaluation]:
    """Evaluate the settings of an entry that have worst+gap of two algorithms and two seeds or
    more.
    """
    evaluation = evaluate(select_runs(collect([entry]), Last(), "code"), "code")
    parts = [evaluation.of(setting.title) for setting in evaluation.settings]
    return [
        part
        for part in parts
        if part.settings[0].identity["seed_moves"] == ALL
        and len(by_seed(part.studies, "worst_gap")) > 1
        and len(seeds_of(part.studies)) > 1
    ]


def lines_of(entry: str, setting: Evaluation) -> pd.DataFrame:
    """List both worst+gaps, and both ideals if they are known, of algorithms of a setting."""
    worst_gap = expected_measures(setting, setting.measures.named("worst_gap"))
    ideal = expected_measures(setting, setting.measures.named("ideal"))
    deviation = by_seed(setting.studies, "worst_gap").std(axis=1)
    seeds = by_seed(setting.studies, "worst_gap").notna().sum(axis=1)
    lines = [
        {
            "entry": entry,
            "setting": setting.settings[0].title,
            "algorithm": name,
            "seeds": int(seeds[name]),
            OF_RUN: estimate.of_a_run,
            OF_MEANS: estimate.value,
            "standard error": deviation[name] / np.sqrt(seeds[name]),
            "ideal of a run": ideal[name].of_a_run if name in ideal else np.nan,
            "ideal of mean errors": ideal[name].value if name in ideal else np.nan,
        }
        for name, estimate in worst_gap.items()
        if seeds[name] > 1
    ]
    frame = pd.DataFrame(lines)
    for column in (OF_RUN, OF_MEANS):
        frame[f"place {column}"] = frame[column].rank(method="min").astype(int)
    return frame


def raised(frame: pd.DataFrame) -> None:
    """Print for each entry and setting by how much noise raises worst+gap, and its effect."""
    heads = ["entry", "algorithms, seeds", "raised by, mean (largest)", "over 1 standard error"]
    heads += ["places changed", "leader of a run", "of mean errors"]
    print(f"| {' | '.join(heads)} |")
    print("|---|--:|--:|--:|--:|---|---|")
    for (entry, setting), lines in frame.groupby(["entry", "setting"], sort=False):
        several = frame[frame["entry"] == entry]["setting"].nunique() > 1
        difference = 100 * (lines[OF_RUN] - lines[OF_MEANS])
        over = int((lines[OF_RUN] - lines[OF_MEANS] > lines["standard error"]).sum())
        changed = int((lines[f"place {OF_RUN}"] != lines[f"place {OF_MEANS}"]).sum())
        firsts = [lines.loc[lines[column].idxmin(), "algorithm"] for column in (OF_RUN, OF_MEANS)]
        name = f"{entry}: {setting.split(', ')[0]}" if several else str(entry)
        cells = [
            name,
            f"{len(lines)}, {lines['seeds'].max()}",
            (
                f"{difference.mean():.1f} ({difference.max():.1f}, "
                f"{lines.loc[difference.idxmax(), 'algorithm']})"
            ),
            str(over),
            str(changed),
            *firsts,
        ]
        print(f"| {' | '.join(cells)} |")


def predicts(frame: pd.DataFrame) -> None:
    """Print how well each worst+gap orders algorithms by their ideal error, and what selecting by
    it costs.
    """
    print(
        "\n| entry | Spearman, of a run | of mean errors | cost of selecting by it (points) | of "
        "mean errors |"
    )
    print("|---|--:|--:|--:|--:|")
    sums: dict[str, list[float]] = {column: [] for column in (OF_RUN, OF_MEANS)}
    for (entry, _), lines in frame.dropna().groupby(["entry", "setting"], sort=False):
        if len(lines) < 3:
            continue
        ideal = dict(zip(lines["algorithm"], lines["ideal of mean errors"], strict=True))
        rhos, costs = [], []
        for column in (OF_RUN, OF_MEANS):
            values: Mapping[str, float] = dict(zip(lines["algorithm"], lines[column], strict=True))
            rhos.append(spearman(values, ideal))
            costs.append(100 * (ideal[select(values)[0]] - min(ideal.values())))
            sums[column].append(rhos[-1])
        cells = [str(entry), *(f"{rho:.2f}" for rho in rhos), *(f"{cost:.1f}" for cost in costs)]
        print(f"| {' | '.join(cells)} |")
    run, of_means = (np.array(sums[column]) for column in (OF_RUN, OF_MEANS))
    higher = int((of_means > run + 1e-9).sum())
    lower = int((of_means < run - 1e-9).sum())
    print(
        f"\nOf {len(run)} settings the correlation of mean errors is higher in {higher} and lower "
        f"in {lower}; mean {run.mean():.2f} of a run, {of_means.mean():.2f} of mean errors."
    )


def main() -> None:
    entries = sorted(path.parent for path in RESULTS.glob("*/entry.yaml"))
    parts = [lines_of(entry.name, setting) for entry in entries for setting in settings_of(entry)]
    frame = pd.concat([part for part in parts if len(part) > 1], ignore_index=True)
    frame.to_csv(FILE, index=False, float_format="%.6f")
    raised(frame)
    predicts(frame)


if __name__ == "__main__":
    main()
