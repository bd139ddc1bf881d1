"""100 foreign files damaged at random: the right table, or one line with file, line and column."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pandas as pd
import pytest

from dgbench.errors import ConfigError, RecordError
from dgbench.reports.importers.table import read_table
from dgbench.reports.reading.collect import Collection

ENVIRONMENTS = ("art", "cartoon", "photo", "sketch")
ALGORITHMS = ("erm", "coral", "vrex")
FILES = 100
Cells = dict[tuple[str, int, str], float]


def truth(dice: random.Random) -> Cells:
    """Accuracies in percent, of one decimal, none of them whole."""
    return {
        (algorithm, seed, environment): dice.randint(60, 98) + dice.randint(1, 9) / 10
        for algorithm in ALGORITHMS
        for seed in range(3)
        for environment in ENVIRONMENTS
    }


def long_lines(cells: Cells) -> list[list[str]]:
    lines = [["algorithm", "seed", "environment", "n", "accuracy"]]
    for (algorithm, seed, environment), value in cells.items():
        lines.append([algorithm, str(seed), environment, str(1000 + seed), f"{value:.1f}"])
    return lines


def wide_lines(cells: Cells) -> list[list[str]]:
    lines = [["algorithm", "seed", *ENVIRONMENTS, "Avg"]]
    for algorithm in ALGORITHMS:
        for seed in range(3):
            values = [cells[algorithm, seed, name] for name in ENVIRONMENTS]
            average = f"{sum(values) / len(values):.1f}"
            lines.append([algorithm, str(seed), *(f"{value:.1f}" for value in values), average])
    return lines


def csv_of(lines: list[list[str]], separator: str = ",") -> str:
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in line] for line in lines]
    return "".join(separator.join(line) + "\n" for line in quoted)


def latex_of(lines: list[list[str]]) -> str:
    rows = "".join(" & ".join(line) + " \\\\\n" for line in lines)
    return f"\\begin{{tabular}}{{lcccccc}}\n\\toprule\n{rows}\\bottomrule\n\\end{{tabular}}\n"


def any_cell(lines: list[list[str]], dice: random.Random) -> tuple[int, int]:
    """A cell of an accuracy: of the last column but an average."""
    last = len(lines[0]) - (2 if lines[0][-1] == "Avg" else 1)
    first = 2 if lines[0][-1] == "Avg" else last
    return dice.randrange(1, len(lines)), dice.randint(first, last)


def bold(lines: list[list[str]], dice: random.Random) -> None:
    row, column = any_cell(lines, dice)
    form = dice.choice(["**{}**", "\\textbf{{{}}}", "<b>{}</b>", "{}*", "$\\mathbf{{{}}}$", "{}†"])
    lines[row][column] = form.format(lines[row][column])


def german(lines: list[list[str]], dice: random.Random) -> None:
    for line in lines[1:]:
        line[:] = [cell.replace(".", ",") for cell in line]


def thousands(lines: list[list[str]], dice: random.Random) -> None:
    for line in lines[1:]:
        line[:] = [re.sub(r"^(\d)(\d{3})$", r"\1,\2", cell) for cell in line]


def points(lines: list[list[str]], dice: random.Random) -> None:
    for line in lines[1:]:
        line[:] = [re.sub(r"^(\d)(\d{3})$", r"\1.\2", cell) for cell in line]


def mixed(lines: list[list[str]], dice: random.Random) -> None:
    row, column = any_cell(lines, dice)
    lines[row][column] = f"{float(lines[row][column]) / 100:.3f}"


def twice(lines: list[list[str]], dice: random.Random) -> None:
    column = dice.randrange(len(lines[0]))
    for line in lines:
        line.append(line[column])


def merged(lines: list[list[str]], dice: random.Random) -> None:
    for above, line in zip(lines[1::2], lines[2::2], strict=False):
        if above[0] == line[0]:
            line[0] = ""


def footnote(lines: list[list[str]], dice: random.Random) -> None:
    blanks = [""] * (len(lines[0]) - 1)
    lines.append(["* reproduced by us", *dice.choice([[], blanks])])


def ragged(lines: list[list[str]], dice: random.Random) -> None:
    row = dice.randrange(1, len(lines))
    if dice.random() < 0.5:
        lines[row].append("7")
    else:
        del lines[row][dice.randrange(2, len(lines[row])) :]


def repeated_header(lines: list[list[str]], dice: random.Random) -> None:
    lines.insert(dice.randrange(2, len(lines)), list(lines[0]))


def shuffled(lines: list[list[str]], dice: random.Random) -> None:
    order = list(range(len(lines[0]) - 1))
    dice.shuffle(order)
    for line in lines:
        line[:-1] = [line[place] for place in order]
    body = lines[1:]
    dice.shuffle(body)
    lines[1:] = body


def signed(lines: list[list[str]], dice: random.Random) -> None:
    row, column = any_cell(lines, dice)
    lines[row][column] = "-" + lines[row][column]


DAMAGES: dict[str, Callable[[list[list[str]], random.Random], None]] = {
    damage.__name__: damage
    for damage in (bold, german, thousands, points, mixed, twice, merged, footnote, ragged,
                   repeated_header, shuffled, signed)
}  # fmt: skip
ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16 without its mark": lambda text: text.encode("utf-16-le"),
    "windows": lambda text: text.replace("\n", "\r\n").encode(),
}
MUST_BE_READ = {"bold", "german", "thousands", "footnote", "shuffled", ""}
MUST_BE_REFUSED = {"mixed", "twice", "merged", "ragged", "repeated_header", "signed"}


def cells_of(collection: Collection) -> Cells:
    runs = [run.identity for run in collection.runs]
    return {
        (runs[line.run]["algorithm"], runs[line.run]["seed"], line.env): round(
            100 * line.accuracy, 6
        )
        for line in collection.rows.itertuples()
    }


def write(file: Path, lines: list[list[str]], dice: random.Random, damage: str) -> str:
    """Write a damaged table; says what else was done to it."""
    if file.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for line in lines:
            book.active.append([_typed(cell) for cell in line])
        book.save(file)
        return "utf-8"
    text = (
        latex_of(lines)
        if file.suffix == ".tex"
        else csv_of(lines, ";" if damage == "german" else ",")
    )
    encoding = dice.choice(list(ENCODINGS)) if file.suffix == ".csv" else "utf-8"
    file.write_bytes(ENCODINGS[encoding](text))
    return encoding


def _typed(cell: str) -> object:
    if re.fullmatch(r"\d+", cell):
        return int(cell)
    return float(cell) if re.fullmatch(r"-?\d+\.\d+", cell) else cell or None


@pytest.mark.parametrize("first", range(0, FILES, 20))
def test_a_damaged_file_is_read_right_or_refused_with_its_line(first: int, tmp_path: Path) -> None:
    for number in range(first, first + 20):
        check_damaged(number, tmp_path)


def check_damaged(number: int, folder: Path) -> None:
    """One file is read right, or refused in one line that names it and the place of its damage."""
    dice = random.Random(number)
    expected = truth(dice)
    damage = ["", *DAMAGES][number % (len(DAMAGES) + 1)]
    suffix = dice.choice([".csv", ".csv", ".tex", ".xlsx"])
    shape = dice.choice([long_lines, wide_lines])
    if damage in ("thousands", "points"):
        shape = long_lines
    lines = shape(expected)
    if damage:
        DAMAGES[damage](lines, dice)
    if suffix == ".xlsx" and damage == "ragged":
        suffix = ".csv"  # a sheet has no ragged lines
    file = folder / f"foreign{suffix}"
    encoding = write(file, lines, dice, damage)
    told = (number, damage, suffix, shape.__name__, encoding)
    try:
        collection = read_table(file)
    except (RecordError, ConfigError) as error:
        message = str(error)
        assert damage not in MUST_BE_READ, (told, message)
        assert "\n" not in message and file.name in message, (told, message)
        assert re.search(r"line \d+|two columns", message), (told, message)
        assert "see that they are whole" not in message
        return
    assert damage not in MUST_BE_REFUSED, told
    read = cells_of(collection)
    assert read == pytest.approx(expected), told
    named = " ".join(f"{problem.kind} {problem.reason}" for problem in collection.problems)
    assert damage != "footnote" or "reproduced by us" in named, (told, named)


def test_a_cut_file_is_refused_or_says_that_it_may_be_cut(tmp_path: Path) -> None:
    for number in range(20):
        check_cut(number, tmp_path)


def check_cut(number: int, folder: Path) -> None:
    """A last number may have lost digits; what stands before it is read as it is."""
    dice = random.Random(1000 + number)
    expected = truth(dice)
    lines = dice.choice([long_lines, wide_lines])(expected)
    suffix = dice.choice([".csv", ".csv", ".tex", ".jsonl"])
    text = latex_of(lines) if suffix == ".tex" else csv_of(lines)
    if suffix == ".jsonl":
        frame = pd.DataFrame(long_lines(expected)[1:], columns=long_lines(expected)[0])
        text = frame.to_json(orient="records", lines=True)
    end = dice.randrange(len(text) // 2, len(text) - 1)
    file = folder / f"cut{suffix}"
    file.write_text(text[:end])
    try:
        collection = read_table(file)
    except RecordError as error:
        assert re.search(rf"{file.name}.*line \d+", str(error)), error
        return
    read = cells_of(collection)
    wrong = [key for key, value in read.items() if value != pytest.approx(expected[key])]
    said = [p.reason for p in collection.problems if "no line break at its end" in p.reason]
    assert len(wrong) <= 1 and (said or text[:end].endswith("\n"))
    assert not wrong or wrong[0] == list(read)[-1] or suffix == ".csv"
