"""``config.json`` of an exported model, as timm reads it from a folder or the Hugging Face hub."""

from __future__ import annotations

from typing import Any

import torch

from dgbench.models.loaded import LoadedModel
from dgbench.networks.timm_networks import TimmFeaturizer


def timm_config(model: LoadedModel) -> dict[str, Any] | None:
    """What ``timm.create_model("local-dir:FOLDER")`` needs besides the weights; None where timm would change them.

    Pictures are squashed to a square as dgbench does it, without a crop (``crop_mode``).

    Args:
        model: a network of timm with one linear layer, see :func:`~dgbench.models.export_names.is_plain_timm`.
    """
    run, record, own = model.run, model.record, model.preprocessing
    featurizer = run.networks["featurizer"]
    assert isinstance(featurizer, TimmFeaturizer)
    if run.networks.dtype != torch.float32:  # timm builds networks of 32 bits
        return None
    arguments: dict[str, Any] = {} if own.image[0] == 3 else {"in_chans": own.image[0]}
    if featurizer.family.needs_size:
        arguments["img_size"] = list(own.image[1:])
    known = featurizer.body.pretrained_cfg
    return {
        "architecture": featurizer.arch,
        "num_classes": len(record.classes),
        "num_features": featurizer.n_features,
        "label_names": list(record.classes),
        **({"model_args": arguments} if arguments else {}),
        "pretrained_cfg": {
            "input_size": list(own.image),
            "fixed_input_size": "img_size" in arguments,
            "mean": list(own.mean),
            "std": list(own.std),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "num_classes": len(record.classes),
            "first_conv": known["first_conv"],
            "classifier": known["classifier"],
        },
    }
