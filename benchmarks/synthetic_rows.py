"""Row files as training writes them, made up instead of trained: for measuring and looking at
reports.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

ALGORITHMS = (
    "erm", "irm", "group_dro", "mixup", "mldg", "coral", "mmd", "dann", "cdann", "mtl", "sagnet",
    "arm", "vrex", "rsc",
)  # fmt: skip
GRID = tuple(f"{i / 100:.2f}" for i in range(101))


def given_environments(ratio: int, scale: int) -> list[str]:
    """List the environments of Hwang et al. 2024, section 4.1: a majority in 0.8..0.9, a minority
    in 0.1..0.2.
    """

    def between(low: float, count: int) -> list[str]:
        return [f"{low + 0.1 * i / max(1, count - 1):.4g}" for i in range(count)]

    return [*between(0.8, ratio * scale), *between(0.1, scale)]


def write_study(
    root: Path,
    *,
    ratios: Sequence[int] = (3, 4, 5),
    scales: Sequence[int] = (1, 2, 3, 4),
    algorithms: Sequence[str] = ALGORITHMS,
    seeds: Sequence[int] = (0, 1, 2),
    steps: Sequence[int] = (5000,),
    at_most: int | None = None,
) -> int:
    """Write run folders until there are ``at_most`` rows (None: all); return how many rows were
    written.
    """
    written = 0
    for scale in scales:
        for ratio in ratios:
            for algorithm in algorithms:
                for seed in seeds:
                    for folder, lines in _runs(ratio, scale, algorithm, seed, steps):
                        if at_most is not None:
                            lines = lines[: at_most - written]
                        if not lines:
                            return written
                        path = root / f"sr_cmnist-r{ratio}s{scale}" / f"{algorithm}-{seed}" / folder
                        path.mkdir(parents=True)
                        (path / "errors.jsonl").write_text("\n".join(lines) + "\n")
                        (path / "status").write_text("DONE\n")
                        written += len(lines)
    return written


def _runs(
    ratio: int, scale: int, algorithm: str, seed: int, steps: Sequence[int]
) -> Iterator[tuple[str, list[str]]]:
    given = given_environments(ratio, scale)
    rank = ALGORITHMS.index(algorithm) if algorithm in ALGORITHMS else len(ALGORITHMS)
    rng = random.Random(f"{ratio}-{scale}-{algorithm}-{seed}")
    # of the spurious color
    usage = min(1.0, max(0.02, (1 - rank / 18) * (1 - 0.05 * scale) + rng.gauss(0, 0.1)))
    # how well it fits at all
    fit = 0.05 * random.Random(f"{ratio}-{scale}-{algorithm}").uniform(-1, 1)
    for fold in [*map(str, range(len(given))), "full"]:
        held_out = [] if fold == "full" else [given[int(fold)]]
        identity = {
            "run": f"{ratio}-{scale}-{algorithm}-{seed}-{fold}", "dataset": "sr_cmnist",
            "variant": {"ratio": ratio, "scale": scale, "resolution": 28}, "base": "synthetic",
            "evaluation": "exact", "data_seed": 0, "split_seed": 0, "given": given,
            "algorithm": algorithm, "hparams": {"lr": 0.001, "weight_decay": 0.0}, "draw": 0,
            "backbone": "mnist_cnn", "init": "random", "tuning": "ft", "protocol": "loo",
            "fold": fold, "held_out": held_out, "seed": seed, "averaging": "none", "code": "0.1.0",
        }  # fmt: skip
        head = json.dumps(identity, separators=(",", ":"))[:-1]
        test_environments = sorted({*GRID, *given}) if fold == "full" else given
        majority = sum(float(e) > 0.5 for e in given if e not in held_out) / (
            len(given) - len(held_out)
        )
        noise = fit + rng.gauss(0, 0.02)
        lines = []
        for step in steps:
            progress = 1 - 0.2 * math.exp(-step / 1000)
            for subset, environments in (("val", given), ("test", test_environments)):
                for env in environments:
                    color_error = (1 - float(env)) if majority > 0.5 else float(env)
                    error = (
                        (0.25 + noise) * (1 - usage)
                        + usage * color_error * progress
                        + 0.05 * (1 - progress)
                    )
                    unseen = "true" if env in held_out or env not in given else "false"
                    wrong = min(10000.0, max(0.0, 10000 * error))
                    lines.append(
                        f'{head},"step":{step},"env":"{env}","subset":"{subset}","seen":10000,'
                        f'"wrong":{wrong:.3f},"loss":0.5,"env_held_out":{unseen}}}'
                    )
        yield f"fold-{fold}", lines
