"""What figures share: colors and style, heat maps, names beside curves; SVG, PNG and PDF.

Drawn figures are saved in a process beside the one that makes the tables: it is a third of a
report. No pandas is imported here, so that the other process is there soon.
"""

from __future__ import annotations

import io
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dgbench.reports.document import Figure

INK = "#1c2024"  # becomes currentColor in the SVG
# Okabe & Ito's palette less yellow and black: told apart by color-blind readers, visible on light
# and dark pages
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: color, marker and line of the compared measures, the same in every figure
MEASURE_STYLE: dict[str, tuple[str, str, Any]] = {
    "worst_gap": ("#d55e00", "o", "-"),
    "average": ("#0072b2", "s", (0, (5, 2))),
}
GRAY = "#9aa3ab"  # what is worse than the best, legible on light and dark pages
# behind the highlighted few
REST: dict[str, Any] = {
    "color": INK,
    "alpha": 0.35,
    "linewidth": 0.8,
    "zorder": 1,
}
#: lines of references, such as a blind guess
DASHED: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1.5}
_FILL = (0x00 / 255, 0x72 / 255, 0xB2 / 255)  # of heat maps
_FEW = 5  # curves in color where there are more than colors
MOST_DRAWN = 60  #: algorithms that a figure names; a thousand make one of six meters
Pictures = tuple[str, bytes, bytes]  # inline SVG without prolog, PNG, PDF

#: what names an algorithm, alone or with its hyperparameters or a number
_LABEL = re.compile(r"(\S+)(?: \(.*\)| [\d.]+)?")

_pools: list[ProcessPoolExecutor] = []


def _style(name: str) -> dict[Any, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "pdf.fonttype": 42,
        "font.size": 11,
        "font.family": "sans-serif",
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        # a name may hold a dollar sign; a log axis needs a plain formatter for its ticks
        "text.parse_math": False,
    }


@contextmanager
def canvas(name: str, width: float, height: float) -> Iterator[Any]:
    """Open an empty matplotlib figure in house style; width and height in inches.

    ``name`` seeds the ids of the SVG.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context(_style(name)):
        drawn = Canvas(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(drawn)
        yield drawn


def finish(drawn: Any, name: str, title: str, caption: str) -> Figure:
    """Close a figure that is drawn and will not change; ``name`` is that of its :func:`canvas`."""
    from dgbench.reports.document import Figure

    # at 6.2 rem an inch letters are as large as the text, at 3.5 still legible
    inches = drawn.get_figwidth()
    size = f"max-width: {6.2 * inches:.0f}rem; min-width: {3.5 * inches:.1f}rem"
    return Figure(name, title, caption, save(drawn, _style(name), _names_in_papers(drawn)), size)


def _names_in_papers(drawn: Any) -> dict[str, str]:
    """Map the labels of algorithms that a figure shows to their names in papers."""
    from dgbench.reports.render.paper_names import paper_names

    texts = [text.get_text() for text in drawn.texts]
    for axes in drawn.axes:
        texts += _words_of(axes)
    labels = set()
    for text in texts:
        match = _LABEL.fullmatch(text.strip("\N{ZERO WIDTH SPACE}"))
        if match:
            labels.add(match[1])
    return paper_names(labels)


def _words_of(axes: Any) -> list[str]:
    """List what axes say: texts, titles, names of axes and in the legend, and names at ticks."""
    from matplotlib.ticker import FixedLocator

    words = [text.get_text() for text in axes.texts]
    words += [axes.get_title(place) for place in ("left", "center", "right")]
    legend = axes.get_legend()
    if legend is not None:
        words += [text.get_text() for text in legend.get_texts()]
    for axis in (axes.xaxis, axes.yaxis):
        words.append(axis.get_label_text())
        if isinstance(axis.get_major_locator(), FixedLocator):  # others write numbers
            words += [label.get_text() for label in axis.get_ticklabels()]
    return words


def _rename(drawn: Any, names: Mapping[str, str]) -> None:
    """Write the names that papers have for algorithms into a figure.

    Args:
        drawn: a figure; ticks with texts of their own are renamed too.
        names: label -> name.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import FixedLocator

    from dgbench.reports.render.paper_names import with_paper_names

    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                labels = [label.get_text() for label in axis.get_ticklabels()]
                if any(labels):  # an axis that shares those of another one shows none
                    axis.set_ticklabels([with_paper_names(label, names) for label in labels])
    for text in drawn.findobj(Text):
        text.set_text(with_paper_names(text.get_text(), names))


def grid(axes: Any, axis: str = "y") -> None:
    """Draw faint lines behind the data."""
    axes.grid(axis=axis, color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)


def within_reach(level: float, low: float, high: float, share: float = 0.3) -> bool:
    """Return whether a picture of results from ``low`` to ``high`` may grow to show a reference at
    ``level``.

    Args:
        level, low, high: in the unit of the axis.
        share: of what the results span, by which it may grow.
    """
    reach = share * (high - low)
    return low - reach <= level <= high + reach


def heat(axes: Any, values: NDArray[np.float64], written: Callable[[float], str] | None) -> None:
    """Draw numbers in [0, 1] as a color, the more opaque the higher, so that light and dark pages
    may show through.

    Args:
        axes: empty.
        values: (rows, columns); NaN where there is none.
        written: formats the text of a cell, e.g. in percent; None for cells without text.
    """
    colors = np.empty((*values.shape, 4))
    colors[..., :3] = _FILL
    colors[..., 3] = 0.04 + 0.9 * np.clip(np.nan_to_num(values), 0, 1)
    # of a pickled figure, matplotlib converts with a warning
    eight_bits = np.round(255 * colors).astype(np.uint8)
    axes.imshow(eight_bits, interpolation="none", aspect="auto")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for (row, column), value in np.ndenumerate(values) if written else ():
        text = "" if np.isnan(value) or written is None else written(float(value))
        color = "white" if value > 0.8 else INK  # both legible on light and dark pages
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color=color)


def too_many(algorithms: int) -> str:
    """Explain why a figure that names every algorithm is not drawn."""
    return f"{algorithms:,} algorithms are more than the {MOST_DRAWN} that it has room for"


def label_of(name: str) -> str:
    """Make a label that matplotlib shows: it leaves out those that begin with an underscore."""
    return f"\N{ZERO WIDTH SPACE}{name}" if name.startswith("_") else name


def colored(names: Sequence[str], leading: Iterable[str]) -> dict[str, str]:
    """Choose which curves are drawn in color, and in which: all where they are few, else the first
    of the leading ones.

    Args:
        names: of all curves.
        leading: those that matter most, in order; the rest is drawn gray.
    """
    chosen = (
        names
        if len(names) <= len(COLORS)
        else [name for name in dict.fromkeys(leading) if name in names][:_FEW]
    )
    return dict(zip(chosen, COLORS, strict=False))


def end_labels(
    axes: Any, ends: Mapping[str, tuple[float, float]], colors: Mapping[str, str]
) -> None:
    """Write names beside the right ends of curves, moved apart where they would overlap, each
    joined to its end.

    Args:
        axes: whose limits are set by now.
        ends: name -> (x, y) of its end, in the units of the axes.
        colors: name -> color; ink where there is none.
    """
    low, high = axes.get_ylim()
    rows = axes.get_subplotspec().get_gridspec().nrows
    # of text, in the unit of y
    line = (high - low) * 12.5 / (72 * axes.figure.get_figheight() / rows * 0.75)
    for name, place in pushed_apart(
        {name: y for name, (_, y) in ends.items()}, line, low, high - line / 2
    ).items():
        color = colors.get(name, INK)
        joint = {
            "arrowstyle": "-",
            "color": color,
            "linewidth": 0.7,
            "shrinkA": 1,
            "shrinkB": 1,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            label_of(name),
            ends[name],
            xytext=(13, place),
            textcoords=("offset points", "data"),
            va="center",
            color=color,
            fontsize=10,
            fontweight="bold" if name in colors else "normal",
            annotation_clip=False,
            arrowprops=joint,
        )


def pushed_apart(
    places: Mapping[str, float], least: float, low: float, high: float
) -> dict[str, float]:
    """Move places apart, in their order: at least ``least`` from one another, within the limits
    while they can be.
    """
    order = sorted(places, key=lambda name: places[name])
    moved: list[float] = []
    for name in order:
        moved.append(max(places[name], moved[-1] + least if moved else low))
    ceiling = high
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - least
    return dict(zip(order, moved, strict=True))


@contextmanager
def saved_beside() -> Iterator[None]:
    """Let another process save the figures drawn within; outside, each is saved here when it is
    first looked at.
    """
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    pool.submit(_load)  # starts the process, which leaves Ctrl-C to this one
    if mask:
        mask(signal.SIG_SETMASK, before)
    _pools.append(pool)
    try:
        yield
    finally:
        _pools.remove(pool)
        pool.shutdown(cancel_futures=True)


def save(drawn: Any, style: Mapping[Any, Any], names: Mapping[str, str]) -> Callable[[], Pictures]:
    """Return a function that gives all formats of a matplotlib figure, once the process that saves
    it has made them.

    Args:
        drawn: the figure.
        style: of matplotlib.
        names: label of an algorithm -> its name in papers, for the PDF.
    """
    future: Future[Pictures] | None = None
    with suppress(BrokenExecutor):
        future = _pools[-1].submit(pictures, drawn, style, names) if _pools else None

    @cache
    def wait() -> Pictures:
        with suppress(
            BrokenExecutor
        ):  # the other process was killed, or cannot import the script that calls us
            if future is not None:
                return future.result()
        return pictures(drawn, style, names)

    return wait


def pictures(drawn: Any, style: Mapping[Any, Any], names: Mapping[str, str]) -> Pictures:
    """Make all formats of a figure, the same to the byte for equal figures.

    The PDF, which is for papers, has their names of algorithms.
    """
    import matplotlib

    with matplotlib.rc_context(dict(style)), warnings.catch_warnings():
        # hundreds of names leave no room for axes: they are drawn as they are without a layout
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        svg = _inline_svg(drawn)
        drawn.set_layout_engine("none")  # laid out by now, and laying out costs half of the drawing
        png = _saved(
            drawn, format="png", dpi=160, facecolor="white", pil_kwargs={"compress_level": 4}
        )
        if names:
            _rename(drawn, names)
        with _fonts_without_layout():
            pdf = _saved(drawn, format="pdf", transparent=True, metadata={"CreationDate": None})
        return svg, png, pdf


@contextmanager
def _fonts_without_layout() -> Iterator[None]:
    """Leave the tables for laying out text out of the fonts that a PDF embeds.

    A PDF places every glyph itself and never reads them, while to cut them down takes two thirds of
    the time in which it is written.
    """
    from fontTools import subset

    class WithoutLayout(subset.Options):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.drop_tables += ["GDEF", "GPOS", "GSUB"]

    former = subset.Options
    subset.Options = WithoutLayout
    try:
        yield
    finally:
        subset.Options = former


def _saved(drawn: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, **options)
    return buffer.getvalue()


def _inline_svg(drawn: Any) -> str:
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"<!--.*?-->\n?", "", text)
    # figure_1, axes_2: the same in every figure, never used
    text = re.sub(r' id="[A-Za-z]+[\w.]*_\d+"', "", text)
    for _ in range(2):
        text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", text)
    text = re.sub(r"(?<=[ \"(-])(\d+\.\d\d)\d+", r"\1", text)  # hundredths of a point are enough
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace(INK, "currentColor")


def _begin() -> None:
    def end_with_parent() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _load() -> None:
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
