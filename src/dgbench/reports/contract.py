"""Check that a report keeps the contract of :class:`~dgbench.reports.document.Report`.

Reports of dgbench and of a user's own are called here. What is wrong with one is said in one line
that names the class, or the file and line, which has to be corrected.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError, DgbenchError, is_out_of_memory, one_line
from dgbench.plan.building import class_at
from dgbench.plan.code import raised_at
from dgbench.reports.document import Document, Figure, Report, Section
from dgbench.reports.reading.collect import Collection
from dgbench.reports.tables import Column, Table, Unit

PAGE = "docs/tutorials/own_report.md"
#: name of the table of what was left out, which every document has beside its sections
PROBLEMS = "problems"
#: a name of a section, table or figure, of which a file is named
_FILE_STEM = re.compile(r"(?!\.)[^/\\\x00-\x1f]+")


def check_class(keys: Mapping[str, Any], choice: str) -> None:
    """Refuse a file of ``conf/report`` whose ``_target_`` is not a subclass of :class:`Report`.

    Args:
        keys: of the file, plain values.
        choice: the report as it was typed, ``report=NAME``.

    Raises:
        ConfigError: there is no ``_target_``, it cannot be imported, or is something else.
    """
    path = keys.get("_target_")
    if not isinstance(path, str):
        raise ConfigError(
            f"{choice} names no class; add _target_: MODULE.CLASS to its file, see {PAGE}"
        )
    class_at(path, "report._target_", Report)


def document_of(
    report: Report,
    read: Callable[[], Collection | None],
    selection: Selection,
    split_by: str | None,
    choice: str,
) -> Document:
    """Call a report, and check what it returns.

    Args:
        report: makes the document.
        read: collects all runs, or returns None for a report that reads none; only the
            report holds them, so that it may drop what it no longer needs.
        selection: chooses steps and draws.
        split_by: one more identity key whose values get tables of their own.
        choice: the report as it was typed, ``report=NAME``.

    Raises:
        ConfigError: the report cannot be called like this, fails in a user's own file, or returns
            something that cannot be written.
    """
    _check_call(report, choice)
    make: Any = report.__call__  # type: ignore[operator]
    try:
        document = make(read(), selection, split_by=split_by)
    except DgbenchError:
        raise
    except Exception as error:
        place = raised_at(error)
        if not place or is_out_of_memory(error):
            raise
        raise ConfigError(
            f"{choice} failed at {place} ({one_line(error, None)}); correct that file"
        ) from error
    check_document(document, f"{choice}: {_class_name(report)}")
    return document  # type: ignore[no-any-return]


def _class_name(report: Report) -> str:
    return type(report).__name__


def _check_call(report: Report, choice: str) -> None:
    """Refuse a report that cannot be called as ``report(collection, selection, split_by=None)``."""
    expected = "__call__(self, collection, selection, split_by=None)"
    method = getattr(report, "__call__", None)  # noqa: B004 (its signature is looked at)
    if method is None:
        raise ConfigError(
            f"{choice}: {_class_name(report)} makes no document; give it {expected}, see {PAGE}"
        )
    try:
        inspect.signature(method).bind(None, None, split_by=None)
    except TypeError as error:
        raise ConfigError(
            f"{choice}: {_class_name(report)}.__call__ takes other arguments ({error}); write "
            f"{expected}"
        ) from None


def check_document(document: Any, author: str) -> None:
    """Refuse a document that cannot be written as files, each under its own name.

    Args:
        document: what a report returned.
        author: who returned it, for the message.

    Raises:
        ConfigError: it is not a document, or a part of it is wrong.
    """
    if not isinstance(document, Document):
        raise ConfigError(
            f"{author} returned {type(document).__name__}, not a Document; return "
            "dgbench.reports.document.Document(title, selection, sections, problems)"
        )
    _check_types(document.sections, Section, "sections", author)
    for section in document.sections:
        place = f"{author}: section {section.name}"
        _check_types(section.tables, Table, "tables", place)
        _check_types(section.figures, Figure, "figures", place)
        _check_names("table", [table.name for table in section.tables], place)
        for table in section.tables:
            _check_table(table, place)
    _check_names("section", [section.name for section in document.sections], author)
    figures: list[str] = []
    for section in document.sections:
        figures += [figure.name for figure in section.figures]
    _check_names("figure", figures, author)
    _check_types([document.problems], Table, "problems", author)


def _check_types(items: Any, kind: type, what: str, place: str) -> None:
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise ConfigError(f"{place} has {type(items).__name__} as {what}; give a list")
    for item in items:
        if not isinstance(item, kind):
            raise ConfigError(
                f"{place} has {type(item).__name__} among its {what}; give {kind.__name__} objects"
            )


def _check_names(what: str, names: list[str], place: str) -> None:
    for name in names:
        if not isinstance(name, str) or not _FILE_STEM.fullmatch(name):
            raise ConfigError(
                f"{place}: {what} name {name!r} cannot name a file; leave out / and a first dot"
            )
    name, count = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise ConfigError(
            f"{place} has {count} {what}s named {name!r}, which would be one file; give each its "
            "own name"
        )


def _check_table(table: Table, place: str) -> None:
    if table.name == PROBLEMS:
        raise ConfigError(
            f"{place}: a table named {PROBLEMS} is in every report; give yours another name"
        )
    for column in table.columns:
        if not isinstance(column, Column):
            raise ConfigError(
                f"{place}: table {table.name} has {type(column).__name__} among its columns; give "
                "Column objects"
            )
        if column.unit not in get_args(Unit):
            raise ConfigError(
                f"{place}: table {table.name}, column {column.name} has the unit {column.unit!r}; "
                f"choose one of {', '.join(get_args(Unit))}"
            )
