"""Shift between arrays of features, from Python and without files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Catalog, Environments, Table
from dgbench.data.store.tensors import TensorStore
from dgbench.errors import ConfigError, DataError
from dgbench.estimation.estimating import Done, make_estimates
from dgbench.estimation.estimators import Estimator
from dgbench.estimation.fitting import ClassifierTraining
from dgbench.estimation.sampling import Pools
from dgbench.estimation.shift_job import row_of
from dgbench.estimation.shift_plan import Pair, slots_of
from dgbench.records.code import code_version
from dgbench.records.shift_rows import ShiftIdentity, ShiftRow
from dgbench.training.building import build
from dgbench.training.known_keys import options
from dgbench.training.prepare import prepare_process
from dgbench.training.settings import TrainerSettings


def array_environments(sides: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Environments:
    """Environments of features in memory.

    Args:
        sides: name -> (n, m) features and (n,) int64 labels in 0..K-1.
    """
    values = torch.from_numpy(np.concatenate([x for x, _ in sides.values()])).to(torch.get_default_dtype())
    labels = np.concatenate([y for _, y in sides.values()]).astype(np.int64)
    starts = np.cumsum([0, *(len(y) for _, y in sides.values())])
    subsets = {(env, "train"): np.arange(starts[i], starts[i + 1]) for i, env in enumerate(sides)}
    info = DatasetInfo(
        name="arrays", variant={}, base="arrays", split_seed=0, given=tuple(sides), everywhere=tuple(sides),
        n_classes=int(labels.max()) + 1, image=(0, 0, 0),
    )  # fmt: skip
    preprocessing = Preprocessing(tuple(values.shape[1:]), (), (), pictures=False)
    catalog = Catalog(labels, tuple(map(str, range(info.n_classes))), preprocessing)
    return Environments(Table(info, subsets), catalog, TensorStore(values, torch.from_numpy(labels)))


def estimate_shift(
    x_p: np.ndarray,
    y_p: np.ndarray,
    x_q: np.ndarray,
    y_q: np.ndarray,
    estimator: str = "joint",
    *,
    keys: Mapping[str, Any] | None = None,
    trials: int = 5,
    halves: int = 8,
    null: bool = True,
    min_per_class: int = 20,
    max_per_class: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> list[ShiftRow]:
    """How far two sets of labeled features are apart, as ``shift.py`` estimates it.

    Args:
        x_p, x_q: (n_p, m) and (n_q, m) features.
        y_p, y_q: (n_p,) and (n_q,) integer labels >= 0.
        estimator: a file of ``conf/estimator`` that needs no reference.
        keys: of that file, in place of its own.
        trials, halves, null, min_per_class, max_per_class, seed: as in ``conf/shift.yaml``.
        device: Lightning's accelerator.

    Returns:
        One row per estimate; ``dgbench.shifts.intervals`` makes intervals of them.

    Raises:
        ConfigError: an unknown estimator or key.
        DataError: arrays that do not fit together.
    """
    if estimator not in options("estimator"):
        raise ConfigError(f"estimator={estimator} is unknown; choose from {', '.join(options('estimator'))}")
    if x_p.ndim != 2 or x_p.shape[1:] != x_q.shape[1:] or (len(x_p), len(x_q)) != (len(y_p), len(y_q)):
        raise DataError(
            f"features of shapes {x_p.shape} and {x_q.shape} with {len(y_p)} and {len(y_q)} labels do not fit; give "
            "(n, m) features with n labels each"
        )
    own: Any = OmegaConf.to_container(OmegaConf.load(CONF / "estimator" / f"{estimator}.yaml"))
    found: Estimator = build({"estimator": {**own, **(keys or {})}}, "estimator")
    if found.against_reference:
        raise ConfigError(f"estimator={estimator} compares with a reference; call dgbench.shifts.frechet itself")
    prepare_process()
    training = ClassifierTraining(
        array_environments({"p": (x_p, y_p), "q": (x_q, y_q)}), TrainerSettings(device=device)
    )
    identity = ShiftIdentity(
        run="", **training.source.info.facts(), backbone="", init="", features="frozen", images="all",
        estimator=estimator, settings=found.settings(), seed=seed, code=code_version(),
    )  # fmt: skip
    pair, rows = Pair("each", "p|q", ("p",), ("q",)), list[ShiftRow]()
    wanted = [(pair, slot) for slot in slots_of(trials, halves, found.nulls_of(null))]
    pools = Pools(training.source, "all", seed, min_per_class, max_per_class)

    def finished(each: Done) -> None:
        rows.append(row_of(identity, each, {}))

    make_estimates(found, wanted, pools, training, finished)
    return rows
