"""``dgbench.load``: from a run folder, an archive of one or a checkpoint to a model."""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator
from torch.nn.modules.module import register_module_parameter_registration_hook

from dgbench.data.fetch.archives import extract
from dgbench.errors import DataError, DgbenchError, RecordError, WeightsError, one_line
from dgbench.networks.checkpoint_layouts import misfit
from dgbench.networks.low_rank import merged_tensors
from dgbench.networks.pickles import unknown_classes
from dgbench.networks.weight_files import read_tensors
from dgbench.records.status import is_done, read_status
from dgbench.trained.predictor import Ensemble, LoadedModel, Predictor
from dgbench.training.frozen_weights import complete, frozen_beside
from dgbench.training.run_folder import MODEL_FILE, ModelRecord
from dgbench.validation import Places, Refusal, Step, Switch, checked, some_of

MOST_TIMES_FILE = 16  # times the bytes of its file that a network may have
SMALL = 2**26  # bytes that any network may have
TENSOR_BYTES = 2**12  # that a tensor costs at least, as an object and in a file
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")

log = logging.getLogger("dgbench")


def _usable(device: str | torch.device) -> str | torch.device:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"cannot be used here ({' '.join(str(error).split())}); choose e.g. cpu"
        ) from None
    return device


_Device = Annotated[str | torch.device, Refusal("is no device", "choose e.g. cpu")]
Device = Annotated[_Device, AfterValidator(_usable)]


@checked
def load(
    run: Places, step: Step = "last", device: Device = "cpu", trust: Switch = False
) -> Predictor:
    """Load a trained model in evaluation mode, without its dataset or configuration.

    ``model(x)`` maps (n, C, H, W) normalized images to (n, K) logits, ``model.predict(images)``
    takes image files, PIL images, arrays or tensors. Averaged weights (``averaging=swad``, ``eoa``)
    are those that were evaluated. No code runs that a file holds or names, unless ``trust`` is set.

    Args:
        run: a run's folder, an archive of one (.zip, .tar, ...), or one of its checkpoints; a list
            of these is an ensemble, whose logits are the mean of theirs.
        step: weights of the ``last`` evaluation, or of the ``best`` one: with the lowest error on
            the training environments' validation images. A checkpoint is what it is.
        device: that the model goes to.
        trust: import whatever classes ``model.json`` names; else those that ``conf/`` names.

    Raises:
        RecordError: there is no model at that place, or one of other classes.
        WeightsError: a file that is damaged, holds code, or belongs to another network.
        ConfigError: an unknown ``step``, or a device that is not here.
    """
    if not isinstance(run, (str, Path)):
        members = [load_one(Path(place), step, trust) for place in run]
        if not members:
            raise RecordError("no run was named; give a folder, or several for an ensemble")
        return Ensemble(members).to(device) if len(members) > 1 else members[0].to(device)
    return load_one(Path(run), step, trust).to(device)


def load_one(path: Path, step: str = "last", trust: bool = False) -> LoadedModel:
    """Load one model; see :func:`load`."""
    path = path.expanduser()
    if path.name.endswith(ARCHIVES):
        with _extracted(path) as folder:
            return load_one(folder, step, trust)
    if path.is_file():
        home = path.parent if (path.parent / MODEL_FILE).exists() else path.parent.parent
        return _loaded(ModelRecord.load(home, trust), path)
    if not path.is_dir():
        raise RecordError(f"{path} does not exist; name the folder of a run, or a checkpoint")
    if not (path / MODEL_FILE).exists():
        _refuse_folder_of_runs(path)
    record = ModelRecord.load(path, trust)
    return _loaded(record, _weights_of(path, record, step))


def _weights_of(folder: Path, record: ModelRecord, step: str) -> Path:
    rule = record.averaging_rule()
    if rule is not None and rule.final_only:
        step = "best"  # only the average was evaluated, once, at the end
    file = folder / "checkpoints" / f"{step}.ckpt"
    if not file.is_file():
        raise RecordError(
            f"{folder} has no checkpoints/{step}.ckpt ({read_status(folder) or 'not started'}); "
            "train it"
        )
    if not is_done(folder):
        log.warning(
            "%s is not finished (%s); these are its weights so far", folder, read_status(folder)
        )
    return file


def _loaded(record: ModelRecord, file: Path) -> LoadedModel:
    content: Any = read_tensors(file)
    unknown = unknown_classes(content)
    if unknown:
        raise WeightsError(
            f"{file} holds values of {some_of(unknown)}, which is never run and no checkpoint of "
            "dgbench has; name another"
        )
    try:
        step, tensors = _state(content, record, file)
        _refuse_larger(record, file)
        module = record.build()
        if record.low_rank_scale is not None:
            tensors = merged_tensors(tensors, record.low_rank_scale)
        problems = misfit(module.state_dict(), tensors)
    except DgbenchError:
        raise
    except Exception as error:  # a checkpoint of anything else
        raise WeightsError(
            f"{file} is no checkpoint of dgbench ({one_line(error)}); name last.ckpt or best.ckpt"
        ) from error
    if problems:
        raise WeightsError(
            f"{file} belongs to another network than {MODEL_FILE} names: {problems}; keep a "
            "checkpoint in the folder of its run"
        )
    module.load_state_dict(tensors)
    return LoadedModel(module, record, step)


def _refuse_larger(record: ModelRecord, file: Path) -> None:
    """Refuse a network far larger than the weights that are said to fill it.

    It is refused before it takes memory.

    Raises:
        RecordError: it is far larger.
    """
    size = file.stat().st_size + sum(other.stat().st_size for other in frozen_beside(file))
    limit = MOST_TIMES_FILE * size + SMALL
    parameters = itertools.count()

    def count(*_: object) -> None:
        if next(parameters) > limit // TENSOR_BYTES:
            raise RecordError(
                f"{MODEL_FILE} names a network of more layers than {file} can hold; train it again"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):  # shapes, no memory
            tensors = record.build().state_dict().values()
    finally:
        hook.remove()
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if needed > limit:
        raise RecordError(
            f"{MODEL_FILE} names a network of {needed:.3g} bytes, more than {file} holds; train it "
            "again"
        )


def _state(content: Any, record: ModelRecord, file: Path) -> tuple[int, dict[str, Any]]:
    """Return step and tensors of a checkpoint, the averaged ones if those were evaluated."""
    runs = content.get("runs") if isinstance(content, Mapping) else None
    if runs is None:
        if not isinstance(content, Mapping) or "state_dict" not in content:
            raise WeightsError(
                f"{file} is no checkpoint of dgbench; name last.ckpt or best.ckpt of a run"
            )
        return int(content["step"]), complete(content, file.parent)
    name = record.identity["run"]
    if name not in runs:
        raise WeightsError(
            f"{file} is the checkpoint of {', '.join(runs)}, not of {name}; name one of this run"
        )
    state = complete(runs[name], file.parent)
    rule = record.averaging_rule()
    if rule is not None and rule.final_only:
        raise WeightsError(
            f"{file} holds weights that were never evaluated alone "
            f"({record.identity['averaging']} averages them); name the folder of the run, or its "
            "best.ckpt"
        )
    if rule is not None:
        rule.load_state_dict(runs[name]["averaging"])
        state |= rule.result()
    return int(content["step"]), state


def run_folders(folder: Path) -> list[Path]:
    """Find the folders of all models below a folder, itself included.

    Raises:
        RecordError: there is none.
    """
    folders = sorted(file.parent for file in folder.expanduser().glob(f"**/{MODEL_FILE}"))
    if not folders:
        raise RecordError(f"{folder} holds no {MODEL_FILE}; name the folder of a run, or of runs")
    return folders


def _refuse_folder_of_runs(folder: Path) -> None:
    runs = run_folders(folder)
    examples = ", ".join(str(run.relative_to(folder)) for run in runs[:3])
    if len(runs) > 3:
        examples += ", ..."
    raise RecordError(
        f"{folder} holds {len(runs)} models ({examples}); name one of them, or pass several as a "
        "list for an ensemble"
    )


@contextmanager
def _extracted(archive: Path) -> Iterator[Path]:
    """Extract an archive to a temporary folder, and yield the folder in it with the model."""
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
