"""Pictures or vectors: which networks and algorithms go with what a dataset holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.utils import get_class

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm

#: what to choose for each kind
FIXES = {
    "vectors": "choose backbone=feature_mlp, linear or mlp",
    "pictures": "choose a backbone for pictures, such as mlp or mnist_cnn, or dataset=features",
}


def check_backbone(config: Mapping[str, Any], info: DatasetInfo) -> None:
    """Refuse a featurizer that is not made for what the dataset holds.

    Args:
        config: plain resolved values by top-level key.
        info: of the dataset.

    Raises:
        ConfigError: it takes pictures and the dataset holds vectors, or the other way around.
    """
    takes = getattr(get_class(config["backbone"]["_target_"]), "takes", None)  # a user's own may not say
    if takes is not None and info.kind not in takes:
        raise ConfigError(
            f"backbone={config['backbone']['name']} takes {' or '.join(takes)}, and dataset={info.name} holds "
            f"{info.kind}; {FIXES[info.kind]}"
        )


def check_algorithm(algorithm: type[Algorithm], config: Mapping[str, Any], info: DatasetInfo) -> None:
    """Refuse vectors for an algorithm that needs pictures.

    Raises:
        ConfigError: with the reason.
    """
    if info.kind == "vectors" and algorithm.why_not_vectors:
        raise ConfigError(
            f"algorithm={config['algorithm']['name']} cannot train on vectors of features: "
            f"{algorithm.why_not_vectors}; choose another algorithm"
        )
