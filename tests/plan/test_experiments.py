"""The published settings: every combination composes and plans, and the header counts what is
trained.
"""

from __future__ import annotations

import re
from functools import cache, partial
from itertools import combinations as pairs_of
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from dgbench.configuration import CONF
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN
from dgbench.networks.weights import RandomWeights
from dgbench.objectives.contract import Algorithm
from dgbench.plan.building import dataset_options, described, filled_dataset
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.hyperparameters import hyperparameters
from dgbench.plan.settings import TrainerSettings
from dgbench.reports.published import published
from dgbench.shift.plan import planned_shift
from dgbench.training.modules import SingleRun
from tests.studies import composed, plain

TABLES = sorted(
    path for path in (CONF / "experiment").glob("*.yaml") if re.match(r"[a-z]+\d{4}", path.stem)
)
# multiplied, not composed: every algorithm composes with everything (test_conf.py)
APART = {
    "algorithm",
    "seed",
}


@cache
def combinations(name: str) -> tuple[list[DictConfig], int, dict[str, Any]]:
    """The configurations of a preset, how many studies each stands for, and its grid."""
    grid: dict[str, Any] = OmegaConf.to_container(composed(f"experiment={name}").grid)  # type: ignore[assignment]
    keys = [key for key in grid if key not in APART]
    chosen = product(*([f"{key}={value}" for value in grid[key]] for key in keys))
    configs = [composed(f"experiment={name}", *words) for words in chosen]
    return configs, len(grid.get("algorithm", [0])) * len(grid.get("seed", [0])), grid


def folds(config: DictConfig) -> list[Fold]:
    options = dataset_options(filled_dataset(RandomWeights.images, plain(config)["dataset"]))
    return planned_folds(plain(config)["protocol"], described(options, absent_ok=True))


def values_of(config: DictConfig) -> dict[str, Any]:
    """Every hyperparameter, as if the dataset were absent."""
    content = plain(config)
    return hyperparameters(content, TrainerSettings(**content["trainer"]), 0)


def models(config: DictConfig) -> int:
    """Trained per study of the grid: one of each fold, times what its search asks for."""
    scheme = config.hparams.scheme
    if scheme is None:
        return len(folds(config))
    draws, trials = (n if isinstance(n, int) else len(n) for n in (scheme.draws, scheme.trials))
    return len(folds(config)) * (draws * trials + scheme.repeats)


@pytest.mark.thorough
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_header_counts_the_models(path: Path) -> None:
    """``6,804 models``, against what the grid, the protocol and the search ask for."""
    configs, times, grid = combinations(path.stem)
    for algorithm in grid.get("algorithm", []):
        assert (CONF / "algorithm" / f"{algorithm}.yaml").is_file(), algorithm
    header = " ".join(
        line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#")
    )
    (told,) = re.findall(r"([\d,]+) models\b", header)
    assert times * sum(models(config) for config in configs) == int(told.replace(",", ""))


@pytest.mark.thorough
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_combination_has_its_settings(path: Path) -> None:
    """Steps, folds that leave something to train on, hyperparameters that resolve, and a selection
    that is built.
    """
    for config in combinations(path.stem)[0]:
        trainer, values = TrainerSettings(**plain(config)["trainer"]), values_of(config)
        assert trainer.steps in (1000, 2000, 5000, 10000, 15000, 20000, 60000)
        assert trainer.steps % trainer.eval_every == 0 or trainer.eval_every == 300
        assert values["lr"] > 0
        assert all(fold.training for fold in folds(config))
        instantiate(config.selection)


@pytest.mark.thorough
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_what_differs_between_algorithms_reaches_the_one_that_is_meant(path: Path) -> None:
    """What stands under ``per_algorithm`` is read by that algorithm, and not by one that has no
    such key.
    """
    config = composed(f"experiment={path.stem}")
    special = plain(config).get("per_algorithm", {})
    assert special.keys() <= set(config.grid.get("algorithm", []))
    keys = {key for values in special.values() for key in values}
    for algorithm in [*special, "erm"] if special else []:
        values = values_of(composed(f"experiment={path.stem}", f"algorithm={algorithm}"))
        asked = special.get(algorithm, {})
        assert {key: values[key] for key in asked} == asked
        own = (CONF / "algorithm" / f"{algorithm}.yaml").read_text()
        assert all(f"{key}:" in own for key in keys & values.keys())


SHIFTS = sorted((CONF / "shift_experiment").glob("*.yaml"))


@pytest.mark.thorough
@pytest.mark.parametrize("path", SHIFTS, ids=lambda path: path.stem)
def test_the_header_counts_the_estimates(path: Path) -> None:
    """``dataset=pacs: 6 pairs x 5 estimates``, against what the words of each such line plan."""
    lines = re.findall(
        r"^#   (.+): (\d+) pairs? x (\d+) estimates$", path.read_text(), re.MULTILINE
    )
    assert lines
    for words, pairs, of_each in lines:
        config = plain(composed(f"shift_experiment={path.stem}", *words.split(), name="shift"))
        (planned,) = planned_shift(config, [], Path("outputs")).estimators
        assert (len(planned.pairs), len(planned.slots)) == (int(pairs), int(of_each)), words


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
    ye = {
        config.dataset.name: config.hparams.get("lr") for config in combinations("ye2022_table1")[0]
    }
    assert ye == {"pacs": 3e-5, "office_home": 3e-5, "terra_incognita": None}


#: what the READMEs of SWAD and MIRO print, and the code where they print nothing: steps,
#: evaluations, tolerance, lambda
SWAD = {
    "pacs": (5000, 100, 0.3),
    "vlcs": (5000, 50, 0.2),
    "office_home": (5000, 100, 0.3),
    "terra_incognita": (5000, 100, 0.3),
    "domain_net": (15000, 500, 0.3),
}
MIRO_SWAD = {
    "pacs": (5000, 200, 0.3, 0.01),
    "vlcs": (5000, 50, 0.2, 0.01),
    "office_home": (5000, 200, 0.3, 0.1),
    "terra_incognita": (5000, 200, 0.3, 0.1),
    "domain_net": (15000, 500, 0.3, 0.1),
}


@pytest.mark.thorough
def test_what_the_commands_of_swad_and_miro_say() -> None:
    for config in combinations("cha2021_swad")[0]:
        rule = config.averaging.rule
        said = (config.trainer.steps, config.trainer.eval_every, rule.tolerance_ratio)
        assert said == SWAD[config.dataset.name]
        values = values_of(config)
        assert [values[key] for key in ("lr", "weight_decay", "resnet_dropout", "batch_size")] == [
            5e-5,
            0,
            0,
            32,
        ]
        assert (rule.n_converge, rule.n_tolerance, config.dataset.split_seed) == (3, 6, config.seed)
    for config in combinations("cha2022_miro_swad")[0]:
        said = (
            config.trainer.steps,
            config.trainer.eval_every,
            config.averaging.rule.tolerance_ratio,
        )
        assert (*said, values_of(config)["ld"]) == MIRO_SWAD[config.dataset.name]
        assert values_of(config)["lr"] == 5e-5
    searched = {
        config.dataset.name: values_of(config) for config in combinations("cha2022_miro")[0]
    }
    keys = ("lr", "resnet_dropout", "weight_decay", "ld")
    assert {name: tuple(values[key] for key in keys) for name, values in searched.items()} == {
        "pacs": (3e-5, 0.0, 0.0, 0.01),
        "vlcs": (1e-5, 0.5, 1e-6, 0.01),
        "office_home": (3e-5, 0.1, 1e-6, 0.1),
        "terra_incognita": (3e-5, 0.0, 1e-4, 0.1),
        "domain_net": (3e-5, 0.1, 0.0, 0.1),
    }


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    ["domainbed2020", "cha2021_swad", "cha2022_miro", "teterwak2023_erm_pp", "rame2022_diwa"],
)
def test_networks_and_splits_of_trials(name: str) -> None:
    """One domain held out at a time, frozen BatchNorm but for ERM++, and a split of its own for
    every trial.
    """
    for config in combinations(name)[0]:
        assert [len(fold.held_out) for fold in folds(config)] == [1] * len(
            config.dataset.published.environments
        )
        assert config.backbone.name == f"resnet50-bn_{'train' if 'erm_pp' in name else 'frozen'}"
        assert config.init.version == (None if "erm_pp" in name else "tv_in1k")
    config = composed(f"experiment={name}", "seed=2", "grid={}")
    trials = config.hparams.scheme.varies if config.hparams.scheme else ["dataset.split_seed"]
    assert "dataset.split_seed" in trials
    assert config.dataset.split_seed == (0 if config.hparams.scheme else 2)


def test_pairs_are_held_out_once_each() -> None:
    """Leave-one-domain-out selection needs every pair; the parts of a dataset have all of them, and
    none twice.
    """
    configs, _, _ = combinations("domainbed2020_pairs")
    found: dict[str, list[tuple[str, ...]]] = {}
    for config in configs:
        assert config.protocol.name == f"pairs_{config.per_dataset.part}"
        found.setdefault(config.dataset.name, []).extend(
            tuple(fold.held_out) for fold in folds(config)
        )
    given = {config.dataset.name: config.dataset.published.environments for config in configs}
    parts = plain(configs[0])["per_dataset"]["domain_net"]["pairs"]
    found["domain_net"] = [tuple(pair) for part in parts.values() for pair in part]
    given["domain_net"] = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]
    assert {name: sorted(pairs) for name, pairs in found.items()} == {
        name: sorted(pairs_of(environments, 2)) for name, environments in given.items()
    }


def test_draws_of_diwa() -> None:
    """Its ranges, by DomainBed's generators: every value of each occurs in 60 draws, and draw 0 is
    the default set.
    """
    config = composed("experiment=rame2022_diwa")
    drawn: dict[str, set[float]] = {}
    for number, trial in product(range(20), range(3)):
        config.hparams.draw, config.hparams.trial = number, trial
        values = values_of(config)
        if number:
            for key in ("lr", "weight_decay", "resnet_dropout", "batch_size"):
                drawn.setdefault(key, set()).add(values[key])
        else:
            assert (values["lr"], values["weight_decay"], values["resnet_dropout"]) == (5e-5, 0, 0)
    assert drawn == {
        "lr": {1e-5, 3e-5, 5e-5}, "weight_decay": {1e-4, 1e-6}, "resnet_dropout": {0.0, 0.1, 0.5},
        "batch_size": {32},
    }  # fmt: skip


def test_published_tables_that_headers_name_exist() -> None:
    for path in TABLES:
        for names in re.findall(r"report\.published=\[([\w,]+)\]", path.read_text()):
            for name in names.split(","):
                assert published(name).title


# domainbed2020_pairs has the algorithms of domainbed2020, on fewer environments
TRAINED = [path for path in TABLES if path.stem != "domainbed2020"]


@pytest.mark.slow
@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_every_algorithm_can_train_on_as_many_environments(path: Path) -> None:
    """The preset's algorithms, default and drawn, on a tiny network with the fewest and most
    environments of a fold.
    """
    configs, _, grid = combinations(path.stem)
    counts = [len(fold.training) for config in configs for fold in folds(config)]
    sizes = {(n_envs, draw) for n_envs in (min(counts), max(counts)) for draw in (0, 1)}
    for chosen in [[f"algorithm={name}"] for name in grid.get("algorithm", [])] or [[]]:
        config = composed(f"experiment={path.stem}", *chosen)
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
