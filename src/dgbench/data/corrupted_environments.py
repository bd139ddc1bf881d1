"""Environments made from others by corrupting their images: PACS-corrupted, VLCS-corrupted, and any folder's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.data.corrupted_given import corruption_names, given_environments
from dgbench.data.corrupted_store import CorruptedStore, Section
from dgbench.data.corruptions import CORRUPTIONS, SMALLEST, VERSION
from dgbench.data.environments import Environments, Pass
from dgbench.data.folder_environments import FolderEnvironments
from dgbench.data.image_folders import image_folders
from dgbench.data.image_store import DECODED
from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.types import Score


class CorruptedEnvironments(Environments):
    """Every domain of a dataset, clean and under each corruption (Hwang et al., 2024, section 4.3).

    Environments are ``photo``, ``photo+gaussian_noise``, ...: with four domains and all 15 corruptions, 64. The given
    ones are drawn, k corruptions for each domain, by ``data_seed`` alone, or listed. The paper draws anew for each of
    its seeds and reports each apart (Tables 3, 4), so one seed of it is one ``data_seed`` with the same ``seed``. A
    domain's corruptions are the first k of one permutation: for one ``data_seed``, 2-2-2-2 contains 1-1-1-1, and
    1-0-1-1 is 1-1-1-1 without the second domain.

    The paper does not say which images an environment holds. Here, as in :class:`SpuriousEnvironments`, no image that
    is trained on judges anything: ``pool_fraction`` of each domain's images (by ``split_seed``, so that all given sets
    are judged on the same ones) form a pool, which under its 16 forms is the ``test`` subset of the domain's 16
    environments. The domain's other images are dealt to its given environments (by ``data_seed``), so none is in two
    of them, and split into ``train`` and ``val`` (by ``split_seed``). Subsets that a list of images names are not used.

    Images are corrupted once, after they are resized, with random numbers of ``corruption_seed``.

    Args:
        dataset: name for the rows.
        base: the clean images, and how they become a network's input.
        given: ``1-0-2-...``, corruptions to draw for each domain, or a list of environments.
        corruptions: names, None for all 15.
        severity: 1 (mild) to 5.
        pool_fraction: share of a domain's images in its evaluation pool.
        val_fraction: share of a given environment's images in its val subset.
        data_seed, split_seed, corruption_seed: see above.
        cache: folder of caches.
        store: ``ram``, ``file``, ``none`` (as ``file``) or ``auto``.
        workers: threads; None is one per core.
        device_share: share of a device's free memory that an environment's images may take.

    Raises:
        ConfigError: given environments that do not exist or are repeated, unknown corruptions or severity, a fraction
            that leaves a subset empty.
    """

    def __init__(
        self,
        *,
        dataset: str,
        base: FolderEnvironments,
        given: str | Sequence[str],
        corruptions: Sequence[str] | None,
        severity: int,
        pool_fraction: float,
        val_fraction: float,
        data_seed: int,
        split_seed: int,
        corruption_seed: int,
        cache: Path,
        store: str,
        workers: int | None,
        device_share: float,
    ) -> None:
        if isinstance(severity, bool) or severity not in (1, 2, 3, 4, 5):
            raise ConfigError(f"dataset.severity={severity} is unknown; choose 1 (mild) to 5 (strong)")
        if base.image[1] < SMALLEST:
            raise ConfigError(f"dataset.image_size={base.image[1]} is too small to corrupt; use {SMALLEST} or more")
        if not 0 < pool_fraction < 1:
            raise ConfigError(f"dataset.pool_fraction={pool_fraction} is not in (0, 1); 0.2 is usual")
        names = corruption_names(corruptions)
        domains = list(base.given)
        #: environment -> its domain and corruption
        self.parts = {name if c is None else f"{name}+{c}": (name, c) for name in domains for c in (None, *names)}
        self.everywhere = list(self.parts)
        self.given = given_environments(given, domains, names, data_seed)
        self.image, self.n_classes = base.image, base.n_classes

        sections, split = [], {}
        for domain in domains:
            images = np.sort(np.concatenate([base.subset(domain, name) for name in ("train", "val", "test")]))
            pool, rest = _cut(images, pool_fraction, split_seed, "pool", domain)
            sections += [Section(f"{env}-pool", c, pool) for env, (d, c) in self.parts.items() if d == domain]
            own = [env for env in self.given if self.parts[env][0] == domain]
            dealt = rest[np.random.default_rng(derive(data_seed, "deal", domain)).permutation(len(rest))]
            for i, env in enumerate(own):
                val, train = _cut(dealt[i :: len(own)], val_fraction, split_seed, "split", env)
                if not len(pool) or not len(val) or not len(train):
                    raise ConfigError(
                        f"environment {env} has {len(train)} train and {len(val)} val images and the pool of {domain} "
                        f"{len(pool)}: one is empty; use more images, fewer given environments or other fractions"
                    )
                sections.append(Section(f"{env}-dealt", self.parts[env][1], np.concatenate([train, val])))
                split[env] = len(train)
        self.store = CorruptedStore(
            base.store,
            sections,
            severity=severity,
            seed=corruption_seed,
            side=base.image[1],
            state=base.table.state(base.image[1], DECODED),
            folder=cache / "corrupted" / f"{base.table.root.name}-{base.image[1]}",
            kind="file" if store == "none" else store,
            workers=workers,
            device_share=device_share,
        )
        self._subsets = {(env, "test"): self.store.span(f"{env}-pool") for env in self.everywhere}
        for env in self.given:
            span = self.store.span(f"{env}-dealt")
            self._subsets[env, "train"], self._subsets[env, "val"] = span[: split[env]], span[split[env] :]
        self._pixels = copy(base)  # its way from uint8 to a network's input, over the corrupted images
        self._pixels.store, self._pixels.labels = self.store, base.labels[self.store.positions]

        known = base.identity()
        self._identity = {
            **known,
            "dataset": dataset,
            "variant": {
                **known["variant"],
                "severity": severity,
                "corruptions": "all" if names == list(CORRUPTIONS) else names,
                "environments": given if isinstance(given, str) else "listed",
                "pool_fraction": pool_fraction,
                "corruption_seed": corruption_seed,
                "corruption_version": VERSION,
            },
            "data_seed": data_seed,
            "split_seed": split_seed,
            "given": self.given,
        }

    def identity(self) -> dict[str, Any]:
        return dict(self._identity)

    def to(self, device: torch.device) -> None:
        self._pixels.to(device)

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._subsets[env, name]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._pixels.gather(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return self._pixels.training_noise(rng, n)

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        return self._pixels.gather_for_training(indices, noise)

    def scores(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[Score]:
        found = []
        for subset in subsets:
            for env in self.everywhere if subset == "test" and everywhere else self.given:
                found.append(Score(env, subset, {f"{subset}/{env}": 1.0}))
        return found

    def passes(self, names: Sequence[str]) -> dict[str, Pass]:
        asked = {name: name.split("/", 1) for name in names}
        self.store.prepare(f"{env}-{'pool' if subset == 'test' else 'dealt'}" for subset, env in asked.values())
        return {name: Pass(torch.from_numpy(self._subsets[env, subset])) for name, (subset, env) in asked.items()}


def corrupted_folders(
    *,
    given: str | Sequence[str],
    corruptions: Sequence[str] | None,
    severity: int,
    pool_fraction: float,
    data_seed: int,
    corruption_seed: int,
    **folders: Any,
) -> CorruptedEnvironments:
    """The corrupted form of a dataset of image files; keys as in ``conf/corruptions/hendrycks.yaml``.

    Args:
        given, corruptions, severity, pool_fraction, data_seed, corruption_seed: see :class:`CorruptedEnvironments`.
        folders: what :func:`~dgbench.data.image_folders.image_folders` takes.

    Raises:
        ConfigError, DataError: see :class:`CorruptedEnvironments` and the datasets of image files.
    """
    if "cache_dir" not in folders:
        raise ConfigError(
            f"corruptions=hendrycks does not go with dataset={folders.get('name')}; choose one of image files, e.g. "
            "dataset=pacs or dataset=image_folder"
        )
    return CorruptedEnvironments(
        dataset=folders["name"],
        base=image_folders(**folders),
        given=given,
        corruptions=corruptions,
        severity=severity,
        pool_fraction=pool_fraction,
        val_fraction=folders["val_fraction"],
        data_seed=data_seed,
        split_seed=folders["split_seed"],
        corruption_seed=corruption_seed,
        cache=Path(folders["cache_dir"]),
        store=folders["store"],
        workers=folders["workers"],
        device_share=folders["device_share"],
    )


def _cut(images: np.ndarray, share: float, seed: int, *purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """A share of the images, drawn, and the others."""
    shuffled = images[np.random.default_rng(derive(seed, *purpose)).permutation(len(images))]
    n = int(len(images) * share)
    return shuffled[:n], shuffled[n:]
