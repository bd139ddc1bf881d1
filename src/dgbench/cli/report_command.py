"""The command that a report was made by, for the caption of every table and figure."""

from __future__ import annotations

import shlex

from dgbench.configuration import command_words

#: overrides that choose a part of the report or its place; the caption of a part names its own
_LEFT_OUT = ("only=", "output=", "report.wandb=")


def report_command() -> str:
    """``python report.py`` with the overrides that were typed, less those that only choose a part or a place."""
    from hydra.core.hydra_config import HydraConfig

    typed = [str(word) for word in HydraConfig.get().overrides.task]
    words = [word for word in typed if not word.lstrip("+").startswith(_LEFT_OUT)]
    return shlex.join([*command_words("report"), *words])
