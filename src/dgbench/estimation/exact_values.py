"""The shift that is known by construction: two classes, and a color that differs from the label with probability e."""

from __future__ import annotations

from collections.abc import Callable

from dgbench.estimation.shift_plan import Pair, PlannedShift
from dgbench.shifts.exact import colored_table, exact_shift


def exact_values(job: PlannedShift, pair: Pair, size: Callable[[str], int]) -> dict[str, float]:
    """True values of a pair, where features tell color and noise-free class; empty where nothing is known.

    ``cor_color_alone`` is the correlation shift where features tell the color and nothing else: it is larger, and
    estimates on features that tell the class poorly lie between the two.

    Environments that are pooled are one distribution, whose e is their mean, weighted by their images.

    Args:
        job: what is estimated; its dataset says of what kind it is.
        pair: two sides.
        size: images of an environment.
    """
    noise = getattr(job.dataset, "label_noise", None)
    if noise is None or job.info.n_classes != 2:
        return {}
    try:
        pooled = [sum(float(e) * size(e) for e in side) / sum(map(size, side)) for side in (pair.p, pair.q)]
    except ValueError:  # environments that are no probabilities
        return {}
    found, color = (
        exact_shift(*(colored_table(e, noise, features=features) for e in pooled))
        for features in ("color_shape", "color")
    )
    known = {name: float(found[name]) for name in ("div", "cor", "div_plus", "cor_plus")}
    return {**known, "cor_color_alone": float(color["cor"])}
