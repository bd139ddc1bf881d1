"""Reports of a user's own that cannot work: one line with what is wrong, and nothing is written."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last, Selection
from dgbench.reports.contract import check_document, document_of
from dgbench.reports.document import Document, Report, Section, problem_table
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.memory import map_large_arrays
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.tables import Column, table
from tests.complaints import refused

OWN = """
from dgbench.reports.document import Document, Report, Section, problem_table


class NoReport:
    def __call__(self, collection, selection, split_by=None):
        return None


class NoCall(Report):
    name: str = "own"


class Missing(NoCall):
    must: int

    def __call__(self, collection, selection, split_by=None):
        return None


class Nothing(NoCall):
    def __call__(self, collection, selection, split_by=None):
        return None


class Fails(NoCall):
    def __call__(self, collection, selection, split_by=None):
        return collection.nothing


class Narrow(NoCall):
    def __call__(self, collection):
        return None


class Right(NoCall):
    def __call__(self, collection, selection, split_by=None):
        return Document("Right", "", [Section("a", "A")], problem_table([]))
"""
WRONG = {
    "NoReport": r"report\._target_=own\.NoReport is no dgbench Report; name a subclass",
    "NoCall": r"report=wrong: NoCall makes no document; give it __call__\(self, collection",
    "Missing": r"report\.must is missing; add report\.must=VALUE",
    "Nothing": r"report=wrong: Nothing returned NoneType, not a Document; return \S*Document\(",
    "Fails": r"report=wrong failed at \S+own\.py, line 28 \(AttributeError: .*'nothing'\); correct",
    "Narrow": r"report=wrong: Narrow\.__call__ takes other arguments .*; write __call__\(self",
    "Absent": r"report\._target_=own\.Absent cannot be imported .*; correct the path",
    "": r"report=wrong names no class; add _target_: MODULE\.CLASS to its file",
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """Write a report of a user's own; return the words that choose it."""

    def make(target: str, name: str = "wrong", more: str = "name: own\n") -> tuple[str, ...]:
        (tmp_path / "conf" / "report").mkdir(parents=True, exist_ok=True)
        (tmp_path / "own.py").write_text(OWN)
        line = f"_target_: own.{target}\n" if target else ""
        (tmp_path / "conf" / "report" / f"{name}.yaml").write_text(line + more)
        return "report.py", "--config-dir", "conf", f"report={name}"

    return make


@pytest.mark.parametrize("target", WRONG)
def test_a_wrong_class_is_one_line(
    target: str, write: Any, command: Any, small_study: Path, tmp_path: Path
) -> None:
    ended = command(*write(target), f"runs=[{small_study}]", cwd=tmp_path)
    (complaint,) = ended.complaints
    assert ended.code == 1 and "Traceback" not in ended.err
    with refused(WRONG[target], AssertionError):
        raise AssertionError(complaint)
    assert not (tmp_path / "reports").exists()


def test_a_file_that_is_never_read_is_named(
    write: Any, command: Any, small_study: Path, tmp_path: Path
) -> None:
    """Hydra takes dgbench's file of that name, whatever the user's one says."""
    words = write("Right", "measures")
    ended = command(*words, f"runs=[{small_study}]", cwd=tmp_path)
    (complaint,) = ended.complaints
    assert ended.code == 1
    assert "conf/report/measures.yaml is never read" in complaint and "another name" in complaint


def test_a_key_that_a_report_does_not_have(
    write: Any, command: Any, small_study: Path, tmp_path: Path
) -> None:
    words = write("Right", "right")
    ended = command(*words, f"runs=[{small_study}]", "report.many=1", cwd=tmp_path)
    (complaint,) = ended.complaints
    assert ended.code == 1
    assert complaint == "dgbench: report=right has no key many; conf/report/right.yaml has name"


def test_what_a_status_does_not_log_is_refused(
    command: Any, small_study: Path, tmp_path: Path
) -> None:
    words = ("report.py", "report=status", f"runs=[{small_study}]", "report.wandb=true")
    ended = command(*words, cwd=tmp_path)
    (complaint,) = ended.complaints
    assert ended.code == 1 and "report.wandb=true changes nothing" in complaint


def document(*sections: Any) -> Document:
    return Document("Own", "", sections, problem_table([]))


def section(*tables: Any, name: str = "a") -> Section:
    return Section(name, "A", tables)


def one(name: str = "x", column: Any = None) -> Any:
    return table([{"v": 1.0}], name, "X", [column or Column("v")])


PARTS: dict[str, tuple[Any, str]] = {
    "a frame": (one().frame, "returned DataFrame, not a Document"),
    "two sections": (document(section(), section()), "2 sections named 'a'"),
    "two tables": (document(section(one(), one())), "section a has 2 tables named 'x'"),
    "a folder": (document(section(one("x/y"))), "table name 'x/y' cannot name a file"),
    "hidden": (document(section(name=".a")), r"section name '\.a' cannot name a file"),
    "a number": (document(section(one(name=3))), "table name 3 cannot name a file"),  # type: ignore[arg-type]
    "unit": (document(section(one(column=Column("v", unit="%")))), "column v has the unit '%'"),  # type: ignore[arg-type]
    "column": (document(section(one()), section(name="b")), ""),
    "problems": (document(section(one("problems"))), "a table named problems is in every report"),
    "a frame as table": (document(section(one().frame)), "has DataFrame among its tables"),
    "text as sections": (Document("Own", "", "abc", problem_table([])), "has str as sections"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("part", PARTS)
def test_a_wrong_part_of_a_document_is_one_line(part: str) -> None:
    made, said = PARTS[part]
    if not said:
        check_document(made, "report=own")
        return
    with refused(said):
        check_document(made, "report=own")


def test_every_report_can_be_logged() -> None:
    assert {"name", "wandb", "wandb_project"} <= {*Report.model_fields}


def test_nobody_else_holds_the_rows_that_a_report_reads(small_study: Path) -> None:
    """A report of millions of rows drops them after the selection, and their memory is free."""
    freed: list[bool] = []

    class Dropping(Report):
        name: str = "dropping"

        def __call__(
            self, collection: Collection, selection: Selection, split_by: str | None = None
        ) -> Document:
            selected = select_runs(collection, selection, split_by)
            rows = weakref.ref(collection.rows)
            collection = collection.without_numbers()
            freed.append(rows() is None)
            assert len(collection.runs) == len(selected.runs) and not len(collection.rows)
            assert list(collection.rows.columns)[:2] == ["run", "step"]
            return document(section())

    document_of(Dropping(), partial(collect, [small_study]), Last(), None, "report=dropping")
    assert freed == [True]


def test_memory_is_kept_low_wherever_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Ours:
        def mallopt(self, option: int, value: int) -> int:
            asked.append((option, value))
            return 1

    class Other:
        """A C library without ``mallopt``."""

    for library in (Ours, Other):
        monkeypatch.setattr("ctypes.CDLL", lambda name, library=library: library())
        map_large_arrays()
    assert asked == [(-3, 2**20)]
