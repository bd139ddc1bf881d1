"""``python shift.py``: how far the environments of a dataset are apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.cli.entry import hydra_main, sign_of_life

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

    from dgbench.estimation.shift_job import Ended


@hydra_main(config_name="shift")
def shift(config: DictConfig) -> None:
    """Estimate what is not estimated yet."""
    from dgbench.cli.shift_end import print_estimates, print_job_plan
    from dgbench.errors import ConfigError
    from dgbench.plan.command import Command

    command = Command.of_hydra(config)
    if command.prints_plan and not config.wait:
        raise ConfigError("wait=false submits a sweep to a queue; add -m and hydra/launcher=slurm, or leave it out")
    if config.plan:
        print_job_plan(command.values(), command.words, command.parent)
        return
    ended = run_shift(command.values(), command.words, command.parent, command.key())
    if command.prints_plan:
        print_estimates([each.planned.file for each in ended])


def run_shift(config: dict[str, Any], words: Sequence[str], parent: Path, key: str = "") -> list[Ended]:
    """Estimate what is not estimated yet.

    Args:
        config: plain resolved values by top-level key.
        words: overrides that were typed.
        parent: folder for the folders of rows.
        key: of the job, by which a sweep knows it; empty where there is none.

    Raises:
        ConfigError, DataError, WeightsError: it cannot work; nothing was started.
    """
    from dgbench.plan.settings import check_values

    check_values(config)
    sign_of_life(f"{config['dataset']['name']}, shift: starting ...")

    from dgbench.estimation.preparing import prepared
    from dgbench.estimation.shift_job import estimate_all
    from dgbench.estimation.shift_plan import planned_shift
    from dgbench.records.commands import record_end
    from dgbench.training.processes import prepare_process

    planned_shift(config, words, parent)  # wrong values are refused before anything is downloaded
    planned = planned_shift(config, words, parent, download=True)
    prepare_process()
    ended = estimate_all(planned, lambda: prepared(planned, sign_of_life), sign_of_life)
    if key:
        record_end(parent, key, [each.planned.folder for each in ended])
    return ended
