"""Parses and checks lines of a row file. The identity, most of each line, is parsed and checked once for all lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dgbench.errors import RecordError
from dgbench.records.row_checks import ROW_CHECKS, Check, first_fault, misfit

_CUT = b',"step":'  # where a line passes from the identity to the rest
_decode = json.JSONDecoder().decode


class RowParser:
    """Lines of one row file.

    Args:
        checks: of the keys of an identity.
        optional: keys that a line may lack, as lines do that are older than the key.
    """

    def __init__(self, checks: Mapping[str, Check], optional: frozenset[str]) -> None:
        self._checks, self._needed = checks, frozenset((*checks, *ROW_CHECKS)) - optional
        self._heads: dict[bytes, dict[str, Any]] = {}  # beginning of lines, as written -> identity
        self._known: dict[str, dict[str, Any]] = {}

    def parse(self, line: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        """One line.

        Returns:
            the keys that the line has of the identity, the same object for equal ones; and its other keys.

        Raises:
            RecordError: it is no row; why.
        """
        cut = line.rfind(_CUT)
        identity = self._heads.get(line[:cut])
        if identity is not None:
            try:
                own = _object(b"{" + line[cut + 1 :])
                own.setdefault("together", None)
                if len(own) == len(ROW_CHECKS) and not _fault(own):
                    return identity, own
            except (RecordError, KeyError):
                pass  # the whole line tells what is wrong
        return self._whole(line, cut)

    def _whole(self, line: bytes, cut: int) -> tuple[dict[str, Any], dict[str, Any]]:
        flat = _object(line)
        if missing := self._needed - flat.keys():
            raise RecordError(f"lacks {', '.join(sorted(missing))}")
        identity = {key: flat[key] for key in self._checks if key in flat}
        own = {key: flat.get(key) for key in ROW_CHECKS}
        if wrong := first_fault(identity, self._checks) or misfit(identity) or _fault(own):
            raise RecordError(wrong)
        identity = self._known.setdefault(json.dumps(identity, sort_keys=True), identity)
        if cut > 0 and self._is_head(line[:cut], identity):
            self._heads[line[:cut]] = identity
        return identity, own

    def _is_head(self, text: bytes, identity: Mapping[str, Any]) -> bool:
        """Whether a beginning of a line is that identity and nothing that is not closed."""
        try:
            head = _object(text + b"}")
        except RecordError:
            return False
        return head.keys().isdisjoint(ROW_CHECKS) and {k: v for k, v in head.items() if k in self._checks} == identity


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = _decode(text.decode())
    except (ValueError, RecursionError):
        value = None
    if type(value) is not dict:
        raise RecordError("not a whole JSON object (half-written?)")
    return value


def _fault(own: Mapping[str, Any]) -> str:
    for key, check in ROW_CHECKS.items():
        if wrong := check(own[key]):
            return f"{key} {wrong}"
    return "" if 0 <= own["wrong"] <= own["seen"] else f"{own['wrong']} wrong of {own['seen']} seen is no error"
