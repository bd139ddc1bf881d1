"""Draw the figures of README.md: ``python docs/readme_figures.py``.

Two figures come from committed rows: the error against e (docs/figures/error_against_e.png) and the
ranks of algorithms by each measure (docs/figures/ranks_by_measure.png), whose numbers are printed.
The third, docs/figures/pipeline.svg, shows the way from a configuration to a report; it has a
background of its own, so that it can be read on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

import dgbench
from dgbench.analysis import spearman
from dgbench.reports.render.drawing import COLORS, GRAY, INK, canvas, grid, pushed_apart

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
FOUR_ALGORITHMS = ROOT / "results" / "sr_cmnist_14_four_algorithms"
TABLE_1 = ROOT / "results" / "hwang2024_table1_scale1"
PAPER_NAMES = {
    "erm": "ERM",
    "irm": "IRM",
    "vrex": "VREx",
    "group_dro": "GroupDRO",
    "arm": "ARM",
    "cdann": "CDANN",
    "dann": "DANN",
    "mmd": "MMD",
    "coral": "CORAL",
    "mtl": "MTL",
    "mixup": "Mixup",
    "sag_net": "SagNet",
    "mldg": "MLDG",
    "rsc": "RSC",
}
#: the same algorithm has the same color in both figures
COLOR_OF = dict(zip(("erm", "irm", "vrex", "group_dro", "arm"), COLORS, strict=False))
LETTER = 3.0  #: height of a name in the figure of errors, in percent points of its axis
#: columns of the figure of ranks, the truth in the middle
RANKED = {"average": "average", "ideal": "ideal (the truth)", "worst_gap": "worst+gap"}
CASE = ["variant.ratio", "seed"]  #: within which algorithms are ranked
TRULY_BEST = 4  #: algorithms in color


def errors_everywhere() -> pd.DataFrame:
    """Read the error in each of 101 environments of the models trained on all given ones.

    Returns: a line for each algorithm and e, with mean, min and max over seeds in percent.
    """
    frame = dgbench.results(FOUR_ALGORITHMS)
    rows = frame[(frame["fold"] == "full") & (frame["subset"] == "test")]
    percent = rows.assign(e=rows["env"].astype(float), error=100 * rows["error"])
    errors = percent.groupby(["label", "e"])["error"]
    return errors.agg(["mean", "min", "max"]).reset_index()


def draw_errors(lines: pd.DataFrame, out: Path) -> None:
    """Draw the error of four algorithms against e, each name at the end of its line."""
    with canvas("error_against_e", 8.0, 4.1) as figure:
        axes = figure.subplots()
        for name, line in lines.groupby("label"):
            color = COLOR_OF[str(name)]
            axes.fill_between(line["e"], line["min"], line["max"], color=color, alpha=0.15, lw=0)
            axes.plot(line["e"], line["mean"], color=color, linewidth=2.2)
        last = lines[lines["e"] == 1]
        ends = dict(zip(last["label"].astype(str), last["mean"].astype(float), strict=True))
        for name, place in pushed_apart(ends, LETTER, 0, 60).items():
            color = COLOR_OF[name]
            axes.text(1.02, place, PAPER_NAMES[name], color=color, fontweight="bold", va="center")
        erm = lines[(lines["label"] == "erm") & (lines["e"] == 0)]["mean"].item()
        axes.annotate(
            "here the color says the opposite of what it says at 0.8 to 0.9:\n"
            "ERM, the best by the average, is wrong every second time",
            (0.005, erm),
            (0.15, 57.5),
            va="center",
            arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkB": 4},
        )
        given = dgbench.results(FOUR_ALGORITHMS)["given"].iloc[0]
        places = [float(e) for e in given]
        axes.plot(places, [0.8] * len(places), marker="^", color=INK, linestyle="", markersize=9)
        axes.annotate("the four given environments", (0.46, 2.2), ha="center", color=INK)
        axes.set_xlim(-0.03, 1.0)
        axes.set_ylim(0, 62)
        axes.set_xlabel("environment e: how often color and label disagree")
        axes.set_ylabel("error (%)")
        grid(axes)
        figure.savefig(out, dpi=130, facecolor="white")


def mean_ranks() -> pd.DataFrame:
    """Rank the algorithms of Table 1 by each measure, in each ratio and seed; average the ranks.

    Returns: algorithm x measure, 1 is the best.
    """
    studies = dgbench.measures(dgbench.results(TABLE_1))
    ranks = studies[["label", *CASE]].copy()
    for measure in RANKED:
        ranks[measure] = studies.groupby(CASE)[measure].rank()
    return ranks.groupby("label")[list(RANKED)].mean()


def correlations_with_ideal(measures: Sequence[str]) -> dict[str, float]:
    """Correlate measures with the ideal one (Spearman): the mean over ratios and seeds."""
    studies = dgbench.measures(dgbench.results(TABLE_1))
    means = {}
    for measure in measures:
        values = [
            spearman(case[measure].tolist(), case["ideal"].tolist())
            for _, case in studies.groupby(CASE)
        ]
        means[measure] = sum(values) / len(values)
    return means


def draw_ranks(ranks: pd.DataFrame, correlations: dict[str, float], out: Path) -> None:
    """Draw the rank of each algorithm by the average, the ideal and worst+gap, joined by lines."""
    by_ideal = ranks["ideal"].sort_values()
    colors = {name: COLOR_OF[name] for name in by_ideal.index[:TRULY_BEST]}
    # places 1 to n, in the order of the mean ranks: mean ranks themselves lie on each other
    places = ranks.rank(method="first")
    with canvas("ranks_by_measure", 8.0, 5.2) as figure:
        axes = figure.subplots()
        for name, place in places.iterrows():
            color = colors.get(str(name), GRAY)
            best = name in colors
            axes.plot(
                range(len(RANKED)),
                place,
                color=color,
                linewidth=2.4 if best else 1.0,
                marker="o",
                markersize=6 if best else 4,
                zorder=2 if best else 1,
            )
            style = {"color": color if best else INK, "va": "center"}
            weight = "bold" if best else "normal"
            title = PAPER_NAMES[str(name)]
            axes.text(-0.05, place["average"], title, ha="right", fontweight=weight, **style)
            axes.text(2.05, place["worst_gap"], title, ha="left", fontweight=weight, **style)
        for x, measure in ((0.5, "average"), (1.5, "worst_gap")):
            text = f"rank correlation {correlations[measure]:+.2f}"
            axes.text(x, 0.05, text.replace("-", "\N{MINUS SIGN}"), ha="center", fontsize=10)
        _label_ranks(axes, len(ranks))
        figure.savefig(out, dpi=130, facecolor="white")


def _label_ranks(axes: Any, n_algorithms: int) -> None:
    axes.set_ylim(n_algorithms + 0.7, -0.6)
    axes.set_xlim(-0.45, 2.45)
    axes.set_xticks(range(len(RANKED)), list(RANKED.values()), fontsize=12)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([1, n_algorithms], ["best", "last"])
    for side in ("left", "bottom", "top"):
        axes.spines[side].set_visible(False)


@dataclass(frozen=True)
class Box:
    """One station of the pipeline: its place in pixels, title and two lines below it."""

    x: int
    y: int
    title: str
    lines: tuple[str, str]
    kind: str = "step"  #: step, or entrance


WIDTH, HEIGHT = 208, 96  #: of a box, pixels
BOXES = (
    Box(16, 16, "configuration", ("conf/, one word a choice:", "algorithm=vrex seed=0")),
    Box(276, 16, "plan", ("studies, models, hours:", "train.py ... plan=true")),
    Box(536, 16, "models", ("N folds, and one on all:", "train.py, killed or not")),
    Box(
        16,
        172,
        "results of others",
        ("CSV, LaTeX, predictions,", "logs of DomainBed, SWAD"),
        kind="entrance",
    ),
    Box(276, 172, "rows", ("every counted error,", "the only result")),
    Box(536, 172, "report", ("verdict, tables, figures:", "HTML, LaTeX, CSV")),
)
#: from the side of a box to that of the next
ARROWS = (
    "M224 64H270",
    "M484 64H530",
    "M640 112V142H380V166",
    "M224 220H270",
    "M484 220H530",
)
STYLE = (
    ".page{fill:#fff}.step{fill:#eef4fc;stroke:#1f5fa8}.entrance{fill:#fff6e0;stroke:#a87612}"
    ".title{fill:#18222f;font-weight:600;font-size:17px}.line{fill:#36435a;font-size:14.5px}"
    ".arrow{stroke:#33415a;stroke-width:2;fill:none;marker-end:url(#head)}.head{fill:#33415a}"
    "@media (prefers-color-scheme:dark){.page{fill:#0d1117}.step{fill:#16263d;stroke:#5b9be0}"
    ".entrance{fill:#33290f;stroke:#d2a03a}.title{fill:#f0f3f7}.line{fill:#c3ccd8}"
    ".arrow{stroke:#aab6c6}.head{fill:#aab6c6}}"
)
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def pipeline() -> str:
    """Write the SVG of the pipeline: what a command goes through, and where others enter."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 284" font-family="{FONT}">',
        "<title>From a configuration to a report</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>',
        '<rect class="page" width="760" height="284" rx="10"/>',
    ]
    parts += [f'<path class="arrow" d="{path}"/>' for path in ARROWS]
    for box in BOXES:
        parts += _box(box)
    return "\n".join([*parts, "</svg>", ""])


def _box(box: Box) -> list[str]:
    middle = box.x + WIDTH // 2
    first, second = box.lines
    return [
        f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" '
        'rx="8" stroke-width="1.5"/>',
        _text(middle, box.y + 30, "title", box.title),
        _text(middle, box.y + 56, "line", first),
        _text(middle, box.y + 78, "line", second),
    ]


def _text(x: int, y: int, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def main() -> None:
    """Draw all three."""
    lines = errors_everywhere()
    draw_errors(lines, FIGURES / "error_against_e.png")
    ranks = mean_ranks()
    correlations = correlations_with_ideal(["average", "worst", "gap", "worst_gap"])
    draw_ranks(ranks, correlations, FIGURES / "ranks_by_measure.png")
    (FIGURES / "pipeline.svg").write_text(pipeline())
    at_zero = lines[lines["e"] == 0].set_index("label")["mean"]
    print(f"error at e = 0, mean over seeds (%):\n{at_zero.round(1).to_string()}")
    print(f"mean rank over 3 ratios and 3 seeds:\n{ranks.sort_values('ideal').round(1)}")
    print("rank correlation with the ideal, mean over ratios and seeds:")
    print(pd.Series(correlations).round(2).to_string())


if __name__ == "__main__":
    main()
