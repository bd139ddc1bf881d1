"""Datasets of feature vectors: tables of numbers, or what any encoder made of text, sound, pictures or signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.data.datasets.feature_table import FeatureTable, table_of_features
from dgbench.data.datasets.image_split import Subsets, subsets_of
from dgbench.data.datasets.image_table import SUBSETS
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import check_name, check_path, check_seeds, check_share

if TYPE_CHECKING:
    from dgbench.data.datasets.feature_environments import FeatureEnvironments


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """Environments of feature vectors; keys as in ``conf/dataset/features.yaml``, where each is explained."""

    name: str
    path: str
    columns: str | Sequence[str] | None
    environments: Sequence[str] | None
    classes: str
    val_fraction: float
    split_seed: int

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.options.DatasetOptions.describe`; the file is read whole, nothing is downloaded."""
        path = self._checked()
        if absent_ok and not path.is_file() and self.environments:
            return self._info(list(map(str, self.environments)), 0, 0)
        return self._described(self._table(path))[0]

    def build(self) -> FeatureEnvironments:
        """The environments, their features in memory."""
        table = self._table(self._checked())

        from dgbench.data.datasets.feature_environments import FeatureEnvironments

        return FeatureEnvironments(*self._described(table), table)

    def _checked(self) -> Path:
        """The file's path, once every value is known to work."""
        check_name(self.name)
        check_seeds(split_seed=self.split_seed)
        check_share("val_fraction", self.val_fraction, "DomainBed uses 0.2")
        return check_path("path", self.path, "name a .npz, .parquet or .csv file")

    def _table(self, path: Path) -> FeatureTable:
        return table_of_features(path, self.columns, self.environments, self.classes)

    def _described(self, table: FeatureTable) -> tuple[DatasetInfo, Subsets]:
        subsets = subsets_of(table, np.ones(len(table), bool), self.val_fraction, self.split_seed)
        counts = {env: {kind: len(subsets[env, kind]) for kind in SUBSETS} for env in table.environments}
        content = table.content()
        variant = {"images": len(table), "files": content[:12]}
        d = table.features.shape[1]
        return self._info(table.environments, len(table.classes), d, variant, counts, content), subsets

    def _info(
        self,
        given: Sequence[str],
        n_classes: int,
        d: int,
        variant: Mapping[str, Any] | None = None,
        counts: Mapping[str, Mapping[str, int]] | None = None,
        content: str = "",
    ) -> DatasetInfo:
        """The dataset with these environments; what the file tells is left out where it is absent."""
        return DatasetInfo(
            name=self.name,
            variant={"val_fraction": self.val_fraction, "features": d, **(variant or {})},
            base="features",
            evaluation="sampled",
            data_seed=0,
            split_seed=self.split_seed,
            given=tuple(given),
            everywhere=tuple(given),
            n_classes=n_classes,
            image=(d,),
            beyond=False,
            counts=counts or {},
            content=content,
        )
