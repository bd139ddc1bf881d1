"""The model card of an exported run: what it was trained on, its errors, how to load it, what may be done with it.

Front matter as the Hugging Face hub reads it. Every number comes from the run's rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dgbench.analysis.intervals import wilson
from dgbench.data.preprocessing import Preprocessing
from dgbench.models.loaded import LoadedModel
from dgbench.models.loading_code import loading_code
from dgbench.records.rows import ROW_FILE, read_rows

MOST_ROWS = 20  # environments that get a line each
MOST_CLASSES = 50  # that are named


def card(
    model: LoadedModel, run: Path, step: str, *, timm: bool, programs: Sequence[str] = (), repository: str = ""
) -> str:
    """The text of ``README.md``.

    Args:
        model: as it is exported.
        run: its folder, with rows and configuration.
        step: how its weights were chosen, ``last`` or ``best``.
        timm: the folder is one for ``timm.create_model``.
        programs: formats besides safetensors.
        repository: of the hub that it goes to; empty where it does not.
    """
    record = model.record
    about = record.identity
    vectors = model.preprocessing.vectors
    task = "tabular-classification" if vectors else "image-classification"
    kind = "A classifier of feature vectors" if vectors else "An image classifier"
    head = {
        "library_name": "timm" if timm else "dgbench",
        "pipeline_tag": task,
        "license": "unknown",
        "tags": [task, "domain-generalization", "dgbench", about["algorithm"], about["dataset"]],
    }
    rows = [row for row in read_rows(run / ROW_FILE)[0] if row["step"] == model.step]
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {about['algorithm']} on {about['dataset']}, fold {about['fold']}",
        f"{kind}, trained on the environments {_listed(record.training)} of {about['dataset']}"
        f"{_held_out(about)}. Exported by dgbench, a benchmark framework for "
        "domain generalization.",
        "## Error",
        _errors(rows, about),
        "## Training",
        _table(("", ""), _training(model, step)),
        "## Loading",
        loading_code(model, timm=timm, programs=programs, repository=repository),
        "## License",
        _licenses(model, run),
    ]
    return "\n\n".join(parts) + "\n"


def _held_out(about: Mapping[str, Any]) -> str:
    return f"; it never saw {_listed(about['held_out'])}" if about["held_out"] else ""


def _errors(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    shown = [row for row in rows if row["subset"] == "test"] or [row for row in rows if row["subset"] == "val"]
    if not shown:
        return "Its rows hold no error for this step."
    shown = sorted(shown, key=lambda row: (not row["env_held_out"], row["env"]))
    left_out = ""
    if len(shown) > MOST_ROWS:
        by_error = sorted(shown, key=lambda row: float(row["wrong"]) / row["seen"])
        left_out = f" Lowest, median and highest of {len(shown)} environments."
        shown = [by_error[0], by_error[len(by_error) // 2], by_error[-1]]
    lines = []
    for row in shown:
        low, high = wilson(row["wrong"], row["seen"])
        known = "held out" if row["env_held_out"] else "trained on"
        error = f"{100 * row['wrong'] / row['seen']:.1f}"
        lines.append((row["env"], known, row["subset"], row["seen"], error, f"{100 * low:.1f} to {100 * high:.1f}"))
    table = _table(("environment", "", "images of", "n", "error (%)", "95 % interval"), lines)
    exact = " Errors are expected values over the spurious feature." if about["evaluation"] == "exact" else ""
    return (
        f"{table}\n\nWilson's interval over the n images, of this one model: another seed gives another model, and its "
        f"error may lie outside.{left_out}{exact}"
    )


def _training(model: LoadedModel, step: str) -> list[tuple[str, str]]:
    record, own = model.record, model.preprocessing
    about = record.identity
    names = list(record.classes[:MOST_CLASSES]) + (["..."] if len(record.classes) > MOST_CLASSES else [])
    rule = record.averaging_rule()
    chosen = "lowest error on validation images of the training environments" if step == "best" else "the last"
    if rule is not None and rule.final_only:
        chosen = "the average, evaluated once at the end"
    hparams = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in about["hparams"].items())
    return [
        ("dataset", f"{about['dataset']} ({', '.join(f'{k}={v}' for k, v in about['variant'].items())})"),
        ("classes", f"{len(record.classes)}: {_listed(names)}"),
        ("trained on", _listed(record.training)),
        ("held out", _listed(about["held_out"]) or "none"),
        ("protocol", f"{about['protocol']}, fold {about['fold']}"),
        ("algorithm", about["algorithm"]),
        ("hyperparameters", hparams),
        ("network", f"{about['backbone']}, {about['n_parameters']:,} parameters ({about['n_trainable']:,} trained)"),
        ("initial weights", about["init"] if ":" not in about["init"] else _with_hash(about["init"])),
        ("tuning", about["tuning"]),
        ("averaging of weights", about["averaging"]),
        ("evaluation", f"{chosen}, after {model.step:,} steps"),
        ("seed", str(about["seed"])),
        ("input", _input(own)),
        ("run", f"{about['run']}, dgbench {about['code']}"),
    ]


def _input(own: Preprocessing) -> str:
    if own.vectors:
        return f"{own.image[0]} features, as they are"
    return f"{' x '.join(map(str, own.image))}, mean {list(own.mean)}, standard deviation {list(own.std)}"


def _with_hash(init: str) -> str:
    name, _, digest = init.rpartition(":")
    return f"{name}, a file whose sha256 begins with {digest}"


def _licenses(model: LoadedModel, run: Path) -> str:
    keys = model.record.dataset
    data = [keys.get("fetch") or {}, keys.get("published") or {}]
    stated = next((each["license"] for each in data if each.get("license")), None)
    source = next((each["source"] for each in data if each.get("source")), None)
    origin = f" Its source: {source}" if source else ""
    about = model.record.identity
    lines = [f"- Data: {about['dataset']}, license: {stated or 'see the dataset'}.{origin}"]
    if about["init"] != "random":
        url, terms = initial_weights(run, about["init"])
        lines.append(
            f"- Initial weights: {about['init']}, license: {terms or 'not known'}." + (f" {url}" if url else "")
        )
    lines.append("- These weights: unknown until whoever hands them on states one at the top of this file.")
    return "\n".join(lines)


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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(str, names))


def _table(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)
