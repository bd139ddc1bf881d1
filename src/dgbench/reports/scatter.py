"""Raw values of the measures against the ideal error (Hwang et al. 2024, Figure 5)."""

from __future__ import annotations

from dgbench.reports.document import Figure
from dgbench.reports.drawing import INK, MEASURE_STYLE, canvas, finish, grid
from dgbench.reports.surveys import Configuration, Survey

_SHOWN = {"worst_gap": "worst+gap", "average": "average"}


def scatter_figures(survey: Survey, name: str, how: str) -> list[Figure]:
    """One figure per size: a point per algorithm, seed and configuration, and the line of slope one."""
    figures = []
    for size, lines in survey.at_size().items():
        stem = f"scatter_{name}" + (f"_{size.replace('=', '')}" if size else "")
        drawn = scatter_figure(lines, stem, how, size)
        figures += [drawn] if drawn else []
    return figures


def scatter_figure(lines: list[Configuration], name: str, how: str, where: str) -> Figure | None:
    """Measure over ideal, both in percent; None where no study has both."""
    points: dict[str, list[tuple[float, float]]] = {}
    for measure in _SHOWN:
        points[measure] = []
        for line in lines:
            ideal = line.comparison.values("ideal")
            for algorithm, by_seed in line.comparison.values(measure).items():
                both = by_seed.keys() & ideal.get(algorithm, {}).keys()
                points[measure] += [(100 * ideal[algorithm][s], 100 * by_seed[s]) for s in sorted(both)]
    if not any(points.values()):
        return None
    with canvas(name, 5.0, 4.4) as drawn:
        axes = drawn.add_subplot()
        for measure, title in _SHOWN.items():
            color, marker, _ = MEASURE_STYLE[measure]
            x, y = ([p[i] for p in points[measure]] for i in (0, 1))
            axes.plot(x, y, marker=marker, color=color, linestyle="", markersize=5, alpha=0.6, label=title, mew=0)
        ends = [v for pairs in points.values() for pair in pairs for v in pair]
        low, high = max(0.0, min(ends) - 3), max(ends) + 3
        axes.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (4, 3)), label="slope one")
        axes.set_xlabel("ideal error (%)")
        axes.set_ylabel("measure (%)")
        grid(axes, "both")
        drawn.legend(loc="outside lower center", ncols=3, frameon=False)
        count = max(len(pairs) for pairs in points.values())
        caption = (
            f"{count} points per measure: one per algorithm, seed and configuration. On the dashed line a measure "
            "equals the ideal error; a flat cloud says that the measure does not see it."
        )
        title = f"Measures against the ideal error{f', {where}' if where else ''} ({how})"
        return finish(drawn, name, title, caption)
