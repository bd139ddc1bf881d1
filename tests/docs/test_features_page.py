"""docs/how_to/features.md: its programs write files that train,
and its commands end in a report.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command

TEXT = (ROOT / "docs" / "how_to" / "features.md").read_text()
PROGRAMS, COMMANDS = (
    re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    for kind in ("python", "bash")
)
SHORT = ("trainer.steps=4", "trainer.eval_every=2", "trainer.device=cpu")


@pytest.mark.slow
def test_what_the_page_shows(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for program in PROGRAMS:
        exec(program, {})
    lines = [line for block in COMMANDS for line in block.replace("\\\n", " ").splitlines()]
    assert len(PROGRAMS) == 2 and len(lines) == 3
    for line in lines:
        python, script, *words = shlex.split(line)
        assert python == "python"
        words = [word.replace("seed=0,1,2", "seed=0,1") for word in words]
        ended = command(script, *words, *(SHORT if script == "train.py" else ()), cwd=tmp_path)
        assert ended.code == 0, ended.err
        if script == "report.py":
            table = [
                row.split()[0]
                for row in ended.out.splitlines()
                if re.match(r"  (erm|vrex|coral) ", row)
            ]
            assert "breast_cancer" in ended.out and {*table} == {"erm", "vrex", "coral"}
