"""Shift between arrays of features, from Python and without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor

from dgbench.configuration import CONF
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments, EvalSet
from dgbench.errors import ConfigError, DataError
from dgbench.estimation.estimating import Done, make_estimates
from dgbench.estimation.estimators import Estimator
from dgbench.estimation.fitting import ClassifierTraining
from dgbench.estimation.sampling import Pools
from dgbench.estimation.shift_job import row_of
from dgbench.estimation.shift_plan import Pair, slots_of
from dgbench.plan.building import build
from dgbench.plan.keys import options
from dgbench.plan.settings import TrainerSettings
from dgbench.records.shift_rows import ShiftIdentity, ShiftRow
from dgbench.records.spec import code_version
from dgbench.tensors import ErrorRecipe
from dgbench.training.processes import prepare_process


class ArrayEnvironments(Environments):
    """Environments of features in memory.

    Args:
        sides: name -> (n, m) features and (n,) int64 labels in 0..K-1.
    """

    def __init__(self, sides: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        self.given = list(sides)
        self._x = torch.from_numpy(np.concatenate([x for x, _ in sides.values()])).to(torch.get_default_dtype())
        self._y = torch.from_numpy(np.concatenate([y for _, y in sides.values()]).astype(np.int64))
        ends = np.cumsum([0, *(len(y) for _, y in sides.values())])
        self._rows = {env: np.arange(ends[i], ends[i + 1]) for i, env in enumerate(self.given)}
        self.image, self.n_classes = tuple(self._x.shape[1:]), int(self._y.max()) + 1
        self.info = DatasetInfo(
            name="arrays", variant={}, base="arrays", evaluation="sampled", data_seed=0, split_seed=0,
            given=tuple(self.given), everywhere=tuple(self.given), n_classes=self.n_classes, image=(0, 0, 0),
            beyond=False,
        )  # fmt: skip

    def to(self, device: torch.device) -> None:
        self._x, self._y = self._x.to(device), self._y.to(device)

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._rows[env] if name == "train" else self._rows[env][:0]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = indices.to(self._x.device)
        return self._x[rows], self._y[rows]

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        return []

    def eval_sets(self, names: Sequence[str]) -> Mapping[str, EvalSet]:
        return {}


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
    training = ClassifierTraining(ArrayEnvironments({"p": (x_p, y_p), "q": (x_q, y_q)}), TrainerSettings(device=device))
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
