"""What stands first: answers before sections without one, the main table before details."""

from __future__ import annotations

from dgbench.reports.document import (
    Document,
    Figure,
    Section,
    in_order,
    main_figure,
    main_table,
    problem_table,
    sections_in_order,
)
from dgbench.reports.tables import Column, Table, table


def made(name: str, lines: int = 1, detail: bool = False) -> Table:
    return table([{"x": 0.5}] * lines, name, name, [Column("x")], detail=detail)


def figure(name: str, detail: bool = False) -> Figure:
    return Figure(name, name, "", lambda: ("<svg></svg>", b""), detail=detail)


def test_the_first_answer_leads() -> None:
    sections = [
        Section("a", "A"),
        Section("b", "B", answer=["yes"]),
        Section("c", "C", answer=["no"]),
    ]
    document = Document("T", "", sections, problem_table([]))
    assert [section.name for section in sections_in_order(document)] == ["b", "a", "c"]
    unanswered = Document("T", "", sections[:1], problem_table([]))
    assert [section.name for section in sections_in_order(unanswered)] == ["a"]
    assert sections_in_order(Document("T", "", [], problem_table([]))) == []


def test_picture_and_table_come_first_and_details_last() -> None:
    tables = [made("folded", detail=True), made("empty", 0), made("main"), made("more")]
    section = Section(
        "s", "S", tables, [figure("fine", detail=True), figure("picture"), figure("other")]
    )
    assert [item.name for item in in_order(section)] == [
        "picture", "main", "other", "empty", "more", "fine", "folded"
    ]  # fmt: skip


def test_a_detail_is_main_only_where_nothing_else_is_shown() -> None:
    alone = Section("s", "S", [made("folded", detail=True)])
    assert (main_figure(alone), main_table(alone).name) == (None, "folded")  # type: ignore[arg-type]
    assert main_table(Section("s", "S", [made("folded", detail=True)], [figure("picture")])) is None
