"""``python train.py``: train every fold of a study, then print its measures."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from dgbench.cli.entry import hydra_main


@hydra_main(config_name="train")
def train(config: DictConfig) -> None:
    """Train what is unfinished, skip what is done."""
    from hydra.core.hydra_config import HydraConfig

    from dgbench.callbacks.progress import StudyProgress
    from dgbench.cli.build import build
    from dgbench.cli.closing import close_study
    from dgbench.cli.member import quiet_lightning, train_member
    from dgbench.cli.study import Study

    quiet_lightning()
    study = Study(config, Path(HydraConfig.get().runtime.output_dir))
    wandb_log = build(config, "logger")
    progress = StudyProgress(len(study.members), study.trainer.steps, config.algorithm.name)
    try:
        complete = [train_member(study, member, progress, wandb_log) for member in study.members]
    finally:
        progress.close()
    close_study(study, complete, build(config, "selection"), wandb_log)


