"""Draw what a network sees, to look at before training.

``python -m dgbench.cli.contact_sheet --to SHEET.png l_cifar10``
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from dgbench.cli.api import composed
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError, DgbenchError
from dgbench.plan.building import built, dataset_options

COLUMNS = 10


def sheet(
    environments: Environments, rows: Sequence[str], columns: int = COLUMNS
) -> tuple[list[str], Tensor]:
    """Collect test images of some environments, the same base images in each row, sorted by label.

    Args:
        environments: with sampled evaluation, so that each environment has an eval set of its own.
        rows: names of environments.
        columns: images of a row at most, as many of each class as fit.

    Returns:
        Labels of the columns and (rows, columns, C, H, W) images.

    Raises:
        ConfigError: an environment that does not exist.
    """
    names = {
        score.env for score in environments.table.error_recipes(everywhere=True, subsets=("test",))
    }
    unknown = [name for name in rows if name not in names]
    if unknown:
        raise ConfigError(
            f"there is no environment {unknown[0]}; choose from {', '.join(sorted(names)[:8])}, ..."
        )
    drawn = []
    labels = torch.empty(0)
    for name in rows:
        scored = environments.eval_sets([f"test/{name}"])[f"test/{name}"]
        feature = scored.feature
        _, labels = environments.store.gather(scored.indices, feature)
        per_class = max(1, columns // environments.info.n_classes)
        chosen = torch.cat(
            [torch.nonzero(labels == k)[:per_class, 0] for k in range(environments.info.n_classes)]
        )[:columns]
        images, labels = environments.store.gather(
            scored.indices[chosen], None if feature is None else feature[chosen]
        )
        drawn.append(images)
    return [f"label {int(k)}" for k in labels], torch.stack(drawn)


def draw(sheets: Sequence[tuple[str, Sequence[str], tuple[list[str], Tensor]]], path: Path) -> None:
    """Draw sheets, (title, rows, sheet) each, below one another, and write them as one picture."""
    from matplotlib.figure import Figure

    heights = [len(rows) for _, rows, _ in sheets]
    columns = max(images.shape[1] for _, _, (_, images) in sheets)
    figure = Figure(
        figsize=(0.62 * columns + 0.7, 0.62 * sum(heights) + 0.5 * len(sheets)), dpi=100
    )
    bands = figure.subfigures(
        len(sheets), 1, height_ratios=[h + 0.8 for h in heights], squeeze=False
    )[:, 0]
    for band, (title, rows, (labels, images)) in zip(bands, sheets, strict=True):
        band.suptitle(title, fontsize=8)
        axes = band.subplots(len(rows), images.shape[1], squeeze=False)
        band.subplots_adjust(
            left=0.09,
            right=0.995,
            bottom=0.01,
            top=1 - 0.8 / (len(rows) + 0.8),
            wspace=0.04,
            hspace=0.04,
        )
        for i, row in enumerate(axes):
            for j, axis in enumerate(row):
                shown = images[i, j]
                if len(shown) == 2:
                    shown = torch.nn.functional.pad(shown, (0, 0, 0, 0, 0, 1))
                axis.imshow(shown.permute(1, 2, 0).clamp(0, 1).cpu().numpy(), cmap="gray")
                axis.set(xticks=[], yticks=[])
                if i == 0:
                    axis.set_title(labels[j], fontsize=6, pad=2)
            row[0].set_ylabel(rows[i], fontsize=7, rotation=0, ha="right", va="center")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    # a third of the size, for repositories
    Image.open(buffer).convert("RGB").quantize(256).save(path, optimize=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return exit code 0, or 1 after one line of explanation."""
    parser = argparse.ArgumentParser(
        prog="python -m dgbench.cli.contact_sheet", description=__doc__
    )
    parser.add_argument(
        "dataset", nargs="+", help="NAME[,KEY=VALUE...], e.g. l_cifar10,root=data/CIFAR10_subset"
    )
    parser.add_argument(
        "--to", required=True, type=Path, help="the picture to write, e.g. sheet.png"
    )
    parser.add_argument("--environments", default="0.00,0.50,0.90,1.00", help="one row each")
    options = parser.parse_args(words)
    rows = options.environments.split(",")
    try:
        sheets = []
        for word in options.dataset:
            name, *keys = word.split(",")
            overrides = [
                f"dataset={name}",
                "dataset.evaluation=sampled",
                *(f"dataset.{key}" for key in keys),
            ]
            environments = built(dataset_options(composed(overrides)["dataset"]))
            sheets.append((name, rows, sheet(environments, rows)))
        draw(sheets, options.to)
    except DgbenchError as error:
        print(f"dgbench: {error}", file=sys.stderr)
        return 1
    print(options.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
