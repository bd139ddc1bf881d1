"""The study that a command trains, for a benchmark that times its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.environments import Environments
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import planned_again
from dgbench.training.study import ReadyStudy


def config_of(words: Sequence[str]) -> dict[str, Any]:
    """Compose the plain resolved values of ``python train.py WORDS`` by top-level key."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("train", open_keys(words)), resolve=True)
    return dict(config)


def study_of(words: Sequence[str], folder: Path, source: Environments | None = None) -> ReadyStudy:
    """Build the study of ``python train.py WORDS``, ready to train.

    Args:
        words: overrides.
        folder: that its own folder would stand in.
        source: environments of another study over the same dataset.
    """
    return ReadyStudy(planned_again(config_of(words), folder), source)
