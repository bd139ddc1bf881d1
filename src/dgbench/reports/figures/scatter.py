"""Raw values of the measures against the ideal error (Hwang et al. 2024, Figure 5)."""

from __future__ import annotations

from dgbench.analysis.accuracy import mean
from dgbench.reports.document import Figure
from dgbench.reports.measuring.suites import Suite, SuiteLine
from dgbench.reports.render.drawing import INK, MEASURE_STYLE, canvas, end_labels, finish, grid

_SHOWN = {"worst_gap": "worst+gap", "average": "average"}


def scatter_figures(suite: Suite) -> list[Figure]:
    """One figure per size: a point per algorithm, seed and setting, and the line of slope one."""
    figures = []
    for size, lines in suite.at_size().items():
        stem = f"scatter_{suite.name}" + (f"_{size.replace('=', '')}" if size else "")
        drawn = scatter_figure(lines, stem, size)
        figures += [drawn] if drawn else []
    return figures


def scatter_figure(lines: list[SuiteLine], name: str, where: str) -> Figure | None:
    """Measure over ideal, both in percent; None where no study has both."""
    points: dict[str, list[tuple[float, float]]] = {}
    for measure in _SHOWN:
        points[measure] = []
        for line in lines:
            both = 100 * line.studies[["ideal", measure]].dropna()
            points[measure] += zip(both["ideal"].tolist(), both[measure].tolist(), strict=True)
    if not any(points.values()):
        return None
    every = [pair for pairs in points.values() for pair in pairs]
    limits = [(max(0.0, min(own) - 3), max(own) + 3) for own in zip(*every, strict=True)]
    with canvas(name, 6.0, 4.2) as drawn:
        axes = drawn.add_subplot(xlim=limits[0], ylim=limits[1])
        ends = {}
        for measure, title in _SHOWN.items():
            color, marker, _ = MEASURE_STYLE[measure]
            x, y = ([p[i] for p in points[measure]] for i in (0, 1))
            axes.plot(x, y, marker=marker, color=color, linestyle="", markersize=5, alpha=0.6, mew=0)
            right = sorted(points[measure])[-len(x) // 5 :] if x else []
            if right:
                ends[title] = (limits[0][1], mean([value for _, value in right]))
        low, high = (pick(limits[0][at], limits[1][at]) for at, pick in enumerate((max, min)))
        if low < high:
            axes.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (4, 3)))
            ends["measure = ideal"] = (high, high)
        axes.set_xlabel("ideal error (%)")
        axes.set_ylabel("measure (%)")
        grid(axes, "both")
        end_labels(axes, ends, {title: MEASURE_STYLE[measure][0] for measure, title in _SHOWN.items()})
        count = max(len(pairs) for pairs in points.values())
        caption = (
            f"{count} points per measure: one per algorithm, seed and setting. On the dashed line a measure "
            "equals the ideal error; a flat cloud says that the measure does not see it."
        )
        title = f"Measures against the ideal error{f', {where}' if where else ''}"
        return finish(drawn, name, title, caption)
