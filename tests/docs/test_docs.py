"""The pages of docs/ say what is: generated ones are fresh, and the tutorial works as written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dgbench.cli.docs import PAGES

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "adding_an_algorithm.md"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is out of date; run make docs"


def test_adding_an_algorithm_works_as_the_page_says(tmp_path: Path) -> None:
    """Writes the files that the page shows and runs its command, the two folders being where they are here."""
    page = TUTORIAL.read_text()
    files = re.findall(r"^`([\w/.]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^```bash\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert (len(files), len(commands)) == (2, 1)
    for name, text in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    command = commands[0].strip()
    for folder in {Path(name).parts[0] for name, _ in files}:
        assert folder in command
        command = command.replace(folder, str(tmp_path / folder))
    command = re.sub(r"\bpython\b", sys.executable, command, count=1)
    command += f" hydra.run.dir={tmp_path / 'out'} backbone.width=16"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DGBENCH", "HYDRA", "WANDB", "PYTHON"))}
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    table = [line for line in ended.stdout.splitlines() if "0.80" in line or "worst" in line]
    assert table, ended.stdout
    rows = [json.loads(line) for path in tmp_path.glob("out/*/errors.jsonl") for line in path.read_text().splitlines()]
    assert {row["fold"] for row in rows} == {"0", "1", "2", "3", "full"}
    assert {row["algorithm"] for row in rows} == {"worst_risk"}
    assert {row["hparams"]["temperature"] for row in rows} == {0.1}
    assert max(row["step"] for row in rows) == 60
