"""``dgbench.load``: from a run folder, an archive of one, a checkpoint or an exported folder to a model."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dgbench.data.fetch.archives import extract
from dgbench.errors import ConfigError, DataError, RecordError, WeightsError
from dgbench.networks.weights import misfit, read_tensors
from dgbench.records.status import is_done, read_status
from dgbench.trained.formats import trained_names
from dgbench.trained.predictor import Ensemble, LoadedModel, Predictor
from dgbench.training.modules import SingleRun
from dgbench.training.run_folder import MODEL_FILE, ModelRecord

STEPS = ("last", "best")
TENSORS = "model.safetensors"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")

log = logging.getLogger("dgbench")

Place = str | Path


def load(run: Place | Sequence[Place], step: str = "last", device: str = "cpu") -> Predictor:
    """A trained model in evaluation mode, without its dataset or configuration.

    ``model(x)`` maps (n, C, H, W) normalized images to (n, K) logits, ``model.predict(images)`` takes image files, PIL
    images, arrays or tensors. Averaged weights (``averaging=swad``, ``eoa``) are those that were evaluated. Nothing
    that a file holds is executed.

    Args:
        run: a run's folder, an archive of one (.zip, .tar, ...), one of its checkpoints, or the folder of an exported
            model; a list of them is an ensemble, whose logits are the mean of theirs.
        step: weights of the ``last`` evaluation, or of the ``best`` one: with the lowest error on the training
            environments' validation images. A checkpoint, or an exported model, is what it is.
        device: that the model goes to.

    Raises:
        RecordError: there is no model at that place.
        WeightsError: a file that is damaged, holds code, or belongs to another network.
        ConfigError: an unknown ``step``.
    """
    if step not in STEPS:
        raise ConfigError(f"step={step} is unknown; choose last or best")
    if not isinstance(run, (str, Path)):
        members = [load_one(Path(place), step) for place in run]
        if not members:
            raise RecordError("no run was named; give a folder, or several for an ensemble")
        return Ensemble(members).to(device) if len(members) > 1 else members[0].to(device)
    return load_one(Path(run), step).to(device)


def load_one(path: Path, step: str = "last") -> LoadedModel:
    """One model; see :func:`load`."""
    path = path.expanduser()
    if path.name.endswith(ARCHIVES):
        with _extracted(path) as folder:
            return load_one(folder, step)
    if path.is_file():
        home = path.parent if (path.parent / MODEL_FILE).exists() else path.parent.parent
        return _loaded(ModelRecord.load(home), path)
    if not path.is_dir():
        raise RecordError(f"{path} does not exist; name the folder of a run, a checkpoint or an exported model")
    if not (path / MODEL_FILE).exists():
        _refuse_folder_of_runs(path)
    record = ModelRecord.load(path)
    return _loaded(record, _weights_of(path, record, step))


def _weights_of(folder: Path, record: ModelRecord, step: str) -> Path:
    exported = folder / TENSORS
    if exported.exists():
        return exported
    rule = record.averaging_rule()
    if rule is not None and rule.final_only:
        step = "best"  # only the average was evaluated, once, at the end
    file = folder / "checkpoints" / f"{step}.ckpt"
    if not file.exists():
        raise RecordError(f"{folder} has no checkpoints/{step}.ckpt ({read_status(folder) or 'not started'}); train it")
    if not is_done(folder):
        log.warning("%s is not finished (%s); these are its weights so far", folder, read_status(folder))
    return file


def _loaded(record: ModelRecord, file: Path) -> LoadedModel:
    content: Any = read_tensors(file)
    module = record.build()
    step, tensors = _state(content, record, module, file)
    if problems := misfit(module.state_dict(), tensors):
        raise WeightsError(
            f"{file} belongs to another network than {MODEL_FILE} names: {problems}; keep a checkpoint in the "
            "folder of its run"
        )
    module.load_state_dict(tensors)
    return LoadedModel(module, record, step)


def _state(content: Any, record: ModelRecord, module: SingleRun, file: Path) -> tuple[int, dict[str, Any]]:
    """Step and tensors of a checkpoint, the averaged ones where those were evaluated."""
    if file.suffix == ".safetensors":
        return int(record.step or 0), trained_names(content, module, record.step or 0)
    runs = content.get("runs") if isinstance(content, Mapping) else None
    if runs is None:
        if not isinstance(content, Mapping) or "state_dict" not in content:
            raise WeightsError(f"{file} is no checkpoint of dgbench; name last.ckpt or best.ckpt of a run")
        return int(content["step"]), dict(content["state_dict"])
    name = record.identity["run"]
    if name not in runs:
        raise WeightsError(f"{file} is the checkpoint of {', '.join(runs)}, not of {name}; name one of this run")
    state = dict(runs[name]["state_dict"])
    rule = record.averaging_rule()
    if rule is not None and rule.final_only:
        raise WeightsError(
            f"{file} holds weights that were never evaluated alone ({record.identity['averaging']} averages them); "
            "name the folder of the run, or its best.ckpt"
        )
    if rule is not None:
        rule.load_state_dict(runs[name]["averaging"])
        state |= rule.result()
    return int(content["step"]), state


def run_folders(folder: Path) -> list[Path]:
    """The folders of all models below a folder, itself included.

    Raises:
        RecordError: there is none.
    """
    folders = sorted(file.parent for file in folder.expanduser().glob(f"**/{MODEL_FILE}"))
    if not folders:
        raise RecordError(f"{folder} holds no {MODEL_FILE}; name the folder of a run, or of runs")
    return folders


def _refuse_folder_of_runs(folder: Path) -> None:
    runs = run_folders(folder)
    few = ", ".join(str(run.relative_to(folder)) for run in runs[:3])
    raise RecordError(
        f"{folder} holds {len(runs)} models ({few}{', ...' if len(runs) > 3 else ''}); name one of them, or pass "
        "several as a list for an ensemble"
    )


@contextmanager
def _extracted(archive: Path) -> Iterator[Path]:
    """The folder with the model in an archive, for a while."""
    with tempfile.TemporaryDirectory() as temporary:
        try:
            extract(archive, Path(temporary))
        except FileNotFoundError:
            raise RecordError(f"{archive} does not exist; name an archive of a run") from None
        except (OSError, DataError) as error:
            raise RecordError(
                f"{archive} cannot be unpacked ({type(error).__name__}: {error}); pack it again"
            ) from None
        folders = sorted(file.parent for file in Path(temporary).glob(f"**/{MODEL_FILE}"))
        if len(folders) != 1:
            raise RecordError(f"{archive} holds {len(folders)} models; pack the folder of one run")
        yield folders[0]
