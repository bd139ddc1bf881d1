"""What a report is made of, before any renderer: tables (see :mod:`dgbench.reports.tables`),
figures, sections.

And in which order: the leading section, its main picture and main table come first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from dgbench.analysis.selection import Selection, describe
from dgbench.errors import ConfigError
from dgbench.plan.measures import MeasureChoice, Measures, choose
from dgbench.plan.needs import Need
from dgbench.plan.settings import FileName, Name
from dgbench.reports.labels import is_adapted, label_meant
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import ASSUMED, Problem
from dgbench.reports.tables import Column, Table, on_page, table
from dgbench.validation import Checked, Folder, Folders, NonBlank, Refusal, Switch

ORACLE = (
    "ORACLE SELECTION looks at the test environments: these numbers are no estimate of unseen "
    "performance."
)
APART = (
    "SEARCHES APART: each draw of hyperparameters has a line; selection=train_val chooses one of "
    "every search."
)
#: keys of conf/report.yaml that make a document of runs; a report says which of them it does not
#: read in ``unread``
OF_DOCUMENTS = (
    "import",
    "notes",
    "only",
    "output",
    "same_code",
    "selection",
    "split_by",
    "report.wandb",
    "report.wandb_project",
)
OF_RUNS = ("import", "same_code", "selection", "split_by")  #: keys of a document that need runs
#: of files that a report holds, whose folder ``output`` names
FILE_ENDINGS = (".csv", ".htm", ".html", ".md", ".parquet", ".pdf", ".png", ".svg", ".tex")
NO_CHOICE = (
    "SEARCHES APART: each draw of hyperparameters has a line; no accuracy on validation data was "
    "read, so none can be chosen without looking at the tested environments."
)
TARGET_ORACLE = (
    "TARGET ORACLE: trained on other images of the tested environments, no estimate of unseen "
    "performance."
)

ADAPTED_AT_TEST_TIME = (
    "ADAPTED AT TEST TIME: models named (adaptation=...) saw unlabeled images of the environments "
    "that they are tested in; all others did not."
)


@dataclass(frozen=True)
class Figure:
    """A picture, drawn once in three formats."""

    name: str
    title: str
    caption: str
    #: inline SVG without prolog, PNG and PDF, once they are saved
    pictures: Callable[[], tuple[str, bytes, bytes]]
    size: str = ""  #: limits of its width, in CSS
    detail: bool = False  #: folded away where the renderer can
    certainty: bool = False  #: says how sure the section is, so it is folded with such tables

    @property
    def svg(self) -> str:
        """Its ink is ``currentColor``, so that it follows light and dark pages."""
        return self.pictures()[0].replace("<svg", f'<svg style="{self.size}"', 1)

    @property
    def png(self) -> bytes:
        """Dark ink on white."""
        return self.pictures()[1]

    @property
    def pdf(self) -> bytes:
        """Dark ink on nothing, text as text, for a paper."""
        return self.pictures()[2]


@dataclass(frozen=True)
class Section:
    """Tables and figures of results that may be compared with one another."""

    name: str  #: unique within the document, usable in a file name
    title: str
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    #: what the section shows, and what cannot be concluded, in a sentence or two
    answer: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    folded: bool = False  #: folded away where the renderer can, one line on the terminal


class Report(Checked):
    """Make a document of runs, for ``report=NAME``; the fields are the keys of its YAML file.

    A subclass is found by the ``_target_`` of ``conf/report/NAME.yaml``, in dgbench or in a folder
    of the user's own (``--config-dir``), and has one method that is called once::

        def __call__(self, collection, selection, split_by=None) -> Document

    - ``collection``: every run with its rows and what was left out
      (:class:`~dgbench.reports.reading.collect.Collection`), or None if ``unread`` holds
      ``import``.
    - ``selection``: chooses the step of a run and the draw of a search
      (:class:`~dgbench.analysis.selection.Selection`).
    - ``split_by``: an identity key whose values get tables of their own, or None.

    One that has ``show() -> int`` instead prints to the terminal and returns the exit code.

    Args:
        name: names the output folder.
        wandb: log the finished report to Weights & Biases as well.
        wandb_project: W&B project of that run; None takes ``WANDB_PROJECT``, or dgbench.
    """

    key = "report"
    of_means: ClassVar[bool] = False  #: whether it takes tables of means without seeds
    #: keys of ``conf/report.yaml`` that it does not read, e.g. ``import``, or ``report.wandb``
    unread: ClassVar[Sequence[str]] = ()
    #: its own keys that it reads only beside others -> what these are
    needs: ClassVar[Mapping[str, Need]] = {}

    name: FileName
    wandb: Switch = False
    wandb_project: Name | None = None


class ReportOfMeasures(Report):
    """A report with tables of measures.

    Args:
        measures: names of those that tables show; None takes all that there are.
        compared: names of those that rank and compare algorithms, the first one first.
    """

    measures: Measures | None = None
    compared: Measures | None = None

    @cached_property
    def choice(self) -> MeasureChoice:
        """The measures that its keys name."""
        return choose(self.measures, self.compared, f"{self.key}.")

    @model_validator(mode="after")
    def _there_are_such(self) -> Self:
        """Refuse what is no measure before runs are read."""
        assert self.choice
        return self


def _no_file(output: str) -> str:
    if Path(output).suffix in FILE_ENDINGS:
        stem = Path(output).with_suffix("")
        raise ValueError(
            f"has the name of a file, and a report is a folder of files; write e.g. output={stem}"
        )
    return output


class ReportKeys(Checked):
    """Keys of ``conf/report.yaml`` that no group of its own checks."""

    key = ""

    runs: Folders
    cache: Switch
    output: Annotated[Folder, AfterValidator(_no_file)]
    only: Annotated[
        NonBlank | Annotated[list[NonBlank], Field(min_length=1)] | None,
        Refusal("is no list of names", "write e.g. only=[measures], or null for all"),
    ]
    notes: Annotated[Literal["full", "short"], Refusal("is unknown", "choose full or short")]
    split_by: Annotated[
        NonBlank | None, Refusal("is no identity key", "give one, e.g. code, or null")
    ]
    same_code: Annotated[
        list[NonBlank], Refusal("is no list of code versions", "write e.g. ['0.1','0.2']")
    ]


def check_algorithm(report: Any, key: str, algorithms: Names[str]) -> str:
    """Find the label of the algorithm that a key names, however it is spelled.

    One without rows is refused, unless it is the default of the key.

    Args:
        report: that has the key.
        key: of ``conf/report``.
        algorithms: those with rows, as tables name them.

    Raises:
        ConfigError: it is none of them.
    """
    name: str = getattr(report, key)
    label = label_meant(name, set(algorithms))
    if label is None and name != type(report).model_fields[key].default:
        raise ConfigError(
            f"report.{key}={name} is no algorithm with rows here; choose one of "
            f"{', '.join(sorted(set(algorithms)))}"
        )
    return label or name


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    selection: str  #: how the steps and hyperparameters of all numbers were chosen
    sections: Sequence[Section]
    problems: Table
    warnings: Sequence[str] = ()  #: what a reader must know before any number
    lead: Sequence[str] = ()  #: what went into the report
    #: term -> one sentence, shown where it first stands
    words: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  #: further files: name -> text
    #: what makes the whole document again; :func:`remake` narrows it to one table or figure
    command: str = ""
    short_notes: bool = False  #: LaTeX tables have the first sentences of their notes alone


def title_of(item: Table | Figure, document: Document) -> str:
    """Return the title of a table or figure with the selection: tables are copied out of their
    report.
    """
    return f"{item.title} ({document.selection})" if document.selection else item.title


def remake(document: Document, item: Table | Figure) -> str:
    """Build the command that makes one table or figure again.

    It is an empty text if the document does not know its own command.
    """
    return f"{document.command} 'only=[{item.name}]'" if document.command else ""


def words_used(document: Document) -> dict[str, str]:
    """Keep those of its words that a document uses: in titles, columns, sentences or captions."""
    texts = [document.title, document.selection, *document.warnings, *document.lead]
    for section in document.sections:
        texts += [section.title, *section.answer]
        for figure in section.figures:
            texts += [figure.title, figure.caption]
        for item in section.tables:
            texts += [item.title, *item.notes, *(column.shown for column in item.columns)]
            if "algorithm" in item.frame:
                texts += item.frame["algorithm"].map(str).tolist()
    text = "\n".join(texts)
    return {term: meaning for term, meaning in document.words.items() if _uses(text, term)}


def _uses(text: str, term: str) -> bool:
    """Return whether a text holds a term as a whole word, in singular or plural."""
    return bool(re.search(rf"(?<![\w+-]){re.escape(term)}s?(?![\w+-])", text, re.IGNORECASE))


def keep(document: Document, names: Names[str]) -> Document:
    """Keep only the tables and figures of those names in a document; the problems always stay.

    Raises:
        ConfigError: a name is neither a table nor a figure of this document.
    """
    tables: set[str] = set()
    figures: set[str] = set()
    for section in document.sections:
        tables.update(table.name for table in section.tables)
        figures.update(figure.name for figure in section.figures)
    unknown = sorted(set(names) - tables - figures)
    if unknown:
        close = get_close_matches(unknown[0], sorted(tables | figures), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"only={unknown} is in no section; {meant}choose from the tables "
            f"{', '.join(sorted(tables))} and {len(figures)} figures, which are named as their "
            "files"
        )
    sections = []
    for section in document.sections:
        kept_tables = [item for item in section.tables if item.name in names]
        kept_figures = [figure for figure in section.figures if figure.name in names]
        if kept_tables or kept_figures:
            sections.append(
                replace(section, tables=kept_tables, figures=kept_figures, folded=False)
            )
    return replace(document, sections=sections)


def problem_table(problems: Sequence[Problem]) -> Table:
    """Build the table of everything that was left out or assumed, and why."""
    lines = [
        {"problem": problem.kind, "where": problem.where, "reason": problem.reason}
        for problem in problems
    ]
    notes = (
        []
        if lines
        else ["Nothing was left out: every run found is finished and in the tables above."]
    )
    columns = [Column("problem", key=True), Column("where"), Column("reason")]
    return table(lines, "problems", "Runs and rows left out, and what is missing", columns, notes)


def selection_text(selection: Selection, collection: Collection) -> str:
    """Describe how the numbers of a report were selected, for the titles of its tables."""
    if collection.selected_elsewhere and not selection.chooses_draws:
        return "selection: not known, as in the table that was read"
    return describe(selection)


def warnings(
    selection: Selection, collection: Collection, trained_on_tested: bool = False
) -> list[str]:
    """List what a reader must know before any number; return [] if there is nothing.

    Args:
        selection: of steps and draws.
        collection: what the numbers are made of.
        trained_on_tested: whether a tested environment was not held out.
    """
    sentences = [ORACLE] if selection.uses_test_environments else []
    if trained_on_tested:
        sentences.append(TARGET_ORACLE)
    if any(is_adapted(run.identity) for run in collection.runs):
        sentences.append(ADAPTED_AT_TEST_TIME)
    if not selection.chooses_draws and any(run.identity["draw"] for run in collection.runs):
        sentences.append(NO_CHOICE if collection.draws_stay_apart else APART)
    return sentences


def leads(content: str, problems: Sequence[Problem]) -> list[str]:
    """Describe what went into the report, how much was left out, and how much was assumed."""
    listed = counted(problem.kind for problem in problems)
    return [f"{content}.", f"{listed}, listed at the end." if problems else "No problems."]


def counted(kinds: Iterable[str]) -> str:
    """Count problems and assumptions: ``no problems``, ``1 problem``, ``2 problems and 3
    assumptions``.

    Args:
        kinds: of everything that was left out or assumed.
    """
    kinds = list(kinds)
    assumed = kinds.count(ASSUMED)
    numbers = ((len(kinds) - assumed, "problem"), (assumed, "assumption"))
    parts = [f"{number} {word}{'s' * (number != 1)}" for number, word in numbers if number]
    return " and ".join(parts) or "no problems"


def sections_in_order(document: Document) -> list[Section]:
    """Order sections: the leading one (the first that has an answer, else the first), then the
    others in order.
    """
    sections = list(document.sections)
    answered = [index for index, section in enumerate(sections) if section.answer]
    if answered:
        sections.insert(0, sections.pop(answered[0]))
    return sections


def main_figure(section: Section) -> Figure | None:
    """Find the first figure that is no detail."""
    return next((figure for figure in section.figures if not figure.detail), None)


def main_table(section: Section) -> Table | None:
    """Find the first table with lines that is no detail.

    If a section shows nothing but details it is the first of these.
    """
    filled = sorted((item for item in section.tables if len(item)), key=lambda item: item.detail)
    return next((item for item in filled if not item.detail or not main_figure(section)), None)


def others(section: Section) -> list[Table | Figure]:
    """List what a section shows besides its main picture and table, but not how sure it is.

    Figures, tables, then details of both kinds. Of very many details a page shows the first lines.
    """
    return [item for item in _rest(section) if not item.certainty]


def certainty(section: Section) -> list[Table | Figure]:
    """List the tables and figures that say how sure a section is."""
    return [item for item in _rest(section) if item.certainty]


def certainty_notes(section: Section) -> tuple[str, ...]:
    """Return the notes of its tables that say how sure a section is."""
    return tuple(note for table in section.tables for note in table.folded_notes)


def _rest(section: Section) -> list[Table | Figure]:
    """List all but the main picture and the main table: figures, tables, details of both kinds."""
    leading = (main_table(section), main_figure(section))
    tables = [on_page(item) for item in section.tables if item is not leading[0]]
    figures = [item for item in section.figures if item is not leading[1]]
    return sorted([*figures, *tables], key=lambda item: item.detail)


def leading_items(section: Section) -> list[Table | Figure]:
    """List the main picture and the main table, those that there are."""
    return [item for item in (main_figure(section), main_table(section)) if item is not None]


def in_order(section: Section) -> Sequence[Table | Figure]:
    """Order what a section shows: main picture, main table, the rest, then how sure it is."""
    return [*leading_items(section), *others(section), *certainty(section)]


@dataclass(frozen=True)
class Entry:
    """A line of the contents of a page, with lines that are folded below it."""

    anchor: str
    title: str
    folded: Sequence[Entry] = ()


_MOST_ENTRIES = 8  # of the contents


def contents(document: Document) -> list[Entry]:
    """List what a page holds in at most 8 lines: its sections, or of a single one what it shows."""
    last = [Entry("problems", f"Left out or assumed: {len(document.problems) or 'nothing'}")]
    if words_used(document):
        last.append(Entry("words", "Words"))
    room = _MOST_ENTRIES - len(last)
    sections = sections_in_order(document)
    if len(sections) == 1:
        return [*_entries_of(sections[0], room), *last]
    entries = [Entry(section.name, section.title) for section in sections if not section.folded]
    folded = [Entry(section.name, section.title) for section in sections if section.folded]
    if len(entries) + bool(folded) > room:
        folded = [*entries[room - 1 :], *folded]
        entries = entries[: room - 1]
    if folded:
        entries.append(Entry(folded[0].anchor, f"{len(folded)} more, one by one", folded))
    return [*entries, *last]


def _entries_of(section: Section, room: int) -> list[Entry]:
    """List the title of a section and what stands below it, in at most ``room`` lines."""
    items = [Entry(f"{section.name}.{item.name}", item.title) for item in others(section)]
    sure = []
    if certainty(section) or certainty_notes(section):
        sure = [Entry(f"{section.name}.certainty", "How sure is this?")]
    room -= 1 + len(sure)
    if len(items) > room:
        folded = items[room - 1 :]
        more = Entry(folded[0].anchor, f"{len(folded)} more", folded)
        items = [*items[: room - 1], more]
    return [Entry(section.name, section.title), *sure, *items]
