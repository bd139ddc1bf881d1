"""Reads what other tools wrote into the same rows that our own runs have."""

from collections.abc import Mapping
from typing import Any

#: how the code version of an imported run starts
IMPORTED = "imported"
#: that of a run that a table describes
FROM_TABLE = f"{IMPORTED} from a table"
#: network and initial weights of models of which a table does not say them
UNKNOWN = "unknown"


def is_from_table(identity: Mapping[str, Any]) -> bool:
    """Return whether a table of others describes a run, of which it tells results alone.

    Args:
        identity: of the run, or what the runs of a setting share.
    """
    return bool(identity.get("base") == "table" or identity.get("code") == FROM_TABLE)
