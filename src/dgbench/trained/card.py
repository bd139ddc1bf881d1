"""The model card of an exported run: what it was trained on, its errors, how to load it, what may be done with it.

Front matter as the Hugging Face hub reads it. Every number comes from the run's rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from dgbench.analysis.intervals import wilson
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.trained.predictor import LoadedModel

MOST_ROWS = 20  # environments that get a line each
MOST_CLASSES = 50  # that are named


def card(
    model: LoadedModel, run: Path, step: str, *, timm: bool, programs: Sequence[str] = (), repository: str = ""
) -> str:
    """The text of ``README.md``, from ``card.md.j2``; its Python runs in the exported folder.

    Args:
        model: as it is exported.
        run: its folder, with rows and configuration.
        step: how its weights were chosen, ``last`` or ``best``.
        timm: the folder is one for ``timm.create_model``.
        programs: formats besides safetensors.
        repository: of the hub that it goes to, ``ORG/NAME``; empty where it goes to none.
    """
    record, sees = model.record, model.preprocessing
    identity = record.identity
    task = "tabular-classification" if sees.vectors else "image-classification"
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
    shape = f"2, {_listed(sees.image)}"
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
        vectors=sees.vectors,
        pictures=sees.pictures and sees.image[0] == 3,
        shape=shape,
        images=f"images = {zeros}  # yours{'' if sees.vectors else ', normalized by mean and standard deviation'}",
        timm=timm,
        programs=programs,
        repository=repository,
        data_license=next((source["license"] for source in sources if source.get("license")), ""),
        data_source=next((source["source"] for source in sources if source.get("source")), ""),
        initial=initial_weights(run, identity["init"]),
    )


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows that get a line: all, held-out environments first, or the lowest, median and highest error of many."""
    if len(rows) <= MOST_ROWS:
        return sorted(rows, key=lambda row: (not row["env_held_out"], row["env"]))
    by_error = sorted(rows, key=lambda row: (row["wrong"] / row["seen"], not row["env_held_out"], row["env"]))
    return [by_error[0], by_error[len(by_error) // 2], by_error[-1]]


def _facts(model: LoadedModel, step: str) -> dict[str, str]:
    record, sees = model.record, model.preprocessing
    identity = record.identity
    classes = list(record.classes[:MOST_CLASSES]) + (["..."] if len(record.classes) > MOST_CLASSES else [])
    rule = record.averaging_rule()
    weights = "lowest error on validation images of the training environments" if step == "best" else "the last"
    if rule is not None and rule.final_only:
        weights = "the average, evaluated once at the end"
    name, _, digest = identity["init"].rpartition(":")
    size = " x ".join(map(str, sees.image))
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
        "input": f"{sees.image[0]} features, as they are"
        if sees.vectors
        else f"{size}, mean {list(sees.mean)}, standard deviation {list(sees.std)}",
        "run": f"{identity['run']}, dgbench {identity['code']}",
    }


def initial_weights(run: Path, init: str) -> tuple[str, str]:
    """Address and license of a run's published initial weights, empty where its configuration does not know them.

    Args:
        run: folder with ``config.yaml``.
        init: of the rows, ``NAME_VERSION:DIGEST``.
    """
    try:
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        keys = config["init"]
        if keys.get("path") or keys.get("url"):
            return str(keys.get("url") or ""), ""
        versions = keys["published"][config["backbone"]["arch"]]
        name = init.rpartition(":")[0].removeprefix(f"{keys['name']}_")
        return str(versions[name]["url"]), str(versions[name].get("license") or "")
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        return "", ""


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
