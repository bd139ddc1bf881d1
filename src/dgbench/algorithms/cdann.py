"""Conditional domain-adversarial neural networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from dgbench.algorithms.dann import DANN
from dgbench.network_specs import EmbeddingSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import ParamGroup
from dgbench.objectives.step import Step


class CDANN(DANN):
    """DANN whose discriminator also knows the class (Li et al., 2018; DomainBed).

    The discriminator sees z + E[y], where E is a learned (K, m) embedding of the classes that it
    owns. Its cross entropy is the sum over rows of w_i CE_i with

        w_i = 1 / (rows of class y_i in the step * (1 + largest label in the step)),

    so every class weighs the same. Everything else, the switches included, is DANN's.
    """

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        embedding = EmbeddingSpec(sizes.n_classes, sizes.n_features)
        return {**super().networks_needed(sizes, hparams), "embedding": embedding}

    def param_groups(self) -> dict[str, ParamGroup]:
        groups = super().param_groups()
        groups["discriminator"] = replace(
            groups["discriminator"], networks=("discriminator", "embedding")
        )
        return groups

    def discriminator_input(self, s: Step, z: Tensor) -> Tensor:
        return z + s.networks.embedding(s.y)

    def row_weights(self, s: Step) -> Tensor:
        same_class = (s.y[:, None] == s.y[None]).sum(1)
        return 1 / (same_class * (1 + s.y.max())).to(s.x.dtype)
