"""Two sides cell by cell: equal, different, or only on one side."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.document import Document
from dgbench.reports.kinds.compare_report import CompareReport


@pytest.fixture
def sides(make: SimpleNamespace, tmp_path: Path) -> tuple[Path, Path]:
    """erm: fold 3 differs by 0.1 in seed 0 alone; vrex is on the first side alone; code versions differ."""
    for side, code in (("a", "0.1.0+aaa"), ("b", "0.1.0+bbb")):
        for seed in (0, 1):
            for fold in ("0", "1", "2", "3", "full"):
                error = 0.3 if (side, seed, fold) == ("b", 0, "3") else 0.2
                who = make.identity("erm", fold, seed, code=code)
                make.write_run(tmp_path / side, who, lambda e, s, error=error: error)
    make.write_run(tmp_path / "a", make.identity("vrex", "0", code="0.1.0+aaa"))
    return tmp_path / "a", tmp_path / "b"


def compared(**options: Any) -> Document:
    return CompareReport(**options)(None, Last())


def test_differences_by_hand(sides: tuple[Path, Path]) -> None:
    """Per seed 4 held-out errors and 22 everywhere (21 and 0.85... of the given ones): one differs, by 10 points."""
    document = compared(first=str(sides[0]), second=str(sides[1]))
    [section] = document.sections
    measures, differences, cells = section.tables
    [line] = differences.frame.to_dict("records")
    everywhere = 21 + sum(env not in {f"{i / 20:.2f}" for i in range(21)} for env in ("0.90", "0.85", "0.80", "0.10"))
    assert (line["algorithm"], line["cells"], line["equal"]) == ("erm", 2 * (4 + everywhere), 2 * (4 + everywhere) - 1)
    assert line["largest"] == pytest.approx(0.1)
    assert line["mean"] == pytest.approx(0.1 / line["cells"])
    assert line["where"] == "seed 0, 0.10 held out"
    [cell] = cells.frame.to_dict("records")
    assert (cell["env"], cell["error.first"], cell["error.second"]) == ("0.10", 0.2, 0.3)
    average = measures.frame.set_index("measure").loc["average"]
    assert (average["first"], average["second"]) == pytest.approx((0.2, 0.2125))  # 0.225 and 0.2 over the seeds
    assert average["largest"] == pytest.approx(0.025)
    assert "differ by 10 points on average and by at most 10 (erm, seed 0, 0.10 held out)" in section.answer[0]


def test_what_one_side_lacks_is_named(sides: tuple[Path, Path]) -> None:
    document = compared(first=str(sides[0]), second=str(sides[1]))
    lines = document.problems.frame.query("problem == 'one side only'").to_dict("records")
    assert [(line["where"].rpartition(", ")[2], line["reason"]) for line in lines] == [
        ("vrex", f"1 errors are not in {sides[1]}")
    ]


def test_equal_sides_say_so(sides: tuple[Path, Path]) -> None:
    [section] = compared(first=str(sides[1]), second=str(sides[1])).sections
    assert section.answer == ["All 50 errors are equal."]
    assert len(section.tables[2]) == 0


def test_code_versions_of_one_folder(sides: tuple[Path, Path]) -> None:
    options = {"first": "0.1.0+aaa", "second": "0.1.0+bbb", "runs": [str(sides[0].parent)]}
    by_code, by_place = compared(**options), compared(first=str(sides[0]), second=str(sides[1]))
    assert by_code.sections[0].answer == by_place.sections[0].answer


def test_what_cannot_be_compared_is_refused(sides: tuple[Path, Path], make: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs report\.first=PLACE"):
        compared(first=str(sides[0]))
    with pytest.raises(ConfigError, match=r"0\.1\.0\+ccc is neither .* versions: 0\.1\.0\+aaa, 0\.1\.0\+bbb"):
        compared(first=str(sides[0]), second="0.1.0+ccc", runs=[str(sides[0].parent)])
    make.write_run(tmp_path / "other", make.identity("erm", "0", dataset="other"))
    with pytest.raises(RecordError, match="share no cell"):
        compared(first=str(sides[0]), second=str(tmp_path / "other"))
