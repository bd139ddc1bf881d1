"""What ``entry.yaml`` may say: each wrong key is one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda c: c.update(colour="red"), "colour: "),
        (lambda c: c.pop("date"), "date: "),
        (lambda c: c.update(title=3), "title: "),
        (lambda c: c.update(title="two\nlines"), "title: "),
        (lambda c: c.update(title="???"), "title: "),
        (lambda c: c.update(who=[]), "who: "),
        (lambda c: c.update(who=[{"url": "https://x.org"}]), "who.0.name: "),
        (lambda c: c.update(who=[{"name": "A", "mail": "a"}]), "who.0.mail: "),
        (lambda c: c.update(date="yesterday"), "date: "),
        (lambda c: c.update(license="mine"), "license: "),
        (lambda c: c.update(selection="oracle"), "selection: "),
        (lambda c: c.update(obtained={}), "obtained: "),
        (lambda c: c.update(obtained={"mnist": "a download"}), "obtained "),
        (lambda c: c.update(missing="erm"), "missing: "),
        (lambda c: c.update(missing=["x"]), "missing lists "),
        (lambda c: c.update(notes=" "), "notes: is empty"),
        (lambda c: c.update(replaces="../x"), "replaces: "),
        (lambda c: c["recorded"].update(runs=3), "recorded.runs is 3, its runs say 20"),
        (
            lambda c: c["recorded"].update(commands=["x"]),
            'recorded.commands is ["x"], its runs say ["python train.py',
        ),
        (lambda c: c["recorded"].pop("datasets"), "recorded.datasets is null, its runs say "),
        (lambda c: c["sha256"].update({"rows.jsonl.xz": "0"}), "rows.jsonl.xz has not the sha256 "),
        (
            lambda c: c["sha256"].update({"measures.csv": "0" * 64}),
            "measures.csv has not the sha256 ",
        ),
    ],
)
def test_what_entry_yaml_may_not_say(
    archive: Any, change: Callable[[dict[str, Any]], object], key: str
) -> None:
    archive.say(change)
    lines = archive.faults()
    assert [line for line in lines if line.startswith(f"tiny: {key}")] and not [
        line for line in lines if "\n" in line
    ]


@pytest.mark.parametrize("content", ["", "- a list", "title: [", "1: x"])
def test_an_entry_yaml_that_is_none(archive: Any, content: str) -> None:
    (archive.entry / "entry.yaml").write_text(content)
    assert archive.faults() and not [line for line in archive.faults() if "\n" in line]
