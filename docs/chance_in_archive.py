"""How many leaders of the archive beat a blind guess: ``python docs/chance_in_archive.py`` prints a
table.

For each entry of results/, each of its settings and each measure: the algorithm with the lowest
mean over seeds, among those that have the measure in every seed, beside the same measure of a blind
guess. All follows from committed rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dgbench.plan.measures import choose
from dgbench.reports.chance import BLIND_GUESS
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.frames import selection_named
from dgbench.reports.over_seeds import complete, means
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs

RESULTS = Path(__file__).resolve().parents[1] / "results"

MEASURES = {measure.name: measure.title for measure in choose().of_runs}


def leaders(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield a line per setting and measure: the lowest mean, the blind guess's, and how many
    algorithms are below.
    """
    for setting in evaluation.settings:
        studies = evaluation.of(setting.title).studies
        if setting.chance is None:
            raise ValueError(
                f"the number of classes of {setting.title} is not known; name it in "
                "dgbench.reports.chance"
            )
        for measure in MEASURES:
            level = means(complete(studies, [measure])[measure])
            if len(level) < 2:
                continue
            guess = setting.chance.levels(measure)[BLIND_GUESS]
            lowest = min(level.values())
            ideal = means(complete(studies, ["ideal"])["ideal"])
            yield {
                "error": setting.chance.error,
                "ideal": ideal.get(min(level, key=level.__getitem__)),
                "dataset": f"{setting.identity['dataset']}, K = {setting.chance.n_classes}",
                "measure": measure,
                "lowest": lowest,
                "guess": guess,
                "beats": lowest < guess,
                "algorithms": len(level),
                "below": sum(value < guess for value in level.values()),
            }


def of_archive() -> pd.DataFrame:
    """Collect the lines of :func:`leaders` of all entries, with the name of each."""
    parts = []
    for file in sorted(RESULTS.glob("*/entry.yaml")):
        selection = selection_named(yaml.safe_load(file.read_text(encoding="utf-8"))["selection"])
        runs = collect(file.with_name("rows.jsonl.xz"), repeated=True)
        evaluation = evaluate(select_runs(runs, selection, "code"), "code")
        parts.append(pd.DataFrame(leaders(evaluation)).assign(entry=file.parent.name))
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def counted(lines: pd.DataFrame, by: str) -> pd.DataFrame:
    """Count, by a column and measure, the leaders that beat the blind guess: ``1 of 3``."""
    groups = lines.groupby([by, "measure"], sort=False)["beats"].agg(["sum", "size"])
    words = groups["sum"].astype(str) + " of " + groups["size"].astype(str)
    return words.unstack().reindex(columns=list(MEASURES)).rename(columns=MEASURES).fillna("")


def markdown(table: pd.DataFrame, first: str) -> str:
    """Format a table of words for a page."""
    head = [first, *map(str, table.columns)]
    rows = [
        [str(name), *map(str, values)]
        for name, values in zip(table.index, table.to_numpy().tolist(), strict=True)
    ]
    lines = [head, ["---", *["--:"] * len(table.columns)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    lines = of_archive()
    print(markdown(counted(lines, "entry"), "entry"))
    print(markdown(counted(lines.assign(all="all"), "all"), "entries"))
    print(markdown(counted(lines, "dataset"), "dataset"))
    sums = lines.groupby(["dataset", "measure"], sort=False)[["below", "algorithms"]].sum()
    words = (sums["below"].astype(str) + " of " + sums["algorithms"].astype(str)).unstack()
    print(
        markdown(
            words.reindex(columns=list(MEASURES)).rename(columns=MEASURES).fillna(""), "algorithms"
        )
    )
    known = lines[lines["ideal"].notna()]
    for measure, title in MEASURES.items():
        judged = known[known["measure"] == measure]
        lost = int((~judged["beats"]).sum())
        better = int((judged["ideal"] < judged["error"]).sum())
        print(
            f"{title}, of {len(judged)} settings with an ideal error: a blind guess is as low in "
            f"{lost}; the algorithm selected has a lower ideal error than a blind guess in "
            f"{better}, on average {judged['ideal'].mean():.1%}"
        )


if __name__ == "__main__":
    main()
