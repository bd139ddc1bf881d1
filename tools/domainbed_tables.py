"""Write DomainBed's published tables, cell by cell, from the LaTeX source of its results.

    python tools/domainbed_tables.py RESULTS_TEX src/dgbench/reports/published

``results.tex`` stands in the root of https://github.com/facebookresearch/DomainBed (commit 7df6f06
of October 2020, MIT License, Copyright (c) Facebook, Inc. and its affiliates). It holds 24 tables:
for each of three selections one of each of seven datasets, by environment, and one of their
averages. Files of five datasets have the network of ResNet-50, those of digits another one.
Whatever the source prints twice is compared: averages over environments with both tables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dgbench.plan.domainbed_names import DATASETS
from dgbench.plan.names import our_name
from dgbench.reports.importers.latex import tabulars

#: words of a heading -> name of the selection here, and in titles
SELECTIONS = {
    "training-domain validation set": ("train_val", "training-domain validation"),
    "leave-one-domain-out cross-validation": ("loo_val", "leave-one-domain-out cross-validation"),
    "test-domain validation set (oracle)": ("oracle", "test-domain validation, an oracle"),
}
DIGITS = ("ColoredMNIST", "RotatedMNIST")
IMAGES = ("VLCS", "PACS", "OfficeHome", "TerraIncognita", "DomainNet")
RESNET = "{backbone: resnet50-bn_frozen, init: supervised_tv_in1k, tuning: ft, selection: %s}"
SMALL = "{backbone: mnist_cnn, init: random, tuning: ft, selection: %s}"
AVERAGES = "Averages"
AVERAGE = "Avg"
ROUNDING = 0.1001  # points: both numbers are rounded to 0.1

Table = Mapping[str, Mapping[str, str]]  #: algorithm -> column -> cell
HEAD = """\
source: "Gulrajani and Lopez-Paz 2021, In Search of Lost Domain Generalization, DomainBed's \
results of October 2020 (commit 7df6f06), results.tex, Tables of {long}"
title: DomainBed, {title}
quantity: accuracy
note: "± standard error over 3 trials (population std / sqrt(3)); 20 draws each{without}"
settings: {settings}
seeds: 3
bar: domainbed
columns: [{columns}]
printed: []
rows: |
{rows}
domains:
"""


def read_tables(text: str) -> dict[tuple[str, str], Table]:
    """Read all tables: (selection, dataset or ``Averages``) -> cells."""
    tables: dict[tuple[str, str], Table] = {}
    for tabular in tabulars(text, "results.tex"):
        heading, dataset = tabular.title.rsplit(", ", 1)
        selection = SELECTIONS[heading.removeprefix("Model selection: ")][0]
        names = tabular.rows[0].cells[1:]
        tables[selection, dataset] = {
            our_name(row.cells[0]): dict(zip(names, row.cells[1:], strict=True))
            for row in tabular.rows[1:]
        }
    return tables


def mean_of(cell: str) -> float:
    """Return the mean of a cell."""
    return float(cell.partition("±")[0])


def check_averages(tables: Mapping[tuple[str, str], Table]) -> int:
    """Compare every average with its environments, and with the table of averages.

    Returns:
        how many were compared.

    Raises:
        SystemExit: one differs by more than its rounding.
    """
    count = 0
    for (selection, dataset), table in tables.items():
        for algorithm, cells in table.items():
            values = [mean_of(cell) for name, cell in cells.items() if name != AVERAGE]
            printed = [mean_of(cells[AVERAGE])]
            if dataset != AVERAGES:
                printed.append(mean_of(tables[selection, AVERAGES][algorithm][dataset]))
            for average in printed:
                count += 1
                if abs(sum(values) / len(values) - average) > ROUNDING:
                    raise SystemExit(f"{selection} {dataset} {algorithm}: {average} of {values}")
    return count


def block(table: Table, columns: Sequence[str], indent: str) -> str:
    """Write the rows of a table, aligned."""
    lines = [
        [row, *(cells[name].replace(" ", "") for name in columns)] for row, cells in table.items()
    ]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    texts = []
    for name, *cells in lines:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        texts.append(f"{indent}{name.ljust(widths[0])}  {' '.join(aligned)}")
    return "\n".join(texts)


def file_of(
    tables: Mapping[tuple[str, str], Table], selection: str, datasets: Sequence[str]
) -> str:
    """Write the file of one selection and some datasets."""
    title = dict(SELECTIONS.values())[selection]
    digits = datasets == DIGITS
    text = HEAD.format(
        long=title,
        title=f"digits, {title}" if digits else title,
        without="" if digits else "; without its ColoredMNIST and RotatedMNIST",
        settings=(SMALL if digits else RESNET) % selection,
        columns=", ".join(DATASETS[dataset][0] for dataset in datasets),
        rows=block(tables[selection, AVERAGES], datasets, "  "),
    )
    for dataset in datasets:
        ours, environments = DATASETS[dataset]
        table = tables[selection, dataset]
        columns = [name for name in next(iter(table.values())) if name != AVERAGE]
        named = ", ".join(f'"{name}"' if digits else name for name in environments)
        text += (
            f"  {ours}:\n    columns: [{named}]\n    rows: |\n{block(table, columns, ' ' * 6)}\n"
        )
    return text


def main() -> None:
    """Write the six files; say how many cells they hold."""
    source, folder = map(Path, sys.argv[1:])
    tables = read_tables(source.read_text(encoding="utf-8"))
    compared = check_averages(tables)
    cells = 0
    for selection, _ in SELECTIONS.values():
        for datasets, name in ((IMAGES, "domainbed2020"), (DIGITS, "domainbed2020_digits")):
            text = file_of(tables, selection, datasets)
            (folder / f"{name}_{selection}.yaml").write_text(text, encoding="utf-8")
            for dataset in datasets:
                cells += sum(len(line) - 1 for line in tables[selection, dataset].values())
    print(f"{cells} cells in {len(tables)} tables; {compared} averages agree")


if __name__ == "__main__":
    main()
