"""Names that stand in rows, refused where what they say is not what a study would train."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.code import class_name
from dgbench.plan.hyperparameters import keeps_head
from dgbench.plan.settings import TrainerSettings


def check_labels(config: Mapping[str, Any], trainer: TrainerSettings) -> None:
    """Refuse a name of dgbench's for something else, and a method that begins after the last
    optimizer step.

    With 0 steps the initial weights are evaluated, and nothing is said of a training.

    Args:
        config: plain resolved values of one study by top-level key, of the right types.
        trainer: how long it trains.

    Raises:
        ConfigError: the first one, with its keys and what to write instead.
    """
    name = config["algorithm"]["name"]
    objective = config["algorithm"]["objective"]
    if (CONF / "algorithm" / f"{name}.yaml").is_file() and class_name(objective) != name:
        raise ConfigError(
            f"algorithm.objective={objective} is another algorithm than algorithm.name={name}, "
            f"by which rows would call it; choose algorithm={name}, or give another algorithm.name"
        )
    if config["sharpness"]["name"] == "gsam" and config["sharpness"].get("alpha") == 0:
        raise ConfigError(
            "sharpness.alpha=0 leaves nothing of sharpness=gsam but SAM; choose sharpness=sam"
        )
    _check_tuning(config["tuning"], trainer.steps)
    if keeps_head(config["algorithm"]):
        _check_fixed_head(config)
    if trainer.steps:
        _check_averaging(config["averaging"].get("rule", {}), trainer)


def _check_tuning(tuning: Mapping[str, Any], steps: int) -> None:
    name = tuning["name"]
    frozen = tuning.get("freeze_stages", 0)
    head_steps = tuning.get("head_steps", 0)
    trains = tuning.get("trains", "everything")
    if trains != "everything":
        true = trains
    elif frozen == "all":
        true = "lp"
    elif frozen:
        true = f"freeze{frozen}"
    else:
        true = "lp_ft" if head_steps else "ft"
    if trains != "everything" and frozen:
        raise ConfigError(
            f"tuning.freeze_stages={frozen} cannot go with tuning.trains={trains}, which freezes "
            "the rest of every stage; leave one of the two out"
        )
    if name != true and re.fullmatch(r"ft|lp|lp_ft|freeze\d+", name):
        raise ConfigError(
            f"tuning.name={name} is not what tuning.freeze_stages={frozen} with "
            f"tuning.head_steps={head_steps} trains, which is {true}; choose "
            f"tuning={re.sub('[0-9]', '', true)}, or give another number"
        )
    if 0 < steps <= head_steps:
        raise ConfigError(
            f"tuning.head_steps={head_steps} leaves none of trainer.steps={steps} for the rest; "
            "lower it, or set tuning=lp to train the classifier alone"
        )


def _check_fixed_head(config: Mapping[str, Any]) -> None:
    """Refuse to train the classifier alone, or from zero, where a method keeps it as it is."""
    keeps = f"algorithm={config['algorithm']['name']}, which never trains the classifier"
    tuning = config["tuning"]
    if tuning.get("freeze_stages") == "all" or tuning.get("head_steps"):
        raise ConfigError(
            f"tuning={tuning['name']} trains the classifier alone and cannot go with {keeps}; "
            "choose tuning=ft or another algorithm"
        )
    if class_name(config["head"]["_target_"]) == "ZeroHead":
        raise ConfigError(
            f"head={config['head']['name']} leaves nothing to learn with {keeps}; "
            "choose head=zero_shot"
        )


def _check_averaging(rule: Mapping[str, Any], trainer: TrainerSettings) -> None:
    first = rule.get("start", 0)
    evaluations = -(-trainer.steps // trainer.eval_every)
    if rule.get("flavor") == "parameters":
        first += 1  # at the start itself it counts the weights of one step twice
    if trainer.steps < first:
        raise ConfigError(
            f"averaging.rule.start={rule['start']} leaves nothing to average of "
            f"trainer.steps={trainer.steps}; lower it, or set averaging=none"
        )
    if evaluations < rule.get("n_converge", 0):
        raise ConfigError(
            f"averaging.rule.n_converge={rule['n_converge']} is more than the {evaluations} "
            f"evaluations of trainer.steps={trainer.steps} with "
            f"trainer.eval_every={trainer.eval_every}; evaluate more often, or set averaging=none"
        )
