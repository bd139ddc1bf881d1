"""Checks of values in files: each returns what is wrong with a value, no text if nothing is.

A file has millions of values: each check is one call if the value is good. Values are checked by
the types that fields declare (:data:`BY_TYPE`), so whatever else a file holds is named and never
reaches a table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

#: returns no text for a good value, else what is wrong with it, e.g. "is 1.5, not a whole number"
Check = Callable[[Any], str]

LONGEST = 1000  #: characters of a text
DEEPEST = 8  #: lists inside one another
LARGEST_COUNT = 2**31 - 1  #: tables keep steps and images in 32 bits
_LARGEST_NUMBER = 2**63 - 1


def printable_text(value: Any) -> str:
    """Check for printable text of reasonable length.

    Control characters break what they are written to.
    """
    if type(value) is not str:
        return f"is {shown(value)}, not text"
    if len(value) > LONGEST:
        return f"is {len(value)} characters long"
    if value.isprintable():
        return ""
    return f"holds a character that cannot be printed: {shown(value)}"


def whole(low: int = -_LARGEST_NUMBER, high: int = _LARGEST_NUMBER) -> Check:
    """Make a check for whole numbers from ``low`` to ``high``, written without a point."""

    def check(value: Any) -> str:
        if type(value) is int and low <= value <= high:
            return ""
        return f"is {shown(value)}, not a whole number from {low} to {high}"

    return check


def truth(value: Any) -> str:
    """Check for true or false."""
    return "" if type(value) is bool else f"is {shown(value)}, neither true nor false"


def number(value: Any) -> str:
    """Check for a finite number."""
    if type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER:
        return ""
    return f"is {shown(value)}, not a finite number"


def optional(check: Check) -> Check:
    """Make a check that passes null and what the given one passes."""
    return lambda value: "" if value is None else check(value)


def list_of(check: Check) -> Check:
    """Make a check for lists whose items pass the given one."""

    def check_list(value: Any) -> str:
        if type(value) is not list:
            return f"is {shown(value)}, not a list"
        for item in value:
            fault = check(item)
            if fault:
                return f"has an item that {fault}"
        return ""

    return check_list


def mapping_of(check: Check) -> Check:
    """Make a check for mappings of printable names to values that pass the given one."""

    def check_mapping(value: Any) -> str:
        if type(value) is not dict:
            return f"is {shown(value)}, not a mapping"
        for name in value:
            fault = printable_text(name)
            if fault:
                return f"has a name that {fault}"
        for name, item in value.items():
            fault = check(item)
            if fault:
                return f"has {name}, which {fault}"
        return ""

    return check_mapping


def plain_mapping(value: Any) -> str:
    """Check hyperparameters, or options of a dataset.

    These are names with text, a number, a truth, null, or lists of these.
    """
    return mapping_of(lambda item: _plain(item, DEEPEST))(value)


def _plain(value: Any, deepest: int) -> str:
    if type(value) is list and deepest:
        for item in value:
            fault = _plain(item, deepest - 1)
            if fault:
                return f"has an item that {fault}"
        return ""
    if type(value) is float:  # an infinite limit is no limit, and a hyperparameter may have none
        return "is NaN" if math.isnan(value) else ""
    if type(value) is int:
        return number(value)
    if value is None or type(value) is bool:
        return ""
    return printable_text(value)


#: the check of each type that a field is declared with
BY_TYPE: dict[Any, Check] = {
    str: printable_text,
    int: whole(),
    bool: truth,
    float: number,
    float | None: optional(number),
    int | None: optional(whole()),
    list[str]: list_of(printable_text),
    list[list[str]] | None: optional(list_of(list_of(printable_text))),
    list[int]: list_of(whole()),
    dict[str, Any]: plain_mapping,
    dict[str, str]: mapping_of(printable_text),
    dict[str, float]: mapping_of(number),
    dict[str, list[int]]: mapping_of(list_of(whole())),
}


def first_fault(values: Mapping[str, Any], checks: Mapping[str, Check]) -> str:
    """Describe which value first fails its check, and how, in no words if all pass.

    Keys that are absent are passed over.
    """
    for key, check in checks.items():
        if key in values:
            fault = check(values[key])
            if fault:
                return f"{key} {fault}"
    return ""


def shown(value: Any) -> str:
    """Format a value as JSON in ASCII, cut to a readable length."""
    written = json.dumps(value)
    return written if len(written) <= 40 else f"{written[:37]}..."
