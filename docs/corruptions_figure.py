"""A sheet of all corruptions: ``python docs/corruptions_figure.py OUT.png [IMAGE] [--side 112]``.

Without IMAGE it shows one of the photographs that scikit-learn carries.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dgbench.data.store.decoding import rgb
from dgbench.data.transforms.corruptions import CORRUPTIONS, RandomNumbers, corrupt

SEVERITIES = (1, 3, 5)
COLUMNS = 5  # corruptions side by side


def photograph(file: str | None, side: int) -> Tensor:
    """Read the middle square of an image file, or of scikit-learn's flower for None: (1, 3, side,
    side) uint8.
    """
    if file is None:
        from sklearn.datasets import load_sample_image

        image = Image.fromarray(load_sample_image("flower.jpg"))
    else:
        image = rgb(file)
    square = min(image.size)
    left, top = (image.width - square) // 2, (image.height - square) // 2
    image = image.resize(
        (side, side), Image.Resampling.BILINEAR, (left, top, left + square, top + square)
    )
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]


def draw(out: Path, image: Tensor) -> None:
    """Write a sheet with the severities of each corruption below one another, the clean image to
    the left.

    Args:
        out: PNG file.
        image: (1, 3, side, side) uint8.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    blocks, rows = -(-len(CORRUPTIONS) // COLUMNS), len(SEVERITIES)
    # in inches: a picture is one wide and high, a block of corruptions has a line of names above it
    width, height = 1.5 + COLUMNS * 1.04, blocks * (rows * 1.04 + 0.3)
    # whole pixels
    figure = plt.figure(figsize=(width, height), dpi=image.shape[-1] * -(-100 // image.shape[-1]))

    def place(pixels: Tensor, left: float, top: float) -> None:
        axes = figure.add_axes((left / width, 1 - (top + 1) / height, 1 / width, 1 / height))
        axes.imshow(pixels[0].permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.axis("off")

    def label(text: str, x: float, y: float, align: str = "center") -> None:
        figure.text(x / width, 1 - y / height, text, fontsize=8, ha=align, va="center")

    place(image, 0.05, 0.28)
    label("clean", 0.55, 0.16)
    for index, name in enumerate(CORRUPTIONS):
        left, top = 1.5 + (index % COLUMNS) * 1.04, (index // COLUMNS) * (rows * 1.04 + 0.3) + 0.28
        label(name, left + 0.5, top - 0.12)
        for row, severity in enumerate(SEVERITIES):
            place(corrupt(image, name, severity, RandomNumbers(index)), left, top + row * 1.04)
            if index % COLUMNS == 0:
                label(str(severity), 1.4, top + row * 1.04 + 0.5, "right")
    figure.savefig(out)
    plt.close(figure)


def main() -> None:
    """Parse the command line and write the sheet."""
    parser = argparse.ArgumentParser(description="Draw one image under every corruption.")
    parser.add_argument("out", type=Path, help="PNG file to write")
    parser.add_argument(
        "image", nargs="?", help="image file; without it, a photograph that scikit-learn carries"
    )
    parser.add_argument(
        "--side", type=int, default=112, help="pixels a side at which it is corrupted, 32 or more"
    )
    options = parser.parse_args()
    draw(options.out, photograph(options.image, options.side))


if __name__ == "__main__":
    main()
