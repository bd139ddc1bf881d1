"""Which runs repeat one another: the same setting with another seed, split and trial of the search."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

#: what two runs share that may be repetitions of one another, whatever their split
_SETTING = (
    "dataset", "variant", "base", "evaluation", "data_seed", "given", "backbone", "init", "head", "tuning", "protocol",
)  # fmt: skip
BY_SEED = "by seed"


def fold_splits(identities: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Identities with ``split_seed`` said to be :data:`BY_SEED` where every seed of a setting has a split of its own.

    A trial of DomainBed has its own split, so runs that differ in their split are repetitions there, and must share a
    table. Where one seed occurs with several splits, the splits stay apart: they are no repetitions.
    """
    splits: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    keys = [json.dumps([who[key] for key in _SETTING], sort_keys=True, default=str) for who in identities]
    for key, who in zip(keys, identities, strict=True):
        splits[key][who["seed"]].add(who["split_seed"])
    folded = {
        key
        for key, seeds in splits.items()
        if len(set().union(*seeds.values())) > 1 and all(len(found) == 1 for found in seeds.values())
    }
    return [
        {**who, "split_seed": BY_SEED} if key in folded else dict(who)
        for key, who in zip(keys, identities, strict=True)
    ]
