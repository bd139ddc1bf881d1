"""Conditional domain-adversarial neural networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from dgbench.algorithms.dann import DANN
from dgbench.types import EmbeddingSpec, EnvBatch, Networks, NetworkSpec, Player, Sizes


class CDANN(DANN):
    """DANN whose discriminator also knows the class (Li et al., 2018; DomainBed).

    The discriminator sees z + E[y], E a learned (K, m) embedding of the classes that it owns, and its cross entropy
    is the sum over rows of w_i CE_i with w_i = 1 / (rows of class y_i in the step * (1 + largest label in the step)),
    so every class weighs the same. Everything else, the switches included, is DANN's.
    """

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        embedding = EmbeddingSpec(sizes.n_classes, sizes.n_features)
        return {**super().networks_needed(sizes, hparams), "embedding": embedding}

    def players(self) -> dict[str, Player]:
        players = super().players()
        players["discriminator"] = replace(players["discriminator"], networks=("discriminator", "embedding"))
        return players

    def discriminator_input(self, nets: Networks, z: Tensor, y: Tensor) -> Tensor:
        return z + nets.embedding(y)

    def row_weights(self, batch: EnvBatch) -> Tensor:
        same_class = (batch.y[:, None] == batch.y[None]).sum(1)
        return 1 / (same_class * (1 + batch.y.max())).to(batch.x.dtype)
