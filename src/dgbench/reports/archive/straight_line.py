"""Exact errors mix the same eval sets in every environment e, so they lie on one straight line over e.

A changed number is found even where all checksums were made anew; only a change of the whole line to another one of
whole counts is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.plan.folds import FULL
from dgbench.reports.archive.packed_runs import Line

Floats = NDArray[np.float64]

_IMAGES = 1e-5  # sums of a few hundred thousand in double precision
_NATS = 2e-6  # losses are packed with six decimals
_SINGLE = 3e-7  # of a loss in single precision
_ROUNDED = 5e-5  # a name with four decimals may be so far from its e
_WHOLE = 1e-3  # images that the line may miss a whole number by at its ends


def is_exact(line: Line) -> bool:
    """Whether the ``test`` errors of a packed run are computed, not sampled."""
    identity = line["run"]["identity"]
    return identity["evaluation"] == "exact" and not identity.get("grouped", False)


def line_faults(line: Line) -> Iterator[str]:
    """Where the exact errors and losses of a packed run are not on a line over e, at any step."""
    rows = line["rows"]
    if not is_exact(line) or not all(map(_is_number, rows["env"])):
        return
    for step in sorted(set(rows["step"])):
        here = [at for at, own in enumerate(rows["step"]) if own == step and rows["subset"][at] == "test"]
        if len(here) >= 3 and len({rows["seen"][at] for at in here}) == 1:
            for why in _faults_at(line, here):
                yield f"step {step}: {why}"


def _faults_at(line: Line, here: Sequence[int]) -> Iterator[str]:
    rows = line["rows"]
    names = [rows["env"][at] for at in here]
    if line["run"]["identity"]["fold"] == FULL and not {0.0, 1.0} <= set(map(float, names)):
        yield "no test row at e = 0 or e = 1, which a model of all environments is tested in"
    for key in ("wrong", "loss"):
        values = np.array([rows[key][at] for at in here], dtype=float)
        if np.isfinite(values).all():
            points = _Points(names, np.array(list(map(float, names))), values, key)
            yield from points.faults()


@dataclass(frozen=True)
class _Points:
    """Environments and what was counted there, (n,) each."""

    names: Sequence[str]
    e: Floats
    values: Floats
    key: str  #: ``wrong`` or ``loss``

    def faults(self) -> Iterator[str]:
        anchors = self._anchors()
        off = self._off(anchors)
        if (off <= self._allowed(anchors)).all():
            slope, at_zero = map(float, self._fit(anchors))
            ends = np.array([at_zero, at_zero + slope])  # one is the count of an eval set, of two classes both are
            counted = self.key == "wrong" and self._two_decimals().sum() >= 3
            if counted and (np.abs(ends - ends.round()) > _WHOLE).all():
                yield f"wrong would be {ends[0]:.4f} at e = 0 and {ends[1]:.4f} at e = 1, no whole numbers of images"
            return
        for at in range(len(self.e)):
            rest = anchors & (np.arange(len(self.e)) != at)
            good = self._off(rest) <= self._allowed(rest)
            if rest.sum() >= 3 and np.delete(good, at).all():
                slope, start = self._fit(rest)
                expected, found = slope * self.e[at] + start, self.values[at]
                yield (
                    f"{self.names[at]} test: {self.key} is {found:.7g}, the line through the other environments gives "
                    f"{expected:.7g} (off by {found - expected:+.6g})"
                )
                return
        yield f"{self.key} of test is no straight line over e, off by up to {off.max():.6g}"

    def _two_decimals(self) -> NDArray[np.bool_]:
        """Names that are their e exactly."""
        return np.array([len(name.partition(".")[2]) <= 2 for name in self.names])

    def _anchors(self) -> NDArray[np.bool_]:
        exact = self._two_decimals()
        return exact if exact.sum() >= 3 else np.ones(len(self.e), dtype=bool)

    def _fit(self, which: NDArray[np.bool_]) -> Floats:
        """Slope, and value at e = 0, by least squares."""
        return np.asarray(np.polyfit(self.e[which], self.values[which], 1))

    def _off(self, which: NDArray[np.bool_]) -> Floats:
        slope, start = self._fit(which)
        return np.asarray(np.abs(self.values - (slope * self.e + start)))

    def _allowed(self, which: NDArray[np.bool_]) -> Floats:
        base = _IMAGES if self.key == "wrong" else _NATS + _SINGLE * float(np.abs(self.values).max())
        rounded = ~self._two_decimals() | (not self._two_decimals()[which].all())
        return np.asarray(base + 2 * abs(float(self._fit(which)[0])) * _ROUNDED * rounded)


def _is_number(env: Any) -> bool:
    try:
        float(env)
    except (TypeError, ValueError):
        return False
    return True
