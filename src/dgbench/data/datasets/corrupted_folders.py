"""Datasets of image files under corruptions: PACS-corrupted, VLCS-corrupted, and any folder's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.data.datasets.corrupted_given import corruption_names, given_environments
from dgbench.data.datasets.corrupted_plan import CorruptedPlan, environments_of, plan_corrupted
from dgbench.data.datasets.image_folders import ImageFolders
from dgbench.data.datasets.image_split import Subsets
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import check_seeds, check_share, shown
from dgbench.data.store.image_cache import DECODED
from dgbench.data.transforms.corruption_names import NAMES, SMALLEST, VERSION
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from dgbench.data.datasets.corrupted_environments import CorruptedEnvironments


@dataclass(frozen=True, kw_only=True)
class CorruptedFolders:
    """Every domain of a dataset of image files, clean and under each corruption; keys as in ``conf/corruptions``.

    Args:
        folders: the clean images; their split seed and fraction of validation images hold here, too.
        given: ``1-0-2-...``, corruptions to draw for each domain, or a list of environments.
        corruptions: names, None for all 15.
        severity: 1 (mild) to 5.
        pool_fraction: share of a domain's images in its evaluation pool.
        data_seed, corruption_seed: see :class:`~dgbench.data.datasets.corrupted_environments.CorruptedEnvironments`.
    """

    folders: ImageFolders
    given: str | Sequence[str]
    corruptions: Sequence[str] | None
    severity: int
    pool_fraction: float
    data_seed: int
    corruption_seed: int

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.options.DatasetOptions.describe`; nothing is decoded, corrupted or downloaded.

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

        from dgbench.data.datasets.corrupted_environments import CorruptedEnvironments
        from dgbench.data.store.corrupted_store import CorruptedStore

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
