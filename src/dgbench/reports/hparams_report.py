"""``report=hparams``: the hyperparameters behind every cell, as a selection chose them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass

from dgbench.protocols.selection import Selection, describe
from dgbench.reports.choices import Choice, choices, choices_table
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import variant_text
from dgbench.reports.document import Document, Section
from dgbench.reports.folders import Problem
from dgbench.reports.measures_report import problem_table
from dgbench.reports.selected import select_runs

_WARNING = "ORACLE SELECTION looks at the test environments: these choices are no honest ones."


@dataclass(frozen=True)
class HparamsReport:
    """Builds the tables of choices, and ``hparams.json`` with exact values and all candidates.

    Args:
        name: names the output folder.
    """

    name: str = "hparams"

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        selected = select_runs(collection, selection, split_by)
        found = choices(collection, selected, selection.validation_environments)
        settings: dict[str, list[Choice]] = defaultdict(list)
        for choice in found:
            settings[json.dumps([choice.dataset, choice.variant, choice.setting], default=str)].append(choice)
        how = describe(selection)
        sections = [_section(number, own, how) for number, own in enumerate(settings.values())]
        problems = [*collection.problems, *_unusable(collection, selected.why, selected.lost)]
        lead = [
            *([_WARNING] if selection.uses_test_environments else []),
            f"{len(found)} of {len(collection.runs)} runs count; {how}.",
        ]
        if not selection.chooses_draws:
            lead.append("This selection has no accuracy to choose draws by; try selection=train_val.")
        content = {"selection": selection.name, "choices": [choice.to_json() for choice in found]}
        files = {"hparams.json": json.dumps(content, indent=1) + "\n"}
        return Document("Chosen hyperparameters", lead, sections, problem_table(problems), files=files)


def _section(number: int, own: list[Choice], how: str) -> Section:
    first = own[0]
    title = variant_text({"dataset": first.dataset, "variant": first.variant})
    facts = [(key, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for key, v in first.setting.items()]
    return Section(f"setting_{number}", title, facts, [choices_table(own, how)], [])


def _unusable(collection: Collection, why: dict[int, str], lost: frozenset[int]) -> list[Problem]:
    """Runs that a selection could not judge; failed and unfinished ones are told by the collection."""
    return [
        Problem("no choice", collection.runs[index].folder, reason)
        for index, reason in why.items()
        if index not in lost and not collection.runs[index].unusable
    ]
