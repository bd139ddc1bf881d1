"""The entropy of predictions, by which methods judge images without their labels."""

from __future__ import annotations

from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Compute the (n,) entropies, in nats, of the softmax of (n, K) logits."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
