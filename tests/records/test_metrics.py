"""metrics.csv: what is torn is left out, and what is written is read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.records.metrics import read_metrics, write_metrics


def test_lines_are_read_back(tmp_path: Path) -> None:
    lines = {
        5: {"train/loss": 0.1 + 0.2, "lr/model": 1e-3},
        10: {"error/val/a": 0.5, "train/loss": float("inf")},
    }
    write_metrics(tmp_path / "metrics.csv", lines)
    text = (tmp_path / "metrics.csv").read_text()
    assert text.splitlines()[0] == "error/val/a,lr/model,step,train/loss"
    assert read_metrics(tmp_path / "metrics.csv") == lines
    write_metrics(tmp_path / "metrics.csv", {})
    assert not list(tmp_path.iterdir())
    assert read_metrics(tmp_path / "metrics.csv") == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,step\n1.5,5\n2.5,1", {5: {"a": 1.5}}),  # the last line lacks its end
        ("a,step\n1.5,5\n2.5\n3.5,15\n", {5: {"a": 1.5}, 15: {"a": 3.5}}),
        ("a,step\n1.5,5,9\nx,10\n,15\n", {10: {}, 15: {}}),
        ("a,b\n1,2\n", {}),
        ("a,st", {}),
        ("", {}),
        ("\0\0\0\n\0", {}),
    ],
)
def test_what_is_torn_is_left_out(text: str, found: object, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(text)
    assert read_metrics(tmp_path / "metrics.csv") == found
