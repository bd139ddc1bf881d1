"""What a selection chose, model by model: draw, step, hyperparameters, and what speaks for them.

``report=hparams`` prints it as tables and writes exact values with all candidates to
``hparams.json``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from typing import Any

from dgbench.analysis.selection import Selection
from dgbench.plan.settings import FileName
from dgbench.reports.choices import SETTING, Choice, choices, choices_table
from dgbench.reports.document import (
    Document,
    Report,
    Section,
    leads,
    problem_table,
    selection_text,
    warnings,
)
from dgbench.reports.labels import setting_titles, variant_text
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import select_runs


class HparamsReport(Report):
    """Builds the tables of choices, and ``hparams.json`` with exact values and all candidates."""

    name: FileName = "hparams"

    def __call__(
        self, collection: Collection, selection: Selection, split_by: str | None = None
    ) -> Document:
        selected = select_runs(collection, selection, split_by)
        chosen = choices(selected, selection.validation_environments)
        by_setting = groupby(chosen, _setting_of)
        settings = [(identity, list(members)) for identity, members in by_setting]
        titles = setting_titles([identity for identity, _ in settings])
        sections: list[Section] = []
        for title, (identity, section_choices) in zip(titles, settings, strict=True):
            facts = [("dataset", variant_text(identity))]
            facts += [(key, _words(identity[key])) for key in SETTING]
            name = f"setting_{len(sections)}"
            sections.append(Section(name, title, [choices_table(section_choices)], facts=facts))
        # failed and unfinished runs are problems of the collection
        problems = collection.problems + [
            Problem("no choice", run.folder, run.reason)
            for run, read in zip(selected.runs, collection.runs, strict=True)
            if run.reason and not run.not_chosen and not read.unusable
        ]
        content = {"selection": selection.name, "choices": [asdict(choice) for choice in chosen]}
        return Document(
            title="Chosen hyperparameters",
            selection=selection_text(selection, collection),
            sections=sections,
            problems=problem_table(problems),
            warnings=warnings(selection, collection),
            lead=leads(f"{len(chosen)} of {len(collection.runs)} runs count", problems),
            files={"hparams.json": json.dumps(content, indent=1) + "\n"},
        )


def _setting_of(choice: Choice) -> dict[str, Any]:
    """Return what choices of one table share."""
    return {"dataset": choice.dataset, "variant": choice.variant, **choice.setting}


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
