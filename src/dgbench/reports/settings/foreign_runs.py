"""Models that dgbench did not train stand in every table of the environments that they were evaluated in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.records.rows import EVALUATED, Role, identity_key, keys

#: what tells the networks of trained runs apart, and says nothing of a model that was only evaluated
_NETWORK = keys(Role.NETWORK)
_PLACE = keys(Role.DATA | Role.PROTOCOL | Role.FOLDS)

Identity = Mapping[str, Any]


def beside_trained(identities: Sequence[Identity]) -> list[tuple[int, Identity]]:
    """Number and identity of every run, those of an evaluated model once for every kind of network in its place.

    Args:
        identities: of trained and evaluated runs.
    """
    if all(identity["backbone"] != EVALUATED for identity in identities):
        return list(enumerate(identities))
    networks: dict[str, dict[str, dict[str, str]]] = {}
    for identity in identities:
        if identity["backbone"] != EVALUATED:
            own = {key: identity[key] for key in _NETWORK}
            networks.setdefault(_place(identity), {})[json.dumps(own)] = own
    found: list[tuple[int, Identity]] = []
    for number, identity in enumerate(identities):
        known = networks.get(_place(identity)) if identity["backbone"] == EVALUATED else None
        found += [(number, {**identity, **own}) for own in known.values()] if known else [(number, identity)]
    return found


def _place(identity: Identity) -> str:
    return identity_key(identity, _PLACE)
