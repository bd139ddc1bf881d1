"""The page of downloads: what it counts and how it says it."""

from __future__ import annotations

import pytest

from dgbench.data.fetch.fetching import Archive, DatasetSource, Form
from docs import reference_pages

A, B = "https://a.org", "https://b.org"


def test_each_file_once_with_its_hosts_and_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that differ in nothing but their names share a line; a name that shares a source has
    none.
    """
    parts = [Archive([f"{B}/{i}"], f"{i}.parquet") for i in range(3)]
    one = DatasetSource(
        name="one",
        folder="one",
        files=[
            Archive([f"{A}/1", f"{A}/2", f"{B}/1"], "x.zip", "12", "34"),
            Archive([f"{A}/1"], "y.zip", md5="56"),
        ],
        otherwise=[Form(files=parts)],
    )
    hand = DatasetSource(name="hand", folder="hand", files=[], manual="ask\n  its makers")
    monkeypatch.setattr(
        reference_pages, "sources", lambda: {"one": one, "one_corrupted": one, "hand": hand}
    )
    page = reference_pages.downloads_page()
    assert [line for line in page.splitlines() if "`" in line and line[0] in "|-"] == [
        "| `one` | `x.zip` | a.org (2 addresses), b.org | sha256 `12`, md5 `34` |",
        "| `one` | `y.zip` | a.org | md5 `56` |",
        "| `one`, another form | 3 files, `0.parquet` to `2.parquet` | b.org | **none stated** |",
        "- `hand`: ask its makers",
    ]
    assert "**Unverified: 3 of 5 files**" in page
