"""``dgbench compare``: which of two algorithms is better, in one sentence a measure."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dgbench.cli.entry import option_lines, plain_command, sign_of_life
from dgbench.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from dgbench.reports.reading.collect import Collection
    from dgbench.reports.reading.folders import Problem

#: what ``dgbench compare`` reads of the keys of a report
COMPARE_KEYS: Mapping[str, str] = {
    "import": (
        "how FILE is read (import.unit=percent, import.dataset=PACS, import=domainbed); told by "
        "FILE where it is not given"
    ),
    "selection": "which step of a run counts (default: last)",
    "split_by": "one more key whose values are compared apart, e.g. code",
    "same_code": "code versions whose runs may be compared",
    "report.compared": "measures that decide (default: [worst_gap,average])",
}
EXAMPLES = (
    ("results.csv CORAL ERM", "two algorithms of a table: a line for each seed and environment"),
    ("results.csv CORAL ERM 'report.compared=[worst]'", "by another measure"),
    ("multirun vrex erm selection=train_val", "two algorithms of finished runs"),
)
_OVERRIDE = re.compile(r"(import|selection|split_by|same_code|report)[.@=]")
_MOST_SHOWN = 4  # of what was assumed, or left out


def _compare(words: Sequence[str]) -> None:
    """Print the answer, what was understood of the file, and the command of the whole report."""
    file, first, second, overrides = parted(words)
    reading = [] if any(word.startswith("import=") for word in overrides) else _reading(file)
    # importers of others' results have a path, and dgbench's own reads runs=
    imports = next((word for word in [*overrides, *reading] if word.startswith("import=")), "")
    from dgbench.configuration import command_line, command_words
    from dgbench.plan.overrides import grammar, list_override
    from dgbench.reports.render.formats import wrapped

    place = f"import.path={grammar(file)}" if imports else list_override("runs", [file])
    pair = list_override("report.pair", [first, second])
    report_words = ["report=measures", *reading, place, pair, *overrides]
    config = _composed(report_words)
    sign_of_life("reading ...")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in answer(config):
        print(wrapped(line, width))
    print(f"report: {command_line([*command_words('report'), *report_words])}", flush=True)


def parted(words: Sequence[str]) -> tuple[str, str, str, list[str]]:
    """Part what was typed into file, two algorithms, and overrides of a report's keys.

    Raises:
        ConfigError: it is something else.
    """
    overrides = [word for word in words if _OVERRIDE.match(word) and not Path(word).exists()]
    named = [word for word in words if word not in overrides]
    if len(named) != 3:
        further = f"; {named[3]} is none of these" if len(named) > 3 else ""
        raise ConfigError(
            f"dgbench compare takes FILE A B, a file and two algorithms, and then KEY=VALUE of "
            f"{', '.join(COMPARE_KEYS)}{further}; see dgbench compare --help"
        )
    for word in overrides:
        key = re.split("[=@]", word)[0]
        if not any(key == name or key.startswith(f"{name}.") for name in COMPARE_KEYS):
            raise ConfigError(
                f"{word} has no effect on dgbench compare, which reads "
                f"{', '.join(COMPARE_KEYS)}; leave it out"
            )
    file, first, second = named
    return file, first, second, overrides


def _reading(file: str) -> list[str]:
    """Tell how a file or folder is read: runs, logs of DomainBed, or a table.

    Raises:
        ConfigError: there is none of this name.
    """
    from dgbench.records.rows import ROW_FILE
    from dgbench.reports.importers.file_formats import DOMAINBED_FILE, is_table
    from dgbench.reports.reading.folders import ENTRY_FILE, SUFFIX, places

    found = [place for place in places(file) if place.exists()]
    if not found:
        raise ConfigError(f"{file} is not there; name a table, or a folder of runs")
    place = found[0]
    if place.is_file():
        return ["import=table"] if is_table(place) else []
    reading: list[str] = []
    for path in place.rglob("*"):
        if path.name in (ROW_FILE, ENTRY_FILE) or path.name.endswith(SUFFIX):
            return []  # a run writes tables and logs as well
        if path.name == DOMAINBED_FILE:
            reading = ["import=domainbed"]
        elif is_table(path) and not reading:
            reading = ["import=table"]
    return reading


def _composed(words: Sequence[str]) -> DictConfig:
    """Compose the configuration of a report.

    Raises:
        ConfigError: a word is unknown or cannot be read.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from dgbench.configuration import CONF
    from dgbench.plan.explain import explain
    from dgbench.plan.overrides import open_keys

    try:
        with initialize_config_dir(str(CONF), job_name="report", version_base="1.3"):
            return compose("report", open_keys(list(words)))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, "report", words)) from error


def answer(config: DictConfig) -> list[str]:
    """Answer which of two algorithms is better, and say what the answer was read from.

    Args:
        config: of a report, whose key ``report.pair`` names the two.

    Raises:
        RecordError: there is no run, or no seed.
        ConfigError: an algorithm is not there.
    """
    from dgbench.cli.report import read_runs
    from dgbench.plan.building import build
    from dgbench.reports.evaluation import evaluate
    from dgbench.reports.measuring.pair import labels_of_pair, pair_section
    from dgbench.reports.reading.selected import select_runs

    report = build(config, "report", _convert_="all")
    selection = build(config, "selection")
    collection: Collection | None = read_runs(config, report, selection)
    assert collection is not None  # this report reads runs
    selected = select_runs(collection, selection, config.split_by)
    labels_of_pair(report.pair, {run.label for run in selected.runs}, "dgbench compare")
    evaluation = evaluate(selected, config.split_by, report.choice)
    section = pair_section(evaluation, report.pair, report.statistics)
    return [*section.answer, *_understood([*collection.problems, *evaluation.problems])]


def _understood(problems: Sequence[Problem]) -> list[str]:
    """Describe in two lines at most what was assumed, and what was left out."""
    from dgbench.reports.reading.folders import ASSUMED

    assumed = [problem.reason for problem in problems if problem.kind == ASSUMED]
    left_out = [
        f"{problem.where}: {problem.reason}" for problem in problems if problem.kind != ASSUMED
    ]
    lines = []
    if assumed:
        lines.append(f"Assumed: {_first(assumed)}.")
    if left_out:
        lines.append(f"Left out: {_first(left_out)}.")
    return lines


def _first(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    return "; ".join([*texts[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _compare_help() -> str:
    return "\n".join(
        [
            (
                "Which of two algorithms is better, and how sure that is: one sentence for each "
                "measure."
            ),
            "\n  dgbench compare FILE A B [KEY=VALUE ...]\n",
            "FILE is a table of results (CSV, Excel, LaTeX, ...), a folder of runs, or one of",
            "DomainBed's logs. A and B are algorithms in it, named before you saw the numbers: the",
            "test is of these two alone, paired by seed, and not corrected for other comparisons.",
            "\nExamples:",
            *(f"  dgbench compare {words}\n      {meaning}" for words, meaning in EXAMPLES),
            "\nKeys, those of dgbench report:",
            *option_lines(COMPARE_KEYS),
            "\ndocs/how_to/results_of_others.md and docs/concepts/statistics.md say more.",
        ]
    )


compare_command = partial(plain_command, _compare, _compare_help)
