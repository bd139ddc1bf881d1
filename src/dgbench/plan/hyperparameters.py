"""Hyperparameters of a run: what values one may have, defaults, draws of the published searches,
and which value wins.

An entry of ``conf/algorithm`` or ``conf/hparams`` is a default, ``tau: 1.0``, or a default with its
range and meaning: ``tau: {default: 1.0, range: number >= 0 and <= 1, help: "..."}``; with ``phase:
true`` it is the step at which a second phase of the method begins, with ``of_features: true`` the
weight of a loss of features alone, and with ``fixed_head: true`` part of a method that keeps the
classifier as ``conf/head`` makes it. A range is one of

- ``number``, ``integer``, each with bounds or none: ``integer >= 1``, ``number > 0 and < 1``;
  numbers are finite;
- options: ``separate | together``, ``true | false``.

A *declaration* is a mapping with two entries: ``hparams`` (name -> such an entry) and ``search``
(space -> name -> distribution). A default or a distribution that differs between small and large
images is written ``{small: ..., large: ...}``; one that is given for the other kind only does not
exist. With a third entry, ``datasets: {NAME: ...}``, datasets of these names have their own.

One hyperparameter has one address on the command line, ``hparams.NAME``.

Sources: DomainBed's and OoD-Bench's random search (every name has its own generator, so algorithms
    that share a
distribution share its draw); Yu et al. (2024), whose code draws from a space of bounds; early
DomainBed and SWAD, which take all draws from one stream (``single_stream``).
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from numpy.random import RandomState

from dgbench.data.datasets.small_environments import batch_refusal
from dgbench.errors import ConfigError
from dgbench.plan.code import class_name
from dgbench.plan.overrides import SEARCH_KEYS
from dgbench.plan.settings import TrainerSettings

_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip
_NUMERIC = re.compile(r"(number|integer)(?: ([<>]=?) (\S+)(?: and ([<>]=?) (\S+))?)?")
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True)
class DeclaredHparam:
    """One hyperparameter as its file declares it."""

    #: a value, or ``{small: ..., large: ...}``, which may have ``datasets: {NAME: ...}`` too
    default: Any
    range: str = ""  #: in the words of this module; empty if the file gives none
    help: str = ""  #: what it means
    phase: bool = False  #: a second phase of the method begins at this step
    #: it weighs a loss that depends on the features only, so a frozen featurizer has no use for it
    of_features: bool = False
    #: it is of a method that never trains the classifier and means it to be made of texts
    fixed_head: bool = False


#: keys of an entry that are true or left out
_FLAGS = ("phase", "of_features", "fixed_head")


def entry_of(declared: Any, name: str = "a hyperparameter") -> DeclaredHparam:
    """Read the entry of a file for ``name``, in either form.

    Raises:
        ConfigError: a long entry with other keys.
    """
    if not (isinstance(declared, Mapping) and "default" in declared):
        return DeclaredHparam(declared)
    unknown = set(declared) - {"default", "range", "help", *_FLAGS}
    if unknown:
        raise ConfigError(
            f"{name} has default, range, help, {', '.join(_FLAGS)}, not "
            f"{', '.join(sorted(map(str, unknown)))}; to give another default write {name}: "
            f"{{default: ...}}"
        )
    allowed, meaning = (str(declared.get(key) or "") for key in ("range", "help"))
    flags = {flag: declared.get(flag) is True for flag in _FLAGS}
    return DeclaredHparam(declared["default"], allowed, meaning, **flags)


def keeps_head(algorithm: Mapping[str, Any]) -> bool:
    """Return whether an algorithm, a file of ``conf/algorithm``, never trains the classifier."""
    declared = algorithm.get("hparams") or {}
    return any(entry_of(entry, name).fixed_head for name, entry in declared.items())


def checked(name: str, value: Any, entry: DeclaredHparam) -> Any:
    """Return the value if it lies in its range.

    Without one it must be a number, unless the default is text or a bool.

    500.0 is an integer and ``12`` the option that is written so; text and truth values are no
    numbers.

    Raises:
        ConfigError: one line with name, value, range and meaning; or the range cannot be read.
    """
    allowed = entry.range or ("" if isinstance(entry.default, (str, bool)) else "number")
    meaning = f" ({entry.help})" if entry.help else ""
    options = _options(allowed)
    if options:
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if written not in options:
            raise ConfigError(
                f"hparams.{name}={value} is unknown; choose one of {', '.join(options)}{meaning}"
            )
        return options[written]
    if allowed and not _holds(allowed, value):
        article = "an" if allowed.startswith("i") else "a"
        raise ConfigError(f"hparams.{name}={value} is not {article} {allowed}; give one{meaning}")
    return int(value) if allowed.startswith("integer") else value


def _holds(allowed: str, value: Any) -> bool:
    whole, bounds = _numeric(allowed)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return False
    return not (whole and value % 1) and all(_BOUNDS[sign](value, bound) for sign, bound in bounds)


def _options(allowed: str) -> dict[str, Any]:
    """Map each option of a range, as written, to its value.

    Returns an empty mapping if the range is numeric.
    """
    words = [word.strip() for word in allowed.split("|")]
    return {word: _SWITCHES.get(word, word) for word in words} if len(words) > 1 else {}


@lru_cache(maxsize=256)
def _numeric(allowed: str) -> tuple[bool, list[tuple[str, float]]]:
    """Parse a numeric range: return whether it is of integers only, and its bounds."""
    match = _NUMERIC.fullmatch(allowed)
    if not match:
        raise ConfigError(
            f"range {allowed!r} cannot be read; write it as 'number >= 0 and < 1', 'integer >= 1' "
            "or 'one | other'"
        )
    kind, *parts = match.groups()
    try:
        bounds = [
            (sign, float(bound))
            for sign, bound in zip(parts[::2], parts[1::2], strict=True)
            if sign
        ]
    except ValueError as error:
        raise ConfigError(f"range {allowed!r} has a bound that is no number; correct it") from error
    return kind == "integer", bounds


Declaration = Mapping[str, Mapping[str, Any]]
Sampler = Callable[[RandomState, Sequence[Any]], Any]

KINDS = ("small", "large")


def seed_hash(*args: Any) -> int:
    """Compute DomainBed's seed of a tuple: MD5 of its Python text, modulo 2^31.

    Numbers must be native Python ones.
    """
    return int(hashlib.md5(str(args).encode()).hexdigest(), 16) % 2**31


DISTRIBUTIONS: dict[str, Sampler] = {
    "uniform": lambda rng, args: float(rng.uniform(*args)),
    "log10_uniform": lambda rng, args: float(10 ** rng.uniform(*args)),
    "log_uniform": lambda rng, args: float(
        10 ** rng.uniform(math.log10(args[0]), math.log10(args[1]))
    ),
    "int_uniform": lambda rng, args: int(rng.uniform(*args)),
    "int_log10_uniform": lambda rng, args: int(10 ** rng.uniform(*args)),
    "int_log2_uniform": lambda rng, args: int(2 ** rng.uniform(*args)),
    "randint": lambda rng, args: int(rng.randint(*args)),
    "choice": lambda rng, values: values[
        int(rng.choice(len(values)))
    ],  # by position: a draw keeps its Python type
}


def _single_stream(base: int) -> Callable[[str], RandomState]:
    stream = RandomState(base)
    return lambda name: stream


RNGS: dict[str, Callable[[int], Callable[[str], RandomState]]] = {
    "per_name": lambda base: lambda name: RandomState(seed_hash(base, name)),
    "single_stream": _single_stream,
}

# Seed of draw k of trial t where it is not DomainBed's. Yu et al. (2024) hash (seed, data seed, k);
# their search ran with seed = data seed = 1, which is trial 0 here.
_BASES: dict[str, Callable[[int, int], int]] = {"yu2024": lambda k, t: seed_hash(t + 1, t + 1, k)}


def resolve(
    shared: Declaration,
    algorithm: Declaration,
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
    """Resolve every hyperparameter of a run.

    Each takes its value from the first of these that has one:

    1. ``chosen`` (``hparams.NAME=VALUE``),
    2. draw ``number`` of ``trial`` in ``space``, the algorithm's distributions before the shared
        ones; draw 0 is none,
    3. the algorithm's defaults,
    4. the shared defaults.

    Names are drawn in the order written, shared ones first, which matters for ``single_stream``
    only. One that the algorithm draws from the shared distribution is not drawn twice.

    Args:
        shared, algorithm: declarations of all algorithms and of this one, which wins.
        kind: ``small`` or ``large`` images.
        space: key of ``search``.
        number: number of the draw, >= 0.
        trial: independent repetition of the search, >= 0.
        rng: key of :data:`RNGS`.
        read: shared names that are read; the others are drawn (a stream advances) but not returned.
        chosen: values by name.
        dataset: its name, for values that differ between datasets.

    Raises:
        ConfigError: an unknown kind, space, name or distribution, or a value outside the range of
            its hyperparameter.
    """
    chosen = chosen or {}
    _check_option("dataset.image_kind", kind, KINDS)
    _check_option("hparams.space", space, list(shared["search"]))
    declarations = {**shared["hparams"], **algorithm["hparams"]}
    entries = {name: entry_of(declared, name) for name, declared in declarations.items()}
    values = _for_kind({name: entry.default for name, entry in entries.items()}, kind, dataset)
    for name in sorted(set(algorithm["search"].get(space) or {}) - set(values)):
        raise ConfigError(
            f"algorithm.search.{space}.{name} has no default; add it to algorithm.hparams"
        )
    if number:
        common = _for_kind(shared["search"].get(space) or {}, kind, dataset)
        special = _for_kind(algorithm["search"].get(space) or {}, kind, dataset)
        drawn = list(common.items())
        drawn += [(name, dist) for name, dist in special.items() if common.get(name) != dist]
        base: Callable[[int, int], int] = _BASES.get(space, seed_hash)
        generator = RNGS[rng](base(number, trial))
        values |= {name: _sample(name, dist, generator(name)) for name, dist in drawn}
    unread = set(shared["hparams"]) - set(algorithm["hparams"]) - set(read)
    names = [name for name in values if name not in unread]
    for name in chosen:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"hparams.{name} is read by nothing in this study; {meant}choose from "
                f"{', '.join(names)}"
            )
    return {
        name: checked(name, value, entries[name])
        for name, value in {**values, **chosen}.items()
        if name in names
    }


def _for_kind(entries: Mapping[str, Any], kind: str, dataset: str) -> dict[str, Any]:
    """Select the value of each entry for this kind of images and this dataset.

    Entries that have none are left out.
    """
    held: dict[str, Any] = {}
    for name, entry in entries.items():
        if not isinstance(entry, Mapping) or not set(KINDS) & set(entry):
            held[name] = entry
        elif dataset in (entry.get("datasets") or {}):
            held[name] = entry["datasets"][dataset]
        elif kind in entry:
            held[name] = entry[kind]
    return held


def _sample(name: str, declared: Any, rng: RandomState) -> Any:
    if not isinstance(declared, Mapping) or len(declared) != 1:
        raise ConfigError(
            f"search of {name}: {declared} is no distribution; write one as {{uniform: [0, 1]}}"
        )
    [(distribution, args)] = declared.items()
    _check_option(f"distribution of {name}", distribution, list(DISTRIBUTIONS))
    return DISTRIBUTIONS[distribution](rng, args)


def _check_option(label: str, value: Any, options: Sequence[str]) -> None:
    if value not in options:
        raise ConfigError(f"{label} {value} is unknown; choose from {', '.join(options)}")


def without_effect(config: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Describe why a study would not try its method.

    These are late phases, losses of frozen features, and a fixed classifier not made of texts.

    Args:
        config: the resolved configuration, plain values by top-level key.
        values: resolved hyperparameters.
    """
    declared = config["algorithm"].get("hparams") or {}
    steps = config["trainer"]["steps"]
    entries = {name: entry_of(entry, name) for name, entry in declared.items() if values.get(name)}
    late = [name for name, entry in entries.items() if entry.phase and values[name] >= steps]
    if late:
        named = " and ".join(f"hparams.{name}={values[name]:g}" for name in late)
        yield (
            f"{named}: the second phase would begin after the last of {steps} steps, so the "
            "method is not tried; lower it, or train longer"
        )
    if config["tuning"].get("freeze_stages") == "all":
        named = " and ".join(
            f"hparams.{name}" for name, entry in entries.items() if entry.of_features
        )
        if named:
            yield (
                f"{named} has no effect: it weighs a loss of the features alone, and they "
                "are frozen; train the featurizer too"
            )
    if keeps_head(config["algorithm"]) and not _is_of_texts(config["head"]):
        yield (
            f"the classifier stays as head={config['head']['name']} makes it, whose class vectors "
            "say nothing of the classes; the paper's are head=zero_shot"
        )


def _is_of_texts(head: Mapping[str, Any]) -> bool:
    return bool(class_name(head["_target_"]) == "ZeroShotHead")


#: what an algorithm reads of the shared ones unless it says otherwise
SHARED = (
    "lr",
    "weight_decay",
    "batch_size",
)


def hyperparameters(
    config: Mapping[str, Any],
    settings: TrainerSettings,
    smallest: int,
    images: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Resolve every hyperparameter that a study reads; :func:`resolve` says which value wins.

    A drawn batch size that no minibatch of this dataset can have becomes the largest one that can:
    DomainBed's loader would wait for such a minibatch without end. A batch size that was chosen is
    refused instead.

    Args:
        config: the resolved configuration, plain values by top-level key.
        settings: of the trainer.
        smallest: training images of the smallest given environment; 0 where that is not known.
        images: training images of each environment that is trained on; None takes the smallest
            alone.

    Raises:
        ConfigError: as :func:`resolve`, or a batch size that cannot be had.
    """
    asked = config["hparams"]
    algorithm = config["algorithm"]
    declared = algorithm.get("hparams") or {}
    read = algorithm.get("shared", SHARED)
    # a shared one that this algorithm does not read is chosen for the others of a sweep
    typed = {
        key: value
        for key, value in asked.items()
        if key not in SEARCH_KEYS
        and value is not None
        and (key in declared or key in read or key not in SHARED)
    }
    values = resolve(
        asked["shared"],
        {"hparams": declared, "search": algorithm.get("search") or {}},
        kind=config["dataset"].get("image_kind"),
        space=asked["space"],
        number=asked["draw"],
        trial=asked["trial"],
        rng=asked["rng"],
        read=[*read, *(config["backbone"].get("hparams") or {}).values()],
        chosen=typed,
        dataset=str(config["dataset"].get("name")),
    )
    repeats = settings.small_environments == "repeat"
    drawn = asked["draw"] and "batch_size" not in typed
    if drawn and not repeats and 0 < smallest < values.get("batch_size", 0):
        values["batch_size"] = smallest
    settings.check_batch_size(values["batch_size"])
    trained_on = {"": smallest} if images is None else images
    known = {env: n for env, n in trained_on.items() if n}
    if known and not repeats and min(known.values()) < values["batch_size"]:
        raise ConfigError(batch_refusal(values["batch_size"], known))
    return values
