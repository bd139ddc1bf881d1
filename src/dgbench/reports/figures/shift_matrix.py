"""Shift between every two environments of a dataset, as two matrices."""

from __future__ import annotations

import numpy as np

from dgbench.reports.document import Figure
from dgbench.reports.figures.drawing import canvas, finish, heat, label_of
from dgbench.reports.labels import slug
from dgbench.reports.shift.shift_estimates import ShiftSetting
from dgbench.reports.shift.verdicts import value_line

_EACH = "each"
_MOST_NUMBERS = 12  # environments up to which cells hold numbers
_LETTERS = 16  # of a name that is shown


def shift_matrices(setting: ShiftSetting) -> list[Figure]:
    """One figure for each dataset whose every two environments were compared, if they are three or more."""
    if not setting.axes:
        return []
    titles = [line.title for line in setting.lines if line.identity["pairs"] == _EACH]
    return [figure for title in titles if (figure := _matrix(setting, title, setting.axes))]


def _matrix(setting: ShiftSetting, dataset: str, names: tuple[str, str]) -> Figure | None:
    own = setting.pairs[setting.pairs["dataset"] == dataset]
    present = {*own["p"], *own["q"]}
    envs = [env for env in setting.line_of(dataset).identity["given"] if env in present]
    if len(envs) < 3:
        return None
    values = np.full((2, len(envs), len(envs)), np.nan)
    for pair, p, q in zip(own["pair"], own["p"], own["q"], strict=True):
        for at, name in enumerate(names):
            line = value_line(setting, dataset, name, pair=pair)
            if line and {p, q} <= set(envs):
                row, column = envs.index(p), envs.index(q)
                values[at, row, column] = values[at, column, row] = line["value"]
    name = f"shift_matrix_{setting.name}_{slug(dataset)}"
    side = 0.5 if len(envs) <= _MOST_NUMBERS else 6 / len(envs)
    shown = [label_of(env if len(env) <= _LETTERS else f"{env[: _LETTERS - 1]}…") for env in envs]
    letters = 0.085 * max(map(len, shown))
    with canvas(name, max(5.0, 0.6 + letters + 2.2 * side * len(envs)), 0.6 + letters + side * len(envs)) as drawn:
        panels = drawn.subplots(1, 2, sharey=True)
        written = "{:.2f}".format if len(envs) <= _MOST_NUMBERS else None
        for axes, matrix, title in zip(panels, values, ("diversity shift", "correlation shift"), strict=True):
            heat(axes, matrix, written)
            axes.set_xticks(range(len(envs)), shown, rotation=90, fontsize=9)
            axes.set_title(title, fontsize=10)
        panels[0].set_yticks(range(len(envs)), shown, fontsize=9)
        caption = "Mean of the trials of every two environments, the same in both directions. Darker: further apart."
        return finish(drawn, name, f"Every two environments of {dataset}, {setting.title}", caption)
