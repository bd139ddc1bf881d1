"""The baseline against the truly best algorithm, as each measure sees them (Hwang et al. 2024, Figures 1, 8 to 11)."""

from __future__ import annotations

from dgbench.reports.document import Figure
from dgbench.reports.figures.drawing import COLORS, canvas, finish, grid, label_of, spread
from dgbench.reports.settings.over_seeds import mean, standard_deviation
from dgbench.reports.settings.study_values import seeds_of, selected_by, values
from dgbench.reports.suites.suites import Suite, SuiteLine

_PANELS = {"ideal": "(a) ideal", "worst_gap": "(b) worst+gap", "average": "(c) average"}


def baseline_figures(suite: Suite, baseline: str) -> list[Figure]:
    """One figure per size: error of the baseline and of the algorithm with the lowest ideal error, per setting.

    Settings without ideal errors for the baseline or without a choice are left out; the caption names them.
    """
    figures = []
    for size, lines in suite.at_size().items():
        drawn = _figure(
            suite, lines, f"baseline_{suite.name}" + (f"_{size.replace('=', '')}" if size else ""), baseline, size
        )
        figures += [drawn] if drawn else []
    return figures


def _figure(suite: Suite, lines: list[SuiteLine], name: str, baseline: str, size: str) -> Figure | None:
    shown: list[tuple[SuiteLine, str]] = []
    absent = []
    for line in lines:
        selected = selected_by(line.studies, "ideal", seeds_of(line.studies))
        if selected and values(line.studies, "ideal").get(baseline):
            shown.append((line, selected[0]))
        else:
            absent.append(line.label(without=suite.size_axis) or "all")
    if not shown:
        return None
    labels = [line.label(without=suite.size_axis) or line.label() for line, _ in shown]
    others = [axis for axis in suite.axes if axis != suite.size_axis]
    ticks = [line.values[others[0]] for line, _ in shown] if len(others) == 1 else labels
    with canvas(name, 5.6, 3.1) as drawn:
        panels = drawn.subplots(1, 3, sharey=True)
        offsets = spread(2, 0.24)
        for axes, (measure, title) in zip(panels, _PANELS.items(), strict=True):
            for who, (color, marker) in enumerate(zip(COLORS[:2], "so", strict=True)):
                by_seed = [values(line.studies, measure).get(best if who else baseline, {}) for line, best in shown]
                own = {at + offsets[who]: list(found.values()) for at, found in enumerate(by_seed) if found}
                axes.errorbar(
                    list(own), [100 * mean(each) for each in own.values()], fmt=marker, color=color, capsize=3,
                    yerr=[100 * (standard_deviation(each) or 0.0) for each in own.values()], markersize=7,
                    label=(label_of(baseline), "best by ideal")[who],
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
        return finish(drawn, name, f"{baseline} against the best algorithm{where}", caption)
