"""Commands and overrides that are printed mean what they are to mean,
whatever folders are called.
"""

from __future__ import annotations

import shlex
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from dgbench.analysis.selection import LooVal, OodVal, TrainVal, Yu2024
from dgbench.plan.overrides import list_override, open_keys, override
from dgbench.plan.report_line import report_line, selecting_report_line

FOLDERS = [
    "multirun",
    "../there/runs",
    "my runs, old",
    "a=b",
    "it's",
    "[x]",
    "{x: 1}",
    "Müller",
    "2024",
    "null",
    "true",
    "range(1,3)",
    'say "so"',
    " blank ",
]


def read_back(word: str) -> object:
    """Parse the value of an override as a command does."""
    (open_word,) = open_keys([word], "report")
    parsed = OverridesParser.create().parse_override(open_word)
    assert not parsed.is_sweep_override()
    return parsed.value()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_read_back(folder: str) -> None:
    assert read_back(override("paths.output_dir", folder)) == folder
    assert read_back(list_override("runs", ["multirun", folder])) == ["multirun", folder]
    last = shlex.split(report_line([folder]))[-1]
    assert read_back(last) == [folder]


def test_plain_folders_are_written_without_quotes() -> None:
    assert override("paths.output_dir", "../a b") == "paths.output_dir=../a b"
    assert report_line(["multirun", "../a"]).endswith("report.py 'runs=[multirun,../a]'")


def test_the_parameters_of_a_selection_are_kept() -> None:
    words = shlex.split(selecting_report_line(OodVal(["0.80", "a, b"]), ["multirun"]))
    assert words[-3:-1] == ["selection=ood_val", "selection.environments=['0.80','a, b']"]
    for selection in (TrainVal(), LooVal(), Yu2024()):
        words = shlex.split(selecting_report_line(selection, ["multirun"]))
        assert words[-2:] == [f"selection={selection.name}", "runs=[multirun]"]


def test_a_selection_of_the_users_own_keeps_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(TrainVal):
        name = "of_a_paper"

    typed = [
        "train.py",
        "-m",
        "--config-dir=mine",
        "seed=0,1",
        "selection=sure",
        "selection.margin=1",
    ]
    monkeypatch.setattr(sys, "argv", typed)
    words = shlex.split(selecting_report_line(Mine(), ["multirun"]))
    assert words[2:] == [
        "--config-dir=mine",
        "selection=sure",
        "selection.margin=1",
        "runs=[multirun]",
    ]
