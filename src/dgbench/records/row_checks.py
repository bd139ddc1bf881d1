"""What the values of a row must be, by their types: whatever else a file holds is named and never reaches a table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Check = Callable[[Any], str]  # "" for a good value, else what is wrong with it, e.g. "is 1.5, not a whole number"

SUBSETS = ("train", "val", "test")
LONGEST = 1000  # characters of a text
DEEPEST = 8  # lists inside one another
LARGEST_COUNT = 2**31 - 1  # tables keep steps and images in 32 bits
_LARGEST = 2**63 - 1


def printable_text(value: Any) -> str:
    """Printable text of reasonable length; control characters break what they are written to."""
    if type(value) is not str:
        return f"is {shown(value)}, not text"
    if value.isprintable() and len(value) <= LONGEST:
        return ""
    return (
        f"is {len(value)} characters long"
        if len(value) > LONGEST
        else f"holds a character that cannot be printed: {shown(value)}"
    )


def truth(value: Any) -> str:
    """``true`` or ``false``."""
    return "" if type(value) is bool else f"is {shown(value)}, neither true nor false"


def whole(low: int = -_LARGEST, high: int = _LARGEST) -> Check:
    """A check for whole numbers from ``low`` to ``high``, written without a point."""

    def check(value: Any) -> str:
        if type(value) is int and low <= value <= high:
            return ""
        return f"is {shown(value)}, not a whole number from {low} to {high}"

    return check


def number(value: Any) -> str:
    """A finite number."""
    if type(value) in (int, float) and math.isfinite(value) and abs(value) <= _LARGEST:
        return ""
    return f"is {shown(value)}, not a finite number"


def loss(value: Any) -> str:
    """A number or infinity, which cross entropy reaches; not NaN."""
    if type(value) is float and not math.isnan(value):
        return ""
    return number(value)


def subset(value: Any) -> str:
    """One of :data:`SUBSETS`."""
    return "" if type(value) is str and value in SUBSETS else f"is {shown(value)}, not {', '.join(SUBSETS)}"


def optional(check: Check) -> Check:
    """The same check, and null is good too."""
    return lambda value: "" if value is None else check(value)


def list_of(check: Check) -> Check:
    """A list whose items pass a check."""

    def check_list(value: Any) -> str:
        if type(value) is not list:
            return f"is {shown(value)}, not a list"
        return next((f"has an item that {wrong}" for wrong in map(check, value) if wrong), "")

    return check_list


def mapping_of(check: Check) -> Check:
    """Names with values that pass a check."""

    def check_mapping(value: Any) -> str:
        if type(value) is not dict:
            return f"is {shown(value)}, not a mapping"
        if wrong := next(filter(None, map(printable_text, value)), ""):
            return f"has a name that {wrong}"
        return next((f"has {name}, which {wrong}" for name, item in value.items() if (wrong := check(item))), "")

    return check_mapping


def plain_mapping(value: Any) -> str:
    """Hyperparameters, or options of a dataset: names with text, a number, a truth, null, or lists of these."""
    return mapping_of(lambda item: _plain(item, DEEPEST))(value)


def _plain(value: Any, deepest: int) -> str:
    if type(value) is list and deepest:
        return next((f"has an item that {wrong}" for item in value if (wrong := _plain(item, deepest - 1))), "")
    if type(value) is float:  # an infinite limit is no limit, and a hyperparameter may have none
        return "is NaN" if math.isnan(value) else ""
    if type(value) is int:
        return number(value)
    return "" if value is None or type(value) is bool else printable_text(value)


#: the check of each type that a field is declared with
BY_TYPE: dict[str, Check] = {
    "str": printable_text,
    "int": whole(),
    "bool": truth,
    "float": number,
    "int | None": optional(whole()),
    "list[str]": list_of(printable_text),
    "list[list[str]] | None": optional(list_of(list_of(printable_text))),
    "list[int]": list_of(whole()),
    "dict[str, Any]": plain_mapping,
    "dict[str, str]": mapping_of(printable_text),
    "dict[str, float]": mapping_of(number),
    "dict[str, list[int]]": mapping_of(list_of(whole())),
}

#: of the keys of a row besides its identity
ROW_CHECKS: dict[str, Check] = {
    "step": whole(0, LARGEST_COUNT),
    "env": printable_text,
    "subset": subset,
    "env_held_out": truth,
    "seen": whole(1, LARGEST_COUNT),
    "wrong": number,
    "loss": loss,
    "together": optional(whole(1, LARGEST_COUNT)),
}


def first_fault(values: Mapping[str, Any], checks: Mapping[str, Check]) -> str:
    """The first value that fails its check, in words; empty where all pass. Keys that are absent are passed over."""
    return next((f"{key} {wrong}" for key in checks if key in values and (wrong := checks[key](values[key]))), "")


def misfit(identity: Mapping[str, Any]) -> str:
    """What in an identity contradicts the rest of it, in words; empty where nothing does."""
    given: Sequence[str] = identity["given"]
    if not given or len(set(given)) < len(given):
        return f"given is {shown(given)}, not different names"
    if strange := [env for env in identity["held_out"] if env not in given]:
        return f"held_out has {shown(strange[0])}, which is not given"
    fold, folds = identity["fold"], identity.get("folds")
    if folds and fold != "full" and not (fold.isdecimal() and int(fold) < len(folds)):
        return f"fold is {shown(fold)}, none of its {len(folds)} folds"
    return ""


def shown(value: Any) -> str:
    """A value as JSON in ASCII, cut to a readable length."""
    written = json.dumps(value)
    return written if len(written) <= 40 else f"{written[:37]}..."
