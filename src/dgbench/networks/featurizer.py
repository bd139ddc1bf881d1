"""What every featurizer is: a chain of stages, (n, C, H, W) -> (n, m).

A stage is the unit that MixStyle mixes after (``style_stages``) and that tuning freezes, first ones
first. To freeze the first k of ``len(featurizer.stages())``::

    for stage in featurizer.stages()[:k]:
        for parameter in stage.parameters():
            parameter.requires_grad_(False)
        for module in stage.modules:
            module.eval()  # again after every featurizer.train(): running statistics, dropout

What comes out of these stages can be computed once and kept, whatever k::

    forward_from(forward_until(x, k), k) == forward(x)

The dropout on the features is always in the second half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dgbench.errors import ConfigError
from dgbench.network_specs import StyleMix


@dataclass(frozen=True)
class Stage:
    """A part of a featurizer that runs, and may be frozen, as a whole."""

    run: Callable[[Tensor], Tensor]  #: input of the stage -> its output
    modules: tuple[nn.Module, ...]  #: the modules it runs
    loose: tuple[nn.Parameter, ...] = ()  #: parameters it uses that belong to no module

    @classmethod
    def of(cls, *modules: nn.Module) -> Stage:
        """Build a stage that runs modules one after the other."""

        def run(h: Tensor) -> Tensor:
            for module in modules:
                h = module(h)
            return h

        return cls(run, modules)

    @classmethod
    def joined(cls, *stages: Stage) -> Stage:
        """Join stages that run one after the other into one."""

        def run(h: Tensor) -> Tensor:
            for stage in stages:
                h = stage.run(h)
            return h

        modules = chain(*[stage.modules for stage in stages])
        loose = chain(*[stage.loose for stage in stages])
        return cls(run, tuple(modules), tuple(loose))

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over all parameters of the stage."""
        for module in self.modules:
            yield from module.parameters()
        yield from self.loose


@dataclass(frozen=True)
class Parts:
    """A network as a chain: stem, stages, end."""

    stem: Stage  #: what comes before the first stage
    stages: tuple[Stage, ...]  #: in order, at least one
    end: Stage  #: what stands behind the last stage, a pool mostly
    #: parts with a learning rate of their own under layer-wise decay, first ones first; what
    #: belongs to none of them, such as a last norm, learns like the classifier. Empty: the stages.
    layers: tuple[Stage, ...] = ()
    #: images -> what the first layers give as maps, and the output of the stem; None: both are the
    #: same
    first_map: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    #: whether what comes out of stem and stages can be given away (``maps=True``)
    has_maps: bool = True
    #: whether stages give (n, C, H, W), between whose images MixStyle may mix
    mixes_styles: bool = False


class Featurizer(nn.Module):
    """Base of all featurizers.

    A subclass sets ``n_features`` and implements :meth:`parts`, or :meth:`stages` alone.

    Args:
        norm: ``train``: BatchNorm as usual; ``frozen``: it normalizes with its running statistics
            and never changes them, also in training mode, while its scales and shifts stay
            trainable (DomainBed's published protocol); ``fixed``: frozen, and scales and shifts of
            every kind of normalization stay as they are.
        dropout: probability of dropping a feature in training.

    Attributes:
        n_features: m.
        takes: what it is made for, ``pictures``, ``vectors`` or both.
        style_stages: numbers (from 1) of the stages after which MixStyle may mix.
        one_image_size: it takes images of the size that it was made for alone.
        why_not_stackable: why runs with this network cannot train together; None if they can.
        why_not_frozen: why its stages cannot be frozen as they are built, and what to set; None if
            they can.
        first_stage: number of stages that ``forward`` leaves out, because its input has been
            through them.

    Raises:
        ConfigError: ``dropout`` outside [0, 1).
    """

    n_features: int
    takes: tuple[str, ...] = ("pictures",)
    style_stages: tuple[int, ...] = ()
    one_image_size: bool = False
    why_not_stackable: str | None = None
    why_not_frozen: str | None = None
    first_stage: int = 0

    def __init__(self, norm: str = "train", dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ConfigError(
                f"dropout={dropout} on the features is no probability below 1; give one, 0 drops "
                "nothing"
            )
        self.norm = norm
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def parts(self) -> Parts:
        """Split the network into stem, stages and end.

        By default these are its stages alone, without maps.
        """
        return Parts(Stage.of(), tuple(self.stages()), Stage.of(), has_maps=False)

    def stages(self) -> list[Stage]:
        """List the stages in order; the stem belongs to the first, the end to the last."""
        parts = self.parts()
        stages = list(parts.stages)
        stages[0] = Stage.joined(parts.stem, stages[0])
        stages[-1] = Stage.joined(stages[-1], parts.end)
        return stages

    def decay_layers(self) -> list[list[nn.Parameter]]:
        """List the parameters of each part with its own learning rate under layer-wise decay.

        First parts come first.
        """
        return [list(stage.parameters()) for stage in self.stages()]

    def set_norms(self) -> None:
        """Freeze the scales and shifts of normalization if ``norm`` is ``fixed``.

        Call it when all layers exist.
        """
        if self.norm == "fixed":
            for module in self.modules():
                if is_normalization(module):
                    module.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Switch the mode; a frozen BatchNorm stays in evaluation mode."""
        super().train(mode)
        if self.norm != "train":
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def forward(
        self, x: Tensor, styles: Mapping[int, StyleMix] | None = None, maps: bool = False
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Map (n, C, H, W) images to (n, m) features.

        Args:
            x: images, or the output of their first ``first_stage`` stages.
            styles: number of a stage in ``style_stages`` -> how to mix after it.
            maps: also return the output of the first layers and of every stage, see
                :meth:`with_maps`.
        """
        return self.with_maps(x) if maps else self.forward_from(x, self.first_stage, styles)

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute the (n, m) features of images, and their maps before any pooling.

        Map 0 is that of the first layers, map k that of stage k. A map is (n, C, H, W), (n, L, C)
        for L tokens, or (n, C) in a perceptron. Map 0 of a transformer is the patch embedding as
        (n, C, rows, columns).

        Raises:
            ConfigError: this network has no maps.
        """
        parts = self.parts()
        if not parts.has_maps:
            raise ConfigError(
                f"{type(self).__name__} has no maps between its layers; choose another backbone"
            )
        if parts.first_map is None:
            h = first = parts.stem.run(x)
        else:
            first, h = parts.first_map(x)
        maps = [first]
        for stage in parts.stages:
            h = stage.run(h)
            maps.append(h)
        return self.dropout(parts.end.run(h)), maps

    def forward_until(self, x: Tensor, stage: int) -> Tensor:
        """Run images through the first ``stage`` stages."""
        for part in self.stages()[:stage]:
            x = part.run(x)
        return x

    def forward_from(
        self, h: Tensor, stage: int, styles: Mapping[int, StyleMix] | None = None
    ) -> Tensor:
        """Map the output of the first ``stage`` stages to (n, m) features.

        Args:
            h: that output.
            stage: how many stages it has been through.
            styles: as in :meth:`forward`.
        """
        for number, part in enumerate(self.stages()[stage:], start=stage + 1):
            h = part.run(h)
            if styles and number in styles:
                h = mix_styles(h, styles[number])
        features: Tensor = self.dropout(h)
        return features


def is_normalization(module: nn.Module) -> bool:
    """Return whether a layer normalizes; torch's and timm's share no base class, but a name."""
    return "norm" in type(module).__name__.lower()


class FirstStages(nn.Module):
    """The first ``count`` stages of a featurizer, in evaluation mode."""

    def __init__(self, featurizer: Featurizer, count: int) -> None:
        super().__init__()
        self.featurizer = featurizer
        self.count = count
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.featurizer.forward_until(x, self.count)


EPSILON = 1e-6


def mix_styles(x: Tensor, mix: StyleMix) -> Tensor:
    """Give each image a mixture of its own and its partner's feature statistics.

    With mean m and standard deviation s = sqrt(unbiased variance + 1e-6) over the pixels of each
    channel, both constants, the normalized features are multiplied by w s + (1-w) s_partner and
    shifted by w m + (1-w) m_partner (Zhou et al., 2021, section 3).

    Args:
        x: (n, C, H, W) features.
        mix: weights and partners; if it is not active, ``x`` is returned unchanged.

    Returns:
        (n, C, H, W) features.
    """
    constant = x.detach()
    mean = constant.mean((2, 3), keepdim=True)
    std = (constant.var((2, 3), keepdim=True) + EPSILON).sqrt()
    w = mix.weight[:, None, None, None].to(x.dtype)
    mixed_std = w * std + (1 - w) * std[mix.partner]
    mixed_mean = w * mean + (1 - w) * mean[mix.partner]
    return torch.where(mix.active, (x - mean) / std * mixed_std + mixed_mean, x)
