"""CITATION.cff, CHANGELOG.md and the version agree,
and the citation has what its format demands.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
import yaml

from dgbench.version import __version__
from tools.release import ENTRY, version_problems

ROOT = Path(__file__).resolve().parents[1]


def test_the_citation_has_what_the_format_demands() -> None:
    """Required keys of the schema of cff-version 1.2.0, and types of those that are used."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert all(
        isinstance(cited[key], str) and cited[key] for key in ("message", "title", "version")
    )
    assert [author["name"] for author in cited["authors"]] == ["The dgbench authors"]
    assert cited["type"] in ("software", "dataset")
    assert isinstance(cited["date-released"], date)
    assert set(cited["license"]) == {"MIT", "Apache-2.0"}
    known = {
        "cff-version",
        "message",
        "type",
        "title",
        "authors",
        "version",
        "date-released",
        "license",
        "keywords",
    }
    assert set(cited) <= known


def test_entries_of_the_changelog_descend_and_start_with_this_version() -> None:
    entries = [match.groupdict() for match in ENTRY.finditer((ROOT / "CHANGELOG.md").read_text())]
    dated = [entry for entry in entries if entry["version"] != "Unreleased"]
    assert dated[0]["version"] == __version__
    assert [entry["date"] for entry in dated] == sorted(
        (entry["date"] for entry in dated), reverse=True
    )
    if entries[0]["version"] != "Unreleased":
        assert version_problems(ROOT) == []


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", ".github/pull_request_template.md"]
)
def test_links_and_named_files_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [ROOT / page for page in re.findall(r"\]\((?!http|#|\.\./)([^)#]+)", text)]
    named = [
        path
        for path in re.findall(r"`((?:src|tests|conf|docs|tools)/[\w/.]+)`", text)
        if "NAME" not in path and "YEAR" not in path
    ]
    missing = [
        str(each) for each in [*links, *(ROOT / path for path in named)] if not each.exists()
    ]
    assert missing == []
