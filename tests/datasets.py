"""Datasets of a composed configuration, without a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.data.datasets.base_images import MNIST_KINDS, MNIST_PARTS
from dgbench.data.description import DatasetInfo
from dgbench.data.options import DatasetOptions
from dgbench.plan import building as dataset_options


def options_of(config: DictConfig) -> DatasetOptions:
    """The options that the key ``dataset`` names."""
    keys: Any = OmegaConf.to_container(config.dataset, resolve=True)
    return dataset_options.dataset_options(keys)


def described(config: DictConfig, **how: bool) -> DatasetInfo:
    """What the dataset tells of itself."""
    return dataset_options.described(options_of(config), **how)


def built(config: DictConfig) -> Any:
    """The environments with their images."""
    return dataset_options.built(options_of(config))


def broken_mnist(data: Path) -> None:
    """Files of MNIST in a data folder, whose content is none."""
    raw = data / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in MNIST_PARTS:
        for kind in MNIST_KINDS:
            (raw / f"{part}-{kind}").write_text("<html>")
