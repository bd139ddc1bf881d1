"""The baseline against the truly best algorithm, as each measure sees them (Hwang et al. 2024, Figures 1, 8 to 11)."""

from __future__ import annotations

from dgbench.reports.document import Figure
from dgbench.reports.drawing import COLORS, canvas, finish, grid, spread
from dgbench.reports.seed_statistics import mean, standard_deviation
from dgbench.reports.survey_picks import picked
from dgbench.reports.surveys import Configuration, Survey

_PANELS = {"ideal": "(a) ideal", "worst_gap": "(b) worst+gap", "average": "(c) average"}


def baseline_figures(survey: Survey, name: str, how: str, baseline: str) -> list[Figure]:
    """One figure per size: error of the baseline and of the algorithm with the lowest ideal error, per configuration.

    Configurations without ideal errors for the baseline or without a choice are left out; the caption names them.
    """
    figures = []
    for size, lines in survey.at_size().items():
        drawn = _figure(
            survey, lines, f"baseline_{name}" + (f"_{size.replace('=', '')}" if size else ""), how, baseline, size
        )
        figures += [drawn] if drawn else []
    return figures


def _figure(survey: Survey, lines: list[Configuration], name: str, how: str, baseline: str, size: str) -> Figure | None:
    shown: list[tuple[Configuration, str]] = []
    absent = []
    for line in lines:
        pick = picked(line, "ideal", line.comparison.seeds)
        if pick and line.comparison.values("ideal").get(baseline):
            shown.append((line, pick[0]))
        else:
            absent.append(line.label(without=survey.size_axis) or "all")
    if not shown:
        return None
    labels = [line.label(without=survey.size_axis) or line.label() for line, _ in shown]
    others = [axis for axis in survey.axes if axis != survey.size_axis]
    ticks = [line.values[others[0]] for line, _ in shown] if len(others) == 1 else labels
    with canvas(name, 5.6, 3.1) as drawn:
        panels = drawn.subplots(1, 3, sharey=True)
        offsets = spread(2, 0.24)
        for axes, (measure, title) in zip(panels, _PANELS.items(), strict=True):
            for who, (color, marker) in enumerate(zip(COLORS[:2], "so", strict=True)):
                for at, (line, best) in enumerate(shown):
                    values = list(line.comparison.values(measure).get(best if who else baseline, {}).values())
                    if not values:
                        continue
                    deviation = 100 * (standard_deviation(values) or 0.0)
                    axes.errorbar(
                        [at + offsets[who]], [100 * mean(values)], yerr=[deviation], fmt=marker, color=color, capsize=3,
                        markersize=7, label=(baseline, "best by ideal")[who] if at == 0 else None,
                    )  # fmt: skip
            axes.set_title(title)
            axes.set_xticks(range(len(shown)), ticks, rotation=30 if max(map(len, ticks)) > 4 else 0)
            if len(others) == 1:
                axes.set_xlabel(others[0])
            axes.set_xlim(-0.6, len(shown) - 0.4)
            grid(axes)
        panels[0].set_ylabel("error (%)")
        panels[0].set_ylim(bottom=0)
        handles, names = panels[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
        best_names = ", ".join(f"{label}: {best}" for label, (_, best) in zip(labels, shown, strict=True))
        left_out = f" Left out for want of ideal errors: {'; '.join(absent)}." if absent else ""
        caption = (
            f"Best by ideal: {best_names}. Mean and standard deviation over seeds; worst+gap may exceed 100%. "
            f"A measure that tells the truth shows the distance of panel (a).{left_out}"
        )
        where = f", {size}" if size else ""
        return finish(drawn, name, f"{baseline} against the best algorithm{where} ({how})", caption)
