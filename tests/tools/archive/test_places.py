"""``runs=[results]`` reads what is current, ``runs=[results/NAME]`` what is named."""

from __future__ import annotations

from typing import Any

from dgbench.reports.frames import measures, results
from dgbench.reports.reading.collect import collect
from tests.tools.conftest import fill_in, write_study
from tools.archive.packing import pack


def test_a_frozen_entry_is_read_where_it_is_named(archive: Any, tmp_path: Any) -> None:
    folder, _ = pack(
        "other", [write_study(tmp_path / "more", ("vrex",), "0.1.0+2")], archive.results
    )
    fill_in(folder)
    assert len(collect([archive.entry]).runs) == 20 and len(collect([folder]).runs) == 10
    archive.say(lambda content: content.update(frozen="wrong\nimages"))
    current = collect([archive.results])
    assert len(current.runs) == 10
    (problem,) = current.problems
    assert (problem.kind, problem.where) == ("frozen entry", str(archive.entry))
    assert problem.reason.startswith("wrong images; ")
    assert len(collect([archive.entry]).runs) == 20


def test_an_entry_is_a_frame(archive: Any) -> None:
    made = measures(results(archive.results)).set_index(["label", "seed"])
    assert made.loc[("erm", 0), "ideal"] == 0.7
