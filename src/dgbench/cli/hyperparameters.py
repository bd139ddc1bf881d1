"""The hyperparameters that a configuration asks for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.cli.schema import TrainerConfig, trainer_config
from dgbench.errors import ConfigError
from dgbench.protocols.hparams import resolve

TYPED = ("lr", "weight_decay", "batch_size")  # hyperparameters that conf/trainer holds too, null for "not typed"


def hyperparameters(config: DictConfig, switches: Collection[str]) -> tuple[TrainerConfig, dict[str, Any]]:
    """The trainer's keys, complete, and every hyperparameter of the run; what beats what is said by :func:`resolve`.

    Args:
        config: the composed configuration.
        switches: names whose values need not be numbers.

    Raises:
        ConfigError: a value of the wrong type, or a key, space or dataset's image kind that is unknown.
    """
    groups = ("hparams", "algorithm", "backbone", "dataset", "trainer")
    node: dict[str, Any] = {name: OmegaConf.to_container(config[name], resolve=True) for name in groups}
    asked = node["hparams"]
    if not isinstance(asked["set"], dict):
        raise ConfigError(f"hparams.set={asked['set']} is no mapping; write hparams.set.KEY=VALUE")
    values = resolve(
        asked["shared"],
        {"hparams": node["algorithm"]["hparams"], "search": node["algorithm"].get("search") or {}},
        kind=node["dataset"].get("image_kind"),
        space=asked["space"],
        number=asked["draw"],
        trial=asked["trial"],
        rng=asked["rng"],
        read=[*TYPED, *(node["backbone"].get("hparams") or {}).values()],
        typed={key: value for key in TYPED if (value := node["trainer"].get(key)) is not None},
        chosen=asked["set"],
    )
    trainer = trainer_config(OmegaConf.create({**node["trainer"], **{key: values[key] for key in TYPED}}))
    values |= {key: getattr(trainer, key) for key in TYPED}
    for key, value in values.items():
        if key not in switches and (not isinstance(value, (int, float)) or isinstance(value, bool)):
            raise ConfigError(f"hyperparameter {key}={value} is not a number; give one with hparams.set.{key}")
    return trainer, values


def fit_batch(
    config: DictConfig, trainer: TrainerConfig, hparams: dict[str, Any], images: int
) -> tuple[TrainerConfig, dict[str, Any]]:
    """A drawn batch size that no minibatch of this dataset can have becomes the largest one that can.

    DomainBed's loader would wait for such a minibatch for ever. A batch size that was typed is left to be refused.

    Args:
        config: the composed configuration.
        trainer: the trainer's keys.
        hparams: every hyperparameter.
        images: training images of the smallest given environment.
    """
    typed = config.trainer.get("batch_size") is not None or "batch_size" in (config.hparams.set or {})
    if typed or not config.hparams.draw or not 0 < images < trainer.batch_size:
        return trainer, hparams
    return replace(trainer, batch_size=images), {**hparams, "batch_size": images}
