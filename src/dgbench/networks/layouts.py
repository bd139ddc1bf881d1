"""How published weights files are laid out, and how their tensors are called in a network of ours.

Read from the projects' own loading code:

==========================  =============================================  ===================
published by                tensors stand under, the encoder's begin with  left out
==========================  =============================================  ===================
MoCo v1, v2                 state_dict, module.encoder_q.                  encoder_k., queue
MoCo v3, ResNet and ViT     state_dict, module.base_encoder.               momentum_encoder.,
                                                                           predictor.
SimCLR by VISSL             classy_state_dict / base_model / model /
                            trunk, _feature_blocks.
SimCLR by solo-learn        state_dict, backbone.                          projector.,
                                                                           classifier.
torchvision, timm,          nothing or state_dict, nothing
SimCLR out of TensorFlow
==========================  =============================================  ===================

The rest has the names of timm, which for ResNets are torchvision's, or names that timm converts
(:meth:`dgbench.networks.timm_networks.TimmFeaturizer.adapted`): CLIP of OpenAI and OpenCLIP, SigLIP, DINOv2, DINOv3,
torchvision's RegNets with SWAG weights, ConvNeXt of its authors. Classifiers are left out there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

CONTAINERS = ("state_dict", "classy_state_dict", "base_model", "model", "trunk")
WRAPPER = "module."  # DistributedDataParallel's


@dataclass(frozen=True)
class Layout:
    """One way to name tensors.

    Args:
        encoder: what the names of the encoder's tensors start with.
        others: what the names of other parts of the pretraining start with.
    """

    encoder: str
    others: tuple[str, ...] = ()


LAYOUTS = (
    Layout("encoder_q.", ("encoder_k.", "queue")),
    Layout("base_encoder.", ("momentum_encoder.", "predictor.")),
    Layout("_feature_blocks."),
    Layout("backbone.", ("projector.", "predictor.", "classifier.", "momentum_", "queue")),
    Layout(""),
)


def encoder_tensors(content: Any) -> dict[str, Tensor]:
    """The encoder's tensors of a weights file, without the names of containers and of other parts.

    Args:
        content: what the file holds.

    Returns:
        Tensors by name; those of unknown parts keep their name. Empty where the file holds no named tensors.
    """
    tensors = _tensors(content)
    if tensors and all(name.startswith(WRAPPER) for name in tensors):
        tensors = {name.removeprefix(WRAPPER): value for name, value in tensors.items()}
    layout = next(each for each in LAYOUTS if each.encoder == "" or any(n.startswith(each.encoder) for n in tensors))
    return {n.removeprefix(layout.encoder): v for n, v in tensors.items() if not n.startswith(layout.others or "\0")}


def _tensors(content: Any) -> dict[str, Tensor]:
    while isinstance(content, Mapping):
        found = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[name] for name in CONTAINERS if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            return found
        content = inner
    return {}
