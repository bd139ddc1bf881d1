"""What keys of ``conf/shift.yaml`` need so that an estimate reads them, as of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dgbench.plan.needs import OF_DATASETS, Config, Dataset, Met, Need, never

#: estimators that train no classifier
_WITHOUT_CLASSIFIERS = ("distances", "frechet")
_AS_THEY_ARE = "shift is estimated on images as they are; leave it out"
_NO_DRAWS = "a shift draws no hyperparameters; leave it out"


def _compares_environments(_: str, config: Config, __: Dataset) -> bool:
    return any(name != "frechet" for name in config["estimator"])


def _pairs_of_folds(key: str, config: Config, describe: Dataset) -> bool:
    return config["pairs"] == "folds" and _compares_environments(key, config, describe)


def _trains_classifiers(_: str, config: Config, __: Dataset) -> bool:
    return any(name not in _WITHOUT_CLASSIFIERS for name in config["estimator"])


def _keeps_features(_: str, config: Config, __: Dataset) -> bool:
    return bool(config["features"] == "frozen")


def _of_training_images(met: Met) -> Met:
    return lambda key, config, describe: config["images"] == "train" and met(key, config, describe)


_SPLIT = "images=train reads it; add that, or leave it out"
_FROZEN = "features=frozen keeps features; leave it out"
_OWN_SPLIT = ("dataset.val_fraction", "dataset.split_seed")

OF_SHIFT: Mapping[str, Need] = {
    **OF_DATASETS,
    "dataset.augmentations": Need(never, _AS_THEY_ARE),
    "dataset.log2_batch_sizes": Need(never, _NO_DRAWS),
    **{
        key: replace(OF_DATASETS[key], met=_of_training_images(OF_DATASETS[key].met), fix=_SPLIT)
        for key in _OWN_SPLIT
    },
    "protocol": Need(_pairs_of_folds, "pairs=folds reads the protocol; add that, or leave it out"),
    "pairs": Need(_compares_environments, "frechet compares with pretraining images; leave it out"),
    "execution": Need(
        _trains_classifiers, "these estimators train no classifiers; leave it out", misleads=False
    ),
    "execution.memory_gb": Need(
        never, "a shift reads execution.mode and max_runs; leave it out", misleads=False
    ),
    "cache_dir": Need(_keeps_features, _FROZEN, misleads=False),
    "cache_gb": Need(_keeps_features, _FROZEN, misleads=False),
}
