"""The picture of error against environment for every algorithm."""

from __future__ import annotations

from collections import defaultdict

from dgbench.reports.comparisons import Comparison
from dgbench.reports.document import Figure
from dgbench.reports.drawing import COLORS, DASHES, INK, canvas, finish, grid
from dgbench.reports.seed_statistics import mean, standard_deviation


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

    with canvas(name, 5.6, 3.9 + 0.18 * max(0, len(curves) // 3 - 1)) as drawn:
        axes = drawn.add_subplot()
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
                axes.fill_between(x, low, high, color=color, alpha=0.18 if len(curves) <= 6 else 0.07, linewidth=0)
        axes.set_ylim(0, min(100.0, axes.get_ylim()[1]))
        axes.plot(
            [place[env] for env in given if env in place], [0.0] * sum(env in place for env in given),
            linestyle="", marker="^", markersize=8, color=INK, clip_on=False, zorder=5, label="given environment",
        )  # fmt: skip
        if not numeric:
            axes.set_xticks(list(place.values()), order, rotation=45, ha="right")
        axes.set_xlabel("environment e" if numeric else "environment")
        axes.set_ylabel("error (%)")
        grid(axes)
        handles, labels = axes.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True))
        names = [*ranked, "given environment"]
        drawn.legend([found[n] for n in names], names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        title = f"Error in every environment ({how})"
        return finish(drawn, name, title, _caption(comparison))


def _caption(comparison: Comparison) -> str:
    count = len(comparison.seeds)
    seeds = f"mean over {count} seeds, band of one standard deviation" if count > 1 else "1 seed"
    return (
        f"Model trained on all given environments (triangles), {seeds}. The highest point of a curve is its ideal "
        "error, exactly so for one seed. The legend runs from the lowest to the highest."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
