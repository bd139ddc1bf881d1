"""Hyperparameters of one run: defaults, draws of the published random searches, and which value wins.

A *declaration* is a mapping with two entries, as in ``conf/algorithm`` and ``conf/hparams``: ``hparams`` (name ->
default, or its default, range and meaning, see :mod:`dgbench.protocols.ranges`) and ``search`` (space -> name ->
distribution). A default or a distribution that differs between small and large images is written
``{small: ..., large: ...}``; one that is given for the other kind only does not exist. With a third entry,
``datasets: {NAME: ...}``, datasets of these names have their own.

Sources: DomainBed's and OoD-Bench's random search (every name has its own generator, so algorithms that share a
distribution share its draw); Yu et al. (2024), whose code draws from a space of bounds; early DomainBed and SWAD,
which take all draws from one stream (``single_stream``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from numpy.random import RandomState

from dgbench.errors import ConfigError
from dgbench.protocols.ranges import checked, entry_of

Declaration = Mapping[str, Mapping[str, Any]]
Sampler = Callable[[RandomState, Sequence[Any]], Any]

KINDS = ("small", "large")


def seed_hash(*args: Any) -> int:
    """DomainBed's seed of a tuple: MD5 of its Python text, modulo 2^31; numbers must be native Python ones."""
    return int(hashlib.md5(str(args).encode()).hexdigest(), 16) % 2**31


def _choice(rng: RandomState, values: Sequence[Any]) -> Any:
    return values[int(rng.choice(len(values)))]  # by position: a draw keeps its Python type


def _log_uniform(rng: RandomState, bounds: Sequence[float]) -> float:
    low, high = bounds
    return float(10 ** rng.uniform(math.log10(low), math.log10(high)))


DISTRIBUTIONS: dict[str, Sampler] = {
    "uniform": lambda rng, args: float(rng.uniform(*args)),
    "log10_uniform": lambda rng, args: float(10 ** rng.uniform(*args)),
    "log_uniform": _log_uniform,
    "int_uniform": lambda rng, args: int(rng.uniform(*args)),
    "int_log10_uniform": lambda rng, args: int(10 ** rng.uniform(*args)),
    "int_log2_uniform": lambda rng, args: int(2 ** rng.uniform(*args)),
    "randint": lambda rng, args: int(rng.randint(*args)),
    "choice": _choice,
}


def _single_stream(base: int) -> Callable[[str], RandomState]:
    stream = RandomState(base)
    return lambda name: stream


RNGS: dict[str, Callable[[int], Callable[[str], RandomState]]] = {
    "per_name": lambda base: lambda name: RandomState(seed_hash(base, name)),
    "single_stream": _single_stream,
}

# Seed of draw k of trial t where it is not DomainBed's. Yu et al. (2024) hash (seed, data seed, k); their search ran
# with seed = data seed = 1, which is trial 0 here.
_BASES: dict[str, Callable[[int, int], int]] = {"yu2024": lambda k, t: seed_hash(t + 1, t + 1, k)}


def draw(
    shared: Declaration,
    own: Declaration,
    *,
    kind: str,
    space: str,
    number: int,
    trial: int,
    rng: str,
    dataset: str = "",
) -> dict[str, Any]:
    """Random values of every name that a space draws; names that it does not draw are left out.

    Names are drawn in the order written, shared ones first, which matters for ``single_stream`` only. One that the
    algorithm draws from the shared distribution is not drawn twice.

    Args:
        shared, own: declarations of all algorithms and of this one, which wins.
        kind: ``small`` or ``large`` images.
        space: key of ``search``.
        number: number of the draw, >= 1.
        trial: independent repetition of the search, >= 0.
        rng: ``per_name`` or ``single_stream``.
        dataset: its name.

    Raises:
        ConfigError: a distribution that does not exist.
    """
    common, special = (_of_kind(owner["search"].get(space) or {}, kind, dataset) for owner in (shared, own))
    wanted = [*common.items(), *((name, how) for name, how in special.items() if common.get(name) != how)]
    base: Callable[[int, int], int] = _BASES.get(space, seed_hash)
    generator = RNGS[rng](base(number, trial))
    return {name: _sample(name, how, generator(name)) for name, how in wanted}


def resolve(
    shared: Declaration,
    own: Declaration,
    *,
    kind: str,
    space: str = "domainbed",
    number: int = 0,
    trial: int = 0,
    rng: str = "per_name",
    read: Sequence[str] = (),
    chosen: Mapping[str, Any] | None = None,
    dataset: str = "",
) -> dict[str, Any]:
    """Every hyperparameter of a run. The strongest that names a key gives its value:

    1. ``chosen`` (``hparams.NAME=VALUE``),
    2. draw ``number`` of ``trial`` in ``space``, the algorithm's distributions before the shared ones; draw 0 is none,
    3. the algorithm's defaults,
    4. the shared defaults.

    Args:
        read: shared names that are read; the others are drawn (a stream advances) but not returned.
        dataset: its name, for values that differ between datasets.

    Raises:
        ConfigError: an unknown kind, space, rng, name or distribution, a number or trial that is no integer >= 0, or
            a value outside the range of its hyperparameter.
    """
    chosen = chosen or {}
    _known("dataset.image_kind", kind, KINDS)
    _known("hparams.space", space, list(shared["search"]))
    _known("hparams.rng", rng, list(RNGS))
    for key, value in (("draw", number), ("trial", trial)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigError(f"hparams.{key}={value} is not an integer >= 0; draw 0 is the default set")
    entries = {name: entry_of(each, name) for name, each in {**shared["hparams"], **own["hparams"]}.items()}
    values = _of_kind({name: entry.default for name, entry in entries.items()}, kind, dataset)
    for name in sorted(set(own["search"].get(space) or {}) - set(values)):
        raise ConfigError(f"algorithm.search.{space}.{name} has no default; add it to algorithm.hparams")
    if number:
        values |= draw(shared, own, kind=kind, space=space, number=number, trial=trial, rng=rng, dataset=dataset)
    unread = set(shared["hparams"]) - set(own["hparams"]) - set(read)
    known = [name for name in values if name not in unread]
    for name in chosen:
        _read(name, known)
    return {name: checked(name, value, entries[name]) for name, value in {**values, **chosen}.items() if name in known}


def _read(name: str, known: Sequence[str]) -> None:
    if name not in known:
        close = get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"hparams.{name} is read by nothing in this study; {meant}choose from {', '.join(known)}")


def _of_kind(entries: Mapping[str, Any], kind: str, dataset: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, entry in entries.items():
        if not isinstance(entry, Mapping) or not set(KINDS) & set(entry):
            chosen[name] = entry
        elif dataset in (entry.get("datasets") or {}):
            chosen[name] = entry["datasets"][dataset]
        elif kind in entry:
            chosen[name] = entry[kind]
    return chosen


def _sample(name: str, how: Any, rng: RandomState) -> Any:
    if not isinstance(how, Mapping) or len(how) != 1:
        raise ConfigError(f"search of {name}: {how} is no distribution; write one as {{uniform: [0, 1]}}")
    [(distribution, args)] = how.items()
    _known(f"distribution of {name}", distribution, list(DISTRIBUTIONS))
    sampler = DISTRIBUTIONS[distribution]
    return sampler(rng, args)


def _known(what: str, value: Any, options: Sequence[str]) -> None:
    if value not in options:
        raise ConfigError(f"{what} {value} is unknown; choose from {', '.join(options)}")
