"""Write a folder as ``python -m domainbed.scripts.sweep`` leaves it, with invented accuracies.

2 algorithms x 3 trials x 2 draws x (4 single and 6 pairs of test environments of PACS) = 120 runs
of 3 records. What is in a record is what DomainBed's ``train.py`` writes, less its speed and
memory. One run has no ``done`` marker.

    python docs/data/domainbed_sweep.py FOLDER
"""

from __future__ import annotations

import json
import sys
from itertools import combinations, product
from pathlib import Path

import numpy as np

ENVIRONMENTS = 4
ALGORITHMS = {"ERM": 0.0, "VREx": 0.02}  # and what is added to every accuracy
KILLED = ("VREx", 2, 1, [3])


def write(root: Path) -> None:
    """Write the whole sweep, with the same numbers every time."""
    rng = np.random.default_rng(0)
    single = [[env] for env in range(ENVIRONMENTS)]
    pairs = [list(pair) for pair in combinations(range(ENVIRONMENTS), 2)]
    for algorithm, trial, draw, test_envs in product(
        ALGORITHMS, range(3), range(2), single + pairs
    ):
        folder = root / f"{algorithm}_{trial}_{draw}_{'_'.join(map(str, test_envs))}"
        folder.mkdir(parents=True)
        args = {"dataset": "PACS", "algorithm": algorithm, "test_envs": test_envs}
        args |= {"hparams_seed": draw, "trial_seed": trial}
        with open(folder / "results.jsonl", "w") as file:
            for step in (0, 300, 600):
                record = {"args": args, "hparams": {"lr": 5e-5 * (1 + draw)}, "step": step}
                for env, part in product(range(ENVIRONMENTS), ("in", "out")):
                    unseen = 0.1 * (env + 1) if env in test_envs else 0.0
                    accuracy = (
                        0.2 + step / 1000 - unseen + ALGORITHMS[algorithm] + rng.normal(0, 0.02)
                    )
                    record[f"env{env}_{part}_acc"] = round(float(np.clip(accuracy, 0, 1)), 4)
                file.write(json.dumps(record, sort_keys=True) + "\n")
        if (algorithm, trial, draw, test_envs) != KILLED:
            (folder / "done").write_text("done")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
