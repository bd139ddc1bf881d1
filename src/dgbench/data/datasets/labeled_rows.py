"""What tables of images and tables of features have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class LabeledRows:
    """What tables of n images and of n features have in common."""

    #: names; positions in them are what ``env`` and ``label`` hold
    environments: list[str]
    classes: list[str]
    env: np.ndarray  #: (n,) int64
    label: np.ndarray  #: (n,) int64
    #: (n,) subset that a list gives each row, an index of ``SUBSETS``, or -1 if it gives none
    listed: np.ndarray
    #: what a list says besides: name -> n values. No hash holds them, they change nothing that is
    #: trained.
    attributes: Mapping[str, list[str]]
    same_classes: bool = False  #: whether every environment must have every class

    def __len__(self) -> int:
        return len(self.env)
