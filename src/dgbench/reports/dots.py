"""A dot with its interval for every algorithm, best on top: the first picture of every ranking.

Beside a dot stand its value and how the seeds judge it; small dots show what the value summarizes,
such as the environments, in a panel with a scale of its own.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from dgbench.analysis.accuracy import mean, mean_interval
from dgbench.reports.chance import BLIND_GUESS
from dgbench.reports.document import Figure
from dgbench.reports.over_seeds import line_values
from dgbench.reports.render.drawing import (
    COLORS,
    DASHED,
    GRAY,
    INK,
    canvas,
    finish,
    grid,
    label_of,
    within_reach,
)
from dgbench.reports.standing import Verdict
from dgbench.reports.tables import decimal

WIDTH = 5.6  #: inches, which a phone shows whole
LINE = 0.2  #: inches for each algorithm with a name of one line
LETTERS = 24  #: longer names are broken at spaces
_REACH = 0.5  # of what the dots span, by which intervals may widen the picture
Kind = Literal["open", "worse", "untested"]  #: may be the best, is not the best, not compared
_STYLES: dict[Kind, dict[str, Any]] = {
    "open": {"color": COLORS[0]},
    "worse": {"color": GRAY},
    "untested": {"color": INK, "markerfacecolor": "none"},
}
_MARKS = re.compile(r"[^_./-]*[_./-]|[^_./-]+")  # parts of a word, each with the mark behind it


@dataclass(frozen=True)
class Dot:
    """The line of an algorithm, in the unit of the axis."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    verdict: str = ""
    kind: Kind = "open"
    parts: Sequence[float] = ()  #: what the value summarizes, e.g. the error in each environment


@dataclass(frozen=True)
class Axis:
    """What a panel shows."""

    title: str  #: with its unit
    chance: float | None = None  #: a blind guess; None where it is not known
    limits: tuple[float, float] = (-1.0, 101.0)  #: beyond which there are no values
    places: int = 1  #: decimal places of the values that are written


@dataclass(frozen=True)
class Picture:
    """Name and text of a figure of dots, and its panels."""

    name: str
    title: str
    caption: str
    axis: Axis
    parts: Axis | None = None  #: of the small dots; None leaves them out


def dot_figure(picture: Picture, dots: Sequence[Dot]) -> Figure:
    """Draw a line for each algorithm: dot, interval, value, verdict, and the small dots behind it.

    Args:
        picture: its texts and axes.
        dots: from top to bottom, one or more.
    """
    places, height = places_of([dot.name for dot in dots])
    has_parts = picture.parts is not None and any(dot.parts for dot in dots)
    with canvas(picture.name, WIDTH, 0.8 + LINE * height) as drawn:
        if has_parts:
            panels = list(drawn.subplots(1, 2, sharey=True, width_ratios=(2, 1.2)))
        else:
            panels = [drawn.add_subplot()]
        main = panels[0]
        is_cut = draw_dots(main, dots, picture.axis.limits)
        caption = picture.caption + on_cut(is_cut) + draw_chance([main], [picture.axis.chance], 1.0)
        _write_beside(main, dots, places, picture.axis.places)
        main.set_xlabel(picture.axis.title, fontsize=9)
        if picture.parts is not None and has_parts:
            _draw_parts(panels[1], dots, places, picture.parts)
        return finish(drawn, picture.name, picture.title, caption)


def dots_of(
    values: pd.DataFrame,
    level: Mapping[str, float],
    verdict: Verdict | None,
    parts: Mapping[str, Sequence[float]] | None = None,
) -> list[Dot]:
    """Make the dots of a matrix of algorithm x seed, in percent.

    Args:
        values: fractions, from which the 95 % t interval of each dot is computed.
        level: algorithm -> the mean that ranks it, from top to bottom.
        verdict: of the seeds; None where nothing is compared.
        parts: algorithm -> fractions that small dots show.
    """
    dots = []
    for name, value in level.items():
        seeds = line_values(values, name)
        interval = None
        if len(seeds) > 1 and abs(mean(seeds) - value) < 1e-9:
            ends = mean_interval(seeds)
            interval = (100 * ends.low, 100 * ends.high)
        word = ""
        kind: Kind = "open"
        if verdict is not None:
            kind = kind_of(verdict, name)
            if verdict.seeds > 1:  # one seed judges nothing
                word = beside(verdict, name)
        small = [100 * part for part in (parts or {}).get(name, ())]
        dots.append(Dot(name, 100 * value, interval, word, kind, small))
    return dots


def beside(verdict: Verdict, name: str) -> str:
    """Write how an algorithm stands, as it stands beside its dot."""
    return verdict.remarks.get(name, verdict.word(name))


def kind_of(verdict: Verdict, name: str) -> Kind:
    """Tell whether an algorithm may be the best, is not the best, or lacks seeds of the others."""
    if name in verdict.remarks:
        return "untested"
    is_open = name in verdict.leaders.names or name in verdict.open_to
    return "open" if is_open and name not in verdict.beaten_by else "worse"


def draw_dots(
    axes: Any,
    dots: Sequence[Dot],
    limits: tuple[float, float],
    order: Sequence[str] | None = None,
) -> bool:
    """Draw dots with their intervals, the first one on top, and the names on the left.

    Args:
        axes: empty.
        dots: of algorithms.
        limits: of :class:`Axis`.
        order: names from top to bottom, where some have no dot; None takes those of the dots.

    Returns:
        Whether an interval is longer than the picture; an arrow shows where it continues.
    """
    names = [dot.name for dot in dots] if order is None else list(order)
    places, height = places_of(names)
    low, high = _span(dots, limits)
    is_cut = False
    for dot in dots:
        y = places[dot.name]
        style = _STYLES[dot.kind]
        if dot.interval is not None:
            ends = [max(dot.interval[0], low), min(dot.interval[1], high)]
            axes.plot(ends, [y, y], color=style["color"], linewidth=1.6, solid_capstyle="butt")
            for end, edge, marker in zip(dot.interval, (low, high), "<>", strict=True):
                if (end < low and marker == "<") or (end > high and marker == ">"):
                    axes.plot([edge], [y], marker, color=style["color"], markersize=4)
                    is_cut = True
        axes.plot([dot.value], [y], "o", markersize=6, **style)
    margin = 0.03 * (high - low)
    axes.set_xlim(low - margin, high + margin)
    axes.set_yticks(list(places.values()), [broken(name, LETTERS) for name in names])
    axes.set_ylim(height, 0)
    axes.tick_params(axis="y", length=0, labelsize=9.5)
    axes.spines["left"].set_visible(False)
    grid(axes, "x")
    return is_cut


def _span(dots: Sequence[Dot], limits: tuple[float, float]) -> tuple[float, float]:
    """Compute the ends of an axis: those of the intervals, unless these dwarf the dots."""
    values = [dot.value for dot in dots] or list(limits)
    least, most = min(values), max(values)
    reach = max(_REACH * (most - least), 2.0)
    ends: list[float] = []
    for dot in dots:
        ends.extend(dot.interval or ())
    low = max(min([least, *ends]), least - reach, min(limits[0], least))
    high = min(max([most, *ends]), most + reach, max(limits[1], most))
    if high - low < 1e-9:
        return low - 1.0, high + 1.0
    return low, high


def on_cut(is_cut: bool) -> str:
    """Explain the arrows at the ends of intervals, where there are any."""
    return " Arrow: the interval extends beyond the picture." if is_cut else ""


def _write_beside(axes: Any, dots: Sequence[Dot], places: Mapping[str, float], digits: int) -> None:
    right = axes.get_xlim()[1]
    texts = {dot.name: decimal(dot.value, digits) for dot in dots}
    column = 10 + 5.4 * max(map(len, texts.values()))  # points, where the verdicts begin
    for dot in dots:
        for text, distance in ((texts[dot.name], 4), (dot.verdict, column)):
            axes.annotate(
                text,
                (right, places[dot.name]),
                xytext=(distance, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=INK,
                annotation_clip=False,
            )


def _draw_parts(axes: Any, dots: Sequence[Dot], places: Mapping[str, float], panel: Axis) -> None:
    """Draw the small dots of each algorithm on a scale of their own."""
    for dot in dots:
        y = [places[dot.name]] * len(dot.parts)
        axes.plot(dot.parts, y, "o", markersize=3, color=INK, alpha=0.55, markeredgewidth=0)
    values = [part for dot in dots for part in dot.parts]
    if panel.chance is not None and min(values) <= panel.chance <= max(values):
        axes.axvline(panel.chance, **DASHED)
    axes.set_xlabel(panel.title, fontsize=9, loc="right")
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.spines["left"].set_visible(False)
    grid(axes, "x")


def draw_chance(
    panels: Sequence[Any], levels: Sequence[float | None], share: float, label: str = BLIND_GUESS
) -> str:
    """Draw a blind guess as a dashed line where results are near; return the caption's sentence.

    Args:
        panels: with the results.
        levels: of a blind guess, in the unit of each panel; None where it is not known.
        share: of what the results span, by which a panel may grow to show the line.
        label: above the line.
    """
    drawn = False
    far = []
    for axes, level in zip(panels, levels, strict=False):
        if level is None:
            continue
        low, high = axes.dataLim.intervalx
        if not within_reach(level, low, high, share):
            far.append(f"{decimal(level, 1)}%")
            continue
        drawn = True
        axes.axvline(level, **DASHED)
        left, right = axes.get_xlim()
        margin = 0.05 * (right - left)
        axes.set_xlim(min(left, level - margin), max(right, level + margin))
        axes.annotate(
            label,
            (level, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8.5,
        )
    text = " Dashed: a blind guess." if drawn else ""
    if far:
        places = ", ".join(dict.fromkeys(far))
        text += (
            f" {'Elsewhere a' if drawn else 'A'} blind guess ({places}) lies beyond the picture."
        )
    return text


def broken(name: str, letters: int) -> str:
    """Break a long name at its spaces, and a word that is longer still behind a mark (``_./-``)."""
    lines = textwrap.wrap(label_of(name), letters, break_long_words=False, break_on_hyphens=False)
    short = []
    for line in lines:
        short += [line] if len(line) <= letters else _parted(line, letters)
    return "\n".join(short)


def _parted(word: str, letters: int) -> list[str]:
    """Break a word behind its marks into lines that are as long as they may be."""
    lines = [""]
    for part in _MARKS.findall(word):
        if lines[-1] and len(lines[-1] + part) > letters:
            lines.append("")
        lines[-1] += part
    return lines


def places_of(order: Sequence[str]) -> tuple[dict[str, float], float]:
    """Compute each algorithm's distance from the top and the height of all, in lines: long names
    take several.
    """
    places = {}
    top = 0.0
    for algorithm in order:
        lines = 1 + 0.75 * broken(algorithm, LETTERS).count("\n")
        places[algorithm] = top + lines / 2
        top += lines
    return places, top


def meaning(values: Sequence[pd.DataFrame], dots: Sequence[Sequence[Dot]]) -> str:
    """Explain lines and colors of a picture, for its caption.

    Args:
        values: algorithm x seed, of each panel.
        dots: of each panel.
    """
    if max(matrix.shape[1] for matrix in values) < 2:
        return "1 seed: no interval, so any difference may be the luck of the seed."
    text = (
        "Line: 95% t interval over seeds. Blue: may be the best; gray: not the best, by paired "
        "t-tests (95% for all of them together), though intervals may overlap."
    )
    hollow = {dot.name for panel in dots for dot in panel if dot.kind == "untested"}
    if not hollow:
        return text
    return f"{text} Hollow: lacks seeds, so not ruled out ({', '.join(sorted(hollow))})."
