"""How training length and the selected step move what measures are worth: ``python
docs/training_length.py``.

Draws docs/figures/training_length.png and prints its numbers: the rank correlation of two measures
with the ideal one, had training ended at each evaluated step; and which algorithm each measure
selects after the last. All follows from the rows of committed entries of results/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.correlation import correlation_difference, correlation_interval, spearman
from dgbench.analysis.evaluations import Choices, Records
from dgbench.analysis.selection import Last, Selection, TrainVal
from dgbench.reports.evaluation import evaluate
from dgbench.reports.published import published
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.drawing import MEASURE_STYLE, canvas, grid

ROOT = Path(__file__).resolve().parents[1]
#: ratio -> the parts of its entries' names after ``hwang2024_table1_scale1_length``
RATIOS: dict[str, tuple[str, ...]] = {
    "3:1": ("", "_arm"),
    "4:1": ("_ratio4", "_ratio4_arm"),
    "5:1": ("_ratio5", "_ratio5_arm"),
}
STEPS = range(500, 5001, 500)  #: evaluated ones
MEASURES = {"average": "average", "worst_gap": "worst+gap"}
SELECTIONS = (Last(), TrainVal())
PAPER = published("hwang2024_table1").values
PAPERS_CHOICE = published("hwang2024_table6").words
WITHOUT = "arm"  # its predictions see other images, see the entries
DRAWS = 10_000  #: of an interval; 1,000 leave its second digit to chance


@dataclass(frozen=True)
class Until(Selection):
    """What another selection would choose, had training ended after so many steps."""

    inner: Selection
    end: int  #: last step that counts

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def title(self) -> str:
        return f"{self.inner.title}, of {self.end:,} steps"

    def choose(self, records: Records) -> Choices:
        until_end = records.step <= self.end
        columns = ("run", "step", "env", "subset", "held_out", "accuracy", "seen")
        return self.inner.choose(
            replace(records, **{name: getattr(records, name)[until_end] for name in columns})
        )


def tables_of(studies: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split studies into measure -> algorithm x seed, the ideal one included, of seeds that have
    all algorithms.
    """
    wide = studies.pivot(index="algorithm", columns="seed", values=[*MEASURES, "ideal"])
    return {measure: wide[measure].dropna(axis="columns") for measure in (*MEASURES, "ideal")}


def collections() -> dict[str, Collection]:
    """Read the runs of each ratio from its entries."""
    entries = ROOT / "results" / "hwang2024_table1_scale1_length"
    return {
        ratio: collect([entries.with_name(entries.name + part) for part in RATIOS[ratio]])
        for ratio in RATIOS
    }


def correlations(collected: Mapping[str, Collection]) -> Iterator[dict[str, Any]]:
    """Correlate each measure with the ideal one by ratio, selection and length, with all algorithms
    and without one.
    """
    for ratio, collection in collected.items():
        for selection, end in product(SELECTIONS, STEPS):
            studies = evaluate(select_runs(collection, Until(selection, end))).studies
            for algorithms, chosen in (
                ("all", studies),
                ("without", studies[studies["algorithm"] != WITHOUT]),
            ):
                tables = tables_of(chosen)
                ideal = tables["ideal"]
                place = {"ratio": ratio, "selection": selection.name, "step": end}
                place |= {"algorithms": algorithms, "n": len(ideal)}
                for measure in MEASURES:
                    interval = correlation_interval(
                        tables[measure], ideal, np.random.default_rng(0), draws=DRAWS
                    )
                    seeds = [
                        spearman(tables[measure][seed].tolist(), ideal[seed].tolist())
                        for seed in ideal
                    ]
                    yield place | {"what": measure, "seeds": seeds} | vars(interval)
                two = (tables["worst_gap"], tables["average"])
                interval = correlation_difference(
                    *two, ideal, np.random.default_rng(0), draws=DRAWS
                )
                yield place | {"what": "difference"} | vars(interval)


def choices(collected: Mapping[str, Collection]) -> Iterator[dict[str, str]]:
    """Name the algorithm that each measure, its mean over seeds, selects by ratio and selection,
    and in the paper.
    """
    names = ["ideal", *MEASURES]
    for ratio, collection in collected.items():
        for selection in SELECTIONS:
            studies = evaluate(select_runs(collection, selection)).studies
            yield {
                "ratio": ratio,
                "step": selection.name,
                **studies.groupby("algorithm")[names].mean().idxmin(),
            }
        paper = PAPERS_CHOICE[f"sr_cmnist/1/{ratio}"]
        yield {
            "ratio": ratio,
            "step": "paper",
            **{name: paper[f"seed_average_{name}"] for name in names},
        }


def draw(lines: pd.DataFrame, out: Path) -> None:
    """Draw a picture per ratio and selection: correlations of all algorithms with intervals, the
    paper beside them.
    """
    shown = lines[lines["algorithms"] == "all"].set_index(["ratio", "selection"])
    with canvas("training_length", 9, 0.5 + 3.0 * len(RATIOS)) as figure:
        panels = figure.subplots(
            len(RATIOS), len(SELECTIONS), sharex=True, sharey=True, squeeze=False
        )
        for axes, (ratio, selection) in zip(panels.flat, product(RATIOS, SELECTIONS), strict=True):
            rows = shown.loc[(ratio, selection.name)]
            for shift, (measure, title) in enumerate(MEASURES.items()):
                color, marker, line = MEASURE_STYLE[measure]
                curve = rows[rows["what"] == measure]
                axes.fill_between(
                    curve["step"], curve["low"], curve["high"], color=color, alpha=0.12, linewidth=0
                )
                axes.plot(
                    curve["step"],
                    curve["estimate"],
                    marker=marker,
                    linestyle=line,
                    color=color,
                    label=title,
                )
                paper, x = (
                    PAPER[f"sr_cmnist/1/{ratio}"][f"spearman_{measure}"],
                    STEPS[-1] * (1.06 + 0.03 * shift),
                )
                axes.errorbar(
                    x,
                    paper.mean,
                    paper.error,
                    marker=marker,
                    color=color,
                    capsize=3,
                    markerfacecolor="none",
                )
            axes.axhline(0, color="gray", linewidth=0.8)
            axes.set_ylim(-1.05, 1.05)
            axes.set_title(f"ratio {ratio}, {rows['n'].max()} algorithms, {selection.title}")
            axes.xaxis.set_major_formatter("{x:,g}")
            grid(axes)
        for axes in panels[-1]:
            axes.set_xlabel("training steps")
        figure.supylabel("Spearman correlation with ideal", fontsize="medium")
        figure.legend(
            *axes.get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=2
        )
        figure.savefig(out, dpi=110)


def main() -> None:
    collected = collections()
    lines = pd.DataFrame(correlations(collected))
    draw(lines, ROOT / "docs" / "figures" / "training_length.png")
    for (ratio, algorithms), part in lines.groupby(["ratio", "algorithms"]):
        title = (
            f"ratio {ratio}, {'all algorithms' if algorithms == 'all' else f'without {WITHOUT}'}"
        )
        text = part.apply(
            lambda line: f"{line.estimate:+.2f} [{line.low:+.2f}, {line.high:+.2f}]", axis=1
        )
        print(
            f"{title}: Spearman correlation with the ideal measure, mean over seeds, 95% interval"
        )
        print(_by_step(part.assign(text=text)), end="\n\n")
    for ratio, part in lines[
        (lines["algorithms"] == "all") & (lines["what"] != "difference")
    ].groupby("ratio"):
        text = part["seeds"].map(lambda seeds: " ".join(f"{value:+.2f}" for value in seeds))
        print(
            f"ratio {ratio}, all algorithms: each seed\n{_by_step(part.assign(text=text))}",
            end="\n\n",
        )
    print(
        "algorithm that each measure selects, its mean over seeds, after the last step; the "
        "paper's Table 6"
    )
    print(pd.DataFrame(choices(collected)).rename(columns=MEASURES).to_string(index=False))


def _by_step(lines: pd.DataFrame) -> str:
    """Format the texts of some lines as a table: a line per step, a column per selection and
    measure.
    """
    table = lines.pivot(index="step", columns=["selection", "what"], values="text")
    return table.rename(columns=MEASURES, level="what").to_string()


if __name__ == "__main__":
    main()
