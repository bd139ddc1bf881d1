"""Models that dgbench did not train stand in every table of the environments that they were evaluated in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.records.rows import EVALUATED

#: what tells the networks of trained runs apart, and says nothing of a model that was only evaluated
NETWORK_KEYS = ("backbone", "init", "head", "tuning")
PLACE_KEYS = ("dataset", "variant", "base", "evaluation", "data_seed", "split_seed", "given", "protocol", "folds")

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
            own = {key: identity[key] for key in NETWORK_KEYS}
            networks.setdefault(_place(identity), {})[json.dumps(own)] = own
    found: list[tuple[int, Identity]] = []
    for number, identity in enumerate(identities):
        known = networks.get(_place(identity)) if identity["backbone"] == EVALUATED else None
        found += [(number, {**identity, **own}) for own in known.values()] if known else [(number, identity)]
    return found


def _place(identity: Identity) -> str:
    return json.dumps([identity.get(key) for key in PLACE_KEYS], sort_keys=True, default=str)
