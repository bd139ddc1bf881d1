"""Steps that draw some of many environments: alone, stacked, interrupted alike; refused where a
method forbids it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dgbench.algorithms.group_dro import GroupDRO
from dgbench.batches import EnvBatch
from dgbench.network_specs import Sizes
from dgbench.objectives.step import Hyperparameters, Step
from tests.complaints import refused
from tests.conftest import rows_in
from tests.studies import make_study, stopping_at, train_study

SITES = {f"s{i}": n for i, n in enumerate([40, 30, 20, 16, 8, 3])}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    env = np.repeat(list(SITES), list(SITES.values()))
    label = rng.permutation(np.arange(len(env)) % 2)
    frame = pd.DataFrame(
        {"environment": env, "label": label, "f0": rng.normal(size=len(env)) + label, "f1": 1.0}
    )
    file = tmp_path_factory.mktemp("sites") / "sites.csv"
    frame.to_csv(file, index=False)
    return file


def words(sites: Path, *more: str) -> list[str]:
    return [
        "dataset=features", f"dataset.path={sites}", "dataset.columns='f*'",
        "dataset.classes=union", "dataset.min_images=4", "hparams.batch_size=8", "trainer.steps=40",
        "trainer.eval_every=20", "trainer.small_environments=repeat",
        "trainer.environments_per_step=3", "trainer.device=cpu", "protocol=multi_test",
        "protocol.groups=[[s0],[s1,s5]]", "trainer.checkpoint_seconds=0", *more,
    ]  # fmt: skip


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Rows in a comparable order, without what says how they were made."""
    rows = [{**row, "loss": None, "together": None} for row in rows_in(folder)]
    return sorted(rows, key=lambda row: (row["fold"], row["step"], row["subset"], row["env"]))


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["group_dro", "vrex", "fish"])
def test_stacked_as_alone_and_interrupted_as_undisturbed(
    sites: Path, tmp_path: Path, algorithm: str
) -> None:
    chosen = words(sites, f"algorithm={algorithm}")
    for mode in ("single", "stacked"):
        train_study(make_study(tmp_path / mode, *chosen, f"execution={mode}"))
    with stopping_at(30):
        train_study(make_study(tmp_path / "again", *chosen, "execution=stacked"))
    train_study(make_study(tmp_path / "again", *chosen, "execution=stacked"))
    alone, stacked, again = (rows_of(tmp_path / name) for name in ("single", "stacked", "again"))
    assert len(alone) > 0
    assert {row["hparams"]["trainer.environments_per_step"] for row in alone} == {3}
    assert {row["hparams"]["trainer.small_environments"] for row in alone} == {"repeat"}
    assert alone == stacked == again
    assert "s5" in {row["env"] for row in alone if row["subset"] == "test"}


@pytest.mark.parametrize("algorithm", ["dann", "adrmx", "fishr", "trm", "mtl"])
def test_methods_that_keep_something_for_each(sites: Path, tmp_path: Path, algorithm: str) -> None:
    with refused(
        f"environments_per_step=3 cannot go with algorithm={algorithm}, which keeps something for "
        "each"
    ):
        make_study(tmp_path, *words(sites, f"algorithm={algorithm}"))


def test_shares_of_group_dro_by_hand() -> None:
    """Two of four environments are drawn: the others' shares stay, and all are normalized."""
    sizes = Sizes(n_features=1, n_classes=2, n_envs=2, image=(1,), n_drawn_from=4)
    algorithm = GroupDRO(sizes, {"groupdro_eta": 0.5, "groupdro_divide_by_n": False})
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    batch = EnvBatch(logits, torch.tensor([0, 0]), (1, 1), drawn=torch.tensor([1, 3]))

    class Networks:
        def mixes_rows(self, name: str) -> bool:
            return False

        def featurizer(self, x: torch.Tensor) -> torch.Tensor:
            return x

        classifier = featurizer

    hp = Hyperparameters({"groupdro_eta": torch.tensor(0.5, dtype=torch.float64)})
    q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    outcome = algorithm.objective(Step(Networks(), batch, hp, {"q": q}, {}, torch.tensor(0)))  # type: ignore[arg-type]
    risks = np.array([np.log(1 + np.exp(-1)), np.log(1 + np.exp(2))])
    raised = np.array([0.1, 0.2 * np.exp(0.5 * risks[0]), 0.3, 0.4 * np.exp(0.5 * risks[1])])
    shares = raised / raised.sum()
    assert outcome.state["q"].numpy() == pytest.approx(shares)
    assert float(outcome.loss) == pytest.approx(float(shares[[1, 3]] @ risks))
