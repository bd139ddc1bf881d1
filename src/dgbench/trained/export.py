"""``dgbench.export``: a trained run as a folder, or on the Hugging Face hub, that dgbench loads, and timm or torch.

Its card says what the run was trained on, its errors (from the rows), how to load it, and what may be done with it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import jinja2
import yaml
from pydantic import Field, InstanceOf

from dgbench.analysis.intervals import wilson
from dgbench.errors import ConfigError, RecordError, one_line
from dgbench.records.files import read_yaml
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.records.status import is_done, read_status
from dgbench.trained.formats import (
    ONNX,
    PT2,
    exported_names,
    refuse_program,
    timm_config,
    write_onnx,
    write_pt2,
)
from dgbench.trained.loading import TENSORS, load_one
from dgbench.trained.predictor import LoadedModel
from dgbench.training.run_folder import MODEL_FILE
from dgbench.validation import Checked, NonBlank, OneLine, Place, Refusal, Switch

REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
MOST_ROWS = 20  # environments that get a line each
MOST_CLASSES = 50  # that are named
CONFIG, CARD = "config.json", "README.md"
PROGRAMS = {"pt2": (PT2, write_pt2), "onnx": (ONNX, write_onnx)}
FILES = (TENSORS, MODEL_FILE, CONFIG, CARD, PT2, ONNX)


class ExportKeys(Checked):
    """Arguments of :func:`export`."""

    key = ""

    run: Annotated[NonBlank | InstanceOf[Path], Refusal("is no folder of a run", "name one, see dgbench export --help")]
    output: Annotated[Annotated[NonBlank | InstanceOf[Path] | None, Refusal("is no folder", "give its path")], OneLine]
    step: Literal["last", "best"]
    format: Annotated[list[Literal["safetensors", "pt2", "onnx"]], Field(strict=False)]
    push: Annotated[str, Refusal("is no name of a repository", "write ORG/NAME")]
    trust: Switch


def export(
    run: Place,
    output: Place | None = None,
    step: str = "last",
    formats: Sequence[str] = (),
    push: str = "",
    trust: bool = False,
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
        trust: as in :func:`dgbench.load`.

    Returns:
        The folder.

    Raises:
        ConfigError: an unknown format or step, or a format that cannot express the model.
        RecordError: ``run`` is no finished run, ``output`` is something else than an export, or the hub refuses.
        OSError: the folder cannot be written.
    """
    typed: dict[str, Any] = {"step": step, "format": formats}
    keys = ExportKeys(**typed, run=run, output=output, push=push, trust=trust)
    if push:
        checked_name(push)
    folder = _finished(Path(run).expanduser().resolve())
    model = load_one(folder, step, keys.trust)
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
        push_folder(target, push)
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

    save_file(exported_names(model.run), target / TENSORS, metadata={"format": "pt"})
    replace(model.record, step=model.step, dataset=_without_paths(model.record.dataset)).save(target)
    shutil.copymode(target / MODEL_FILE, target / TENSORS)  # or others may not read it
    config = timm_config(model)
    if config is not None:
        (target / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    for name in programs:
        file, write = PROGRAMS[name]
        write(model, target / file)
    text = card(model, run, step, timm=config is not None, programs=programs, repository=push)
    (target / CARD).write_text(text, encoding="utf-8")


def _without_paths(value: Any) -> Any:
    """Strip a configuration of the folders of one machine; of a path, its last name is left."""
    if isinstance(value, Mapping):
        return {key: _without_paths(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_paths(part) for part in value]
    is_path = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if is_path else value


def checked_name(repository: str) -> None:
    """Refuse a repository that cannot be uploaded to, before anything is written; the network is not used.

    Raises:
        ConfigError: the name is not ORG/NAME, or there is no login.
    """
    from huggingface_hub import get_token

    if not REPOSITORY.fullmatch(repository):
        raise ConfigError(f"push={repository} is no name of a repository; write ORG/NAME")
    if get_token() is None:
        raise ConfigError(f"push={repository} needs a token of the hub; set HF_TOKEN, or run hf auth login")


def push_folder(folder: Path, repository: str) -> None:
    """Upload an exported model in one commit; where there is no such repository, a private one is created.

    Raises:
        RecordError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi, get_token

    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=get_token())
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Model exported by dgbench",
        )
    except Exception as error:  # of the hub, or of whatever carries it
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise RecordError(
            f"push={repository}: {hub.endpoint} did not take it ({one_line(cause)}); the export is in {folder}, and "
            "the same command tries again"
        ) from error


def card(
    model: LoadedModel, run: Path, step: str, *, timm: bool, programs: Sequence[str] = (), repository: str = ""
) -> str:
    """Render ``README.md`` from ``card.md.j2``; its Python runs in the exported folder.

    Args:
        model: as it is exported.
        run: its folder, with rows and configuration.
        step: how its weights were chosen, ``last`` or ``best``.
        timm: the folder is one for ``timm.create_model``.
        programs: formats besides safetensors.
        repository: of the hub that it goes to, ``ORG/NAME``; empty where it goes to none.
    """
    record, inputs = model.record, model.preprocessing
    identity = record.identity
    task = "tabular-classification" if inputs.vectors else "image-classification"
    head = {
        "library_name": "timm" if timm else "dgbench",
        "pipeline_tag": task,
        "license": "unknown",
        "tags": [task, "domain-generalization", "dgbench", identity["algorithm"], identity["dataset"]],
    }
    rows = [row for row in read_rows(run / ROW_FILE)[0] if row["step"] == model.step]
    tested = [row for row in rows if row["subset"] == "test"] or [row for row in rows if row["subset"] == "val"]
    sources = [record.dataset.get(key) or {} for key in ("fetch", "published")]
    dtype = str(model.run.networks.dtype)
    shape = f"2, {_listed(inputs.image)}"
    zeros = f"torch.zeros({shape}{'' if dtype == 'torch.float32' else f', dtype={dtype}'})"
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dgbench.trained", "."),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["cell"] = lambda content: str(content).replace("|", "\\|")
    return templates.get_template("card.md.j2").render(
        head=yaml.safe_dump(head, sort_keys=False),
        run=identity,
        training=_listed(record.training),
        held_out=_listed(identity["held_out"]),
        errors=_shown(tested),
        n_environments=len(tested),
        interval=lambda row: tuple(100 * end for end in wilson(row["wrong"], row["seen"])),
        facts=_facts(model, step),
        vectors=inputs.vectors,
        pictures=inputs.pictures and inputs.image[0] == 3,
        shape=shape,
        images=f"images = {zeros}  # yours{'' if inputs.vectors else ', normalized by mean and standard deviation'}",
        timm=timm,
        programs=programs,
        repository=repository,
        data_license=next((source["license"] for source in sources if source.get("license")), ""),
        data_source=next((source["source"] for source in sources if source.get("source")), ""),
        initial=initial_weights(run, identity["init"]),
    )


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Select the rows to list: all, held-out environments first; of many, those of lowest, median and highest error."""
    if len(rows) <= MOST_ROWS:
        return sorted(rows, key=lambda row: (not row["env_held_out"], row["env"]))
    by_error = sorted(rows, key=lambda row: (row["wrong"] / row["seen"], not row["env_held_out"], row["env"]))
    return [by_error[0], by_error[len(by_error) // 2], by_error[-1]]


def _facts(model: LoadedModel, step: str) -> dict[str, str]:
    record, inputs = model.record, model.preprocessing
    identity = record.identity
    classes = list(record.classes[:MOST_CLASSES]) + (["..."] if len(record.classes) > MOST_CLASSES else [])
    rule = record.averaging_rule()
    weights = "lowest error on validation images of the training environments" if step == "best" else "the last"
    if rule is not None and rule.final_only:
        weights = "the average, evaluated once at the end"
    name, _, digest = identity["init"].rpartition(":")
    size = " x ".join(map(str, inputs.image))
    return {
        "dataset": f"{identity['dataset']} ({', '.join(f'{k}={v}' for k, v in identity['variant'].items())})",
        "classes": f"{len(record.classes)}: {_listed(classes)}",
        "trained on": _listed(record.training),
        "held out": _listed(identity["held_out"]) or "none",
        "protocol": f"{identity['protocol']}, fold {identity['fold']}",
        "algorithm": identity["algorithm"],
        "hyperparameters": ", ".join(f"`{key}={json.dumps(value)}`" for key, value in identity["hparams"].items()),
        "network": f"{identity['backbone']}, {identity['n_parameters']:,} parameters "
        f"({identity['n_trainable']:,} trained)",
        "initial weights": f"{name}, a file whose sha256 begins with {digest}" if name else digest,
        "tuning": identity["tuning"],
        "averaging of weights": identity["averaging"],
        "evaluation": f"{weights}, after {model.step:,} steps",
        "seed": str(identity["seed"]),
        "input": f"{inputs.image[0]} features, as they are"
        if inputs.vectors
        else f"{size}, mean {list(inputs.mean)}, standard deviation {list(inputs.std)}",
        "run": f"{identity['run']}, dgbench {identity['code']}",
    }


def initial_weights(run: Path, init: str) -> tuple[str, str]:
    """Look up address and license of a run's published initial weights; empty where its configuration lacks them.

    Args:
        run: folder with ``config.yaml``.
        init: of the rows, ``NAME_VERSION:DIGEST``.
    """
    try:
        config = read_yaml(run / "config.yaml")
        keys = config["init"]
        if keys.get("path") or keys.get("url"):
            return str(keys.get("url") or ""), ""
        versions = keys["published"][config["backbone"]["arch"]]
        name = init.rpartition(":")[0].removeprefix(f"{keys['name']}_")
        return str(versions[name]["url"]), str(versions[name].get("license") or "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", ""


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
