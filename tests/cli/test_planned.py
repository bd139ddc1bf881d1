"""The plan of a study that several jobs train."""

import json
from multiprocessing.pool import ThreadPool
from pathlib import Path

from dgbench.records.commands import keep_plan


def test_jobs_that_share_a_folder_lose_nothing_of_their_plans(tmp_path: Path) -> None:
    names = [f"fold-{n}" for n in range(200)]

    def keep(name: str) -> None:
        keep_plan(tmp_path, [name])

    with ThreadPool(8) as jobs:
        jobs.map(keep, names)
    assert sorted(json.loads((tmp_path / "planned.json").read_text())["runs"]) == sorted(names)
