"""Linear probing on cached features against fine-tuning the whole network: train.py on the same
image files.

Prints images per second of training of both, evaluation left out, and the seconds that computing
the cache takes once. `--root DIR` takes your images (a tree environment/class/image) instead of
random pictures of PACS' size.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from images import PACS_SIDE, ours, pictures
from made_study import study_of

from dgbench.training.processes import prepare_process

REPEATS = 3
# and steps per repeat
TUNING = {
    "ft": (["tuning=ft"], 6),
    "lp": (["tuning=lp", "tuning.cache_features=true"], 300),
}


def main() -> None:
    """Time both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--root", type=Path, help="tree environment/class/image; default: random pictures"
    )
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--side", type=int, default=64, help="height and width in pixels")
    options = parser.parse_args()
    prepare_process()
    studies, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        root = options.root or pictures(Path(folder) / "pictures", PACS_SIDE)
        for name, (words, steps) in TUNING.items():
            common = [
                "dataset=image_folder",
                f"dataset.root={root}",
                f"dataset.image_size={options.side}",
            ]
            common += [
                f"backbone={options.backbone}",
                f"paths.cache_dir={folder}/cache",
                "dataset.augment=none",
            ]
            common += [
                f"trainer.steps={steps}",
                f"trainer.eval_every={steps}",
                "protocol.folds=[0]",
            ]
            studies[name] = study_of([*common, *words], Path(folder))
            begun = time.perf_counter()
            ours(studies[name])  # decodes, fills the cache of features, warms up
            seconds[name] = time.perf_counter() - begun
        speed = {
            name: statistics.median(ours(study) for _ in range(REPEATS))
            for name, study in studies.items()
        }
    print(
        (
            f"{options.backbone} at {options.side} pixels, images per second: fine-tuning "
            f"{speed['ft']:.0f}, "
        ),
        end="",
    )
    print(
        f"linear probe on cached features {speed['lp']:.0f}: {speed['lp'] / speed['ft']:.0f} "
        "times as fast"
    )
    print(f"first run with the cache, computing it included: {seconds['lp']:.1f} s")


if __name__ == "__main__":
    main()
