"""Weights on the line from those that a run started from to its own (WiSE-FT).

    w(alpha) = (1 - alpha) w_0 + alpha w_1,

with w_1 the weights of a run and w_0 those of a model that predicts already (Wortsman et al., 2022,
"Robust fine-tuning of zero-shot models"). That model is either

- what training began with, if its classifier was not random (``head=zero_shot``): built again from
  the run's configuration, seed and file of initial weights; or
- another run of the same fold, seed and network: a linear probe (``tuning=lp``), or a run of 0
  steps.

Parameters and the running statistics of BatchNorm are mixed, as in the authors' code; nothing is
renewed. Every alpha of a grid is evaluated as a draw of a search, so what chooses among draws
(``selection=train_val``) chooses alpha.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dgbench.analysis.draws import choose_draws
from dgbench.analysis.evaluations import RunKey, records_of
from dgbench.analysis.selection import TrainVal
from dgbench.errors import ConfigError
from dgbench.networks.checkpoint_layouts import misfit
from dgbench.networks.initial_heads import RandomHead
from dgbench.plan.building import build, named_weights
from dgbench.plan.code import refuse_code
from dgbench.records.files import read_yaml
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.records.spec import canonical, digest
from dgbench.trained.diwa import (
    MAY_DIFFER,
    Siblings,
    averaging_with,
    finished_runs,
    load_kept,
    needed_runs,
)
from dgbench.trained.predictor import LoadedModel
from dgbench.training.run_folder import ModelRecord

WISE_FT = "wise_ft"
CONFIG_FILE = "config.yaml"
#: weights of the run in the mix, of which both ends are evaluated
ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: alpha is counted in these parts: a number for each draw, whatever the grid
PARTS = 100
#: keys of an identity in which a run may differ from the one that its weights are mixed with
OF_TRAINING = (*MAY_DIFFER, "algorithm", "tuning", "head", "averaging", "seed_moves", "user_code")

#: what a run without initial weights to mix with needs
FIX = (
    "name a linear probe (tuning=lp) or a zero-shot run (head=zero_shot trainer.steps=0) of its "
    "fold and seed with initial=FOLDER"
)

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class Ends:
    """A run, and the model that its weights are mixed with."""

    folder: Path
    initial: LoadedModel
    initial_name: str  #: for the rows, e.g. ``head=zero_shot`` or ``tuning=lp``
    initial_run: str | None  #: hash of the run that ``initial`` is; None: what training began with


@dataclass(frozen=True)
class Mixture:
    """A run's weights mixed with initial ones."""

    model: LoadedModel
    #: training changed running statistics of BatchNorm, which are mixed too
    moves_statistics: bool


def pairs(models: Sequence[Any], initial: Any, step: str | None, trust: bool = False) -> list[Ends]:
    """Find, for every finished run in some folders, the model that its weights are mixed with.

    Args:
        models: folders of runs.
        initial: folders of runs to mix with; None: what each run began with.
        step: ``last`` or ``best`` weights of runs; None: the best ones of runs that kept them.
        trust: as in :func:`dgbench.load`.

    Raises:
        ConfigError: no run has such a model, or one has several.
        RecordError: a folder holds no run.
    """
    runs = needed_runs(models, WISE_FT, trust)
    if initial is None:
        return [_with_beginning(folder, record, trust) for folder, record in runs]
    candidates = _candidates(initial, trust)
    found = []
    without: Siblings = []
    for folder, record in runs:
        partner = _partner(folder, record, candidates)
        if partner is None:
            without.append((folder, record))
            continue
        partner_folder, partner_record = partner
        model = load_kept(partner_folder, step, trust)
        name = _name(partner_record)
        found.append(Ends(folder, model, name, partner_record.identity["run"]))
    if not found:
        raise ConfigError(_no_partner(without[0], candidates))
    for folder, _ in without:
        log.warning("%s is left out: initial= holds no run of its fold, seed and network", folder)
    return found


def _candidates(initial: Any, trust: bool) -> Siblings:
    """Find the runs that a user names to mix with.

    Raises:
        ConfigError: a name is no folder, or a run is a classifier that predicts nothing.
    """
    named = initial if isinstance(initial, (list, tuple)) else [initial]
    for place in named:
        if not Path(place).expanduser().is_dir():
            raise ConfigError(f"initial={place} is no folder; {FIX}")
    candidates = finished_runs(named, trust)
    for folder, record in candidates:
        if record.trainer["steps"] == 0 and record.identity.get("head", "random") == "random":
            raise ConfigError(
                f"initial={folder} is a random classifier of 0 steps, which predicts nothing; {FIX}"
            )
    return candidates


def _with_beginning(folder: Path, record: ModelRecord, trust: bool) -> Ends:
    """Build what the training of a run began with.

    Raises:
        ConfigError: that predicts nothing, or cannot be built again.
    """
    try:
        config = read_yaml(folder / CONFIG_FILE)
        parts = {group: config[group] for group in ("init", "head", "backbone")}
        head_name = parts["head"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{folder} has no {CONFIG_FILE} that names its initial weights; {FIX}"
        ) from None
    if head_name == "random":
        raise ConfigError(
            f"{folder.name} began with a random classifier (head=random), which predicts nothing "
            f"that weights could be mixed with; {FIX}"
        )
    if not trust:
        place = str(folder / CONFIG_FILE)
        refuse_code(parts["init"], place, "init")
        refuse_code(parts["head"], place, "head")
    weights = named_weights(parts)
    recorded = record.identity["init"]
    if weights.identity != recorded:
        raise ConfigError(
            f"{folder.name} began with {recorded}, and its file is {weights.identity} now; {FIX}"
        )
    head: RandomHead = build(parts, "head")
    model = LoadedModel(record.initial(weights, head), record, 0)
    if set(model.networks_that_predict) != {"featurizer", "classifier"}:
        raise ConfigError(
            f"algorithm={record.identity['algorithm']} predicts with networks that began random; "
            f"{FIX}"
        )
    return Ends(folder, model, f"head={head_name}", None)


def _partner(
    folder: Path, record: ModelRecord, candidates: Siblings
) -> tuple[Path, ModelRecord] | None:
    """Find the one candidate of a run's fold, seed and network, or None.

    Raises:
        ConfigError: there are several.
    """
    run = record.identity["run"]
    partners = {}
    for place, candidate in candidates:
        is_other = candidate.identity["run"] != run
        if is_other and canonical(_shared(candidate)) == canonical(_shared(record)):
            partners[candidate.identity["run"]] = (place, candidate)
    if len(partners) > 1:
        names = " and ".join(place.name for place, _ in list(partners.values())[:2])
        raise ConfigError(
            f"initial= holds {len(partners)} runs of the fold, seed and network of {folder.name} "
            f"({names}); name one of them"
        )
    return next(iter(partners.values()), None)


def _shared(record: ModelRecord) -> dict[str, Any]:
    """Select what runs whose weights are mixed have in common."""
    identity = {key: value for key, value in record.identity.items() if key not in OF_TRAINING}
    return {**identity, "featurizer": dict(record.featurizer)}


def _name(record: ModelRecord) -> str:
    """Name what a run's weights are, for the rows of mixtures with them."""
    if record.trainer["steps"] == 0:
        return f"head={record.identity.get('head', 'random')}"
    return f"tuning={record.identity['tuning']}"


def _no_partner(run: tuple[Path, ModelRecord], candidates: Siblings) -> str:
    """Say why a run has no partner, by the first key in which a candidate differs."""
    folder, record = run
    others = [one for one in candidates if one[1].identity["run"] != record.identity["run"]]
    if not others:
        return f"initial= holds no finished run besides {folder.name} itself; {FIX}"
    place, other = others[0]
    one = _shared(record)
    two = _shared(other)
    differing = [key for key in one if canonical(one[key]) != canonical(two.get(key))]
    if len(differing) > 1 and "featurizer" in differing:
        differing.remove("featurizer")  # spelled out; a shorter key says that networks differ
    examples = ", ".join(f"{key} ({one[key]}, {two.get(key)})" for key in differing[:2])
    return (
        f"weights of {folder.name} and {place.name} cannot be mixed: they differ in {examples}; "
        f"{FIX}"
    )


def interpolated(ends: Ends, alpha: float, step: str | None, trust: bool = False) -> Mixture:
    """Mix the weights of a run with those of its initial model.

    Args:
        ends: both.
        alpha: weight of the run, in [0, 1] and in hundredths; 0 and 1 are the ends, bit for bit.
        step: as in :func:`pairs`.
        trust: as in :func:`dgbench.load`.

    Raises:
        ConfigError: their networks differ.
    """
    model = load_kept(ends.folder, step, trust)
    initial = numbers_of(ends.initial, model.networks_that_predict)
    tuned = numbers_of(model, model.networks_that_predict)
    problems = misfit(tuned, initial)
    if problems:
        raise ConfigError(
            f"{ends.folder.name} and its initial model have different networks, which cannot be "
            f"mixed ({problems}); name runs of one network"
        )
    statistics = [name for name in tuned if name.endswith(("running_mean", "running_var"))]
    moves_statistics = any(not torch.equal(tuned[name], initial[name]) for name in statistics)
    with torch.no_grad():
        for name, value in tuned.items():
            # lerp is exact at both ends
            value.copy_(torch.lerp(initial[name].to(value), value, alpha))
    mixture = LoadedModel(model.run, _record(model, ends, alpha), model.step)
    parts = [ends.initial_run] if ends.initial_run else []
    mixture.averaged = (*parts, model.record.identity["run"])
    return Mixture(mixture, moves_statistics)


def numbers_of(model: LoadedModel, networks: Sequence[str]) -> dict[str, Tensor]:
    """Collect parameters and floating-point buffers of some networks by name, not copied."""
    numbers = {}
    for network in networks:
        state: Mapping[str, Tensor] = model.run.networks[network].state_dict(keep_vars=True)
        for key, value in state.items():
            if value.is_floating_point():
                numbers[f"{network}.{key}"] = value
    return numbers


def chosen_alpha(folders: Sequence[Path]) -> float | None:
    """Find the alpha that training-domain validation chooses among a run's mixtures.

    Mixtures are draws of a search, among which :class:`~dgbench.analysis.selection.TrainVal`
    chooses as in a report.

    Args:
        folders: with the rows of one mixture each.

    Returns:
        None if the rows are of another dataset, without training environments.
    """
    rows: list[dict[str, Any]] = []
    keys: list[RunKey] = []
    alphas: list[float] = []
    for position, folder in enumerate(folders):
        mixture, _ = read_rows(folder / ROW_FILE)
        rows += [{**row, "run": position} for row in mixture]
        keys.append(RunKey("", draw=mixture[0]["draw"]))
        alphas.append(float(mixture[0]["hparams"]["averaging.alpha"]))
    selection = TrainVal()
    choices = selection.choose(records_of(pd.DataFrame(rows), keys))
    if choices.reason:
        return None
    uncounted = choose_draws(keys, choices, selection)
    (chosen,) = set(range(len(keys))) - uncounted.lost.keys()
    return alphas[chosen]


def _record(model: LoadedModel, ends: Ends, alpha: float) -> ModelRecord:
    """Build the record of a mixture: its run's, as a draw of a search for alpha."""
    record = model.record
    identity = record.identity
    mixed = [WISE_FT, identity["run"], model.step, ends.initial_run, ends.initial.step, alpha]
    hparams = {
        **identity["hparams"],
        "averaging.alpha": alpha,
        "averaging.initial": ends.initial_name,
    }
    changed = {
        "run": digest(mixed),
        "hparams": hparams,
        "draw": (PARTS + 1) * identity.get("draw", 0) + round(PARTS * alpha) + 1,
        "averaging": averaging_with(identity, WISE_FT),
    }
    return replace(record, identity={**identity, **changed})
