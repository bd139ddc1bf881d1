"""Datasets of image files under corruptions: PACS-corrupted, VLCS-corrupted, and any folder's.

Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, SkipValidation, model_validator

from dgbench.data.datasets.image_folders import ImageFolders
from dgbench.data.datasets.image_table import DECODING_VERSION
from dgbench.data.datasets.splits import CorruptedSection, Subsets, cut
from dgbench.data.description import SUBSETS, DatasetInfo
from dgbench.data.options import PoolFraction, Seed, different, expanded
from dgbench.data.transforms.values import CORRUPTION_NAMES, CORRUPTION_VERSION, SMALLEST_SIDE
from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.validation import Number, Refusal, shown

if TYPE_CHECKING:
    from dgbench.data.environments import Environments


def environments_of(
    domains: Sequence[str], corruptions: Sequence[str]
) -> dict[str, tuple[str, str | None]]:
    """Map every environment to its domain and corruption, which is None if it is clean.

    Environments are ``photo``, ``photo+gaussian_noise``, ...
    """
    environments: dict[str, tuple[str, str | None]] = {}
    for domain in domains:
        environments[domain] = (domain, None)
        for corruption in corruptions:
            environments[f"{domain}+{corruption}"] = (domain, corruption)
    return environments


def _known(names: Sequence[str | float] | None) -> Sequence[str | float] | None:
    if names is None:
        return names
    if not names:
        raise ValueError("is empty; null takes all 15")
    for name in names:
        if name not in CORRUPTION_NAMES:
            raise ValueError(
                f"names {name}, which is unknown; choose from {', '.join(CORRUPTION_NAMES)}"
            )
    return different(names)


class CorruptedFolders(ImageFolders):
    """Every domain of a dataset, clean and under each corruption (Hwang et al., 2024, section 4.3).

    Environments are ``photo``, ``photo+gaussian_noise``, ...: with four domains and all 15
    corruptions, 64. The given ones are drawn, k corruptions for each domain, by ``data_seed``
    alone, or listed. The paper draws anew for each of its seeds and reports each apart (Tables 3,
    4), so one seed of it is one ``data_seed`` with the same ``seed``. A domain's corruptions are
    the first k of one permutation: for one ``data_seed``, 2-2-2-2 contains 1-1-1-1, and 1-0-1-1 is
    1-1-1-1 without the second domain.

    The paper does not say which images an environment holds. Here, as in
    :class:`~dgbench.data.datasets.spurious.SpuriousOptions`, no image that is trained on judges
    anything: ``pool_fraction`` of each domain's images (by ``split_seed``, so that all given sets
    are judged on the same ones) form a pool, which under its 16 forms is the ``test`` subset of the
    domain's 16 environments. The domain's other images are dealt to its given environments (by
    ``data_seed``), so none is in two of them, and split into ``train`` and ``val`` (by
    ``split_seed``). Subsets that a list of images names are not used.

    Images are corrupted once, after they are resized, with random numbers of ``corruption_seed``.
    Keys as in ``conf/corruptions/hendrycks.yaml``, where each is explained.
    """

    given: SkipValidation[str | Sequence[str]]  # checked with the domains
    corruptions: Annotated[
        Annotated[
            Sequence[str | Number] | None, Refusal("is no list of names", "null takes all 15")
        ],
        AfterValidator(_known),
    ]
    severity: Annotated[
        int, Field(ge=1, le=5), Refusal("is unknown", "choose 1 (mild) to 5 (strong)")
    ]
    pool_fraction: PoolFraction
    data_seed: Seed
    corruption_seed: Seed

    @model_validator(mode="before")
    @classmethod
    def _of_files(cls, values: Any) -> Any:
        if "device_share" not in values:
            raise ConfigError(
                f"corruptions=hendrycks does not go with dataset={values.get('name')}; choose one "
                "of image files, e.g. dataset=pacs or dataset=image_folder"
            )
        return values

    @model_validator(mode="after")
    def _large_enough(self) -> Self:
        if self.image_size is not None and self.image_size < SMALLEST_SIDE:
            raise ConfigError(
                f"dataset.image_size={self.image_size} is too small to corrupt; "
                f"use {SMALLEST_SIDE} or more"
            )
        return self

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Describe the dataset; decode, corrupt and download nothing.

        If the files are absent and the configuration names no domains, numbers stand for their
        names.
        """
        info = self.known_info(absent_ok)
        if info:
            return self._corrupted(info, self._given(info.given))
        return self._plan(*self.planned())[0]

    def build(self) -> Environments:
        """Build the environments.

        Images are decoded once into the cache, and corrupted when first asked for.
        """
        self._plan(*self.planned())  # refuses what needs no pixels

        from dgbench.data.environments import Environments, Table
        from dgbench.data.store.corrupted import CorruptedStore

        table = self.table()
        clean = self.built_from(table)
        info, sections = self._plan(clean.info, clean.table.subsets)
        side = clean.store.image[1]
        photographs: Any = clean.store
        pixels = CorruptedStore(
            photographs.pixels,
            sections,
            severity=self.severity,
            seed=self.corruption_seed,
            side=side,
            state=table.state(side, DECODING_VERSION),
            folder=expanded(self.cache_dir) / "corrupted" / f"{table.root.name}-{side}",
            kind="file" if self.store == "none" else self.store,
            workers=self.workers,
            device_share=self.device_share,
        )
        subsets = {(env, "test"): pixels.span(f"{env}-pool") for env in info.everywhere}
        for env, count in info.counts.items():
            dealt = pixels.span(f"{env}-dealt")
            train, val = np.split(dealt, [count["train"]])
            subsets[env, "train"] = train
            subsets[env, "val"] = val
        catalog = clean.catalog.at(pixels.positions.numpy())
        store = photographs.over(pixels, pixels.positions)
        return Environments(Table(info, subsets), catalog, store)

    def expected_environments(self) -> list[str]:
        """List the names of the domains that the configuration knows, or numbers in their place."""
        names = super().expected_environments()
        if names:
            return names
        if isinstance(self.given, str) and re.fullmatch(r"\d+(-\d+)*", self.given):
            return [str(i) for i in range(self.given.count("-") + 1)]
        return []

    def _names(self) -> list[str]:
        """List the chosen corruptions in the order of the paper."""
        return [
            name
            for name in CORRUPTION_NAMES
            if self.corruptions is None or name in self.corruptions
        ]

    def _given(self, domains: Sequence[str]) -> list[str]:
        return given_environments(self.given, domains, self._names(), self.data_seed)

    def _plan(
        self, clean: DatasetInfo, subsets: Subsets
    ) -> tuple[DatasetInfo, list[CorruptedSection]]:
        """Deal the images of every domain to its environments.

        The dataset is returned, and the store's sections in order.

        The sections of a domain are first its pool, clean and under every corruption
        (``ENVIRONMENT-pool``), then the images dealt to its given environments
        (``ENVIRONMENT-dealt``), training images before validation images.

        Args:
            clean: the dataset without corruptions.
            subsets: of its domains.

        Raises:
            ConfigError: a fraction that leaves a subset empty.
        """
        info = self._corrupted(clean, self._given(clean.given))
        parts = environments_of(clean.given, self._names())
        sections: list[CorruptedSection] = []
        counts = {}
        for domain in clean.given:
            images = np.sort(np.concatenate([subsets[domain, name] for name in SUBSETS]))
            pool, dealt = cut(images, self.pool_fraction, self.split_seed, "pool", domain)
            for env, (clean_domain, corruption) in parts.items():
                if clean_domain == domain:
                    sections.append(CorruptedSection(f"{env}-pool", corruption, pool))
            order, _ = cut(dealt, 1.0, self.data_seed, "deal", domain)
            given = [env for env in info.given if parts[env][0] == domain]
            for i, env in enumerate(given):
                share = order[i :: len(given)]
                val, train = cut(share, self.val_fraction, self.split_seed, "split", env)
                if not len(pool) or not len(val) or not len(train):
                    raise ConfigError(
                        f"environment {env} has {len(train)} train and {len(val)} val images and "
                        f"the pool of {domain} {len(pool)}: one is empty; use more images, fewer "
                        "given environments or other fractions"
                    )
                corruption = parts[env][1]
                ordered = np.concatenate([train, val])
                sections.append(CorruptedSection(f"{env}-dealt", corruption, ordered))
                counts[env] = {"train": len(train), "val": len(val), "test": len(pool)}
        return replace(info, counts=counts), sections

    def _corrupted(self, clean: DatasetInfo, given: Sequence[str]) -> DatasetInfo:
        names = self._names()
        keys = {
            "severity": self.severity,
            "corruptions": "all" if names == list(CORRUPTION_NAMES) else names,
            "environments": self.given if isinstance(self.given, str) else "listed",
            "pool_fraction": self.pool_fraction,
            "corruption_seed": self.corruption_seed,
            "corruption_version": CORRUPTION_VERSION,
        }
        return replace(
            clean,
            variant={**clean.variant, **keys},
            data_seed=self.data_seed,
            given=tuple(given),
            everywhere=tuple(environments_of(clean.given, names)),
            beyond=True,
        )


def given_environments(
    given: str | Sequence[str], domains: Sequence[str], corruptions: Sequence[str], data_seed: int
) -> list[str]:
    """List the names of the given environments: drawn domain by domain, or listed in their order.

    Args:
        given: how many corruptions each domain has, ``1-0-2-...``, or names.
        domains: the clean environments.
        corruptions: those that exist.
        data_seed: decides which corruptions are drawn.

    Raises:
        ConfigError: a form that does not fit, or environments that do not exist or are repeated.
    """
    if isinstance(given, str):
        return _drawn_environments(given, domains, corruptions, data_seed)
    if not isinstance(given, Sequence) or not given:
        raise ConfigError(
            f"dataset.given={shown(given)} is no list; use e.g. 1-1-1-1 or "
            f"[{domains[0]}+{corruptions[0]}]"
        )
    for env in given:
        domain, plus, corruption = str(env).partition("+")
        if domain not in domains or (plus and corruption not in corruptions):
            raise ConfigError(
                f"dataset.given holds {env}, which does not exist; environments are DOMAIN and "
                f"DOMAIN+CORRUPTION, e.g. {domains[0]}+{corruptions[0]}; domains are "
                f"{', '.join(domains)}"
            )
        if list(given).count(env) > 1:
            raise ConfigError(
                f"dataset.given holds {env} more than once; give each environment once"
            )
    return [str(env) for env in given]


def _drawn_environments(
    given: str, domains: Sequence[str], corruptions: Sequence[str], data_seed: int
) -> list[str]:
    """Draw as many corruptions of each domain as ``given`` tells, ``1-0-2-...``."""
    counts: list[int] = []
    if re.fullmatch(r"\d+(-\d+)*", given):
        counts = [int(k) for k in given.split("-")]
    if len(counts) != len(domains) or max(counts) > len(corruptions) or not any(counts):
        raise ConfigError(
            f"dataset.given={given} is not one number of corruptions, at most "
            f"{len(corruptions)}, for each of {', '.join(domains)}; use e.g. "
            f"dataset.given={'-'.join('1' * len(domains))}, or a list of names"
        )
    names = []
    for domain, k in zip(domains, counts, strict=True):
        rng = np.random.default_rng(derive(data_seed, "given", domain))
        drawn = rng.permutation(len(corruptions))[:k]
        names += [f"{domain}+{corruptions[i]}" for i in sorted(drawn)]
    return names
