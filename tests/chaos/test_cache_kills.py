"""Commands are killed while they fill caches, write predictions, log or choose: the same rows and
predictions.

The caches lie beside the runs and die with them; every second time something is damaged besides,
between two starts. ``CHAOS_KILLS=100`` are 100 over all cases; ``CHAOS_SEED`` chooses the moments.
"""

from __future__ import annotations

import importlib.util
import os
import random
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.wandb_runs import MARK_FILE, is_sent
from tests.chaos.test_method_kills import COMMON, DIGITS, LOSSES, Rows, kill_often
from tests.chaos.test_stack_kills import AIMED, BEGUN, shot
from tests.damage import CACHES, cut, empty, overwrite, remove

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("CHAOS_KILLS", "50"))
PICTURES = {
    "dataset": "image_folder", "dataset.image_size": "32", "backbone": "mnist_cnn",
    "hparams.batch_size": "4", "paths.cache_dir": "cache", "trainer.steps": "12",
    "protocol.folds": "[0]", **COMMON, "trainer.eval_every": "4",
}  # fmt: skip
FOG = {"corruptions": "hendrycks", "dataset.corruptions": "[fog]", "dataset.given": "1-1-0"}
CASES: dict[str, dict[str, str]] = {
    "pictures, mapped": {**PICTURES, "dataset.store": "file"},
    "pictures, loaded": {**PICTURES, "dataset.store": "ram"},
    "corrupted pictures": {**PICTURES, **FOG, "dataset.store": "file"},
    "copies left out": {**PICTURES, "dataset.duplicates": "drop"},
    "features": {
        **PICTURES, "backbone": "resnet18", "init": "random", "dataset.augment": "none",
        "tuning": "lp", "tuning.cache_features": "true", "tuning.cache_dir": "cache",
    },
    "predictions": {**DIGITS, **COMMON, "trainer.predictions": "last", "execution": "stacked"},
    "best predictions": {**DIGITS, **COMMON, "trainer.predictions": "best", "execution": "single"},
    "W&B": {**DIGITS, **COMMON, "trainer.steps": "40", "logger": "wandb", "logger.mode": "offline"},
    "W&B, stacked": {
        **DIGITS, **COMMON, "trainer.steps": "40", "execution": "stacked", "logger": "wandb",
        "logger.mode": "offline",
    },
    "halving": {
        **DIGITS, **COMMON, "hparams": "halving", "hparams.scheme.draws": "4",
        "hparams.scheme.trials": "1", "hparams.scheme.reduction": "2", "trainer.steps": "40",
        "trainer.eval_every": "5", "protocol.folds": "[0]",
    },
}  # fmt: skip


def shot_anywhere(chance: random.Random) -> str:
    """Code that kills the process that runs it: while it writes a file, trains, or at any time from
    its beginning.
    """
    kind = chance.random()
    if kind < 0.3:
        return AIMED.format(n=chance.randint(1, 12), before=chance.random() < 0.5)
    if kind < 0.6:
        return BEGUN.format(seconds=chance.uniform(0.2, 4.0))
    return shot(chance)


@pytest.mark.parametrize("case", CASES)
def test_kills_change_nothing(
    case: str,
    command: Any,
    rows_of: Rows,
    image_tree: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "W&B" in case and importlib.util.find_spec("wandb") is None:
        pytest.skip("needs wandb")
    keys = CASES[case]
    if "dataset" in keys:
        classes = {"cat": 30, "dog": 30}
        root = image_tree(a=classes, b=classes, c=classes)
        if case == "copies left out":
            (root / "b" / "cat" / "00.png").write_bytes(
                (root / "a" / "cat" / "00.png").read_bytes()
            )
        keys = {**keys, "dataset.root": str(root)}
    losses = {**LOSSES, **CACHES} if "dataset" in keys else LOSSES
    if "W&B" in case:
        losses = {**losses, f"fold-*/{MARK_FILE}": (remove, empty, cut, overwrite)}
    share = -(-KILLS // len(CASES))
    kill_often(case, keys, share, shot_anywhere, command, rows_of, tmp_path, capsys, losses)
    if "W&B" in case:
        runs = [file.parent for file in tmp_path.rglob("fold-*/errors.jsonl")]
        assert runs and all(is_sent(run) for run in runs)
