"""Pictures with a painted spurious feature: C-Cats&Dogs, L-CIFAR10 (Hwang et al., 2024, sec. 4.2) and the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dgbench.data.pictures import load_pictures
from dgbench.data.spurious import Painter, SpuriousEnvironments
from dgbench.data.sr_cmnist import ALL
from dgbench.errors import ConfigError


def spurious_pictures(
    *,
    name: str,
    root: str,
    image_size: int,
    on_bad_image: str,
    cache_dir: str,
    workers: int | None,
    paint: Painter,
    e_means: str,
    given: Sequence[float] | None,
    ratio: str | None,
    given_sets: Mapping[str, Sequence[float]],
    **chance: Any,
) -> SpuriousEnvironments:
    """Classes of pictures as labels, replaced with probability ``label_noise``; a feature painted by the final label.

    All environments are e = 0.00, 0.01, ..., 1.00.

    **What e means.** The paper says only that an environment is "parameterized by a spurious feature (between 0.00
    and 1.00)". The defaults are its likely reading:

    - C-Cats&Dogs: e is the probability to *disagree*, as in section 4.1 of the same paper. With two classes the
      other reading is this one with the two tints swapped, so nothing hangs on it.
    - L-CIFAR10: e is the probability to *agree*. Of ten colors, a line that disagrees with probability 0.9 agrees
      with 0.1 and says nothing about the label: the given set 0.80 to 0.95, the majority, would hold next to no
      spurious correlation, and the paper says one is induced.

    **Given sets.** The paper prints the one of ratio 4:1: for C-Cats&Dogs 0.05, 0.10, 0.15, 0.20 and, as minority,
    0.50; for L-CIFAR10 0.95, 0.90, 0.85, 0.80 and 0.50. Those of 3:2 and 5:0 (Table 2) it does not print. Here they
    keep the printed set's starts and its step of 0.05: the majority is the first three (five) of 0.05, 0.10, 0.15,
    0.20, 0.25, the minority the first two (none) of 0.50, 0.55; for L-CIFAR10 of 0.95, 0.90, ... and 0.50, 0.45. So
    all given environments are among the 101.

    Args:
        name: name of the dataset in the rows.
        root, image_size, on_bad_image, cache_dir, workers: see :func:`~dgbench.data.pictures.load_pictures`.
        paint: draws the feature into (n, 3, S, S) images.
        e_means: ``agree`` or ``disagree``.
        given: e of the given environments; None takes the set of ``ratio``.
        ratio: a key of ``given_sets``.
        given_sets: e of the given environments by ratio.
        chance: what :class:`~dgbench.data.spurious.SpuriousEnvironments` takes besides.

    Raises:
        ConfigError, DataError: see the functions named above; or a feature the painter has no color for.
    """
    variant: dict[str, Any] = {"e_means": e_means}
    if given is None:
        if ratio is None or ratio not in given_sets:
            raise ConfigError(f"dataset.ratio={ratio} has no given set; choose from {', '.join(given_sets)}")
        given, variant["ratio"] = list(given_sets[ratio]), ratio
    base = load_pictures(root, image_size, on_bad_image, cache_dir, workers)
    n_classes = int(base.classes.max()) + 1
    try:
        paint(base.images[:1] / base.peak, torch.tensor([n_classes - 1]))
    except IndexError as error:
        raise ConfigError(
            f"dataset.root={root} has {n_classes} classes, more than this dataset's painter has features; "
            "name a folder with fewer classes"
        ) from error
    return SpuriousEnvironments(
        dataset=name,
        base=base,
        label_of=lambda classes: classes,
        paint=paint,
        n_classes=n_classes,
        e_means=e_means,
        given=given,
        grid=ALL,
        variant={**variant, "image_size": base.images.shape[-1]},
        **chance,
    )
