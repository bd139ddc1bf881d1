"""Linear probing against fine-tuning, beside distances of the pretraining images.

Source: Yu et al. 2024, Table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.analysis import spearman
from dgbench.records.run_identity import identity_key
from dgbench.reports.document import Section
from dgbench.reports.published import published
from dgbench.reports.published.beside import (
    published_cell,
    published_column,
    published_value,
    source_note,
)
from dgbench.reports.ranking.leaderboards import Leaderboard, accuracies_by_environment
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.shift_settings import estimates_of
from dgbench.reports.tables import Column, decimal, table

PRETRAINING = "yu2024_table2"


def gap_section(
    boards: Sequence[Leaderboard], folders: Any
) -> tuple[Section | None, list[Problem]]:
    """Compare linear probing with fine-tuning in every environment, beside distances (Yu et al.
    2024, Table 2).

    Args:
        boards: leaderboards; those that differ in nothing but tuning are compared.
        folders: with ``shifts.jsonl`` of ``estimator=[frechet]``; None leaves our distances out.

    Returns:
        None where no algorithm was tuned both ways; and problems of the folders.
    """
    distances, problems = _distances(folders)
    paper = published(PRETRAINING)
    lines: list[dict[str, Any]] = []
    fine_tuned = {
        _key_without_tuning(board): board for board in boards if board.identity["tuning"] == "ft"
    }
    for probed in boards:
        tuned = fine_tuned.get(_key_without_tuning(probed))
        if probed.identity["tuning"] != "lp" or tuned is None:
            continue
        tuned_accuracies = accuracies_by_environment(tuned)
        for (dataset, env, algorithm), lp in accuracies_by_environment(probed).items():
            ft = tuned_accuracies.get((dataset, env, algorithm))
            if ft:
                row = f"{dataset}/{env}"
                line = {
                    "network": tuned.title,
                    "dataset": dataset,
                    "environment": env,
                    "algorithm": algorithm,
                }
                numbers = {
                    "lp": lp,
                    "ft": ft,
                    "gap": (lp - ft) / ft,
                    "distance": distances.get((dataset, env)),
                }
                gap = published_value(paper, row, "gap")
                distance = published_value(paper, row, "fid")
                printed = published_cell("gap published", gap)
                printed |= published_cell("distance published", distance)
                lines.append({**line, **numbers, **printed})
    if not lines:
        return None, problems
    columns = [
        *(Column(name, key=True) for name in ("network", "dataset", "environment", "algorithm")),
        Column("lp", "linear probing", "percent"),
        Column("ft", "fine-tuning", "percent"),
        Column("gap", unit="distance", help="(linear probing - fine-tuning) / fine-tuning"),
        published_column("gap", "gap", "distance", paper.source),
        Column(
            "distance",
            unit="distance",
            help="Frechet, of the pretraining images (report.distances_from)",
        ),
        published_column(
            "distance", "distance", "distance", f"{paper.source}, by an unknown network"
        ),
    ]
    notes = [source_note(paper)]
    measured = [line for line in lines if line["distance"] is not None]
    if len(measured) > 2:
        gaps = [line["gap"] for line in measured]
        rho = spearman(gaps, [line["distance"] for line in measured])
        notes.append(
            f"Rank correlation of gap and distance: {decimal(rho, 2)} (n={len(measured)})."
        )
    title = "Linear probing against fine-tuning, and distance to the pretraining images"
    present: set[str] = set()
    for line in lines:
        present.update(name for name, value in line.items() if value is not None)
    columns = [column for column in columns if column.name in present]
    return Section(
        "relative_gap", title, [table(lines, "relative_gap", title, columns, notes)]
    ), problems


def _distances(folders: Any) -> tuple[dict[tuple[str, str], float], list[Problem]]:
    """Read Frechet distances: dataset and environment -> distance; empty without folders."""
    if folders is None:
        return {}, []
    distances = {}
    setting, problems = estimates_of(folders, "frechet", "report.distances_from")
    for line in setting.lines:
        for pair, env in line.pairs["q"].items():
            at_infinity = line.value("d2_inf", pair=str(pair))
            estimate = at_infinity or line.value("d2", pair=str(pair))
            if estimate:
                distances[str(line.identity["dataset"]), str(env)] = estimate.value
    return distances, problems


def _key_without_tuning(leaderboard: Leaderboard) -> str:
    """Return a key that a leaderboard shares with the one of another tuning."""
    return identity_key(
        leaderboard.identity, [key for key in leaderboard.identity if key != "tuning"]
    )
