"""Write the predictions of finished runs again if their file is damaged or lost.

They are computed from the weights that the runs kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from dgbench.callbacks.predictions import PredictionTarget, PredictionWriter
from dgbench.callbacks.recorder import Recorder, RunRecord
from dgbench.configuration import command_line, with_python_path
from dgbench.data.training_groups import training_groups
from dgbench.errors import RecordError, WeightsError, is_out_of_memory, one_line
from dgbench.records.files import NOT_REGULAR, check_seal, open_regular
from dgbench.records.predictions import PREDICTION_FILE, about_predictions, read_predictions
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.training.checkpoints import Snapshot, best_file, own_file
from dgbench.training.frozen_weights import complete
from dgbench.training.processes import make_trainer, normal_numbers
from dgbench.training.study import ReadyRun

log = logging.getLogger("dgbench")


def why_predicted_again(run: ReadyRun) -> str:
    """Describe what is wrong with the predictions that a finished run wrote.

    It is "" if nothing is, or if it wrote none.
    """
    file = run.folder / PREDICTION_FILE
    which = run.study.settings.predictions
    if which == "none":
        return ""
    if not file.exists():
        return "is lost" if _wrote_predictions(run) else ""
    try:
        about = about_predictions(file)
        read_predictions(file)
    except RecordError:
        return "is damaged"
    return "is of another run" if about.get("run") != run.hash else ""


def predict_again(run: ReadyRun, callbacks: Sequence[pl.Callback]) -> str:
    """Write the predictions of a finished run again, from its last checkpoint or best weights.

    Args:
        run: that is finished.
        callbacks: that show how far it is.

    Returns:
        Why that cannot be done, or "" if it was.
    """
    file = run.folder / PREDICTION_FILE
    which = run.study.settings.predictions
    if file.exists() and not file.is_file():
        return f"it is {NOT_REGULAR}; remove it"
    state, step, fault = _state(run, which)
    if state is None:
        return fault
    try:
        weights = complete(state, run.folder / "checkpoints")
    except WeightsError as error:
        return str(error)
    module = run.study.module(run.fold)
    module.load_state_dict(weights)
    module.steps_done = step
    # it writes no rows; its only run counts as improved, so that the file is kept
    recorder = Recorder([RunRecord(None, run.identity(module), run.data.recipes)])
    recorder.improved = [0]
    predictions = PredictionWriter([predicted_run(run, file)], which, recorder)
    trainer = make_trainer(run.study.settings, [predictions, *callbacks], epochs=1)
    try:
        with normal_numbers():
            trainer.validate(module, datamodule=run.data, verbose=False)
    finally:
        run.data.trainer = None
    return ""


def predicted_run(run: ReadyRun, file: Path | None) -> PredictionTarget:
    """Describe where the predictions of a run go and what their file says of it.

    Args:
        run: that is evaluated.
        file: None writes none.
    """
    about = {
        "run": run.hash,
        "dataset": run.study.info.name,
        "algorithm": run.spec.algorithm,
        "seed": run.spec.seed,
        "fold": run.fold.name,
        "training": list(run.fold.training),
        "held_out": list(run.fold.held_out),
        "classes": list(run.data.environments.catalog.classes),
        "root": run.study.config["dataset"].get("root"),
    }
    groups = training_groups(run.data.environments, run.fold.training)
    if groups:
        about["training_groups"] = groups
    return PredictionTarget(file, about, run.data.recipes)


def predicting_command(run: ReadyRun) -> str:
    """Write the command that evaluates a finished run once more and keeps what is predicted.

    It writes other rows beside those of the run.
    """
    words = ["dgbench", "evaluate", f"model={run.folder}", "predictions=true"]
    if run.study.settings.predictions == "best":
        words.append("step=best")
    if not run.spec.user_code:
        return command_line(words)
    folders = os.environ.get("PYTHONPATH", "")  # with that beside --config-dir
    return with_python_path(command_line([*words, "trust=true"]), folders)


def _wrote_predictions(run: ReadyRun) -> bool:
    """Return whether the last checkpoint of a run says that it wrote predictions."""
    snapshot = Snapshot.load(own_file(run), glance=True)
    return snapshot is not None and "predictions" in snapshot.runs.get(run.hash, {})


def _state(run: ReadyRun, which: str) -> tuple[Mapping[str, Any] | None, int, str]:
    """Read the checkpoint's state that a run was evaluated with, and its step.

    Returns:
        The state or None, its step, and the reason if the weights are gone.
    """
    best = _best_state(run)
    if which == "best":
        if best is None:
            gone = f"{best_file(run)} is gone or damaged; delete the folder to train the run anew"
            return None, 0, gone
        return (*best, "")
    rows, _ = read_rows(run.folder / ROW_FILE)
    step = max((row["step"] for row in rows), default=None)
    # of averaged weights, the last checkpoint holds those that were not evaluated
    last = None if run.study.averaging() else _last_state(run)
    for content in (last, best):
        if content is not None and content[1] == step:
            return (*content, "")
    return None, 0, f"no checkpoint of step {step} is left; delete the folder to train the run anew"


def _last_state(run: ReadyRun) -> tuple[Mapping[str, Any], int] | None:
    path = own_file(run)
    snapshot = Snapshot.load(path)
    if snapshot is None or run.hash not in snapshot.runs:
        return None
    return snapshot.runs[run.hash], snapshot.step


def _best_state(run: ReadyRun) -> tuple[Mapping[str, Any], int] | None:
    path = best_file(run)
    try:
        if not check_seal(path):
            return None
        with open_regular(path) as file:
            content = torch.load(file, map_location="cpu", weights_only=True)
        return content, int(content["step"])
    except Exception as error:  # torch raises whatever its unpickler stumbles over
        if is_out_of_memory(error):
            raise
        log.debug("%s: %s", path, one_line(error))
        return None
