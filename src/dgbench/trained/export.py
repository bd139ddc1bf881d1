"""``dgbench.export``: a trained run as a folder, or on the Hugging Face hub, that dgbench loads, and timm or torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dgbench.errors import ConfigError, RecordError
from dgbench.records.status import is_done, read_status
from dgbench.trained.card import card
from dgbench.trained.loading import STEPS, TENSORS, load_one
from dgbench.trained.predictor import LoadedModel
from dgbench.trained.programs import ONNX, PT2, refuse_program, write_onnx, write_pt2
from dgbench.trained.timm_format import exported_names, is_plain_timm, timm_config
from dgbench.training.run_folder import MODEL_FILE

CONFIG, CARD = "config.json", "README.md"
PROGRAMS = {"pt2": (PT2, write_pt2), "onnx": (ONNX, write_onnx)}
FORMATS = ("safetensors", *PROGRAMS)
FILES = (TENSORS, MODEL_FILE, CONFIG, CARD, PT2, ONNX)

Place = str | Path


def export(
    run: Place, output: Place | None = None, step: str = "last", formats: Sequence[str] = (), push: str = ""
) -> Path:
    """Write a trained run as a folder to hand on: weights, what they are, a model card.

    ``model.safetensors`` has timm's own names where the network is timm's with one linear layer, and ``config.json``
    then makes it one for ``timm.create_model``. :func:`dgbench.load` reads the folder. Averaged weights
    (``averaging=swad``, ``eoa``) are exported as they were evaluated.

    Args:
        run: folder of a finished run.
        output: folder to write; None is ``exports/STUDY-fold-FOLD``. An earlier export there is replaced.
        step: weights of the ``last`` evaluation, or of the ``best`` one on the training environments' validation
            images.
        formats: what to write besides: ``pt2`` (torch.export), ``onnx``.
        push: ``ORG/NAME`` of a repository of the Hugging Face hub that the folder is uploaded to; it is made, private,
            where there is none.

    Returns:
        The folder.

    Raises:
        ConfigError: an unknown format or step, or a format that cannot express the model.
        RecordError: ``run`` is no finished run, ``output`` is something else than an export, or the hub refuses.
        OSError: the folder cannot be written.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ConfigError(f"format={unknown[0]} is unknown; choose from {', '.join(FORMATS)}")
    if step not in STEPS:
        raise ConfigError(f"step={step} is unknown; choose last or best")
    if push:
        checked_name(push)
    folder = _finished(Path(run).expanduser().resolve())
    model = load_one(folder, step)
    programs = [name for name in PROGRAMS if name in formats]
    for name in programs:
        refuse_program(model, name)
    name = f"{folder.parent.name}-fold-{model.record.identity['fold']}"
    target = _writable(Path("exports") / name if output is None else Path(output).expanduser())
    parent = next(place for place in target.absolute().parents if place.is_dir())
    with tempfile.TemporaryDirectory(dir=parent, prefix=".export-") as temporary:
        _write(Path(temporary), model, folder, step, programs, push)
        target.mkdir(parents=True, exist_ok=True)
        for file in FILES:  # what else somebody put there stays, such as .git
            if (Path(temporary) / file).exists():
                os.replace(Path(temporary) / file, target / file)
            else:
                (target / file).unlink(missing_ok=True)
    if push:
        push_folder(target, push, FILES)
    return target


def _finished(folder: Path) -> Path:
    if not folder.exists():
        raise RecordError(f"run={folder} does not exist; name the folder of a run")
    if not folder.is_dir():
        raise RecordError(f"run={folder} is a file; name the folder of a run")
    if (folder / TENSORS).exists():
        raise RecordError(f"run={folder} is an exported model already; name the folder of a run")
    if (folder / MODEL_FILE).exists() and not is_done(folder):
        raise RecordError(
            f"run={folder} is not finished ({read_status(folder) or 'not started'}); train it to its end first"
        )
    return folder


def _writable(target: Path) -> Path:
    is_export = (target / MODEL_FILE).exists() and (target / TENSORS).exists()
    if target.exists() and not is_export and (not target.is_dir() or any(target.iterdir())):
        raise RecordError(f"output={target} exists and is no exported model; name a new folder")
    return target


def _write(target: Path, model: LoadedModel, run: Path, step: str, programs: Sequence[str], push: str) -> None:
    from safetensors.torch import save_file

    plain = is_plain_timm(model.run)
    save_file(exported_names(model.run), target / TENSORS, metadata={"format": "pt"})
    replace(model.record, step=model.step, dataset=_without_paths(model.record.dataset)).save(target)
    shutil.copymode(target / MODEL_FILE, target / TENSORS)  # or others may not read it
    config = timm_config(model) if plain else None
    if config is not None:
        (target / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    for name in programs:
        file, write = PROGRAMS[name]
        write(model, target / file)
    text = card(model, run, step, timm=config is not None, programs=programs, repository=push)
    (target / CARD).write_text(text, encoding="utf-8")


def _without_paths(value: Any) -> Any:
    """Configuration without the folders of one machine; of a path, its last name is left."""
    if isinstance(value, Mapping):
        return {key: _without_paths(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_paths(part) for part in value]
    is_path = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if is_path else value


NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def checked_name(repository: str) -> None:
    """Refuse what cannot be uploaded to, before anything is written; asks no network.

    Raises:
        ConfigError: the name is none, or there is no login.
    """
    if not NAME.fullmatch(repository):
        raise ConfigError(f"push={repository} is no name of a repository; write ORG/NAME")
    if _token() is None:
        raise ConfigError(f"push={repository} needs a token of the hub; set HF_TOKEN, or run hf auth login")


def push_folder(folder: Path, repository: str, files: Sequence[str]) -> None:
    """Upload files of a folder, in one commit, to a repository that is made, private, where there is none.

    Args:
        folder: an exported model.
        repository: ``ORG/NAME``.
        files: names of those that are uploaded.

    Raises:
        RecordError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi

    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=_token())
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(files),
            commit_message="Model exported by dgbench",
        )
    except Exception as error:  # of the hub, or of whatever carries it
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:200]
        raise RecordError(
            f"push={repository}: {hub.endpoint} did not take it ({reason}); the export is in {folder}, and the same "
            "command tries again"
        ) from error


def _token() -> str | None:
    from huggingface_hub import get_token

    token: str | None = get_token()
    return token
