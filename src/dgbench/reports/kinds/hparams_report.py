"""``report=hparams``: the hyperparameters behind every cell, as a selection chose them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass

from dgbench.reports.document import Document, Section, leads, problem_table, warnings
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.settings.apply_selection import select_runs
from dgbench.reports.settings.choices import Choice, choices, choices_table
from dgbench.reports.settings.labels import setting_titles, variant_text
from dgbench.selection.methods import Selection, describe


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
        firsts = [{"dataset": o[0].dataset, "variant": o[0].variant, **o[0].setting} for o in settings.values()]
        titles = setting_titles(firsts)
        sections = [
            _section(f"setting_{at}", *each) for at, each in enumerate(zip(titles, settings.values(), strict=True))
        ]
        problems = [*collection.problems, *_unusable(collection, selected.why, selected.lost)]
        lead = leads(f"{len(found)} of {len(collection.runs)} runs count", problems)
        if not selection.chooses_draws:
            lead.append("This selection has no accuracy to choose draws by; try selection=train_val.")
        content = {"selection": selection.name, "choices": [choice.to_json() for choice in found]}
        files = {"hparams.json": json.dumps(content, indent=1) + "\n"}
        return Document(
            title="Chosen hyperparameters",
            selection=describe(selection),
            sections=sections,
            problems=problem_table(problems),
            warnings=warnings(selection, False),
            lead=lead,
            files=files,
        )


def _section(name: str, title: str, own: list[Choice]) -> Section:
    first = own[0]
    facts = [("dataset", variant_text({"dataset": first.dataset, "variant": first.variant}))]
    facts += [(key, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for key, v in first.setting.items()]
    return Section(name, title, [choices_table(own)], facts=facts)


def _unusable(collection: Collection, why: dict[int, str], lost: frozenset[int]) -> list[Problem]:
    """Runs that a selection could not judge; failed and unfinished ones are problems of the collection."""
    return [
        Problem("no choice", collection.runs[index].folder, reason)
        for index, reason in why.items()
        if index not in lost and not collection.runs[index].unusable
    ]
