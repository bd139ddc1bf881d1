"""What moves a number most: how far each factor of a study, and its seeds, move it.

A study crosses factors (network, tuning, algorithm, ...) and repeats cells with seeds. What a
factor *moves* is the root mean square, over the studies, of what its levels add; what seeds move is
the standard deviation among studies of one cell. Both are the deviation that a random pick among
what was tried makes, so they stand on one scale, that of the values.

Factors may be crossed in part or unequally often: squares are of type II, each main effect after
all others, and ``combinations`` are what cells add to all main effects. The levels are those that
were tried, not a sample of others (Gelman 2005). A factor that is applied to models that are
trained already (adaptation at test time) is compared within models, so the noise of training does
not touch it.

Intervals are generalized ones (Weerahandi 1993): variances are drawn as squares over a chi-square,
effects by the noncentral chi-square that gives the squares. By luck an effect may have fewer
squares than noise alone makes; its interval is that of an effect with as many, as in
power-constrained limits (Cowan et al. 2011). Noise is taken to be normal and alike in all cells.

Sources: Yates 1934 (type II); Henderson 1953, method 3 (the seed's component); Gelman 2005,
"Analysis of variance: why it is more important than ever", section 3.5; Weerahandi 1993,
"Generalized confidence intervals"; Cowan, Cranmer, Gross & Vitells 2011, "Power-constrained
limits".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis.intervals import Floats, Interval, Statistics
from dgbench.errors import MeasureError

Codes = NDArray[np.intp]

COMBINATIONS = "combinations"  #: of levels: what cells add to main effects
SEED = "seed"
_SINGULAR = 1e-9  # singular values below this share of the largest are rounding


@dataclass(frozen=True, eq=False)
class Component:
    """How far one factor, their combinations, or the seeds move a value."""

    name: str
    levels: int  #: that were tried; cells for ``combinations``
    moves: Interval  #: unit of the values
    draws: Floats  #: (B,) of the same number
    within: bool  #: compared within trained models


@dataclass(frozen=True, eq=False)
class Decomposition:
    """What moves a value, in the order of the factors; combinations and seeds come last."""

    components: Sequence[Component]
    studies: int
    cells: int  #: combinations of levels that were tried
    possible: int  #: combinations of levels that there are

    def most(self) -> dict[str, float]:
        """Map component -> share of draws in which it moves more than every other one."""
        table = np.stack([component.draws for component in self.components])
        shares = np.bincount(table.argmax(axis=0), minlength=len(table)) / table.shape[1]
        names = [component.name for component in self.components]
        return dict(zip(names, shares.tolist(), strict=True))


def decompose(
    values: ArrayLike,
    factors: Mapping[str, Sequence[object]],
    seeds: Sequence[int],
    within: str | None = None,
    statistics: Statistics | None = None,
) -> Decomposition:
    """Decompose the values of N studies.

    Args:
        values: (N,) finite, e.g. errors.
        factors: factor -> the level of each study; two or more levels occur.
        seeds: of each study; one number is the same draw in every cell.
        within: the factor whose levels are applied to one trained model; every cell and seed of
            the others has all of its levels.
        statistics: draws, level and seed of the intervals.

    Raises:
        MeasureError: no cell has two seeds, a study is there twice, a factor has one level or
            follows from the others, or a model lacks a level of ``within``.
    """
    statistics = statistics or Statistics()
    numbers = np.asarray(values, dtype=float)
    codes = {name: _codes(levels) for name, levels in factors.items()}
    _check(numbers, codes, np.asarray(seeds))
    cell = _joint(list(codes.values()))
    possible = int(np.prod([code.max() + 1 for code in codes.values()]))
    rng = np.random.default_rng(statistics.seed)
    if within is None:
        components = _between_models(numbers, codes, _codes(seeds), statistics, rng)
    else:
        between = {name: code for name, code in codes.items() if name != within}
        model = _joint([*between.values(), _codes(seeds)])
        first = np.unique(model, return_index=True)[1]
        of_models = {name: code[first] for name, code in between.items()}
        wide = _by_model(numbers, model, codes[within], within)
        means = wide.mean(axis=1)
        components = _between_models(means, of_models, _codes(seeds)[first], statistics, rng)
        components += _within_models(wide, of_models, within, statistics, rng)
    return Decomposition(components, len(numbers), int(cell.max()) + 1, possible)


def _codes(levels: Sequence[object]) -> Codes:
    """Give levels numbers, in the order of the alphabet."""
    names = np.asarray([str(level) for level in levels])
    return np.unique(names, return_inverse=True)[1].reshape(-1)


def _joint(codes: Sequence[Codes]) -> Codes:
    """Give numbers to the combinations of several codes that occur."""
    return np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _check(values: Floats, codes: Mapping[str, Codes], seeds: NDArray[np.intp]) -> None:
    if not codes:
        raise MeasureError("there is no factor; name one that varies")
    if not np.isfinite(values).all():
        raise MeasureError("a value is missing; leave its study out")
    for name, code in codes.items():
        if not code.max():
            raise MeasureError(f"{name} has one level, which moves nothing; leave it out")
    study = np.stack([*codes.values(), seeds], axis=1)
    if len(np.unique(study, axis=0)) < len(study):
        raise MeasureError("two studies have the same levels and seed; name what they differ in")


def _by_model(values: Floats, model: Codes, level: Codes, name: str) -> Floats:
    """Arrange values as (models, levels)."""
    wide = np.full((int(model.max()) + 1, int(level.max()) + 1), np.nan)
    wide[model, level] = values
    lacking = int(np.isnan(wide).any(axis=1).sum())
    if lacking:
        raise MeasureError(f"{lacking} models lack a level of {name}; leave them out")
    return wide


@dataclass(frozen=True, eq=False)
class _Noise:
    """Squares that are left when cells and seeds are taken out: what chance does."""

    squares: float
    freedom: int
    statistics: Statistics
    rng: np.random.Generator

    @property
    def variance(self) -> float:
        return self.squares / self.freedom

    @cached_property
    def draws(self) -> Floats:
        """Draws of the variance, (B,)."""
        return self.squares / self.rng.chisquare(self.freedom, self.statistics.draws)

    def interval(self, estimate: float, draws: Floats) -> Interval:
        """Take the interval that draws span."""
        tail = (1 - self.statistics.level) / 2
        low, high = np.quantile(draws, [tail, 1 - tail]).tolist()
        return Interval(estimate, low, high, self.statistics.level)


@dataclass(frozen=True)
class _Effect:
    """Squares that some levels explain."""

    squares: float
    freedom: int
    studies: int

    @classmethod
    def between(cls, values: Floats, smaller: Floats, larger: Floats) -> _Effect:
        """Compute the squares that the larger of two spaces explains beyond the smaller."""
        squares = _squares(larger, values) - _squares(smaller, values)
        return cls(max(squares, 0.0), larger.shape[1] - smaller.shape[1], len(values))

    def component(self, name: str, levels: int, noise: _Noise, within: bool = False) -> Component:
        """Estimate what it moves, from its squares less those that noise makes."""
        from scipy.special import chdtr, chndtrinc

        beyond = self.squares - self.freedom * noise.variance
        estimate = math.sqrt(max(beyond, 0.0) / self.studies)
        shares = noise.rng.random(len(noise.draws))
        # fewer squares than noise alone makes say nothing sharper than as many
        squares = max(self.squares, self.freedom * noise.variance)
        ratios = squares / noise.draws
        exceeds = shares < chdtr(self.freedom, ratios)  # elsewhere no effect gives so few squares
        noncentral = np.where(exceeds, chndtrinc(ratios, self.freedom, shares), 0.0)
        draws = np.sqrt(noncentral * noise.draws / self.studies)
        return Component(name, levels, noise.interval(estimate, draws), draws, within)


def _between_models(
    values: Floats,
    codes: Mapping[str, Codes],
    seeds: Codes,
    statistics: Statistics,
    rng: np.random.Generator,
) -> list[Component]:
    """Decompose values of separately trained models into factors, combinations and seeds.

    Args:
        values: (N,).
        codes: factor -> the level of each value.
        seeds: of each value, numbered.
    """
    cell = _joint(list(codes.values())) if codes else np.zeros_like(seeds)
    seed = _columns(seeds)
    cells = _basis([_columns(cell)])
    full = _basis([_columns(cell), seed]) if cell.max() else cells
    left = len(values) - full.shape[1]
    if left < 1:
        raise MeasureError(
            "no combination has studies of two seeds, so nothing says what chance does; train "
            "another seed"
        )
    noise = _Noise(float(values @ values) - _squares(full, values), left, statistics, rng)
    mains = {name: _columns(code) for name, code in codes.items()}
    components = []
    for name, columns in mains.items():
        others = [seed, *(other for key, other in mains.items() if key != name)]
        effect = _Effect.between(values, _basis(others), _basis([*others, columns]))
        if not effect.freedom:
            raise MeasureError(
                f"{name} cannot be told from the other factors and the seed, which move together "
                "with it; leave one of them out, or add studies that cross them"
            )
        components.append(effect.component(name, columns.shape[1], noise))
    joint = _Effect.between(values, _basis([seed, *mains.values()]), full)
    if joint.freedom > 0 and mains:
        components.append(joint.component(COMBINATIONS, int(cell.max()) + 1, noise))
    alike = _Effect.between(values, cells, full)
    # studies of a seed, all cells in a balanced design
    weight = _squares(full, seed) - _squares(cells, seed)
    components.append(_seed(alike, weight / max(alike.freedom, 1), seed.shape[1], noise))
    return components


def _seed(alike: _Effect, weight: float, levels: int, noise: _Noise) -> Component:
    """Estimate the deviation among studies of one cell.

    It has two parts: what a seed moves in all cells alike, and what it moves in each.
    """
    variance, draws = noise.variance, noise.draws
    if alike.freedom:
        shared = alike.squares / alike.freedom - noise.variance
        drawn = alike.squares / noise.rng.chisquare(alike.freedom, len(draws)) - draws
        variance = variance + max(shared / weight, 0.0)
        draws = draws + np.maximum(drawn / weight, 0.0)
    deviations = np.sqrt(draws)
    moves = noise.interval(math.sqrt(variance), deviations)
    return Component(SEED, levels, moves, deviations, False)


def _within_models(
    wide: Floats,
    codes: Mapping[str, Codes],
    name: str,
    statistics: Statistics,
    rng: np.random.Generator,
) -> list[Component]:
    """Decompose what a factor changes within models.

    Args:
        wide: (models, levels).
        codes: factor -> the level of each model.
        name: of the factor within.
    """
    models, levels = wide.shape
    changes = wide - wide.mean(axis=1, keepdims=True)
    cell = _joint(list(codes.values())) if codes else np.zeros(models, dtype=np.intp)
    in_cells = _basis([_columns(cell)])
    fitted = in_cells @ (in_cells.T @ changes)
    left = (levels - 1) * (models - in_cells.shape[1])
    noise = _Noise(float(((changes - fitted) ** 2).sum()), left, statistics, rng)
    overall = changes.mean(axis=0)
    main = _Effect(models * float(overall @ overall), levels - 1, models * levels)
    components = [main.component(name, levels, noise, within=True)]
    cells = in_cells.shape[1]
    if cells > 1:
        squares = float(((fitted - overall) ** 2).sum())
        joint = _Effect(squares, (levels - 1) * (cells - 1), models * levels)
        label = f"{name} x {COMBINATIONS}"
        components.append(joint.component(label, levels * cells, noise, within=True))
    return components


def _columns(code: Codes) -> Floats:
    """Return indicator columns, (N, levels)."""
    return np.eye(int(code.max()) + 1)[code]


def _basis(parts: Sequence[Floats]) -> Floats:
    """Return an orthonormal basis, (N, rank), of what constants and these columns span."""
    constant = np.ones((len(parts[0]), 1))
    vectors, sizes, _ = np.linalg.svd(np.hstack([constant, *parts]), full_matrices=False)
    rank = int((sizes > _SINGULAR * sizes[0]).sum())
    basis: Floats = vectors[:, :rank]
    return basis


def _squares(basis: Floats, values: Floats) -> float:
    """Return the squares of values, or of columns, within a space."""
    return float(((basis.T @ values) ** 2).sum())
