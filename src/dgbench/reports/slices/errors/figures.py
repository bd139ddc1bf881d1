"""Figures of ``report=errors``: confusions as heat maps, and sheets of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgbench.data.store.decoding import rgb
from dgbench.reports.document import Figure
from dgbench.reports.labels import slug
from dgbench.reports.render.drawing import canvas, finish, heat
from dgbench.reports.slices.errors.images import Counts
from dgbench.reports.tables import percent

if TYPE_CHECKING:
    from PIL.Image import Image


_MOST_NUMBERS = 12  # classes up to which the cells of a heat map hold numbers
_MOST_NAMES = 45  # classes up to which the lines of a heat map have names
_SIDE = 96  # pixels of a thumbnail
_ACROSS = 8  # thumbnails in a row


def heat_maps(setting: str, algorithm: str, counts: Counts) -> Figure:
    """Draw confusion matrix and accuracy of each class by environment, side by side, in percent of
    the true class.
    """
    counted = counts.matrix()
    classes = counts.classes
    envs = counts.environments
    with np.errstate(invalid="ignore"):
        shares = counted / counted.sum(1, keepdims=True)  # NaN for a class without images
    groups = counts.groups(attributes=False).pivot(index="label", columns="env", values="accuracy")
    accuracy = groups.reindex(index=range(len(classes)), columns=envs).to_numpy()
    name = f"confusion_{slug(setting)}_{slug(algorithm)}"
    k = len(classes)
    side = _inches_of_cell(k)
    width = 1.6 + side * (k + max(len(envs), 2)) * 1.15
    with canvas(name, max(width, 5.0), max(side * k + 1.3, 2.6)) as drawn:
        widths = [k, max(len(envs), 1 if k <= _MOST_NAMES else k / 4)]
        left, right = drawn.subplots(1, 2, sharey=True, width_ratios=widths)
        written = (lambda share: percent(share, 0)) if k <= _MOST_NUMBERS else None
        heat(left, shares, written)
        heat(right, accuracy, written)
        for axes, words, title in (
            (left, classes, "predicted class (%)"),
            (right, envs, "accuracy (%)"),
        ):
            names = list(words) if len(words) <= _MOST_NAMES else []
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9)
            axes.set_title(title, fontsize=10)
        names = list(classes) if k <= _MOST_NAMES else []
        left.set_yticks(range(len(names)), names, fontsize=9)
        left.set_ylabel("true class")
        caption = (
            "Left: what images of each class are taken for, all environments together. Right: "
            "accuracy of each class in each held-out environment. Percent of the true class, mean "
            "over seeds."
        )
        caption += " Classes stand in the order of their numbers." if k > _MOST_NAMES else ""
        return finish(drawn, name, f"Confusion and accuracy by class, {algorithm}", caption)


def _inches_of_cell(classes: int) -> float:
    """Choose the side of a cell of a heat map, in inches, so that what it holds is legible."""
    if classes <= _MOST_NUMBERS:
        return 0.42
    if classes <= _MOST_NAMES:
        return 0.24
    return 7 / classes


def sheet(
    name: str, title: str, caption: str, lines: pd.DataFrame, classes: Sequence[str]
) -> Figure | str:
    """Draw thumbnails, each with its true class, what it is taken for and how confidently, and its
    environment.

    Args:
        name, title, caption: of the figure.
        lines: images as :func:`dgbench.reports.slices.errors.images.most_confident` gives them.
        classes: names.

    Returns:
        the figure, or why there is none.
    """
    thumbnails: list[tuple[dict[str, Any], Image]] = []
    reason = ""
    records: list[dict[str, Any]] = lines.to_dict("records")  # type: ignore[assignment]
    for line in records:
        try:
            thumbnails.append((line, _thumbnail(line)))
        except Exception as error:  # PIL raises whatever its parts raise over a broken file
            reason = reason or " ".join(str(error).split())
    if not thumbnails:
        return reason
    across = min(_ACROSS, max(len(thumbnails), 4))
    down = -(-len(thumbnails) // across)
    with canvas(name, 1.25 * across, 1.85 * down) as drawn:
        panels = drawn.subplots(down, across, squeeze=False).flatten()
        for axes in panels:
            axes.axis("off")
        for axes, (line, image) in zip(panels, thumbnails, strict=False):
            axes.imshow(np.asarray(image), interpolation="none")
            prediction = f"{_short(classes[line['predicted']])} {percent(line['confidence'], 0)}%"
            text = f"{_short(classes[line['label']])}\nas {prediction}\n{_short(str(line['env']))}"
            axes.set_title(text, fontsize=7.5, linespacing=1.15, pad=3)
        hidden = len(lines) - len(thumbnails)
        caption += f" {hidden} of {len(lines)} images cannot be shown: {reason}." if hidden else ""
        return finish(drawn, name, title, caption)


def _short(word: str) -> str:
    return word if len(word) <= 14 else f"{word[:13]}…"


def _thumbnail(line: Mapping[str, Any]) -> Image:
    if not line["root"]:
        raise FileNotFoundError("the images of this dataset are not in files of their own")
    path = Path(line["root"]).expanduser() / str(line["image"])
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    image = rgb(path)
    image.thumbnail((_SIDE, _SIDE))
    return image
