"""SR-CMNIST on the digits that need no network, and on images made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dgbench.data.datasets.spurious import SRCMNIST
from dgbench.data.environments import Environments

Make = Callable[..., Any]


@pytest.fixture(scope="session")
def make() -> Make:
    """``make(scale=2)``: SR-CMNIST as conf/dataset/sr_cmnist.yaml has it, on the digits, with
    changes.
    """

    def build(**changes: Any) -> Environments:
        keys = {
            "name": "sr_cmnist",
            "base": "digits",
            "data_dir": "nowhere",
            "resolution": 28,
            "given": None,
            "ratio": 3,
            "scale": 1,
            "label_noise": 0.25,
            "pool_fraction": 0.142857,
            "val_fraction": 0.2,
            "evaluation": "exact",
            "data_seed": 0,
            "split_seed": 0,
        }
        return SRCMNIST(**{**keys, **changes}).build()

    return build
