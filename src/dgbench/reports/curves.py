"""The picture of error against environment for every algorithm."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from typing import Any

from dgbench.reports.comparisons import Comparison
from dgbench.reports.document import Figure
from dgbench.reports.seed_statistics import mean, standard_deviation

# Okabe & Ito's palette less yellow and black: told apart by colour-blind readers, visible on light and dark pages
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_INK = "#1c2024"  # becomes currentColor in the SVG


def error_curves(comparison: Comparison, name: str, how: str) -> Figure | None:
    """Error of the model trained on all given environments in every environment, mean and band over seeds.

    Returns:
        the figure, or None when no study has its ``full`` fold.
    """
    curves: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for study in comparison.studies:
        for env, error in study.everywhere.items():
            curves[study.algorithm][env].append(error)
    if not curves:
        return None
    environments = {env for curve in curves.values() for env in curve}
    given = [str(env) for env in comparison.identity["given"]]
    numeric = all(_is_number(env) for env in environments)
    order = sorted(environments, key=float) if numeric else [*given, *sorted(environments - set(given))]
    place = {env: float(env) if numeric else float(i) for i, env in enumerate(order)}

    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    style: dict[Any, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 11, "font.family": "sans-serif",
        "text.color": _INK, "axes.edgecolor": _INK, "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
        "axes.spines.top": False, "axes.spines.right": False,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        canvas = Canvas(figsize=(5.6, 3.9), layout="constrained")
        FigureCanvasAgg(canvas)
        axes = canvas.add_subplot()
        ranked = sorted(curves, key=lambda a: (max(mean(errors) for errors in curves[a].values()), a))
        for number, algorithm in enumerate(sorted(curves)):
            curve = curves[algorithm]
            envs = [env for env in order if env in curve]
            x = [place[env] for env in envs]
            y = [100 * mean(curve[env]) for env in envs]
            spread = [100 * (standard_deviation(curve[env]) or 0.0) for env in envs]
            color, dash = COLORS[number % len(COLORS)], DASHES[number // len(COLORS) % len(DASHES)]
            axes.plot(x, y, color=color, linestyle=dash, linewidth=1.8, marker="" if numeric else "o", label=algorithm)
            if any(spread):
                low, high = (
                    [a - b for a, b in zip(y, spread, strict=True)],
                    [a + b for a, b in zip(y, spread, strict=True)],
                )
                axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
        axes.set_ylim(0, min(100.0, axes.get_ylim()[1]))
        axes.plot(
            [place[env] for env in given if env in place], [0.0] * sum(env in place for env in given),
            linestyle="", marker="^", markersize=8, color=_INK, clip_on=False, zorder=5, label="given environment",
        )  # fmt: skip
        if not numeric:
            axes.set_xticks(list(place.values()), order, rotation=45, ha="right")
        axes.set_xlabel("environment e" if numeric else "environment")
        axes.set_ylabel("error (%)")
        axes.grid(axis="y", color=_INK, alpha=0.15, linewidth=0.6)
        handles, labels = axes.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True))
        names = [*ranked, "given environment"]
        canvas.legend([found[n] for n in names], names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        title = f"Error in every environment ({how})"
        return Figure(name, title, _caption(comparison), _inline_svg(canvas), _png(canvas))


def _caption(comparison: Comparison) -> str:
    count = len(comparison.seeds)
    seeds = f"mean over {count} seeds, band of one standard deviation" if count > 1 else "1 seed"
    return (
        f"Model trained on all given environments (triangles), {seeds}. The highest point of a curve is its ideal "
        "error, exactly so for one seed. The legend runs from the lowest to the highest."
    )


def _png(canvas: object) -> bytes:
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png", dpi=160)  # type: ignore[attr-defined]
    return buffer.getvalue()


def _inline_svg(canvas: object) -> str:
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})  # type: ignore[attr-defined]
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", text)
    return text.replace(_INK, "currentColor")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
