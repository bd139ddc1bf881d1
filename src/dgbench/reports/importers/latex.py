r"""Tables in the source of papers: every ``tabular`` of a LaTeX file, as rows of plain cells.

Commands that only print (``\textbf``, ``\underline``, ``\textcolor``) are dropped, ``\pm`` becomes
±, ``\dagger`` †; a cell of ``\multicolumn`` stands in every column that it covers. A command that
is not known stays in its cell, which then is no number and is refused with its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dgbench.errors import RecordError

_BEGIN = re.compile(r"\\begin\{(tabular[xy*]?|longtable|array)\}")
_HEADING = re.compile(r"\\(section|subsection|subsubsection|caption)\*?(?:\[[^\]]*\])?\{")
_LEVELS = ("section", "subsection", "subsubsection")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_ROW_END = re.compile(r"\\\\\*?(?:\[[^\]]*\])?|\\tabularnewline\b")
_RULES = re.compile(
    r"\\specialrule(?:\{[^{}]*\}){3}|\\(?:top|mid|bottom|h|cmid|c)(?:rule|line)"
    r"(?:\[[^\]]*\])?(?:\([^)]*\))?(?:\{[\d-]*\})?(?:\[[^\]]*\])?"
)
_DROPPED = re.compile(
    r"\\(?:rowcolor|cellcolor|columncolor|cite[tp]?|citep|label|footnote(?:mark|text)?|vspace|hspace"
    r"|color|arraystretch|addlinespace|midrule|rule)\*?(?:\[[^\]]*\])*(?:\{[^{}]*\})?"
)
_SIZES = re.compile(
    r"\\(?:bf(?:series)?|it(?:shape)?|em|tt|sc|sl|tiny|scriptsize|footnotesize|small|normalsize"
    r"|large|centering|displaystyle|boldmath|hfill|quad|qquad|noindent)\b ?|\\[,;:! ]"
)
_FRAMES = re.compile(
    r"\\(?:textbf|textit|textrm|textsc|texttt|textsf|text|emph|underline|uline|mathbf|mathrm|mathit"
    r"|bm|boldsymbol|mbox|makecell|textcolor\{[^{}]*\}|shortstack|ensuremath)(?:\[[^\]]*\])?\{([^{}]*)\}"
)
# 84.7^{*} and 84.7_{±0.4} are numbers with something behind; 84.7^{1} is not 84.71
_RAISED = re.compile(
    r"(?:[_^]|\\text(?:super|sub)script)\{?([^\w\s{}.,-][^{}]*?)(?:\}|$|(?=[\s$]))"
)
_SPAN = re.compile(
    r"^\\multicolumn\s*\{(\d+)\}\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\s*\{(.*)\}$", re.S
)
_ROW_SPAN = re.compile(r"\\multirow(?:\[[^\]]*\])?\s*\{[^{}]*\}(?:\[[^\]]*\])?\s*\{[^{}]*\}\s*\{")
# 84.7^{*} and 84.7_{±0.4} are numbers with something behind; 84.7^{1} is not 84.71
_RAISED = re.compile(
    r"(?:[_^]|\\text(?:super|sub)script)(?:\{([^\w\s{}.,-][^{}]*)\}|([^\w\s{}.,-]))"
)
_SYMBOLS = (
    (r"\\pm\b ?", "±"),
    (r"\\textpm\b", "±"),
    (r"\\(?:dag|dagger|textdagger)\b", "\u2020"),
    (r"\\(?:ddag|ddagger|textdaggerdbl)\b", "\u2021"),
    (r"\\(?:ast|star|textasteriskcentered)\b", "*"),
    (r"\\(?:degree|circ|textdegree)\b", "\u00b0"),
    (r"\\(?:uparrow)\b", "\u2191"),
    (r"\\(?:downarrow)\b", "\u2193"),
    (r"\\(?:to|rightarrow)\b", "\u2192"),
    (r"\\([%&#_$])", r"\1"),
    (r"~", " "),
    (r"--+", "-"),
)
_MOST_COLUMNS = 1000  # that one cell may cover


@dataclass(frozen=True)
class TabularRow:
    """One row of a ``tabular``."""

    line: int  #: of the file, from 1
    cells: list[str]


@dataclass(frozen=True)
class Tabular:
    """One ``tabular``; its rows are as long as the first, or of one cell."""

    title: str  #: its headings, or its caption
    rows: list[TabularRow]


def tabulars(text: str, source: str) -> list[Tabular]:
    r"""Read every ``tabular`` of a file that has rows.

    Args:
        text: of the file.
        source: its name in messages.

    Raises:
        RecordError: one has no end, or a row has more or fewer cells than the first one.
    """
    plain = _COMMENT.sub("", text)  # line breaks stay, so that lines are those of the file
    tables: list[Tabular] = []
    end = 0
    while True:
        begin = _BEGIN.search(plain, end)
        if begin is None:
            return tables
        line = plain.count("\n", 0, begin.start()) + 1
        closing = f"\\end{{{begin[1]}}}"
        end = plain.find(closing, begin.end())
        if end < 0:
            raise RecordError(f"{source} has no {closing} for line {line}; copy it whole")
        start = _after_arguments(plain, begin.end())
        rows = _rows(plain, start, end, source)
        if rows:
            title = _title(plain, begin.start(), end) or f"line {line}"
            tables.append(Tabular(title, rows))


def _after_arguments(text: str, place: int) -> int:
    """Return the place after the arguments of an environment: ``[t]{lcc}``, ``{8cm}{lcc}``."""
    while text[place : place + 1] in ("[", "{"):
        place = _closing(text, place) + 1
    return place


def _closing(text: str, place: int) -> int:
    """Return the place of the bracket that closes the one at ``place``, or of the end."""
    opening = text[place]
    closing = "}" if opening == "{" else "]"
    depth = 0
    for position in range(place, len(text)):
        if text[position] in "{}" and opening == "{" and text[position - 1] == "\\":
            continue
        if text[position] == opening:
            depth += 1
        elif text[position] == closing:
            depth -= 1
            if not depth:
                return position
    return len(text) - 1


def _title(text: str, begin: int, end: int) -> str:
    """Join the caption of the surrounding float, or the headings above."""
    headings: dict[str, str] = {}
    caption = ""
    float_begin = text.rfind("\\begin{table", 0, begin)
    inside = float_begin >= 0 and text.find("\\end{table", float_begin, begin) < 0
    stop = text.find("\\end{table", end) if inside else end
    for heading in _HEADING.finditer(text, 0, max(stop, end)):
        opening = heading.end() - 1
        words = " ".join(_printed(text[opening + 1 : _closing(text, opening)]).split())
        if heading[1] == "caption":
            if inside and heading.start() > float_begin:
                caption = words
        elif heading.start() < begin:
            level = _LEVELS.index(heading[1])
            headings = {name: headings[name] for name in _LEVELS[:level] if name in headings}
            headings[heading[1]] = words
    return caption or ", ".join(list(headings.values())[-2:])


def _rows(text: str, start: int, end: int, source: str) -> list[TabularRow]:
    rows: list[TabularRow] = []
    body = text[start:end]
    place = 0
    pieces = [(piece.start(), piece.end()) for piece in _ROW_END.finditer(body)]
    for row_end, after in [*pieces, (len(body), len(body))]:
        piece = body[place:row_end]
        without_rules = _RULES.sub("", piece)
        blank = len(piece) - len(piece.lstrip())
        line = text.count("\n", 0, start + place + blank) + 1
        rules_above = piece[: piece.find(without_rules.strip())] if without_rules.strip() else ""
        line += rules_above.count("\n") - piece[:blank].count("\n")
        place = after
        if without_rules.strip():
            cells = _cells(without_rules)
            if any(cells):
                rows.append(TabularRow(max(line, 1), cells))
    if not rows:
        return []
    width = len(rows[0].cells)
    for row in rows:
        if len(row.cells) not in (1, width):  # one is that of a note below the others
            raise RecordError(
                f"{source} has {len(row.cells)} cells in line {row.line}, {width} in the first row "
                "of its tabular; correct it"
            )
    return rows


def _cells(row: str) -> list[str]:
    cells: list[str] = []
    for piece in re.split(r"(?<!\\)&", row):
        span = _SPAN.match(_DROPPED.sub("", piece).strip())
        times = min(int(span[1]), _MOST_COLUMNS) if span else 1
        cells += [" ".join(_printed(span[2] if span else piece).split())] * times
    return cells


def _printed(text: str) -> str:
    """Write what LaTeX would print."""
    text = _DROPPED.sub("", text)
    text = _SIZES.sub("", text)
    text = _ROW_SPAN.sub("{", text)
    for pattern, symbol in _SYMBOLS:
        text = re.sub(pattern, symbol, text)
    before = ""
    while before != text:
        before = text
        text = _FRAMES.sub(r"\1", text)
        text = _RAISED.sub(r"\1\2", text)
        text = re.sub(r"(?<![_^])\{([^{}]*)\}", r"\1", text)
    return text.replace("$", "").strip()
