"""Milliseconds per image of every corruption, on one thread: ours, and the maintained package where
it is installed.

    OMP_NUM_THREADS=1 python benchmarks/corruptions.py

Mean of severities 1, 3 and 5 in processor time, on pieces of the photographs that scikit-learn
carries, in batches of 32 images of 64 pixels and of 16 images of 224. The package takes one image
at a time. Its columns need ``pip install -e .[oracle]``.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_sample_images

from dgbench.data.transforms.corruptions import CORRUPTIONS, RandomNumbers, corrupt

SEVERITIES = (1, 3, 5)


def images(n: int, side: int) -> np.ndarray:
    """Cut (n, side, side, 3) pieces out of two photographs, the same ones every time."""
    rng = np.random.default_rng(0)
    whole = load_sample_images().images
    corners = [(rng.integers(427 - side), rng.integers(640 - side)) for _ in range(n)]
    return np.stack([whole[i % 2][y : y + side, x : x + side] for i, (y, x) in enumerate(corners)])


def milliseconds(run: Callable[[int], object], n: int) -> float:
    """Measure the processor time per image in ms, of the faster of two runs after one call that is
    not counted.
    """
    run(1)
    times = []
    for _ in range(2):
        start = time.process_time()
        for severity in SEVERITIES:
            run(severity)
        times.append((time.process_time() - start) / len(SEVERITIES) / n * 1e3)
    return min(times)


def ours(x: torch.Tensor, name: str, severity: int) -> None:
    """Corrupt one batch with dgbench."""
    corrupt(x, name, severity, RandomNumbers(0))


def package(each: np.ndarray, name: str, severity: int) -> None:
    """Corrupt image by image with the package."""
    import imagecorruptions

    for image in each:
        imagecorruptions.corrupt(image, severity, name)


def main() -> None:
    """Print a Markdown table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    installed = importlib.util.find_spec("imagecorruptions") is not None
    sizes = {64: images(32, 64), 224: images(16, 224)}
    sums = dict.fromkeys((f"{code} {side}" for side in sizes for code in ("ours", "package")), 0.0)
    print("| corruption | " + " | ".join(sums) + " |\n|---|" + "---|" * len(sums))
    for name in CORRUPTIONS:
        cells = []
        for side, batch in sizes.items():
            x = torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()
            times = {f"ours {side}": milliseconds(partial(ours, x, name), len(batch))}
            if installed:
                pieces = batch[:8]
                times[f"package {side}"] = milliseconds(partial(package, pieces, name), len(pieces))
            for key, value in times.items():
                sums[key] += value
            cells += [
                f"{times[key]:.2f}" if key in times else ""
                for key in (f"ours {side}", f"package {side}")
            ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print(
        "| sum | " + " | ".join(f"{value:.1f}" if value else "" for value in sums.values()) + " |"
    )


if __name__ == "__main__":
    main()
