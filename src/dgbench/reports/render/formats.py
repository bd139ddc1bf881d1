r"""A document in every format: terminal, Markdown, HTML, LaTeX, CSV (errors are fractions), PNG,
SVG, PDF.

The page is self-contained, the answer on top: no network, light and dark, sortable tables. Every
LaTeX table is ready for ``\input``, with booktabs.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.reports.document import (
    Document,
    Figure,
    certainty,
    certainty_notes,
    contents,
    counted,
    in_order,
    leading_items,
    main_figure,
    main_table,
    others,
    remake,
    sections_in_order,
    title_of,
    words_used,
)
from dgbench.reports.labels import slug
from dgbench.reports.render.latex import latex_files
from dgbench.reports.tables import Cell, Column, Table, aligned, is_negative, show

if TYPE_CHECKING:
    from markupsafe import Markup

Files = Mapping[str, str | bytes]  #: name below the folder of a report -> content
_MOST_LISTED = 12
_LETTERS = 24  # a phone breaks longer names of lines, which would leave no room for their numbers
_OPEN = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'style="color: #1c2024; background: #ffffff" '
)
#: what would be markup in a name; an underscore between letters, as in ``group_dro``, is none
_MARKUP = re.compile(r"[\\`*<>|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|&(?=#?\w+;)")
#: what begins raw HTML or a link in a sentence
_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])[(\[]")
_HTML = re.compile(r"<(?!https?://)[A-Za-z/!?][^\n>]*>?")
_LINK = re.compile(r"(?:\]\(|^ *\[[^\]\n]*\]:)\s*<?(\S*)", re.MULTILINE)
# the beginning of a link that is followed
_SAFE = re.compile(r"(?:https?://|mailto:|[\w./#%-]*(?:[)>]|$))")
_FORMULA = tuple("=+-@\t\r")  # how cells begin that a spreadsheet computes
_MOST_PROBLEMS = 10  # in a terminal


def write(document: Document, folder: str | Path) -> list[Path]:
    """Write all formats into ``folder``, which is made when it is not there.

    Raises:
        RecordError: the folder cannot be written.
    """
    paths = []
    try:
        (Path(folder) / "tex").mkdir(parents=True, exist_ok=True)
        figures = [figure for section in document.sections for figure in section.figures]
        for figure in tracked(figures, "drawing figures", len(figures), "figures"):
            figure.pictures()
        for files_of in FORMATS:
            for name, content in files_of(document).items():
                paths.append(Path(folder) / name)
                paths[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
        return paths
    except OSError as error:
        raise RecordError(
            f"cannot write {error.filename or folder} ({error.strerror}); choose output=DIR"
        ) from error


def listed(paths: Sequence[Path]) -> list[str]:
    """List one file a line, or one kind of file where there are many, the page first."""
    paths = sorted(paths, key=lambda path: path.suffix != ".html")
    if len(paths) <= _MOST_LISTED:
        return [f"  {path}" for path in paths]
    kinds = Counter((path.parent, path.suffix) for path in paths)
    alone = [path for path in paths if kinds[path.parent, path.suffix] == 1]
    grouped = [
        f"  {folder}/*{suffix} ({count} files)"
        for (folder, suffix), count in kinds.items()
        if count > 1
    ]
    return [*(f"  {path}" for path in alone), *grouped]


def plain_document(document: Document, width: int | None = None) -> str:
    """Format a document for a terminal: warnings, answers, main tables, a line of every folded
    section, problems.

    Args:
        document: the report.
        width: letters of a line, to which sentences are wrapped and tables narrowed; None leaves
            them as they are. Problems stay one line each, so that commands can be copied.
    """
    parts = [*document.warnings]
    left_out = 0
    folded = []
    titles: set[str] = set()  # of the columns that are printed
    for section in sections_in_order(document):
        left_out += len(section.tables) + len(section.figures)
        if section.folded:
            first_sentence = " ".join(section.answer).partition(". ")[0].rstrip(".")
            folded.append(f"  {section.title}: {first_sentence}.")
            continue
        parts += [f"\n== {section.title} ==", *(wrapped(text, width) for text in section.answer)]
        table = main_table(section)
        if table is not None:
            parts.append("\n" + plain_table(table, title_of(table, document), width))
            titles |= {column.title or column.name for column in table.columns}
            left_out -= 1
    if folded:
        parts += ["\n== Setting by setting ==", *folded]
    parts += _plain_words(document, titles, width)
    if left_out:
        items = "tables and figures stand" if left_out > 1 else "table or figure stands"
        parts.append(f"\n{left_out} more {items} in the report.")
    return "\n".join([*parts, "", *document.lead, *_plain_problems(document.problems)])


def _plain_words(document: Document, titles: Collection[str], width: int | None) -> list[str]:
    """Explain the columns that are printed, as far as they are terms of the document."""
    lines = []
    for term, sentence in document.words.items():
        if term in titles:
            lines.append(wrapped(f"  {term}: {sentence}", width))
    return ["\nWords", *lines] if lines else []


def _plain_problems(problems: Table) -> list[str]:
    """List the first problems, one line each."""
    lines = problems.cells
    if not lines:
        return []
    parts = [f"\n{problems.title}"]
    for line in lines[:_MOST_PROBLEMS]:
        texts = [show(cell, "text") for cell in line]
        parts.append("  " + "  ".join(texts))
    if len(lines) > _MOST_PROBLEMS:
        parts.append(f"  and {len(lines) - _MOST_PROBLEMS} more, in the report")
    return parts


def wrapped(text: str, width: int | None) -> str:
    """Break a sentence at spaces, indented as it begins; as it is where there is no width."""
    if width is None or len(text) <= width:
        return text
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.fill(
        text.lstrip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def plain_table(table: Table, title: str | None = None, width: int | None = None) -> str:
    """Format a table for a terminal: title, aligned columns, notes.

    Values in bold elsewhere carry a ``*``.

    Args:
        table: to be printed.
        title: instead of its own.
        width: letters of a line; columns that do not fit are named below it.
    """
    lines = [[column.shown for column in table.columns]]
    for line in table.cells:
        pairs = zip(line, table.columns, strict=True)
        lines.append([show(cell, column.unit) + "*" * cell.best for cell, column in pairs])
    text = [wrapped(table.title if title is None else title, width)]
    fitting = _fitting(lines, width)
    if len(table):
        numeric = [table.columns[index].numeric for index in fitting]
        shown = [[line[index] for index in fitting] for line in lines]
        text += _with_rule(aligned(shown, numeric), len(table) + 1)
    names = [name for index, name in enumerate(lines[0]) if index not in fitting]
    if names:
        text.append(wrapped(f"  No room here for {', '.join(names)}: see report.html.", width))
    notes = [
        wrapped(f"  {note}".replace("In bold:", "Marked *:").replace("Bold:", "Marked *:"), width)
        for note in table.open_notes
    ]
    if table.folded_notes:
        notes.append("  How sure is this? See report.html.")
    return "\n".join(text + notes)


def _fitting(lines: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Choose the columns that fit a line, from the left: the first one in any case, and a narrow
    one where a wide one before it does not fit.
    """
    widths = [2 + max(map(len, column)) for column in zip(*lines, strict=True)]
    if width is None:
        return list(range(len(widths)))
    chosen = [0]
    taken = widths[0]
    for index in range(1, len(widths)):
        if taken + widths[index] <= width:
            chosen.append(index)
            taken += widths[index]
    return chosen


def _with_rule(lines: list[str], results: int) -> list[str]:
    """Put a line between the head with the results and the references, where there are any."""
    if len(lines) == results:
        return lines
    rule = "  " + "-" * (max(map(len, lines)) - 2)
    return [*lines[:results], rule, *lines[results:]]


def markdown_files(document: Document) -> Files:
    """Make ``report.md``; figures are linked as the PNG files beside it."""
    parts = [f"# {inert(document.title)}", *map(inert, document.warnings)]
    for section in sections_in_order(document):
        parts += [f"## {inert(section.title)}", *map(inert, section.answer)]
        for item in [*leading_items(section), *others(section)]:
            parts += _markdown_item(item, document)
        of_certainty = [*certainty_notes(section), *certainty(section)]
        if of_certainty:
            parts.append("### How sure is this?")
            parts.append(inert(" ".join(certainty_notes(section))))
        for item in certainty(section):
            parts += _markdown_item(item, document)
        facts = [inert(f"{name}: {value}") for name, value in section.facts]
        parts.append("\n".join(f"- {fact}" for fact in facts))
    parts += [inert(" ".join(document.lead)), markdown_table(document.problems, level=2)]
    words = words_used(document)
    if words:
        lines = [f"- {term}: {sentence}" for term, sentence in words.items()]
        parts += ["## Words", "\n".join(lines)]
    return {"report.md": "\n\n".join(filter(None, parts)) + "\n"}


def _markdown_item(item: Table | Figure, document: Document) -> list[str]:
    """Make the parts of a table or figure, and the command that makes it again."""
    title = title_of(item, document)
    command = remake(document, item)
    if isinstance(item, Table):
        parts = [markdown_table(item, title=title)]
    else:
        picture = f"![{inert(title)}]({item.name}.png)"
        parts = [f"### {inert(title)}", picture, inert(item.caption)]
    return [*parts, f"Made by `{command}`" if command else ""]


def markdown_table(table: Table, level: int = 3, title: str | None = None) -> str:
    """Make a heading, a pipe table and its notes."""
    parts = [f"{'#' * level} {inert(table.title if title is None else title)}"]
    if len(table):
        lines = [[markdown_text(column.shown) for column in table.columns]]
        lines.append(["---:" if column.numeric else "---" for column in table.columns])
        for line, reference in zip(table.cells, table.references, strict=True):
            texts = list(map(_markdown_cell, line, table.columns))
            if reference:
                texts = [f"*{text}*" for text in texts]
            lines.append(texts)
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    notes = [*table.open_notes]
    if table.folded_notes:
        notes.append('More under "How sure is this?" below.')
    return "\n\n".join(parts + ([inert(" ".join(notes))] if notes else []))


def _markdown_cell(cell: Cell, column: Column) -> str:
    text = markdown_text(show(cell, column.unit))
    if is_negative(cell, column.unit):
        text = f"<u>{text}</u>"
    return f"**{text}**" if cell.best else text


def markdown_text(text: str) -> str:
    """Escape text so that Markdown shows it as it is, in one line."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.splitlines()))


def inert(text: str) -> str:
    """Escape a sentence for Markdown so that names from rows make neither raw HTML nor links."""
    return _ACTIVE.sub(r"\\\g<0>", text)


def active_markup(text: str) -> list[str]:
    """Find active parts of others' Markdown: raw HTML, links but to web pages, mail addresses and
    relative paths.
    """
    return [*_HTML.findall(text), *(link for link in _LINK.findall(text) if not _SAFE.match(link))]


def csv_text(frame: pd.DataFrame, **options: Any) -> str:
    """Format a CSV file that a spreadsheet opens without computing: text that it takes for a
    formula gets a ``'``.

    Numbers stay as they are, also those in columns of text, such as ``-0.5``.

    Args:
        frame: any values.
        options: of pandas' ``to_csv``.
    """
    columns = {}
    for name, column in frame.items():
        if not pd.api.types.is_numeric_dtype(column):
            values = [_no_formula(value) for value in column.tolist()]
            column = pd.Series(values, column.index, object)
        columns[_no_formula(name)] = column
    safe = pd.DataFrame(columns, frame.index)
    return str(safe.to_csv(index=False, lineterminator="\n", **options))


def _no_formula(value: Any) -> Any:
    if type(value) is not str or not value.startswith(_FORMULA) or len(value) == 1:
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_files(document: Document) -> Files:
    """Make ``<table>.csv``: its lines in full precision with all that stands beside the values."""
    frames: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for section in document.sections:
        for table in section.tables:
            frame = table.frame
            if "section" not in frame:
                frame = frame.assign(section=section.title)[["section", *frame.columns]]
            frames[table.name].append(frame)
    frames[document.problems.name] = [document.problems.frame]
    return {
        f"{name}.csv": csv_text(pd.concat(parts, ignore_index=True))
        for name, parts in frames.items()
    }


def render_html(document: Document) -> str:
    """Make the page from ``templates/report.html.j2``, with style, script and figures inlined."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dgbench.reports.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    functions = (
        anchor,
        certainty,
        certainty_notes,
        contents,
        counted,
        in_order,
        is_negative,
        leading_items,
        main_figure,
        main_table,
        others,
        remake,
        show,
        title_of,
    )
    templates.globals |= {function.__name__: function for function in functions}
    sections = sections_in_order(document)
    words = words_used(document)
    return templates.get_template("report.html.j2").render(
        document=document,
        leading=sections[0] if sections else None,
        rest=sections[1:],
        words=words,
        explain=Explained(words),
        is_figure=lambda item: isinstance(item, Figure),
        has_long_names=_has_long_names,
    )


def _has_long_names(table: Table) -> bool:
    """Return whether the first column of a table holds long names, which a phone breaks."""
    if not table.columns:
        return False
    names = table.frame[table.columns[0].name].map(str)
    return bool((names.str.len() > _LETTERS).any())


class Explained:
    """Marks the first occurrence of every term, in the order in which it is called.

    Args:
        words: term -> sentence; a term is found as a whole word, in either case, in singular or
            plural.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._left = {term.lower(): sentence for term, sentence in words.items()}
        terms = "|".join(map(re.escape, sorted(self._left, key=len, reverse=True)))
        self._pattern = re.compile(rf"(?<![\w+-])({terms or '(?!)'})s?(?![\w+-])", re.IGNORECASE)

    def __call__(self, text: str) -> Markup:
        """Escape text for a page and put a ``<dfn>`` around every term that occurs for the first
        time.
        """
        from markupsafe import Markup, escape

        tag = Markup('<dfn tabindex="0" aria-describedby="{}" data-meaning="{}">{}</dfn>')
        parts = []
        end = 0
        for match in self._pattern.finditer(text):
            term = match[1].lower()
            sentence = self._left.pop(term, "")
            if sentence:
                marked = tag.format(anchor(term), sentence, match[0])
                parts += [escape(text[end : match.start()]), marked]
                end = match.end()
        return Markup("").join([*parts, escape(text[end:])])


def anchor(term: str) -> str:
    """Name the anchor where the glossary explains a term."""
    return f"word-{slug(term)}"


def figure_files(document: Document) -> Files:
    """Make ``<figure>.png``, ``.svg`` and ``.pdf``, dark ink, text as text."""
    figures = [figure for section in document.sections for figure in section.figures]
    opened = {
        f"{figure.name}.svg": re.sub(r'<svg( style="[^"]*")? ', _OPEN, figure.svg, count=1)
        for figure in figures
    }
    png = {f"{figure.name}.png": figure.png for figure in figures}
    return {**png, **opened, **{f"{figure.name}.pdf": figure.pdf for figure in figures}}


#: name below the folder -> content of the files of one format
FORMATS: tuple[Callable[[Document], Files], ...] = (
    markdown_files,
    latex_files,
    csv_files,
    lambda document: document.files,
    lambda document: {
        "report.html": render_html(document)
    },  # from here on with figures, which are drawn meanwhile
    figure_files,
)
