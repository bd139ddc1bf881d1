"""What a model of a plan takes: found in the cache, among the costs that come with the package, or
counted, in this order.

``costs.json`` beside this file holds costs of usual studies, so that their first plan needs no
torch; ``make costs`` writes it. An entry counts for the very text of the code that came to it and
for the same versions of the packages that it ran: any other study, and any later code, is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dgbench.plan.computing_code import computing_code
from dgbench.plan.cost import Cost
from dgbench.plan.studies import PlannedStudy
from dgbench.records.files import read_json
from dgbench.records.spec import digest
from dgbench.sweeps.remembered import Remembered

FILE = Path(__file__).with_name("costs.json")
#: groups of the configuration whose classes run when a cost is counted
GROUPS = ("algorithm", "backbone", "head", "tuning", "averaging", "sharpness")
PACKAGES = ("timm", "torch")  #: whose networks and whose operations are counted
COUNT = "dgbench.training.cost"  #: module that counts
#: keys of ``conf/trainer`` that no count depends on: they say where, when and what is scored
UNCOUNTED = (
    "checkpoint_seconds",
    "class_errors",
    "device",
    "eval_batch_size",
    "eval_every",
    "eval_subsets",
    "eval_test",
    "log_every",
    "predictions",
)


def cost_of(study: PlannedStudy, costs: dict[str, Cost]) -> Cost:
    """Find the cost of a study's first model.

    Args:
        study: the study.
        costs: of this command by :func:`cost_key`; what is found is added.

    Raises:
        Exception: whatever :func:`dgbench.training.cost.count` raises.
    """
    key = cost_key(study)
    if key not in costs:
        costs[key] = _found(study, key)
    return costs[key]


def cost_key(study: PlannedStudy) -> str:
    """Hash the values of a study on which its cost depends, but for those of :func:`facts_of`."""
    hparams = dict(study.spec.hparams)
    if not study.spec.user_code:  # which may do other operations at another learning rate
        hparams.pop("lr", None)
    trainer = study.config["trainer"]
    training = {key: value for key, value in trainer.items() if key not in UNCOUNTED}
    groups = [study.config[group] for group in ("backbone", "tuning", "sharpness")]
    shape = [study.info.image, len(study.folds[0].training), study.spec.objective]
    return digest([*shape, hparams, *groups, training])


def facts_of(study: PlannedStudy) -> list[Any]:
    """List what plans of other datasets do not share, beside shapes and configuration."""
    return [study.info.name, study.info.n_classes, len(study.folds[0].training), study.spec.init]


def shipped_cost(study: PlannedStudy) -> Cost | None:
    """Find the cost of a study's first model among those that come with the package."""
    if study.spec.user_code:
        return None
    values = _shipped(FILE).get(shipped_key(study))
    with suppress(TypeError):  # a file that somebody changed
        return None if values is None else Cost(**values)
    return None


def shipped_key(study: PlannedStudy) -> str:
    """Hash all that a shipped cost depends on.

    That are the study's values, dgbench's code that counting runs, and the versions of packages.
    """
    paths = [COUNT, *_code_paths([study.config[group] for group in GROUPS])]
    content = [
        cost_key(study),
        study.info.n_classes,
        study.config["averaging"],
        study.config["head"],
    ]
    return digest([content, digest(computing_code(paths)), *map(_public_version, PACKAGES)])


def _found(study: PlannedStudy, key: str) -> Cost:
    """Read a cost from the cache or the package, or count it with torch; keep it in the cache."""
    kept = Remembered("cost")
    groups = (study.config[group] for group in ("averaging", "head", "init"))
    asked = [key, *facts_of(study), *groups]
    answer = kept.read(study, asked)
    if answer is not None:
        with suppress(TypeError):  # a file that somebody changed
            return Cost(**answer)
    cost = shipped_cost(study)
    if cost is None:
        from dgbench.training.cost import count  # torch

        cost = count(study)
    kept.keep(study, asked, asdict(cost))
    return cost


def _code_paths(values: Any) -> Iterator[str]:
    """Yield the texts among plain values that are import paths of dgbench."""
    if isinstance(values, str) and values.startswith("dgbench."):
        yield values
    elif isinstance(values, (Mapping, list)):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _code_paths(value)


def _public_version(package: str) -> str:
    """Name a package with its version, without the build for a device (``2.6.0+cpu``)."""
    return f"{package} {version(package).partition('+')[0]}"


@cache
def _shipped(file: Path) -> Mapping[str, Any]:
    """Read the costs that come with the package by :func:`shipped_key`; none if there are none."""
    with suppress(OSError, ValueError):
        costs = read_json(file)
        if isinstance(costs, dict):
            return costs
    return {}
