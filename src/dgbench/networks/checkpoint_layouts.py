"""Which tensors of a file are the network: found by their names, in whatever the file wraps around
them.

A file holds *groups*, mappings of tensors by name: ``state_dict``, ``teacher``, ``model``. In each,
names may begin with a common prefix: ``module.``, ``net.``, ``module.encoder_q.``. Every group and
prefix under which the file has a good part of the network is a *reading*. The one that gives most
of the network's numbers counts; where two give as many, and not the same ones, the layouts that are
known decide, as their authors' own loading code does:

=======================================  ======================
========================================= published by                             read
not read =======================================  ======================
========================================= MoCo v1, v2                              encoder_q
encoder_k, its momentum copy MoCo v3                                  base_encoder
momentum_encoder DINO, iBOT                               teacher                 student BYOL
online                  target lightly, solo-learn, MMSelfSup           backbone
momentum_backbone, backbone_momentum =======================================  ======================
=========================================

Anything else is asked for: ``init.key=`` names the group, ``init.prefix=`` the prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import WeightsError, one_line
from dgbench.validation import some_of

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
Adapt = Callable[[dict[str, "Tensor"]], dict[str, "Tensor"]]

LEAST_SHARE = 0.3  # of as many tensors as the network has, below a prefix, for it to be tried
MOST_PREFIXES = 32  # of a group that are tried
DEEPEST = 8  # mappings within mappings
LONGEST = 200  # characters of a name
SHOWN = 5  # names that a message shows
#: beginnings of names of what stands behind an encoder while it is trained
HEADS = (
    "projector", "projection", "projetion", "predictor", "prediction", "prototypes", "contrastive_head", "classifier",
    "dino_head", "ibot_head", "decoder", "mask_token", "queue", "n_averaged",
)  # fmt: skip
#: of two readings, a word in the place of one that counts, and of one that does not
PREFERRED = (
    ("encoder_q", "encoder_k"), ("base_encoder", "momentum_encoder"), ("online", "target"), ("backbone", "momentum"),
)  # fmt: skip
SELF_DISTILLED = ("dino", "ibot")  # in a name of a file whose authors evaluate the teacher
ANOTHER = "choose the backbone it was made for"


@dataclass(frozen=True)
class Reading:
    """Tensors of a file under one group and prefix, as those of a network.

    Attributes:
        group: name of the mapping in the file that holds them, with dots between mappings in
            mappings; may be empty.
        prefix: what the names begin with; may be empty.
        tensors: by the network's names.
        left_out: names in the group that the network does not have.
        fault: why they could not be brought to the network's names.
    """

    group: str
    prefix: str
    tensors: Tensors
    left_out: tuple[str, ...] = ()
    fault: str = ""

    @property
    def place(self) -> str:
        """Where they stand in the file, in words."""
        words = [self.group] if self.group else []
        words += [f"{self.prefix}*"] if self.prefix else []
        return ", ".join(words)

    def numbers(self, network: Tensors) -> int:
        """Count the network's numbers that they give."""
        tensors = self.tensors
        names = [
            name
            for name in network
            if name in tensors and tensors[name].shape == network[name].shape
        ]
        return sum(network[name].numel() for name in names)


@dataclass(frozen=True)
class Arrival:
    """How much of a network a file filled."""

    place: str  #: see :attr:`Reading.place`
    tensors: int
    of_tensors: int
    numbers: int
    of_numbers: int
    left_out: tuple[str, ...]  #: tensors of the file that the network does not have

    def __str__(self) -> str:
        text = (
            f"{self.tensors} of {self.of_tensors} tensors, {self.numbers:,} of "
            f"{self.of_numbers:,} numbers"
        )
        if self.place:
            text += f", under {self.place}"
        return text + (f"; left out: {some_of(self.left_out)}" if self.left_out else "")

    def to_json(self) -> dict[str, Any]:
        """Return what a run's record says of it."""
        return {
            "place": self.place,
            "tensors": [self.tensors, self.of_tensors],
            "numbers": [self.numbers, self.of_numbers],
            "left_out": len(self.left_out),
        }


@dataclass(frozen=True)
class Question:
    """What is asked of a file.

    Args:
        file: for messages.
        network: the network's own tensors by name; they may be on the meta device.
        arch: what messages call the network.
        adapt: brings names and shapes of a file to those of the network; it may raise anything.
        children: names of the network's modules, in order, for files that number them.
        key: group that is read; None: any.
        prefix: what names begin with; None: anything.
        may_lack, may_add: patterns of names that the file may lack, or have too much.
        option: beginning of the keys that say how a file is read; empty where there are none.
    """

    file: Path
    network: Tensors
    arch: str
    adapt: Adapt
    children: Sequence[str] = ()
    key: str | None = None
    prefix: str | None = None
    may_lack: Sequence[str] = ()
    may_add: Sequence[str] = ()
    option: str = "init."

    def answer(self, content: Any) -> tuple[dict[str, Tensor], Arrival]:
        """Find the network in what a file holds.

        Returns:
            Its tensors by the network's names, and how much of it they are.

        Raises:
            WeightsError: the file has no such network, several, one that does not fit, or numbers
                that are not finite.
        """
        reading = self._chosen(list(self._readings(content)), content)
        if problems := reading.fault or misfit(
            self.network, reading.tensors, self.may_lack, self.may_add
        ):
            under = f", read under {reading.place}," if reading.place else ""
            listing = (
                f"{ANOTHER}, or list names in {self.option}allow_missing / "
                f"{self.option}allow_unexpected"
            )
            raise WeightsError(
                f"{self.file}{under} does not fit {self.arch}{_hint(reading.tensors)}: {problems}; "
                f"{listing if self.option else 'give another'}"
            )
        fitting = {name: value for name, value in reading.tensors.items() if name in self.network}
        arrival = self._arrival(reading, fitting)
        self._refuse_little(arrival)
        self._refuse_not_finite(fitting)
        return fitting, arrival

    # ---- readings
    # -----------------------------------------------------------------------------------------------

    def _readings(self, content: Any) -> Iterator[Reading]:
        groups = dict(groups_of(content))
        if not groups:
            raise WeightsError(f"{self.file} {_of_no_groups(content)}")
        if self.key is not None:
            if self.key not in groups:
                raise WeightsError(
                    f"{self.option}key={self.key} names no tensors of {self.file}; choose from "
                    f"{', '.join(group or '(none)' for group in groups)}"
                )
            groups = {self.key: groups[self.key]}
        prefixed = False
        for group, tensors in groups.items():
            for prefix in self._prefixes(tensors):
                prefixed = True
                yield self._reading(group, prefix, tensors)
        if not prefixed:
            beginnings = {name.partition(".")[0] for tensors in groups.values() for name in tensors}
            raise WeightsError(
                f"no tensor of {self.file} begins with {self.option}prefix={self.prefix}; its "
                f"names begin with {some_of(sorted(beginnings))}"
            )

    def _prefixes(self, tensors: Tensors) -> list[str]:
        """List what names may begin with: the prefix asked for, or every one that a good part of a
        network shares.
        """
        if self.prefix is not None:
            wanted = (
                self.prefix if self.prefix.endswith(".") or not self.prefix else f"{self.prefix}."
            )
            return [wanted] if any(name.startswith(wanted) for name in tensors) else []
        counts = Counter(prefix for name in tensors for prefix in _beginnings(name))
        least = LEAST_SHARE * len(self.network)
        frequent = [prefix for prefix, count in counts.most_common(MOST_PREFIXES) if count >= least]
        return ["", *frequent]

    def _reading(self, group: str, prefix: str, tensors: Tensors) -> Reading:
        names = {
            name.removeprefix(prefix): value
            for name, value in tensors.items()
            if name.startswith(prefix)
        }
        inside = _named_children(names, self.children)
        encoder = {
            name: value
            for name, value in inside.items()
            if name in self.network or not name.startswith(HEADS)
        }
        reading = Reading(group, prefix, encoder)
        try:
            adapted = self.adapt(encoder)
        except Exception as error:  # a converter of timm's stumbles over tensors of another network
            return replace(reading, fault=one_line(error))
        outside = [name for name in tensors if not name.startswith(prefix)]
        heads = [prefix + name for name in inside if name not in encoder]
        return replace(reading, tensors=adapted, left_out=tuple(outside + heads))

    # ---- which of them
    # ------------------------------------------------------------------------------------------

    def _chosen(self, readings: Sequence[Reading], content: Any) -> Reading:
        """Choose the reading that gives most of the network, with the least beside it.

        Raises:
            WeightsError: several do, with other numbers, and no layout that is known says which
                one.
        """
        most = max(reading.numbers(self.network) for reading in readings)
        largest = [reading for reading in readings if reading.numbers(self.network) == most]
        if not most:
            return largest[0]
        least = min(len(reading.tensors.keys() - self.network.keys()) for reading in largest)
        best = [r for r in largest if len(r.tensors.keys() - self.network.keys()) == least]
        best = _preferred(best, content)
        distinct = [best[0]]
        for reading in best[1:]:
            if not any(
                _are_equal(self.network, reading.tensors, other.tensors) for other in distinct
            ):
                distinct.append(reading)
        if len(distinct) > 1:
            raise WeightsError(self._ambiguous(distinct))
        return distinct[0]

    def _ambiguous(self, readings: Sequence[Reading]) -> str:
        groups = list(dict.fromkeys(reading.group for reading in readings))
        prefixes = [reading.prefix for reading in readings]
        by_group = len(groups) == len(readings)
        key, values = ("key", groups) if by_group else ("prefix", prefixes)
        problem = (
            f"{self.file} holds {self.arch} {len(readings)} times, each time with different numbers"
        )
        if not self.option:
            return f"{problem} ({', '.join(values[:SHOWN])}); save the one that you mean alone"
        advised = " or ".join(f"{self.option}{key}={value}" for value in values[:SHOWN])
        return f"{problem}; say which with {advised}"

    # ---- what arrived
    # -------------------------------------------------------------------------------------------

    def _arrival(self, reading: Reading, fitting: Tensors) -> Arrival:
        numbers = sum(value.numel() for value in fitting.values())
        of_numbers = sum(value.numel() for value in self.network.values())
        extra = [name for name in reading.tensors if name not in self.network]
        return Arrival(
            reading.place,
            len(fitting),
            len(self.network),
            numbers,
            of_numbers,
            (*reading.left_out, *extra),
        )

    def _refuse_little(self, arrival: Arrival) -> None:
        """Refuse a file that leaves most of the network random, whatever may be missing.

        Raises:
            WeightsError: no tensor arrives, or fewer than half of the network's numbers.
        """
        if not arrival.tensors:
            raise WeightsError(
                f"{self.file} has none of the {arrival.of_tensors} tensors of {self.arch}, which "
                f"would stay random; {ANOTHER}, or use init=random"
            )
        if 2 * arrival.numbers < arrival.of_numbers:
            raise WeightsError(
                f"{self.file} has {arrival.numbers:,} of the {arrival.of_numbers:,} numbers of "
                f"{self.arch}, less than half, and the others would stay random; {ANOTHER}, or "
                "use init=random"
            )

    def _refuse_not_finite(self, fitting: Tensors) -> None:
        """Refuse weights that are NaN or infinite.

        Raises:
            WeightsError: some are.
        """
        names = not_finite(fitting)
        if names:
            raise WeightsError(
                f"{self.file} holds numbers that are not finite, in {some_of(names)}: its "
                "training diverged; take an earlier checkpoint"
            )


def not_finite(tensors: Tensors) -> list[str]:
    """List the names of tensors that hold NaN or infinite numbers."""
    real = [
        (name, value)
        for name, value in tensors.items()
        if value.is_floating_point() and not value.is_meta
    ]
    return [name for name, value in real if not value.isfinite().all()]


def groups_of(
    content: Any, place: str = "", deepest: int = DEEPEST
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Iterate over the mappings of named tensors in what a file holds, with their place; states of
    optimizers are none.

    A module that was pickled whole is a group of its parameters and buffers.
    """
    from torch import Tensor

    from dgbench.networks.pickles import Inert, tensors_of_module

    if isinstance(content, Inert):
        tensors = {printable(name): value for name, value in tensors_of_module(content)}
        if tensors:
            yield place, tensors
            return
        content = content.items or vars(content)
    if not isinstance(content, Mapping) or not deepest or _is_optimizer(content):
        return
    tensors = {
        printable(name): value for name, value in content.items() if isinstance(value, Tensor)
    }
    if tensors:
        yield place, tensors
    for key, value in content.items():
        name = printable(key)
        if "optim" not in name:
            yield from groups_of(value, f"{place}.{name}" if place else name, deepest - 1)


def printable(name: object) -> str:
    """Write a name of a file so that it can stand in a message; no network has one that this
    changes.
    """
    text = str(name)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _is_optimizer(content: Mapping[Any, Any]) -> bool:
    return "param_groups" in content and "state" in content


def _of_no_groups(content: Any) -> str:
    """Say what a file holds that has no group."""
    parts = [content, *content.values()] if isinstance(content, Mapping) else [content]
    if any(isinstance(part, Mapping) and _is_optimizer(part) for part in parts):
        return (
            "holds the state of an optimizer and no network; give the file that was saved beside it"
        )
    kinds = (
        some_of([printable(name) for name in content])
        if isinstance(content, Mapping)
        else type(content).__name__
    )
    return f"holds no named tensors ({kinds or 'nothing'}); give a file of weights"


def _beginnings(name: str) -> list[str]:
    """List everything in front of a dot in a name, dot included."""
    return list(accumulate(f"{part}." for part in name.split(".")[:-1]))


def _named_children(tensors: Tensors, children: Sequence[str]) -> Tensors:
    """Name what stands in an ``nn.Sequential`` of a network's modules as the network does."""
    firsts = {name.partition(".")[0] for name in tensors}
    numbers = {str(number): child for number, child in enumerate(children)}
    if len(firsts & numbers.keys()) < 2:
        return tensors
    renamed = {}
    for name, value in tensors.items():
        first, dot, rest = name.partition(".")
        renamed[f"{numbers.get(first, first)}{dot}{rest}"] = value
    return renamed


def _preferred(readings: list[Reading], content: Any) -> list[Reading]:
    """Drop the readings that the authors of a known layout do not read."""
    pairs = list(PREFERRED)
    if _names_any(content, SELF_DISTILLED):
        pairs.append(("teacher", "student"))
    for counts, does_not in pairs:
        chosen = [
            reading
            for reading in readings
            if counts in reading.place and does_not not in reading.place
        ]
        others = [reading for reading in readings if does_not in reading.place]
        if chosen and others:
            readings = [reading for reading in readings if reading not in others]
    return readings


def _names_any(content: Any, words: Collection[str], deepest: int = 3) -> bool:
    if not isinstance(content, Mapping) or not deepest:
        return False
    if any(word in str(name) for name in content for word in words):
        return True
    return any(_names_any(value, words, deepest - 1) for value in content.values())


def _are_equal(network: Tensors, some: Tensors, others: Tensors) -> bool:
    """Return whether two readings give a network the same numbers."""
    for name in network:
        one, other = some.get(name), others.get(name)
        if (one is None) != (other is None):
            return False
        if one is not None and other is not None and one is not other and not _is_equal(one, other):
            return False
    return True


def _is_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors hold the same numbers, NaN included; nothing is known of two on
    the meta device.
    """
    if one.is_meta or other.is_meta or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return one.equal(other)
    return one.nan_to_num().equal(other.nan_to_num())


def _hint(tensors: Tensors) -> str:
    """Say whose names a file has, where they are no names of timm's."""
    if any(".encoder.layer." in f".{name}" or ".embeddings." in f".{name}" for name in tensors):
        return " (its tensors have the names of transformers, and timm's are needed)"
    return ""


def misfit(
    network: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    may_lack: Sequence[str] = (),
    may_add: Sequence[str] = (),
) -> str:
    """Describe in words what keeps tensors from fitting a network; empty where they fit.

    Args:
        network: its own tensors by name.
        tensors: those that it is to get.
        may_lack: patterns of names that ``tensors`` may lack.
        may_add: patterns of names that the network may lack.
    """
    missing = _unmatched(network.keys() - tensors.keys(), may_lack)
    extra = _unmatched(tensors.keys() - network.keys(), may_add)
    shapes = [
        name for name in network if name in tensors and network[name].shape != tensors[name].shape
    ]
    problems = [f"lacks {some_of(missing)}"] if missing else []
    problems += [f"has {some_of(extra)} in addition"] if extra else []
    if shapes:
        first = shapes[0]
        suffix = f" (and {len(shapes) - 1} more shapes)" if len(shapes) > 1 else ""
        problems.append(
            f"{first} is {tuple(tensors[first].shape)} instead of "
            f"{tuple(network[first].shape)}{suffix}"
        )
    return "; ".join(problems)


def _unmatched(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return sorted(
        name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)
    )
