"""Where a stored model is evaluated: its dataset, the fold, and the settings.

A run has its own, with the keys that were typed, unless another dataset is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from hydra.core.override_parser.overrides_parser import OverridesParser

from dgbench.data.environments import Environments
from dgbench.data.understanding import lines_of_dataset
from dgbench.errors import ConfigError
from dgbench.networks.weights import ImageRecord
from dgbench.plan.building import built, dataset_options, filled_dataset
from dgbench.plan.code import refuse_code
from dgbench.plan.settings import TrainerSettings
from dgbench.trained.predictor import Predictor
from dgbench.training.run_folder import ModelRecord

# beginnings of a word that names another dataset than that of a run
NAMES_DATASET = ("dataset=", "corruptions=", "+corruptions=")


class Places:
    """Finds where stored models are evaluated, and builds each dataset once.

    Args:
        compose: overrides -> keys of ``dataset``, ``paths``, ``protocol`` and ``trainer``.
        trust: records of runs may name code of others.
        tell: called with what is done next.
    """

    def __init__(
        self,
        compose: Callable[[Sequence[str]], dict[str, Any]],
        trust: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._compose = compose
        self._trust = trust
        self._tell = tell
        self._datasets: dict[str, Environments] = {}

    def of(
        self, record: ModelRecord | None, overrides: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any], TrainerSettings]:
        """Find the keys of the dataset and of the protocol, and the settings of the evaluation.

        A run has its own, with the keys that were typed, unless another dataset was named.
        """
        chosen = any(word.startswith(NAMES_DATASET) for word in overrides)
        if record is None or chosen:
            if not chosen and not any(word.startswith("dataset.") for word in overrides):
                raise ConfigError(
                    "dataset= is missing; name one of conf/dataset, since only a run brings its own"
                )
            config = self._compose(overrides)
            return config["dataset"], config["protocol"], TrainerSettings(**config["trainer"])
        typed = protocol_words(overrides)
        if typed:
            raise ConfigError(
                f"{typed[0]} does not apply to a run, which keeps the fold that it was "
                "trained for unless dataset= names another dataset; leave it out"
            )
        words = [word for word in overrides if not word.lstrip("+~").startswith("dataset.")]
        local_config = self._compose(words)
        if not self._trust:
            place = f"{record.identity['run']}: its dataset"
            refuse_code(record.dataset, place, "dataset", "corruptions")
        content = _with_local_paths(record.dataset, local_config["paths"], overrides)
        dataset = _with_typed(content, overrides)
        trainer = local_config["trainer"]
        changed = {key: trainer[key] for key in _typed(overrides, "trainer")}
        keys = {**trainer, **record.trainer, "device": trainer["device"], **changed}
        # a run of an earlier version had other keys
        present = keys.keys() & TrainerSettings.model_fields.keys()
        settings = TrainerSettings(**{key: keys[key] for key in present})
        return dataset, self.own_fold(record), settings

    def own_fold(self, record: ModelRecord) -> dict[str, Any]:
        """Return the protocol of a run, with only the fold that it was trained for."""
        if not self._trust:
            refuse_code(record.protocol, f"{record.identity['run']}: its protocol", "protocol")
        return {**record.protocol, "folds": [record.identity["fold"]]}

    def environments(
        self, keys: dict[str, Any], model: Predictor | None, device: torch.device
    ) -> Environments:
        """Build the dataset once, on a device.

        What it leaves to the model is the model's own, or ImageNet's.
        """
        images = ImageRecord()
        if model:
            inputs = model.preprocessing
            size = inputs.image[-1]
            if inputs.pictures:
                images = ImageRecord(inputs.mean, inputs.std, size)
            else:
                images = ImageRecord(input_size=size)
        filled = filled_dataset(images, keys)
        text = repr(filled)
        if text not in self._datasets:
            self._datasets[text] = built(dataset_options(filled))
            for line in lines_of_dataset(self._datasets[text].info):
                self._tell(line)
        self._datasets[text].store.to(device)
        return self._datasets[text]


def protocol_words(overrides: Sequence[str]) -> list[str]:
    """Select the words that choose or change a protocol."""
    return [word for word in overrides if word.lstrip("+~").startswith(("protocol=", "protocol."))]


def _typed(overrides: Sequence[str], group: str) -> dict[str, Any]:
    """Parse the values typed for keys of a group, by key."""
    parser = OverridesParser.create()
    values = {}
    for word in overrides:
        if word.lstrip("+~").startswith(f"{group}."):
            override = parser.parse_override(word)
            values[override.key_or_group.removeprefix(f"{group}.")] = override.value()
    return values


def _with_local_paths(
    dataset: Mapping[str, Any], paths: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """Copy the keys of a run's dataset, with folders of this machine for those it does not have."""
    content = dict(dataset)
    typed = _typed(overrides, "paths")
    for key in content.keys() & paths.keys():
        # a folder of another machine is not made on this one
        if key in typed or not Path(str(content[key])).expanduser().is_dir():
            content[key] = paths[key]
    return content


def _with_typed(dataset: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Copy the keys of a run's dataset, and replace the values of those that were typed."""
    changed = deepcopy(dict(dataset))
    for key, value in _typed(overrides, "dataset").items():
        *parents, last = key.split(".")
        node = changed
        for part in parents:
            node = node.get(part, {})
        if last not in node:
            raise ConfigError(
                f"dataset.{key} is no key of the run's dataset; choose from {', '.join(dataset)}"
            )
        node[last] = value
    return changed


def device_name(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    name = "cuda" if device == "gpu" else device
    try:
        torch.empty(0, device=name)
    except (AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise ConfigError(
            f"trainer.device={device} is not here ({reason}); set trainer.device=auto"
        ) from error
    return name
