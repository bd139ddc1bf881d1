"""Datasets of image files under corruptions: PACS-corrupted, VLCS-corrupted, and any folder's. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.data.datasets.image_folders import ImageFolders
from dgbench.data.datasets.image_table import DECODED
from dgbench.data.datasets.splits import Subsets
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import check_list, check_seeds, check_share, shown
from dgbench.data.transforms.values import NAMES, SMALLEST, VERSION
from dgbench.errors import ConfigError
from dgbench.seeding import derive

if TYPE_CHECKING:
    from dgbench.data.store.corrupted import CorruptedEnvironments


def corruption_names(corruptions: Sequence[str] | None) -> list[str]:
    """The chosen corruptions in the order of the paper.

    Raises:
        ConfigError: no list, an unknown name, or none at all.
    """
    if corruptions is None:
        return list(NAMES)
    names = check_list("corruptions", corruptions, "null takes all 15")
    if not names:
        raise ConfigError("dataset.corruptions=[] is no list of names; null takes all 15")
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"dataset.corruptions names {name}, which is unknown; choose from {', '.join(NAMES)}")
    return [name for name in NAMES if name in names]


def given_environments(
    given: str | Sequence[str], domains: Sequence[str], corruptions: Sequence[str], data_seed: int
) -> list[str]:
    """Names of the given environments, domain by domain.

    Args:
        given: ``1-0-2-...`` or names.
        domains: the clean environments.
        corruptions: those that exist.
        data_seed: decides which corruptions are drawn.

    Raises:
        ConfigError: a form that does not fit, or environments that do not exist or are repeated.
    """
    if isinstance(given, str):
        counts = [int(k) for k in given.split("-")] if re.fullmatch(r"\d+(-\d+)*", given) else []
        if len(counts) != len(domains) or max(counts) > len(corruptions) or not any(counts):
            raise ConfigError(
                f"dataset.given={given} is not one number of corruptions, at most {len(corruptions)}, for each of "
                f"{', '.join(domains)}; use e.g. dataset.given={'-'.join('1' * len(domains))}, or a list of names"
            )
        found = []
        for domain, k in zip(domains, counts, strict=True):
            order = np.random.default_rng(derive(data_seed, "given", domain)).permutation(len(corruptions))
            found += [f"{domain}+{corruptions[i]}" for i in sorted(order[:k])]
        return found
    if not isinstance(given, Sequence) or not given:
        raise ConfigError(
            f"dataset.given={shown(given)} is no list; use e.g. 1-1-1-1 or [{domains[0]}+{corruptions[0]}]"
        )
    for env in given:
        domain, plus, corruption = str(env).partition("+")
        if domain not in domains or (plus and corruption not in corruptions):
            raise ConfigError(
                f"dataset.given holds {env}, which does not exist; environments are DOMAIN and DOMAIN+CORRUPTION, e.g. "
                f"{domains[0]}+{corruptions[0]}; domains are {', '.join(domains)}"
            )
        if list(given).count(env) > 1:
            raise ConfigError(f"dataset.given holds {env} more than once; give each environment once")
    return [str(env) for env in given]


@dataclass(frozen=True)
class Section:
    """Images that are corrupted alike.

    Args:
        name: unique; part of the seed and of the file's name.
        corruption: what is done to them; None leaves them clean.
        positions: (m,) of the clean images in their store.
    """

    name: str
    corruption: str | None
    positions: np.ndarray


@dataclass(frozen=True)
class CorruptedPlan:
    """The images of every environment.

    Args:
        parts: environment -> its domain and corruption (None is clean), of all environments.
        given: names of the given environments.
        sections: the images, as they lie in the store: of each domain first its pool under every corruption, named
            ``ENVIRONMENT-pool``, then the images dealt to its given environments, ``ENVIRONMENT-dealt``.
        n_train: given environment -> how many of its dealt images train; they come first.
    """

    parts: Mapping[str, tuple[str, str | None]]
    given: Sequence[str]
    sections: Sequence[Section]
    n_train: Mapping[str, int]

    def counts(self) -> dict[str, dict[str, int]]:
        """Given environment -> ``train``, ``val``, ``test`` -> images."""
        size = {section.name: len(section.positions) for section in self.sections}
        return {
            env: {"train": n, "val": size[f"{env}-dealt"] - n, "test": size[f"{env}-pool"]}
            for env, n in self.n_train.items()
        }


def environments_of(domains: Sequence[str], corruptions: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """``photo``, ``photo+gaussian_noise``, ...: every environment with its domain and corruption."""
    return {name if c is None else f"{name}+{c}": (name, c) for name in domains for c in (None, *corruptions)}


def plan_corrupted(
    images: Mapping[str, np.ndarray],
    corruptions: Sequence[str],
    given: Sequence[str],
    *,
    pool_fraction: float,
    val_fraction: float,
    data_seed: int,
    split_seed: int,
) -> CorruptedPlan:
    """Deal the images of every domain to its environments.

    Args:
        images: domain -> positions of its clean images, sorted.
        corruptions: names of those that exist.
        given: names of the given environments.
        pool_fraction: share of a domain's images in its evaluation pool.
        val_fraction: share of a given environment's images in its val subset.
        data_seed: decides which images are dealt to which environment.
        split_seed: decides pools and splits.

    Raises:
        ConfigError: a fraction that leaves a subset empty.
    """
    parts = environments_of(list(images), corruptions)
    sections, n_train = [], {}
    for domain, positions in images.items():
        pool, rest = _cut(positions, pool_fraction, split_seed, "pool", domain)
        sections += [Section(f"{env}-pool", c, pool) for env, (d, c) in parts.items() if d == domain]
        own = [env for env in given if parts[env][0] == domain]
        dealt = rest[np.random.default_rng(derive(data_seed, "deal", domain)).permutation(len(rest))]
        for i, env in enumerate(own):
            val, train = _cut(dealt[i :: len(own)], val_fraction, split_seed, "split", env)
            if not len(pool) or not len(val) or not len(train):
                raise ConfigError(
                    f"environment {env} has {len(train)} train and {len(val)} val images and the pool of {domain} "
                    f"{len(pool)}: one is empty; use more images, fewer given environments or other fractions"
                )
            sections.append(Section(f"{env}-dealt", parts[env][1], np.concatenate([train, val])))
            n_train[env] = len(train)
    return CorruptedPlan(parts, given, sections, {env: n_train[env] for env in given})


def _cut(images: np.ndarray, share: float, seed: int, *purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """A share of the images, drawn, and the others."""
    shuffled = images[np.random.default_rng(derive(seed, *purpose)).permutation(len(images))]
    n = int(len(images) * share)
    return shuffled[:n], shuffled[n:]


@dataclass(frozen=True, kw_only=True)
class CorruptedFolders:
    """Every domain of a dataset of image files, clean and under each corruption; keys as in ``conf/corruptions``.

    Args:
        folders: the clean images; their split seed and fraction of validation images hold here, too.
        given: ``1-0-2-...``, corruptions to draw for each domain, or a list of environments.
        corruptions: names, None for all 15.
        severity: 1 (mild) to 5.
        pool_fraction: share of a domain's images in its evaluation pool.
        data_seed, corruption_seed: see :class:`~dgbench.data.store.corrupted.CorruptedEnvironments`.
    """

    folders: ImageFolders
    given: str | Sequence[str]
    corruptions: Sequence[str] | None
    severity: int
    pool_fraction: float
    data_seed: int
    corruption_seed: int

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.description.DatasetOptions.describe`; nothing is decoded, corrupted or downloaded.

        Where the files are absent and the configuration names no domains, numbers stand for their names.
        """
        self._check(size_known=False)
        folders = self.folders
        if absent_ok and not folders.present():
            domains = folders.expected_environments() or self._numbered_domains()
            if domains:
                clean = folders.info(domains, int((folders.published or {}).get("classes") or 0))
                given = given_environments(self.given, domains, corruption_names(self.corruptions), self.data_seed)
                return self._info(clean, given)
        clean, subsets = folders.planned()
        plan = self._plan(clean, subsets)
        return replace(self._info(clean, plan.given), counts=plan.counts())

    def build(self) -> CorruptedEnvironments:
        """The environments; images are decoded once into the cache, and corrupted when they are first asked for."""
        self._check(size_known=True)
        self._plan(*self.folders.planned())  # refuses what needs no pixels

        from dgbench.data.store.corrupted import CorruptedEnvironments, CorruptedStore

        base, folders = self.folders.build(), self.folders
        plan = self._plan(base.info, base.subsets)
        side = base.image[1]
        store = CorruptedStore(
            base.store,
            plan.sections,
            severity=self.severity,
            seed=self.corruption_seed,
            side=side,
            state=base.table.state(side, DECODED),
            folder=Path(folders.cache_dir).expanduser() / "corrupted" / f"{base.table.root.name}-{side}",
            kind="file" if folders.store == "none" else folders.store,
            workers=folders.workers,
            device_share=folders.device_share,
        )
        info = replace(self._info(base.info, plan.given), counts=plan.counts())
        return CorruptedEnvironments(info, base, plan, store)

    def _check(self, size_known: bool) -> None:
        self.folders.check(size_known)
        check_seeds(data_seed=self.data_seed, corruption_seed=self.corruption_seed)
        if (
            not isinstance(self.severity, int)
            or isinstance(self.severity, bool)
            or self.severity not in (1, 2, 3, 4, 5)
        ):
            raise ConfigError(f"dataset.severity={shown(self.severity)} is unknown; choose 1 (mild) to 5 (strong)")
        side = self.folders.image_size
        if side is not None and side < SMALLEST:
            raise ConfigError(f"dataset.image_size={side} is too small to corrupt; use {SMALLEST} or more")
        check_share("pool_fraction", self.pool_fraction, "0.2 is usual")
        corruption_names(self.corruptions)

    def _numbered_domains(self) -> list[str]:
        known = isinstance(self.given, str) and re.fullmatch(r"\d+(-\d+)*", self.given)
        return [str(i) for i in range(self.given.count("-") + 1)] if known else []

    def _plan(self, clean: DatasetInfo, subsets: Subsets) -> CorruptedPlan:
        names = corruption_names(self.corruptions)
        images = {
            domain: np.sort(np.concatenate([subsets[domain, name] for name in ("train", "val", "test")]))
            for domain in clean.given
        }
        return plan_corrupted(
            images,
            names,
            given_environments(self.given, clean.given, names, self.data_seed),
            pool_fraction=self.pool_fraction,
            val_fraction=self.folders.val_fraction,
            data_seed=self.data_seed,
            split_seed=self.folders.split_seed,
        )

    def _info(self, clean: DatasetInfo, given: Sequence[str]) -> DatasetInfo:
        names = corruption_names(self.corruptions)
        own = {
            "severity": self.severity,
            "corruptions": "all" if names == list(NAMES) else names,
            "environments": self.given if isinstance(self.given, str) else "listed",
            "pool_fraction": self.pool_fraction,
            "corruption_seed": self.corruption_seed,
            "corruption_version": VERSION,
        }
        return replace(
            clean,
            variant={**clean.variant, **own},
            data_seed=self.data_seed,
            given=tuple(given),
            everywhere=tuple(environments_of(clean.given, names)),
            beyond=True,
        )


def corrupted_folders(
    *,
    given: str | Sequence[str],
    corruptions: Sequence[str] | None,
    severity: int,
    pool_fraction: float,
    data_seed: int,
    corruption_seed: int,
    **folders: Any,
) -> CorruptedFolders:
    """The options of a corrupted dataset from one flat mapping, as ``conf/corruptions/hendrycks.yaml`` has them.

    Args:
        given, corruptions, severity, pool_fraction, data_seed, corruption_seed: see :class:`CorruptedFolders`.
        folders: what :class:`~dgbench.data.datasets.image_folders.ImageFolders` takes.

    Raises:
        ConfigError: the dataset is none of image files.
    """
    if "device_share" not in folders:
        raise ConfigError(
            f"corruptions=hendrycks does not go with dataset={folders.get('name')}; choose one of image files, e.g. "
            "dataset=pacs or dataset=image_folder"
        )
    return CorruptedFolders(
        folders=ImageFolders(**folders),
        given=given,
        corruptions=corruptions,
        severity=severity,
        pool_fraction=pool_fraction,
        data_seed=data_seed,
        corruption_seed=corruption_seed,
    )
