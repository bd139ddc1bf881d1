"""Which runs repeat one another: the same setting with another seed, data, split and trial of the search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.records.rows import Role, identity_key, keys

BY_SEED = "by seed"
SEEDED = keys(Role.DATA_SEED)  #: keys that may be said to be :data:`BY_SEED`


def fold_seeds(identities: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Identities with ``data_seed`` and ``split_seed`` said to be :data:`BY_SEED` where every seed has its own.

    A trial of DomainBed draws its own data and split, so runs that differ in them are repetitions there, and must share
    a table. Where one seed of a setting occurs with several, they stay apart: they are no repetitions.
    """
    found = [dict(who) for who in identities]
    shared = keys(Role.DATASET | Role.FORM | Role.NETWORK | Role.PROTOCOL)
    for name in SEEDED:
        found = _folded(found, name, shared)
        shared = (*shared, name)  # splits of different data are no repetitions
    return found


def _folded(identities: Sequence[dict[str, Any]], name: str, shared: Sequence[str]) -> list[dict[str, Any]]:
    own: dict[str, dict[int, set[Any]]] = defaultdict(lambda: defaultdict(set))
    settings = [identity_key(who, shared) for who in identities]
    for setting, who in zip(settings, identities, strict=True):
        own[setting][who["seed"]].add(who[name])
    folded = {
        setting
        for setting, seeds in own.items()
        if len(set().union(*seeds.values())) > 1 and all(len(found) == 1 for found in seeds.values())
    }
    return [
        {**who, name: BY_SEED} if setting in folded else who for setting, who in zip(settings, identities, strict=True)
    ]
