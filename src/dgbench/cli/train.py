"""``python train.py``: train every fold of a study, then print its measures."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from dgbench.cli.entry import hydra_main


@hydra_main(config_name="train")
def train(config: DictConfig) -> None:
    """Train what is unfinished, skip what is done."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from dgbench.cli.sweeps.plan import asks_to_clock, plan_command

    folder = Path(HydraConfig.get().runtime.output_dir)
    if config.plan:
        asks_to_clock(config.plan)  # or is refused
        plan_command(folder, starts=False)
        return

    from dgbench.callbacks.progress import StudyProgress
    from dgbench.cli.build import build
    from dgbench.cli.closing import close_all, remember
    from dgbench.cli.grid import studies
    from dgbench.cli.planned import keep_plan
    from dgbench.cli.prepare import prepare_process
    from dgbench.cli.run import train_all
    from dgbench.cli.search import chosen_again, searches

    prepare_process()
    planned = studies(config, folder)
    if len(planned) > 1 and HydraConfig.get().mode is RunMode.RUN:  # jobs of a sweep would each print their own
        plan_command(folder, starts=True)
    keep_plan(folder, planned)
    wandb_log, selection = build(config, "logger"), build(config, "selection")
    label = config.algorithm.name if len(planned) == 1 else f"{len(planned)} studies"
    found = searches(planned)
    members = sum(len(study.members) for study in planned) + sum(search.repeats for search in found)
    progress = StudyProgress(members, planned[0].trainer.steps, label)
    try:
        ends = train_all(planned, config.execution, progress, wandb_log, config.retry)
        again = [study for search in found for study in chosen_again(search)]
        keep_plan(folder, again)
        ends |= train_all(again, config.execution, progress, wandb_log, config.retry)
    finally:
        progress.close()
    remember(folder, config, [*planned, *again])
    close_all([*planned, *again], ends, selection, wandb_log, found)
