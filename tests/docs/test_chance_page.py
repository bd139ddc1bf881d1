"""The numbers of "Beside a coin" in docs/concepts/worst_gap.md are those of the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import chance_in_archive

PAGE = Path(chance_in_archive.__file__).parent / "concepts" / "worst_gap.md"
#: the page's name of each dataset of the command
NAMES = {
    "sr_cmnist, K = 2": "SR-CMNIST, K = 2", "pacs, K = 7": "PACS, K = 7",
    "cmnist_irm, K = 2": "CMNIST of Ye et al., K = 2",
}  # fmt: skip


@pytest.mark.thorough
def test_counts_of_leaders_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    lines = chance_in_archive.of_archive()
    by_dataset = chance_in_archive.counted(lines, "dataset")
    text = PAGE.read_text(encoding="utf-8")
    assert set(by_dataset.index) == NAMES.keys()
    for name, counts in by_dataset.iterrows():
        cells = [NAMES[str(name)], *counts.tolist()]
        assert f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") in text
    (total,) = chance_in_archive.counted(lines.assign(all="all"), "all").to_numpy().tolist()
    assert f"| **all** | {' | '.join(total)} |" in text
