"""The pages of docs/ say what is: generated ones are fresh, and the tutorials work as written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dgbench.plan.names import algorithm_names
from docs.reference_pages import PAGES, objective_of, source
from tests.conftest import Command

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    page = ROOT / "docs" / "reference" / name
    assert page.read_text() == PAGES[name](), f"{page} is out of date; run make docs"


def test_every_algorithm_says_whose_code_it_follows() -> None:
    """The page on DomainBed rests on it, and on numbers for every algorithm that DomainBed has."""
    golden = "".join(path.read_text() for path in (ROOT / "tests" / "golden").glob("*.py"))
    for name, theirs in algorithm_names().items():
        told = source(objective_of(name))
        assert re.fullmatch(r".+, \d{4}.*; .+", told), name
        assert ("DomainBed" in told) == ("domainbed" in theirs), name
        assert (
            "domainbed" not in theirs
            or f'"{name}"' in golden
            or f"algorithms.{name} import" in golden
        ), name


def follow(page: str, folder: Path, extra: str) -> tuple[list[dict[str, Any]], str]:
    """Write the files that a page shows, run its command with the folders it names being in
    ``folder``.

    Returns the rows and what the command printed.
    """
    text = (ROOT / "docs" / "tutorials" / page).read_text()
    files = re.findall(
        r"^`([\w/.]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL
    )
    shown = re.findall(r"^```bash\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    commands = [command for command in shown if "--config-dir" in command]
    assert (len(files), len(commands)) == (2, 1)
    for name, content in files:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
    command = commands[0].strip()
    for name in {Path(name).parts[0] for name, _ in files}:
        assert name in command
    command = re.sub(r"\b(my_\w+)\b", lambda found: str(folder / found[0]), command)
    command = re.sub(r"PYTHONPATH=(\S+)", rf"PYTHONPATH=\1:{ROOT / 'src'}", command)
    command = re.sub(r"\bpython\b", sys.executable, command, count=1)
    environment = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("DGBENCH", "HYDRA", "WANDB", "PYTHON"))
    }
    ended = subprocess.run(
        [
            "bash",
            "-c",
            (
                f"{command} paths.output_dir={folder / 'out'} paths.cache_dir={folder / 'cache'} "
                f"{extra}"
            ),
        ],
        cwd=ROOT,
        env={**environment, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [
        json.loads(line)
        for path in folder.glob("out/*/fold-*/errors.jsonl")
        for line in path.read_text().splitlines()
    ]
    return rows, ended.stdout


@pytest.mark.slow
def test_adding_an_algorithm_works_as_the_page_says(tmp_path: Path) -> None:
    rows, printed = follow("own_algorithm.md", tmp_path, "backbone.width=16")
    assert [line for line in printed.splitlines() if "0.80" in line or "worst" in line], printed
    assert {row["fold"] for row in rows} == {"0", "1", "2", "3", "full"}
    assert {row["algorithm"] for row in rows} == {"worst_risk"}
    assert {row["hparams"]["temperature"] for row in rows} == {0.1}
    assert max(row["step"] for row in rows) == 60


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_examples_of_adding_an_algorithm_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks that are whole programs:
    comparing with a reference, and a trainer of one's own.
    """
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "tutorials" / "own_algorithm.md").read_text()
    programs = re.findall(r"^```python\n(import .*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    for number, program in enumerate(programs):
        exec(compile(program, f"example {number}", "exec"), {"__name__": f"example_{number}"})


@pytest.mark.slow
def test_adding_a_measure_works_as_the_page_says(tmp_path: Path, command: Command) -> None:
    """Two files and a command, which prints the table that the page shows."""
    text = (ROOT / "docs" / "tutorials" / "own_measure.md").read_text()
    written = re.findall(
        r"^`([\w/.]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL
    )
    assert len(written) == 2
    lines = [line for _, content in written for line in content.splitlines() if line.strip()]
    assert len(lines) == 9  # as the page says
    for name, content in written:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "results").symlink_to(ROOT / "results")
    (typed,) = re.findall(r"^```bash\npython (.*?)\n```$", text, flags=re.MULTILINE)
    ended = command(*shlex.split(typed), "only=[suite_hits,suite_correlation]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (shown,) = re.findall(r"^```\n(How often.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert shown in ended.out


@pytest.mark.slow
def test_adding_a_dataset_works_as_the_page_says(tmp_path: Path) -> None:
    """Four classes of 60 pictures; the full fold is judged in all 101 environments and the given
    ones.
    """
    rng = np.random.default_rng(0)
    for name in ("ash", "birch", "cedar", "oak"):
        (tmp_path / "my_pictures" / name).mkdir(parents=True)
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
                tmp_path / "my_pictures" / name / f"{i}.png"
            )
    rows, _ = follow(
        "own_dataset.md", tmp_path, "backbone.width=16 hparams.batch_size=8 trainer.eval_every=20"
    )
    assert {row["dataset"] for row in rows} == {"corners"}
    assert {row["fold"] for row in rows} == {"0", "1", "2", "full"}
    judged = {row["env"] for row in rows if row["fold"] == "full" and row["subset"] == "test"}
    assert len(judged) == 101
