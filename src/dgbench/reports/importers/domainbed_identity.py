"""Who wrote a DomainBed sweep, as rows of ours name it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from dgbench.errors import RecordError
from dgbench.reports.importers import IMPORTED
from dgbench.reports.labels import our_name


def identity_of(
    record: dict[str, Any],
    held_out: tuple[int, ...],
    count: int,
    setting: tuple[str, str],
    names: Sequence[str] | None,
) -> dict[str, Any]:
    """The fields of :class:`dgbench.records.rows.RunIdentity`.

    Args:
        record: of the run, with ``args`` and ``hparams``.
        held_out: indices of the environments never trained on.
        count: of the environments.
        setting: what tables call the network and its initial weights.
        names: of the environments; None takes those of the dataset.

    Raises:
        RecordError: names or held-out environments do not fit their count.
    """
    args = record["args"]
    given = list(map(str, names)) if names else environment_names(args["dataset"], count)
    if len(given) != count or any(index >= count for index in held_out):
        raise RecordError(
            f"{args['dataset']} has {count} environments, held out {list(held_out)}, named {given}; "
            "give import.environments as many names, or leave it out"
        )
    place = [args["dataset"], args["algorithm"], held_out, args.get("hparams_seed", 0), args.get("trial_seed", 0)]
    protocol = {0: "loo", 1: "loo", 2: "pairs"}.get(len(held_out), "multi_test")
    return {
        "run": hashlib.sha256(json.dumps(place).encode()).hexdigest()[:12],
        "dataset": DATASETS.get(args["dataset"], args["dataset"]),
        "variant": {},
        "base": "domainbed",
        "evaluation": "sampled",
        "data_seed": 0,
        "split_seed": 0,
        "given": given,
        "algorithm": our_name(args["algorithm"]),
        "hparams": record.get("hparams") or {},
        "draw": int(args.get("hparams_seed", 0)),
        "space": "domainbed",
        "trial": int(args.get("trial_seed", 0)),
        "backbone": setting[0],
        "init": setting[1],
        "head": "random",
        "tuning": "ft",
        "protocol": "multi_test" if args.get("val_envs") else protocol,
        "fold": "-".join(map(str, held_out)) or "full",
        "held_out": [given[index] for index in held_out],
        "folds": None,
        "seed": int(args.get("trial_seed", 0)),
        "averaging": "none",
        "code": f"{IMPORTED} from DomainBed",
    }


SPAWRIOUS = ("O2O_easy", "O2O_medium", "O2O_hard", "M2M_easy", "M2M_medium", "M2M_hard")

DATASETS = {
    "ColoredMNIST": "cmnist_domainbed", "RotatedMNIST": "rotated_mnist", "VLCS": "vlcs", "PACS": "pacs",
    "OfficeHome": "office_home", "TerraIncognita": "terra_incognita", "DomainNet": "domain_net",
    "WILDSCamelyon": "camelyon17_wilds", "WILDSFMoW": "fmow", "SVIRO": "sviro",
    **{f"Spawrious{kind}": f"spawrious_{kind.lower()}" for kind in SPAWRIOUS},
}  # fmt: skip

#: environments in the order of their index, as dgbench's datasets name them
_ENVIRONMENTS = {
    "ColoredMNIST": ("0.10", "0.20", "0.90"),  # +90%, +80% and -90% there
    "RotatedMNIST": ("0", "15", "30", "45", "60", "75"),
    "VLCS": ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
    "PACS": ("art_painting", "cartoon", "photo", "sketch"),
    "OfficeHome": ("Art", "Clipart", "Product", "Real World"),
    "TerraIncognita": ("location_100", "location_38", "location_43", "location_46"),
    "DomainNet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "SVIRO": ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe"),
    "WILDSCamelyon": tuple(f"hospital_{i}" for i in range(5)),
    "WILDSFMoW": tuple(f"region_{i}" for i in range(6)),
    **{f"Spawrious{kind}": ("Test", "SC_group_1", "SC_group_2") for kind in SPAWRIOUS},
}


def environment_names(dataset: str, count: int) -> list[str]:
    """Names of the environments of a known dataset, else ``env0``, ``env1``, ..."""
    known = _ENVIRONMENTS.get(dataset, ())
    return list(known) if len(known) == count else [f"env{index}" for index in range(count)]
