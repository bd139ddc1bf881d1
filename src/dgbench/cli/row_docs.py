"""The text of docs/reference/rows.md: from the fields of the rows' classes and the comments behind them."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import ROW_FILE, SHIFT_FILE, Row, RunIdentity
from dgbench.records.shift_rows import ShiftIdentity, ShiftRow

_FIELD = re.compile(r"^    (?P<name>\w+): [^#\n]*#: (?P<text>.+)$", re.MULTILINE)
#: fields that stand in the file under another name
_RENAMED = {(Row, "held_out"): "env_held_out"}

_HEAD = f"""# Rows

<!-- Written by `make docs` from the classes of src/dgbench/records; edit those. -->

Each run keeps its errors in `{ROW_FILE}`, one JSON object per line: which run wrote it, and one counted error. Every
measure, table and figure is computed from such rows. `dgbench.results` reads them as a data frame
([From Python](python.md)); [Files](files.md) says where they are.

The error is `wrong / seen`, a fraction. A key with a default may be absent in rows that are older than the key.
"""

_MIDDLE = f"""
`{PREDICTION_FILE}` is described in [Which images are wrong](../how_to/errors.md), `metrics.csv` in
[Loggers](../how_to/loggers.md).

Estimates of `shift.py` are kept in `{SHIFT_FILE}` in the same way ([Dataset shift](../how_to/shift.md)).
"""


def rows_page() -> str:
    """The text of docs/reference/rows.md."""
    parts = [
        _HEAD,
        f"## `{ROW_FILE}`: the error\n",
        *_table(Row),
        f"\n## `{ROW_FILE}`: the run\n",
        *_table(RunIdentity),
        _MIDDLE,
        f"## `{SHIFT_FILE}`: the estimate\n",
        *_table(ShiftRow),
        f"\n## `{SHIFT_FILE}`: what is estimated\n",
        *_table(ShiftIdentity),
    ]
    return "\n".join(parts) + "\n"


def _table(kind: type[Any]) -> list[str]:
    """One line per field of a dataclass of rows; ``identity`` stands in a table of its own."""
    texts = dict(_FIELD.findall(inspect.getsource(kind)))
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for each in fields(kind):
        if each.name != "identity":
            cells = (
                f"`{_RENAMED.get((kind, each.name), each.name)}`",
                f"`{each.type}`",
                _default(each),
                texts[each.name],
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("``", "`") for cell in cells) + " |")
    return lines


def _default(field: Any) -> str:
    if field.default_factory is not MISSING:
        return f"`{field.default_factory()}`"
    return "" if field.default is MISSING else f"`{field.default!r}`"
