"""Record what the maintained package of Hendrycks and Dietterich's corruptions gives, for the tests
to compare with.

Run where ``pip install 'dgbench[oracle]'`` was done, from the root of the repository:

    python tests/data/make_corruption_reference.py tests/data/corruptions_reference.npz

The file holds the images, for every corruption the package's output of some severities on a grid of
pixels (every 4th of 64, every 16th of 224), all with NumPy's generator seeded with ``SEED``, and
mean and standard deviation over ``DRAWS`` other seeds. The package's compiled walk of glass blur is
run as plain Python, since the compiled one has a generator of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np

SEED = 7
DRAWS = 48
SMALL, LARGE = 64, 224
SEVERITIES = (1, 3, 5)


def photographs() -> np.ndarray:
    """(2, 64, 64, 3) pieces of the two photographs that scikit-learn carries, at a quarter of their
    size.
    """
    from sklearn.datasets import load_sample_images

    china, flower = load_sample_images().images
    return np.stack([china[60:316:4, 200:456:4], flower[60:316:4, 230:486:4]])


def enlarged(image: np.ndarray) -> np.ndarray:
    """(64, 64, 3) -> (224, 224, 3) by repeating pixels."""
    return np.repeat(np.repeat(image, 4, 0), 4, 1)[:LARGE, :LARGE]


def oracle(image: np.ndarray, name: str, severity: int, seed: int) -> np.ndarray:
    """The package's output for one (H, W, 3) uint8 image."""
    from imagecorruptions import corrupt, corruptions

    np.random.seed(seed)
    takes_seed = {"seed": seed} if name in ("impulse_noise", "glass_blur") else {}
    walk = corruptions._shuffle_pixels_njit_glass_blur
    with patch.object(corruptions, "_shuffle_pixels_njit_glass_blur", walk.py_func):
        return corrupt(image, severity=severity, corruption_name=name, **takes_seed)


def main(out: str) -> None:
    from imagecorruptions import get_corruption_names

    images = photographs()
    arrays = {"images": images}
    for name in get_corruption_names():
        for severity in SEVERITIES:
            whole = oracle(images[0], name, severity, SEED)
            arrays[f"{name}-{SMALL}-{severity}"] = whole[::4, ::4]
            draws = [oracle(images[i % 2], name, severity, 100 + i) for i in range(DRAWS)]
            arrays[f"{name}-moments-{severity}"] = np.array(
                [[d.mean(), d.std()] for d in draws]
            ).mean(0)
        arrays[f"{name}-{LARGE}-3"] = oracle(enlarged(images[0]), name, 3, SEED)[::16, ::16]
        print(name, flush=True)
    np.savez_compressed(out, **arrays)
    print(f"{Path(out).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1])
