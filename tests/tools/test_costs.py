"""``make costs``: what is known is kept, what is of other code goes, and a check says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tools.costs
from dgbench.sweeps.costs import shipped_key
from tools.costs import main, planned, text_of, usual_studies

STUDY = ("dataset=pacs", "backbone=resnet18", "algorithm=erm")
OTHER = ("dataset=pacs", "backbone=resnet18", "algorithm=vrex")
KNOWN = {"step": 1.0, "memory": 2}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of costs, of two studies alone."""
    file = tmp_path / "costs.json"
    monkeypatch.setattr(tools.costs, "FILE", file)
    monkeypatch.setattr(tools.costs, "usual_studies", lambda: iter((STUDY, OTHER)))
    return file


def test_only_what_is_not_known_is_counted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, other = (shipped_key(planned(words)) for words in (STUDY, OTHER))
    file.write_text(text_of({key: KNOWN, "of other code": KNOWN}))
    assert main(["--check"]) == 1
    assert (
        "1 costs of the package are of other code, such as dataset=pacs" in capsys.readouterr().out
    )
    assert main([]) == 0
    content: dict[str, Any] = json.loads(file.read_text())
    assert set(content) == {key, other}
    assert content[key] == KNOWN
    assert content[other]["step"] > 1e12
    assert main(["--check"]) == 0


def test_a_study_that_cannot_be_trained_is_named(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = (*STUDY, "trainer.steps=-1")
    monkeypatch.setattr(tools.costs, "usual_studies", lambda: iter((refused,)))
    assert main([]) == 0
    assert "left out: dataset=pacs" in capsys.readouterr().out
    assert json.loads(file.read_text()) == {}


def test_every_algorithm_is_counted_on_every_network() -> None:
    studies = list(usual_studies())
    assert len(studies) == len(set(studies))
    for word in ("dataset=domain_net", "backbone=vit_b16", "algorithm=dann"):
        assert any(word in words for words in studies)
