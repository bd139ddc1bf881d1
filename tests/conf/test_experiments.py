"""The published settings: every combination composes and plans, and the header counts what is trained."""

from __future__ import annotations

import re
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from dgbench.configuration import CONF
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN
from dgbench.networks.weights import RandomWeights
from dgbench.objectives.contract import Algorithm
from dgbench.protocols.folds import Fold
from dgbench.reports.published import published
from dgbench.requests import Sizes
from dgbench.training.dataset_options import dataset_options, described
from dgbench.training.fold_plan import planned_folds
from dgbench.training.hyperparameters import hyperparameters
from dgbench.training.initial import filled_dataset
from dgbench.training.modules import SingleRun
from dgbench.training.settings import trainer_settings
from tests.studies import plain

TABLES = sorted(path for path in (CONF / "experiment").glob("*.yaml") if re.match(r"[a-z]+\d{4}_table", path.stem))
APART = {"algorithm", "seed"}  # multiplied, not composed: every algorithm composes with everything (test_conf.py)


def combinations(name: str) -> tuple[list[DictConfig], int, dict[str, Any]]:
    """The configurations of a preset, how many studies each stands for, and its grid."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        grid: dict[str, Any] = OmegaConf.to_container(compose("train", [f"experiment={name}"]).grid)  # type: ignore[assignment]
        keys = [key for key in grid if key not in APART]
        chosen = product(*([f"{key}={value}" for value in grid[key]] for key in keys))
        configs = [compose("train", [f"experiment={name}", *words]) for words in chosen]
    return configs, len(grid.get("algorithm", [0])) * len(grid.get("seed", [0])), grid


def folds(config: DictConfig) -> list[Fold]:
    options = dataset_options(filled_dataset(RandomWeights(), plain(config)["dataset"]))
    return planned_folds(plain(config)["protocol"], described(options, absent_ok=True))


def values_of(config: DictConfig) -> dict[str, Any]:
    """Every hyperparameter, as if the dataset were absent."""
    content = plain(config)
    return hyperparameters(content, trainer_settings(content["trainer"]), 0)


def models(config: DictConfig) -> int:
    """Trained per study of the grid: one of each fold, times what its search asks for."""
    scheme = config.hparams.scheme
    if scheme is None:
        return len(folds(config))
    draws, trials = (n if isinstance(n, int) else len(n) for n in (scheme.draws, scheme.trials))
    return len(folds(config)) * (draws * trials + scheme.repeats)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_header_counts_the_models(path: Path) -> None:
    """``6,804 models``, against what the grid, the protocol and the search ask for."""
    configs, times, grid = combinations(path.stem)
    for algorithm in grid.get("algorithm", []):
        assert (CONF / "algorithm" / f"{algorithm}.yaml").is_file(), algorithm
    header = " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))
    (told,) = re.findall(r"([\d,]+) models\b", header)
    assert times * sum(models(config) for config in configs) == int(told.replace(",", ""))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_combination_has_its_settings(path: Path) -> None:
    """Steps, folds that leave something to train on, hyperparameters that resolve, and a selection that is built."""
    for config in combinations(path.stem)[0]:
        trainer, values = trainer_settings(plain(config)["trainer"]), values_of(config)
        assert trainer.steps in (1000, 2000, 5000, 10000, 15000)
        assert trainer.steps % trainer.eval_every == 0 or trainer.eval_every == 300
        assert values["lr"] > 0
        assert all(fold.training for fold in folds(config))
        instantiate(config.selection)


def test_what_the_papers_say_of_single_datasets() -> None:
    """Yu et al. (2024), section 3.1, and the run files of OoD-Bench."""
    yu = {config.dataset.name: config for config in combinations("yu2024_table5")[0]}
    assert {name: config.trainer.steps for name, config in yu.items()} == {
        "pacs": 5000, "vlcs": 5000, "office_home": 5000, "nico_pp": 10000, "domain_net": 15000,
    }  # fmt: skip
    assert [fold.held_out for fold in folds(yu["nico_pp"])] == [
        ("autumn", "rock"),
        ("dim", "grass"),
        ("outdoor", "water"),
    ]
    assert [len(fold.held_out) for fold in folds(yu["office_home"])] == [1, 1, 1, 1]
    ye = {config.dataset.name: config.hparams.get("lr") for config in combinations("ye2022_table1")[0]}
    assert ye == {"pacs": 3e-5, "office_home": 3e-5, "terra_incognita": None}


def test_published_tables_that_headers_name_exist() -> None:
    for path in TABLES:
        for names in re.findall(r"report\.published=\[([\w,]+)\]", path.read_text()):
            for name in names.split(","):
                assert published(name).title


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_algorithm_can_train_on_as_many_environments(path: Path) -> None:
    """The preset's algorithms, default and drawn, on a tiny network with the fewest and most environments of a fold."""
    configs, _, grid = combinations(path.stem)
    counts = [len(fold.training) for config in configs for fold in folds(config)]
    sizes = {(n_envs, draw) for n_envs in (min(counts), max(counts)) for draw in (0, 1)}
    for algorithm in grid.get("algorithm", ["erm"]):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", [f"experiment={path.stem}", f"algorithm={algorithm}"])
        found = get_class(config.algorithm.objective)
        for n_envs, draw in sorted(sizes):
            config.hparams.draw = draw
            values = values_of(config)
            shapes = Sizes(n_features=0, n_classes=3, n_envs=n_envs, image=(3, 8, 8))
            small = partial(MNISTCNN, width=8, min_size=8)
            needed = partial(_networks_needed, found, values)
            networks, made = build_networks(small, shapes, needed, found.extra_channels, 0)
            SingleRun(found(made, values), networks)


def _networks_needed(algorithm: type[Algorithm], values: dict[str, Any], sizes: Sizes) -> Any:
    return algorithm.networks_needed(sizes, values)
