"""Models that dgbench did not train stand in every table of the environments that they were evaluated in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from dgbench.records.rows import EVALUATED
from dgbench.reports.settings.selected_runs import SelectedRun

#: what tells the networks of trained runs apart, and says nothing of a model that was only evaluated
NETWORK_KEYS = ("backbone", "init", "tuning")
PLACE_KEYS = ("dataset", "variant", "base", "evaluation", "data_seed", "split_seed", "given", "protocol", "folds")


def beside_trained(runs: Sequence[SelectedRun]) -> list[SelectedRun]:
    """The runs, each evaluated model once for every kind of network that was trained for its environments.

    Args:
        runs: trained and evaluated ones.
    """
    networks: dict[str, dict[str, dict[str, str]]] = {}
    for run in runs:
        if run.identity["backbone"] != EVALUATED:
            own = {key: run.identity[key] for key in NETWORK_KEYS}
            networks.setdefault(_place(run), {})[json.dumps(own)] = own
    found = []
    for run in runs:
        known = networks.get(_place(run)) if run.identity["backbone"] == EVALUATED else None
        copies = [replace(run, identity={**run.identity, **own}) for own in known.values()] if known else [run]
        found += copies
    return found


def _place(run: SelectedRun) -> str:
    return json.dumps([run.identity.get(key) for key in PLACE_KEYS], sort_keys=True, default=str)
