"""What a selection chose, model by model: draw, step, hyperparameters, and what speaks for them.

``report=hparams`` prints it as tables and writes exact values with all candidates to ``hparams.json``.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dgbench.analysis.selection import Selection, describe
from dgbench.plan.folds import tested
from dgbench.records.rows import Role, keys
from dgbench.reports.document import Document, Section, leads, problem_table, warnings
from dgbench.reports.labels import setting_titles, variant_text
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import Selected, SelectedRun, select_runs
from dgbench.reports.tables import Column, Table, entry, table

#: what must be equal for choices to share a table, besides the dataset and its variant
SETTING = tuple(key for key in keys(Role.DATA | Role.NETWORK | Role.PROTOCOL) if key not in ("dataset", "variant"))


@dataclass(frozen=True)
class Candidate:
    """A model that the choice was made among."""

    draw: int
    step: int | None  #: chosen step; None where it has none
    validation: float | None  #: validation accuracy in [0, 1]; None where there is none
    run: str  #: its hash
    why: str  #: why it does not count; empty for the one that does


@dataclass(frozen=True)
class Choice:
    """One model that counts. Accuracies are fractions in [0, 1], None where there is none."""

    dataset: str
    variant: dict[str, Any]
    setting: dict[str, Any]  #: what else must be equal for choices to share a table: base images, network, ...
    algorithm: str  #: as tables name it
    fold: str
    held_out: list[str]
    space: str  #: search space of the draw
    trial: int
    seed: int
    draw: int
    step: int
    hparams: dict[str, Any]
    validation: float | None
    test: float | None  #: mean over the held-out environments
    run: str  #: hash
    folder: str
    candidates: list[Candidate]  #: by draw

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def choices(selected: Selected, unreported: Sequence[str] = ()) -> list[Choice]:
    """One choice for every search that has a model that counts, sorted by dataset, algorithm, trial, seed and fold.

    Args:
        selected: the steps and draws that count.
        unreported: environments whose accuracy must not be reported.
    """
    searches: dict[tuple[Any, ...], list[SelectedRun]] = defaultdict(list)
    for run in selected.runs:
        searches[_search(run)].append(run)
    lines = selected.rows.assign(env=selected.rows["env"].astype(object)).groupby("run", sort=False)
    tests: dict[Any, Any] = {run: zip(own["env"], own["accuracy"], strict=True) for run, own in lines}
    found = []
    for index, run in enumerate(selected.runs):
        if run.why:
            continue
        who = run.identity
        reported = set(tested(who)) - set(unreported)
        accuracies = [accuracy for env, accuracy in tests.get(index, ()) if env in reported]
        found.append(
            Choice(
                who["dataset"],
                dict(who["variant"]),
                {key: who[key] for key in SETTING},
                run.label,
                who["fold"],
                tested(who),
                who["space"],
                who["trial"],
                who["seed"],
                who["draw"],
                run.step,
                dict(who["hparams"]),
                _number(run.accuracy),
                math.fsum(accuracies) / len(accuracies) if accuracies else None,
                who["run"],
                run.folder,
                [_candidate(other) for other in sorted(searches[_search(run)], key=lambda o: o.identity["draw"])],
            )
        )
    return sorted(
        found,
        key=lambda c: (c.dataset, str(c.variant), str(c.setting), c.algorithm, c.trial, c.seed, _fold_order(c.fold)),
    )


def choices_table(found: Sequence[Choice]) -> Table:
    """One line per model that counts, those of one dataset."""
    columns = [
        Column("algorithm", key=True),
        Column("trial", help="repetition of the search", key=True),
        Column("seed", key=True),
        Column("fold", key=True),
        Column("held out", key=True),
        Column("draw", unit="count", help="number of the hyperparameter draw, 0 is the default set"),
        Column("of", unit="count", help="draws that it was chosen among"),
        Column("step", unit="count", help="optimizer updates done at the chosen evaluation"),
        Column("validation", unit="percent", help="validation accuracy that spoke for it"),
        Column("test", unit="percent", help="mean accuracy over the held-out environments"),
        Column("run", help="hash in the name of its folder; report=reproduce run=HASH prints its command"),
        Column("hyperparameters"),
    ]
    lines = [
        {
            "algorithm": choice.algorithm,
            "trial": str(choice.trial),
            "seed": str(choice.seed),
            "fold": choice.fold,
            "held out": ", ".join(choice.held_out) or "nothing",
            "draw": choice.draw,
            "of": len(choice.candidates),
            "step": choice.step,
            **percent_entry("validation", choice.validation, "the method has no accuracy"),
            **percent_entry("test", choice.test, "no test row of a held-out environment"),
            "run": choice.run,
            "hyperparameters": hparams_text(choice.hparams),
        }
        for choice in found
    ]
    note = "report=hparams writes exact values and every candidate with its validation accuracy to hparams.json."
    return table(lines, "hparams", "Chosen hyperparameters", columns, [note])


def hparams_text(hparams: dict[str, Any]) -> str:
    """``lr=0.0001, vrex_lambda=10``, to four digits."""
    return ", ".join(
        f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in sorted(hparams.items())
    )


def _search(run: SelectedRun) -> tuple[Any, ...]:
    names = ("dataset", "variant", *SETTING, "held_out", "seed")
    return (run.label, *(str(run.identity[key]) for key in names))


def _candidate(run: SelectedRun) -> Candidate:
    step = None if run.step < 0 else run.step
    return Candidate(run.identity["draw"], step, _number(run.accuracy), run.identity["run"], run.why)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def percent_entry(name: str, value: float | None, reason: str) -> dict[str, Any]:
    return entry(name, value, reason=reason if value is None else "")


def _fold_order(fold: str) -> tuple[int, int, str]:
    return (0, int(fold), "") if fold.isdecimal() else (1, 0, fold)


@dataclass(frozen=True)
class HparamsReport:
    """Builds the tables of choices, and ``hparams.json`` with exact values and all candidates.

    Args:
        name: names the output folder.
    """

    name: str = "hparams"

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        selected = select_runs(collection, selection, split_by)
        found = choices(selected, selection.validation_environments)
        settings: dict[str, list[Choice]] = defaultdict(list)
        for choice in found:
            settings[json.dumps([choice.dataset, choice.variant, choice.setting], default=str)].append(choice)
        firsts = [{"dataset": o[0].dataset, "variant": o[0].variant, **o[0].setting} for o in settings.values()]
        titles = setting_titles(firsts)
        sections = [
            _section(f"setting_{at}", *each) for at, each in enumerate(zip(titles, settings.values(), strict=True))
        ]
        problems = [*collection.problems, *_unusable(collection, selected)]
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


def _unusable(collection: Collection, selected: Selected) -> list[Problem]:
    """Runs that a selection could not judge; failed and unfinished ones are problems of the collection."""
    return [
        Problem("no choice", run.folder, run.why)
        for run, read in zip(selected.runs, collection.runs, strict=True)
        if run.why and not run.lost and not read.unusable
    ]
