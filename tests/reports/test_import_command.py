"""``python report.py import=domainbed``: a sweep of another tool becomes a page, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.complaints import one_line

NO_TORCH = (
    "import sys\nfor name in [n for n in sys.modules if n.split('.')[0] == 'torch']: del "
    "sys.modules[name]\n"
)
NO_TORCH += "sys.modules['torch'] = None"  # importing it now fails


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """ERM on three environments: 2 trials x 2 draws, every environment held out once, 2 records
    each.
    """
    for trial in range(2):
        for draw in range(2):
            for env in range(3):
                folder = tmp_path / "sweep" / f"{trial}{draw}{env}"
                folder.mkdir(parents=True)
                args = {
                    "dataset": "Own",
                    "algorithm": "ERM",
                    "test_envs": [env],
                    "trial_seed": trial,
                    "hparams_seed": draw,
                }
                lines = []
                for step in (0, 300):
                    keys = {
                        f"env{i}_{part}_acc": 0.5 + 0.1 * draw
                        for i in range(3)
                        for part in ("in", "out")
                    }
                    lines.append(
                        json.dumps({"args": args, "hparams": {"lr": 0.1}, "step": step, **keys})
                    )
                (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
                (folder / "done").write_text("done")
    return tmp_path / "sweep"


@pytest.mark.thorough
@pytest.mark.parametrize("report", ["leaderboard", "leakage", "measures"])
def test_a_sweep_becomes_a_report(command: Any, sweep: Path, tmp_path: Path, report: str) -> None:
    words = [
        "import=domainbed",
        f"import.path={sweep}",
        f"report={report}",
        "selection=train_val",
        "output=page",
    ]
    ended = command("report.py", *words, cwd=tmp_path, before=NO_TORCH)
    assert ended.code == 0, ended.err
    assert "training-domain validation" in ended.out
    assert (tmp_path / "page" / "report.html").stat().st_size > 5000


def test_the_folder_must_be_named(command: Any, tmp_path: Path) -> None:
    ended = command("report.py", "import=domainbed", cwd=tmp_path)
    assert ended.code == 1
    one_line(*ended.complaints, "import.path=DIR")
    ended = command("report.py", "selection=ood_val", cwd=tmp_path)
    one_line(*ended.complaints, r"selection\.environments .*list")
    ended = command("report.py", "import=domainbed", "import.path=nowhere", cwd=tmp_path)
    one_line(*ended.complaints, r"results\.jsonl under nowhere; .*import\.path=DIR")
