"""Adaptive risk minimization, contextual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.containers import AnyNetworks
from dgbench.network_specs import ContextSpec, LinearSpec, NetworkSpec, Sizes
from dgbench.networks.context import means
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup
from dgbench.objectives.step import Outcome, Prediction, Step


class ARM(Algorithm):
    """Adapt to the images that are seen together: one more channel (Zhang et al., 2021; DomainBed).

    The context c is the mean over a group of the context network's output. It is appended to every
    image of the group as its last channel, and

        L = CE(f([X, c]), Y).

    In training a group is an environment's minibatch. In prediction it is ``batch_size``
    consecutive images, or all images if their number is no multiple of it.

    DomainBed builds the optimizer before the context network, which therefore keeps its random
    initial weights while its BatchNorm statistics move (``variant=reference``; ``fixed`` trains
    it). It scores shuffled images 64 at a time, also where 64 is no multiple of the group; here as
    many whole groups as fit at once.
    """

    static = frozenset({"batch_size"})
    choices: ClassVar[Choices] = {"variant": ("reference", "fixed")}
    extra_channels = 1
    why_not_cacheable = (
        "its context network sees the images, and its channel reaches the frozen part"
    )
    why_not_vectors = "its context network sees pictures, and adds a channel to them"

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "context": ContextSpec(sizes.image[0]),
        }

    @classmethod
    def group_size(cls, hparams: Mapping[str, Any]) -> int:
        return int(hparams["batch_size"])

    def param_groups(self) -> dict[str, ParamGroup]:
        trained = ("context",) if self.values["variant"] == "fixed" else ()
        return {"model": ParamGroup(("featurizer", "classifier", *trained))}

    def objective(self, s: Step) -> Outcome:
        return Outcome(s.risk(self._adapted_logits(s.networks, s.x, s.sizes)))

    def per_image(self, s: Prediction) -> Tensor:
        """Compute the (n, 1, H, W) contexts of n single images (n, C, H, W).

        Their means are the contexts of larger groups.
        """
        return s.networks.context(s.x, (1,) * len(s.x))

    def predict(self, s: Prediction) -> Tensor:
        size = self.values["batch_size"]
        n_groups, rest = divmod(len(s.x), size)
        groups = (len(s.x),) if rest else (size,) * n_groups
        if s.per_image is None:
            return self._adapted_logits(s.networks, s.x, groups)
        return _logits(s.networks, s.x, means(s.per_image, groups), groups)

    def _adapted_logits(self, networks: AnyNetworks, x: Tensor, groups: tuple[int, ...]) -> Tensor:
        """Compute the (n, K) logits of (n, C, H, W) images in consecutive groups of these sizes."""
        trained = self.values["variant"] == "fixed"
        with torch.set_grad_enabled(torch.is_grad_enabled() and trained):
            context = networks.context(x, groups)
        return _logits(networks, x, context, groups)


def _logits(networks: AnyNetworks, x: Tensor, context: Tensor, groups: tuple[int, ...]) -> Tensor:
    """Compute the (n, K) logits of (n, C, H, W) images.

    Args:
        networks: featurizer and classifier.
        x: the images.
        context: (G, 1, H, W), of their groups.
        groups: sizes of the G groups of consecutive images.
    """
    rows = torch.cat([c.expand(size, -1, -1, -1) for c, size in zip(context, groups, strict=True)])
    return networks.logits(torch.cat([x, rows], 1))
