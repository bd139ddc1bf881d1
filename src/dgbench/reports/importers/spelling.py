"""Names of a table that may be two spellings of one: they are asked about, with their counts.

``Sketch`` beside ``sketch`` would be one more environment, which no other model was tested in. Two
names are near if they differ in case and in what separates words alone, or, of a rare one, in one
letter, where no model has both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import pandas as pd

from dgbench.configuration import quoted_word
from dgbench.errors import ConfigError
from dgbench.plan.overrides import grammar
from dgbench.reports.importers.cells import HPARAMS, listed, text_of
from dgbench.reports.importers.columns import NAMED, Columns
from dgbench.validation import shown

_SEPARATORS = re.compile(r"[\s_-]+")
_NUMBER = re.compile(r"[-+]?[\d.,]+%?")
_SHORTEST = 5  # letters of a name that may be misspelled
_RARE = 5  # times as often is a name than one that may be a slip of it
_MOST_RARE = 200  # names; of more, that is how the table is
#: what a line has one of, for each name
_PLACES = {
    "environment": ["dataset", "algorithm", "seed", "draw"],
    "algorithm": ["dataset", "environment", "seed", "draw"],
}


def check_spelling(table: Columns, lines: pd.DataFrame) -> None:
    """Refuse names that may be one, unless ``import.rename`` says what they are.

    Args:
        table: that the lines are of.
        lines: with values, by ``dataset``, ``algorithm``, ``environment``, ``seed`` and ``draw``;
            ``n`` of them stand behind each, if that was counted.

    Raises:
        RecordError: two names may be one.
        ConfigError: ``import.rename`` holds a name that is not in the table.
    """
    _check_renamed(table)
    meant: dict[str, str] = {}
    parts = []
    for key in NAMED:
        counts = _counts(lines, key)
        for name, likely in _near(key, lines, counts, _held_out_names(table, key)):
            if name in table.renamed or likely in table.renamed:
                continue
            meant[name] = likely
            place = _place(table, lines, key, name)
            parts.append(
                f"{key} {name} ({_lines(counts, name)}{place}) beside {likely} "
                f"({_lines(counts, likely)})"
            )
    if not parts:
        return
    apart = {name: name for name in meant}
    raise table.refusal(
        f"{'; '.join(parts)} may be one",
        f"if so add {quoted_word('import.rename=' + grammar(meant))}, or to keep them apart "
        f"{quoted_word('import.rename=' + grammar(apart))}",
    )


def _counts(lines: pd.DataFrame, key: str) -> pd.Series[int]:
    """Count the lines of the file for each name, the most frequent name first."""
    if "n" not in lines:  # images, of which each had a line
        return lines[key].value_counts()
    return lines.groupby(key, sort=False)["n"].sum().sort_values(ascending=False, kind="stable")


def _place(table: Columns, lines: pd.DataFrame, key: str, name: str) -> str:
    """Say where the only line with a name stands."""
    rows = lines.index[(lines[key] == name).to_numpy()]
    return f", {table.place(int(rows[0]))}" if len(rows) == 1 and "n" not in lines else ""


def alike(names: Iterable[object]) -> set[object]:
    """Find the names that another one has the letters of, in whatever case."""
    by_letters: dict[str, list[object]] = {}
    for name in names:
        by_letters.setdefault(_letters(str(name)), []).append(name)
    return {name for group in by_letters.values() if len(group) > 1 for name in group}


def _lines(counts: pd.Series[int], name: str) -> str:
    count = int(counts.get(name, 0))
    return "held out alone" if not count else f"{count} line{'s' * (count != 1)}"


def _check_renamed(table: Columns) -> None:
    """Refuse a name to be replaced that no line has.

    Raises:
        ConfigError: there is one.
    """
    names = {*table.spelled, *_held_out_names(table, "environment")}
    for name in table.renamed:
        if name not in names:
            close = get_close_matches(name, sorted(names), n=1)
            question = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(
                f"import.rename={shown(dict(table.renamed))} names {name}, which no line has"
                f"{question}"
            )


def _held_out_names(table: Columns, key: str) -> set[str]:
    """List the environments that a column names as held out."""
    if key != "environment" or "held_out" not in table.column:
        return set()
    cells = table.frame[table.column["held_out"]].map(text_of).unique()
    return {name for cell in cells for name in listed(cell)}


def _near(
    key: str, lines: pd.DataFrame, counts: pd.Series[int], more: set[str]
) -> Iterator[tuple[str, str]]:
    """Iterate over a name and the one, more frequent, that it may be."""
    names = [str(name) for name in counts.index]
    by_letters: dict[str, str] = {}
    for name in [*names, *sorted(more - set(names))]:
        frequent = by_letters.setdefault(_letters(name), name)
        # of two algorithms with results in the same place, the table tells them apart
        if frequent != name and not (key == "algorithm" and _meet(key, lines, name, frequent)):
            yield name, frequent
    if key not in _PLACES:
        return
    rare = [name for name in names if counts[name] * _RARE <= counts.max()]
    for name in rare if len(rare) <= _MOST_RARE else ():
        for likely in names:
            often = counts[name] * _RARE <= counts[likely]
            if often and _is_slip(name, likely) and not _meet(key, lines, name, likely):
                yield name, likely
                break


def _letters(name: str) -> str:
    """Write a name without case and separators; a number, in which a dash counts, as it is."""
    plain = unicodedata.normalize("NFKC", name).strip()
    return plain if _NUMBER.fullmatch(plain) else _SEPARATORS.sub("", plain.casefold())


def _is_slip(name: str, other: str) -> bool:
    """Return whether one letter is wrong, missing or too many, or two changed places."""
    first, second = _letters(name), _letters(other)
    if first == second or min(len(first), len(second)) < _SHORTEST:
        return False
    if re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    rest, other_rest = first[start:], second[start:]
    swapped = rest[:2] == other_rest[:2][::-1] and rest[2:] == other_rest[2:]
    replaced = rest[1:] == other_rest[1:]
    return swapped or replaced or rest[1:] == other_rest or rest == other_rest[1:]


def _meet(key: str, lines: pd.DataFrame, name: str, other: str) -> bool:
    """Return whether one model, or one environment and seed, has both names."""
    place = [*_PLACES[key], *(column for column in lines if str(column).startswith(HPARAMS))]
    both: Sequence[pd.DataFrame] = [lines.loc[lines[key] == one, place] for one in (name, other)]
    return not both[0].merge(both[1].drop_duplicates(), how="inner").empty
