"""From a resolved configuration to what its runs are: :class:`~dgbench.records.spec.StudySpec`.

No torch.

Each part of a specification is taken from a list of keys that count. What is left out changes no
result; it stands in :data:`NO_RESULT` with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dgbench.data.description import DatasetInfo
from dgbench.plan.code import class_name, named, user_code
from dgbench.plan.overrides import leaves
from dgbench.plan.settings import COUNTING, TrainerSettings
from dgbench.records.spec import StudySpec
from dgbench.seeding import ALL

#: key (or the beginning of keys) of a composed configuration -> why no run's identity holds it
NO_RESULT: Mapping[str, str] = {
    "paths": "where files are",
    "logger": "where results are shown besides",
    "selection": "how finished rows are read",
    "execution": "which runs train together; every row says with how many",
    "grid": "which studies a command trains; each has an identity of its own",
    "plan": "prints, trains nothing",
    "retry": "which runs are trained now",
    "wait": "whether a command stays until its jobs have ended",
    "sweep": "how jobs are packed",
    "card": "which GPU plans tell hours of",
    "per_dataset": "what presets look up for a dataset; it counts where it lands",
    "per_algorithm": "what presets look up for an algorithm; it counts where it lands",
    "hydra": "how a command is run",
    "algorithm._target_": "the training module, the same for every algorithm",
    "algorithm.search": "distributions; the values drawn from them count",
    "algorithm.shared": "which hyperparameters are read; their values count",
    "algorithm.hparams": "defaults; the resolved values count",
    "hparams.shared": "defaults and distributions; the resolved values count",
    "hparams.rng": "how values are drawn; the values count",
    "hparams.scheme": "which studies a search trains; each has an identity of its own",
    "dataset._target_": "counts as dataset.class",
    "dataset.image_kind": "which defaults hold; the resolved values count",
    "dataset.data_dir": "where files are; their content counts",
    "dataset.root": "where files are; their content counts",
    "dataset.layout": "what folders mean; what is listed counts",
    "dataset.duplicates": (
        "copies are named or refused; where they are dropped, the variant says so"
    ),
    "dataset.manifest": "where the list is; what it lists counts",
    "dataset.subset_column": "which column of a list is followed; the subsets that it lists count",
    "dataset.path": "where the file of features is; its content counts",
    "dataset.columns": "which columns are features; the features count",
    "dataset.reader": "how files are listed; what is listed counts",
    "dataset.environments": "which are taken; those that are given, and their files, count",
    "dataset.classes": (
        "refuses a folder that lacks some, or allows it; the classes of the files count"
    ),
    "dataset.bad_files": "left out of what is listed; what is listed counts",
    "dataset.on_bad_image": "fail gives no result where skip leaves images out",
    "dataset.ratio": "which environments are given; those count, and a ratio that is read",
    "dataset.scale": "as dataset.ratio",
    "dataset.cache_dir": "where decoded images are kept",
    "dataset.store": "where decoded images are kept",
    "dataset.workers": "threads that decode",
    "dataset.device_share": "where decoded images are kept",
    "dataset.fetch": "where files can be downloaded",
    "dataset.published": "what a copy is compared with, for a warning",
    "dataset.test_groups": "default of the protocol; the fold counts",
    "dataset.log2_batch_sizes": "a distribution; the value drawn from it counts",
    "dataset.split": "default of the protocol; the fold counts",
    "dataset.given_sets": "given environments by ratio; those that are given count",
    "dataset.augmentations": "all that can be chosen; the chosen one counts",
    "backbone._target_": "counts as network.class",
    "head.unit_length": "default of backbone.unit_length; that counts",
    "init": "how weights are found; what they hold counts, by sha256",
    "tuning._target_": "one class freezes",
    "tuning.cache_features": "features computed once are the features",
    "tuning.cache_gb": "largest size of cached features",
    "tuning.cache_dir": "where cached features are kept",
    "averaging._target_": "feeds the rule; the rule counts",
    "protocol": "plans the folds; the fold counts, and the protocol's name",
    "trainer.device": "where it is computed; rounding may differ",
    "trainer.channels_last": "layout of memory; rounding may differ",
    "trainer.checkpoint_seconds": "how often a run is saved",
    "trainer.class_errors": "counts that rows hold besides",
    "trainer.predictions": "what is written beside the rows",
    "trainer.log_every": "how often loss and speed are logged",
}


#: key that is younger than the hashes -> its default, at which a run is what it was without the key
YOUNGER: Mapping[str, Any] = {
    "dataset.split_by": None,
    "dataset.split_pattern": None,
    "dataset.min_images": 0,
    "trainer.environments_per_step": None,
    "trainer.small_environments": "refuse",
    "trainer.sampling": "uniform",
}

#: groups in which a user may name code of their own; its text counts, also where the rest of a
#: group does not
CODE_GROUPS = (
    "algorithm",
    "dataset",
    "backbone",
    "init",
    "head",
    "tuning",
    "averaging",
    "sharpness",
    "protocol",
)


def shared_parts(
    config: Mapping[str, Any], info: DatasetInfo, settings: TrainerSettings
) -> dict[str, dict[str, Any]]:
    """Build the parts of a specification that studies share whatever their algorithm,
    hyperparameters and seed.
    """
    backbone = config["backbone"]
    return {
        "dataset": {
            "class": class_name(config["dataset"]["_target_"]),
            **_dataset(config["dataset"], info),
        },
        "network": {"class": class_name(backbone["_target_"]), **_counting("backbone", backbone)},
        "tuning": _counting("tuning", config["tuning"]),
        "averaging": _counting("averaging", config["averaging"]),
        "sharpness": _counting("sharpness", config["sharpness"]),
        "head": _head(_counting("head", config["head"])),
        "callbacks": named(changing_callbacks(config["callbacks"])),
        "training": _counting("trainer", {key: getattr(settings, key) for key in COUNTING}),
    }


def study_spec(
    config: Mapping[str, Any],
    weights: str,
    hparams: dict[str, Any],
    shared: Mapping[str, dict[str, Any]],
) -> StudySpec:
    """Build the specification that all runs of a configuration share.

    Args:
        config: plain resolved values by top-level key.
        weights: identity of the initial weights, with the sha256 of their file.
        hparams: resolved values of exactly the hyperparameters that are read.
        shared: :func:`shared_parts` of the same configuration.
    """
    labels = config["hparams"]
    moves = config["seed_moves"]
    if moves != ALL:  # hashes are older than the key
        shared = {**shared, "training": {**shared["training"], "seed_moves": moves}}
    return StudySpec(
        **shared,
        algorithm=config["algorithm"]["name"],
        objective=class_name(config["algorithm"]["objective"]),
        user_code=user_code([*(config[group] for group in CODE_GROUPS), shared["callbacks"]]),
        hparams=hparams,
        backbone=config["backbone"]["name"],
        init=weights,
        protocol=config["protocol"]["name"],
        seed=config["seed"],
        draw=labels["draw"],
        trial=labels["trial"],
        space=labels["space"],
    )


def folder_name(spec: StudySpec, dataset: str) -> str:
    """Name a study's folder, e.g. ``sr_cmnist-vrex-mlp-390-s0-0123456789ab``.

    In a search it ends in ``s0-draw3-trial1`` before the hash.
    """
    init = spec.init.partition(":")[0]
    tuning = str(spec.tuning["name"])
    # named where it is another
    usual = {
        init: "random",
        spec.head.get("name", "random"): "random",
        tuning: "ft",
    }
    parts = [
        dataset,
        spec.algorithm,
        spec.backbone,
        *(name for name, usually in usual.items() if name != usually),
    ]
    labels = [
        f"{key}{value}" for key, value in (("draw", spec.draw), ("trial", spec.trial)) if value
    ]
    return "-".join([*parts, f"s{spec.seed}", *labels, spec.digest])


#: callbacks of Lightning that watch
PASSIVE = (
    "LearningRateMonitor",
    "DeviceStatsMonitor",
    "ThroughputMonitor",
    "TQDMProgressBar",
    "RichProgressBar",
)


def changing_callbacks(callbacks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Select those of ``config["callbacks"]`` that may change what is trained: all but
    :data:`PASSIVE` of Lightning.

    A user's own callback that only observes says so with ``passive: true`` beside its ``_target_``.
    """
    watching = {f"pytorch_lightning.callbacks.{kind}" for kind in PASSIVE}
    changing = {}
    for name, content in callbacks.items():
        # refused before training
        keys = dict(content) if isinstance(content, Mapping) else {"_target_": content}
        if not keys.pop("passive", False) and keys.get("_target_") not in watching:
            changing[name] = keys
    return changing


def callback_values(callbacks: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten what :func:`changing_callbacks` selects to values by dotted key, for rows."""
    return {key: value for key, value in leaves(callbacks, "callbacks") if value != {}}


def _counting(top: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under a top-level key that can change a result, classes of dgbench by
    name.
    """
    counting = {}
    for key, value in content.items():
        name = f"{top}.{key}"
        as_before = name in YOUNGER and value == YOUNGER[name]
        if name not in NO_RESULT and not as_before:
            counting[key] = value
    return named(counting)  # type: ignore[no-any-return]


def _head(content: dict[str, Any]) -> dict[str, Any]:
    """Replace the path of a text encoder's configuration file, in the settings of the head, by a
    hash of the file.
    """
    model = content.get("model")
    if isinstance(model, str) and model.endswith(".json") and Path(model).expanduser().is_file():
        content = {
            **content,
            "model": hashlib.sha256(Path(model).expanduser().read_bytes()).hexdigest()[:12],
        }
    return content


def _dataset(dataset: Mapping[str, Any], info: DatasetInfo) -> dict[str, Any]:
    """Build the part of the dataset: its facts, and the options that decide pixels or subsets.

    Facts replace options.

    The hash ``content`` says which images there are: some are only found to be broken when they are
    decoded.
    """
    options = _counting("dataset", dataset)
    augmentation = (dataset.get("augmentations") or {}).get(options.pop("augment", None))
    variant = {key: value for key, value in info.variant.items() if key not in ("images", "files")}
    facts = {**info.facts(), "variant": {**options, **variant, "augmentation": augmentation}}
    variant = {key: value for key, value in facts["variant"].items() if key not in facts}
    # names of given environments are rounded
    return {
        **facts,
        "variant": variant,
        "listed": dataset.get("given"),
    }
