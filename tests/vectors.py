"""Files of feature vectors for tests: three environments of two classes, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

ENVIRONMENTS, EACH, D = ("a", "b", "c"), 20, 4


def columns(**changed: Any) -> dict[str, Any]:
    """60 rows of 4 numbers on very different scales; the first tells the class.

    None leaves a column out.
    """
    rng = np.random.default_rng(0)
    label = np.tile(["cat", "dog"], len(ENVIRONMENTS) * EACH // 2)
    features = rng.normal(size=(len(label), D)) * [1, 1000, 0.01, 1] + [0, 5000, 0, 0]
    features[:, 0] += 4 * (label == "dog")
    found = {
        "features": features,
        "environment": np.repeat(ENVIRONMENTS, EACH),
        "label": label,
        **changed,
    }
    return {name: values for name, values in found.items() if values is not None}


def save(file: Path, **changed: Any) -> Path:
    """Write them to a .npz, or to a .parquet or .csv with columns f0, f1, ... of the features."""
    content = columns(**changed)
    if file.suffix == ".npz":
        np.savez(file, **content)
        return file
    import pandas as pd

    features = content.pop("features")
    frame = pd.DataFrame({**{f"f{k}": features[:, k] for k in range(features.shape[1])}, **content})
    if file.suffix == ".csv":
        frame.to_csv(file, index=False, float_format="%.17g")
    else:
        frame.to_parquet(file)
    return file
