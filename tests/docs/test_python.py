"""The training example of docs/reference/python.md runs and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "python.md"


@pytest.mark.slow
def test_the_training_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers may differ on another machine, the words may not."""
    text = PAGE.read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()[-4:]
    words = [re.sub(r"\d+\.\d+", "", line).split() for line in printed]
    assert words == [re.sub(r"\d+\.\d+", "", line).split() for line in shown.splitlines()]
