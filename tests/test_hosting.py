"""Files that GitHub, Read the Docs and pre-commit read: they run what the README and the Makefile
say.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


def read(file: str) -> Any:
    return yaml.safe_load((ROOT / file).read_text())


def test_github_runs_the_commands_of_ci() -> None:
    steps = read(".github/workflows/tests.yml")["jobs"]["tests"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    assert {target for command in commands for target in command.split()[1:]} <= set(targets)
    in_ci = re.findall(r"^make [\w-]+", (ROOT / ".ci" / "run").read_text(), re.M)
    assert [command for command in commands if command in in_ci] == in_ci


def test_read_the_docs_builds_what_make_site_builds() -> None:
    configuration = read(".readthedocs.yaml")
    assert configuration["version"] == 2
    assert (ROOT / configuration["sphinx"]["configuration"]).is_file()
    (install,) = configuration["python"]["install"]
    assert install["extra_requirements"] == ["docs"]


def test_pre_commit_has_the_version_of_ruff_that_the_lock_has() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert (
        f"ruff=={repository['rev'].removeprefix('v')}"
        in (ROOT / "constraints.txt").read_text().splitlines()
    )
