"""Which tensors of a file are the network, found by their names in whatever the file holds.

A file holds *groups*, mappings of tensors by name: ``state_dict``, ``teacher``, ``model``. In each,
names may begin with a common prefix: ``module.``, ``net.``, ``module.encoder_q.``. Every group and
prefix under which the file has a good part of the network is a *reading*. The one that gives most
of the network's numbers counts; where two give as many, and not the same ones, the layouts that are
known decide, as their authors' own loading code does:

==============================  ==============  ====================================
published by                    read            not read
==============================  ==============  ====================================
MoCo v1, v2                     encoder_q       encoder_k, its momentum copy
MoCo v3                         base_encoder    momentum_encoder
DINO, iBOT                      teacher         student
BYOL                            online          target
lightly, solo-learn, MMSelfSup  backbone        momentum_backbone, backbone_momentum
==============================  ==============  ====================================

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
LONGEST_NAME = 200  # characters of a name in a message
MOST_NAMES = 5  # names that a message shows
#: beginnings of names of what stands behind an encoder while it is trained
HEADS = (
    "projector",
    "projection",
    "projetion",
    "predictor",
    "prediction",
    "prototypes",
    "contrastive_head",
    "classifier",
    "dino_head",
    "ibot_head",
    "decoder",
    "mask_token",
    "queue",
    "n_averaged",
)
#: of two readings, a word in the place of one that counts, and of one that does not
PREFERRED = (
    ("encoder_q", "encoder_k"),
    ("base_encoder", "momentum_encoder"),
    ("online", "target"),
    ("backbone", "momentum"),
)
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
        words = []
        if self.group:
            words.append(self.group)
        if self.prefix:
            words.append(f"{self.prefix}*")
        return ", ".join(words)

    def numbers(self, network: Tensors) -> int:
        """Count the network's numbers that they give."""
        count = 0
        for name, value in network.items():
            if name in self.tensors and self.tensors[name].shape == value.shape:
                count += value.numel()
        return count


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
        if self.left_out:
            text += f"; left out: {some_of(self.left_out)}"
        return text

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
        option: beginning of the keys that say how a file is read; "" if there are none.
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
        self._refuse_misfit(reading)
        fitting = {name: value for name, value in reading.tensors.items() if name in self.network}
        arrival = self._arrival(reading, fitting)
        self._refuse_little(arrival)
        self._refuse_not_finite(fitting)
        return fitting, arrival

    # ---- readings --------------------------------------------------------------------------------

    def _readings(self, content: Any) -> Iterator[Reading]:
        groups = dict(groups_of(content))
        if not groups:
            raise WeightsError(f"{self.file} {_of_no_groups(content)}")
        if self.key is not None:
            if self.key not in groups:
                places = ", ".join(group or "(none)" for group in groups)
                raise WeightsError(
                    f"{self.option}key={self.key} names no tensors of {self.file}; choose from "
                    f"{places}"
                )
            groups = {self.key: groups[self.key]}
        prefixed = False
        for group, tensors in groups.items():
            for prefix in self._prefixes(tensors):
                prefixed = True
                yield self._reading(group, prefix, tensors)
        if not prefixed:
            beginnings: set[str] = set()
            for tensors in groups.values():
                beginnings.update(name.partition(".")[0] for name in tensors)
            raise WeightsError(
                f"no tensor of {self.file} begins with {self.option}prefix={self.prefix}; its "
                f"names begin with {some_of(sorted(beginnings))}"
            )

    def _prefixes(self, tensors: Tensors) -> list[str]:
        """List what names may begin with.

        This is the prefix that was asked for, or else every one that a good part of a network
        shares.
        """
        if self.prefix is not None:
            wanted = self.prefix
            if wanted and not wanted.endswith("."):
                wanted += "."
            return [wanted] if any(name.startswith(wanted) for name in tensors) else []
        counts: Counter[str] = Counter()
        for name in tensors:
            counts.update(_beginnings(name))
        least = LEAST_SHARE * len(self.network)
        frequent = [prefix for prefix, count in counts.most_common(MOST_PREFIXES) if count >= least]
        return ["", *frequent]

    def _reading(self, group: str, prefix: str, tensors: Tensors) -> Reading:
        """Read the tensors of a group behind a prefix, as those of the network."""
        inside = {}
        outside = []
        for name, value in tensors.items():
            if name.startswith(prefix):
                inside[name.removeprefix(prefix)] = value
            else:
                outside.append(name)
        encoder = {}
        heads = []
        for name, value in _named_children(inside, self.children).items():
            if name in self.network or not name.startswith(HEADS):
                encoder[name] = value
            else:
                heads.append(prefix + name)
        reading = Reading(group, prefix, encoder)
        try:
            adapted = self.adapt(encoder)
        except Exception as error:  # a converter of timm's stumbles over tensors of another network
            return replace(reading, fault=one_line(error))
        return replace(reading, tensors=adapted, left_out=tuple(outside + heads))

    # ---- which reading counts --------------------------------------------------------------------

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
        extra = [len(reading.tensors.keys() - self.network.keys()) for reading in largest]
        least = min(extra)
        best = [reading for reading, n in zip(largest, extra, strict=True) if n == least]
        distinct: list[Reading] = []
        for reading in _preferred(best, content):
            seen = [_are_equal(self.network, reading.tensors, one.tensors) for one in distinct]
            if not any(seen):
                distinct.append(reading)
        if len(distinct) > 1:
            raise WeightsError(self._ambiguous(distinct))
        return distinct[0]

    def _ambiguous(self, readings: Sequence[Reading]) -> str:
        key = "key"
        values = list(dict.fromkeys(reading.group for reading in readings))
        if len(values) < len(readings):
            key = "prefix"
            values = [reading.prefix for reading in readings]
        shown = values[:MOST_NAMES]
        problem = (
            f"{self.file} holds {self.arch} {len(readings)} times, each time with different numbers"
        )
        if not self.option:
            return f"{problem} ({', '.join(shown)}); save the one that you mean alone"
        advised = " or ".join(f"{self.option}{key}={value}" for value in shown)
        return f"{problem}; say which with {advised}"

    # ---- what arrived ----------------------------------------------------------------------------

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

    def _refuse_misfit(self, reading: Reading) -> None:
        """Refuse tensors that do not fit the network.

        Raises:
            WeightsError: they do not, and what to do.
        """
        problems = reading.fault or misfit(
            self.network, reading.tensors, self.may_lack, self.may_add
        )
        if not problems:
            return
        under = f", read under {reading.place}," if reading.place else ""
        fix = "give another"
        if self.option:
            fix = (
                f"{ANOTHER}, or list names in {self.option}allow_missing / "
                f"{self.option}allow_unexpected"
            )
        raise WeightsError(
            f"{self.file}{under} does not fit {self.arch}{_hint(reading.tensors)}: {problems}; "
            f"{fix}"
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
    names = []
    for name, value in tensors.items():
        if value.is_floating_point() and not value.is_meta and not value.isfinite().all():
            names.append(name)
    return names


def groups_of(
    content: Any, place: str = "", deepest: int = DEEPEST
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Iterate over the mappings of named tensors in what a file holds, with their place.

    States of optimizers are left out. A module that was pickled whole is a group of its parameters
    and buffers.
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
    """Write a name of a file so that it can stand in a message.

    No network has a name that this changes.
    """
    text = str(name)
    if not text.isprintable():
        text = ascii(text)[1:-1]
    if len(text) > LONGEST_NAME:
        text = f"{text[:LONGEST_NAME]}..."
    return text


def _is_optimizer(content: Mapping[Any, Any]) -> bool:
    return "param_groups" in content and "state" in content


def _of_no_groups(content: Any) -> str:
    """Describe what a file without a group holds."""
    parts = [content, *content.values()] if isinstance(content, Mapping) else [content]
    if any(isinstance(part, Mapping) and _is_optimizer(part) for part in parts):
        return (
            "holds the state of an optimizer and no network; give the file that was saved beside it"
        )
    if isinstance(content, Mapping):
        kinds = some_of([printable(name) for name in content])
    else:
        kinds = type(content).__name__
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
        others = [reading for reading in readings if does_not in reading.place]
        rest = [reading for reading in readings if does_not not in reading.place]
        if others and any(counts in reading.place for reading in rest):
            readings = rest
    return readings


def _names_any(content: Any, words: Collection[str], deepest: int = 3) -> bool:
    if not isinstance(content, Mapping) or not deepest:
        return False
    for name, value in content.items():
        if any(word in str(name) for word in words) or _names_any(value, words, deepest - 1):
            return True
    return False


def _are_equal(network: Tensors, some: Tensors, others: Tensors) -> bool:
    """Return whether two readings give a network the same numbers."""
    for name in network:
        one = some.get(name)
        other = others.get(name)
        if one is other:
            continue
        if one is None or other is None or not _is_equal(one, other):
            return False
    return True


def _is_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors hold the same numbers, NaN included.

    Nothing is known of two on the meta device: they count as different.
    """
    if one.is_meta or other.is_meta or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return one.equal(other)
    return one.nan_to_num().equal(other.nan_to_num())


def _hint(tensors: Tensors) -> str:
    """Describe whose names a file has if they are not timm's."""
    for name in tensors:
        if ".encoder.layer." in f".{name}" or ".embeddings." in f".{name}":
            return " (its tensors have the names of transformers, and timm's are needed)"
    return ""


def misfit(
    network: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    may_lack: Sequence[str] = (),
    may_add: Sequence[str] = (),
) -> str:
    """Describe in words what keeps tensors from fitting a network, or return "" if they fit.

    Args:
        network: its own tensors by name.
        tensors: those that it is to get.
        may_lack: patterns of names that ``tensors`` may lack.
        may_add: patterns of names that the network may lack.
    """
    missing = _unmatched(network.keys() - tensors.keys(), may_lack)
    extra = _unmatched(tensors.keys() - network.keys(), may_add)
    common = [name for name in network if name in tensors]
    shapes = [name for name in common if network[name].shape != tensors[name].shape]
    problems = []
    if missing:
        problems.append(f"lacks {some_of(missing)}")
    if extra:
        problems.append(f"has {some_of(extra)} in addition")
    if shapes:
        first = shapes[0]
        suffix = f" (and {len(shapes) - 1} more shapes)" if len(shapes) > 1 else ""
        problems.append(
            f"{first} is {tuple(tensors[first].shape)} instead of "
            f"{tuple(network[first].shape)}{suffix}"
        )
    return "; ".join(problems)


def _unmatched(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """List, sorted, the names that no pattern matches."""

    def matched(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return sorted(name for name in names if not matched(name))
