"""An exported model as timm reads it: names of tensors, and ``config.json``.

A network of timm with one linear layer on its features is exported as timm saves it, so that
``timm.create_model(arch, num_classes=K, checkpoint_path=...)`` reads it; what only training needs (the discriminators
of DANN, the weights of Group DRO's environments) is left out. Any other model keeps its own names, and all tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.networks.timm_networks import TimmFeaturizer
from dgbench.objectives.contract import Algorithm
from dgbench.trained.predictor import LoadedModel
from dgbench.training.modules import SingleRun

BODY, HEAD = "networks.featurizer.body.", "networks.classifier."
STEPS = "steps_done"


def is_plain_timm(module: SingleRun) -> bool:
    """Whether a network of timm with one linear layer makes the predictions of a run, and nothing else."""
    networks, algorithm = module.networks, module.algorithm
    body = networks["featurizer"]
    return (
        type(algorithm).predict is Algorithm.predict
        and not algorithm.extra_channels
        and isinstance(body, TimmFeaturizer)
        and not body.projected
        and not body.unit_length
        and isinstance(networks["classifier"], nn.Linear)
    )


def timm_head(module: SingleRun) -> str:
    """What timm calls the last layer of a network, e.g. ``fc.``."""
    featurizer = module.networks["featurizer"]
    assert isinstance(featurizer, TimmFeaturizer)
    return f"{featurizer.body.pretrained_cfg['classifier']}."


def exported_names(module: SingleRun) -> dict[str, Tensor]:
    """The tensors of a run as they are exported."""
    state = module.weights()
    if not is_plain_timm(module):
        return {key: value.contiguous() for key, value in state.items()}
    renamed = {BODY: "", HEAD: timm_head(module)}
    tensors = {}
    for key, value in state.items():
        for old, new in renamed.items():
            if key.startswith(old):
                tensors[new + key.removeprefix(old)] = value.contiguous()
    return tensors


def trained_names(tensors: Mapping[str, Tensor], module: SingleRun, step: int) -> dict[str, Any]:
    """The ``state_dict`` of a run from :func:`exported_names`.

    Args:
        tensors: as exported.
        module: the run, with any weights.
        step: optimizer steps of these weights.
    """
    if not is_plain_timm(module):
        return dict(tensors)
    head = timm_head(module)
    trained = {
        (HEAD + key.removeprefix(head)) if key.startswith(head) else BODY + key: value for key, value in tensors.items()
    }
    rest = {key: value for key, value in module.state_dict().items() if not key.startswith((BODY, HEAD))}
    return {**rest, **trained, STEPS: torch.tensor(step)}


def timm_config(model: LoadedModel) -> dict[str, Any] | None:
    """What ``timm.create_model("local-dir:FOLDER")`` needs besides the weights; None where timm would change them.

    Pictures are squashed to a square as dgbench does it, without a crop (``crop_mode``).

    Args:
        model: a network of timm with one linear layer, see :func:`~dgbench.trained.timm_format.is_plain_timm`.
    """
    run, record, sees = model.run, model.record, model.preprocessing
    featurizer = run.networks["featurizer"]
    assert isinstance(featurizer, TimmFeaturizer)
    if run.networks.dtype != torch.float32:  # timm builds networks of 32 bits
        return None
    arguments: dict[str, Any] = {} if sees.image[0] == 3 else {"in_chans": sees.image[0]}
    if featurizer.family.needs_size:
        arguments["img_size"] = list(sees.image[1:])
    pretrained = featurizer.body.pretrained_cfg
    return {
        "architecture": featurizer.arch,
        "num_classes": len(record.classes),
        "num_features": featurizer.n_features,
        "label_names": list(record.classes),
        **({"model_args": arguments} if arguments else {}),
        "pretrained_cfg": {
            "input_size": list(sees.image),
            "fixed_input_size": "img_size" in arguments,
            "mean": list(sees.mean),
            "std": list(sees.std),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "num_classes": len(record.classes),
            "first_conv": pretrained["first_conv"],
            "classifier": pretrained["classifier"],
        },
    }
