"""What a selection chose, model by model: draw, step, hyperparameters, and what speaks for them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.plan.folds import tested
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.reports.chance import classes_of
from dgbench.reports.labels import sortable
from dgbench.reports.reading.selected import Selected, SelectedRun
from dgbench.reports.tables import Column, Table, entry, percent, table

#: what must be equal for choices to share a table, besides the dataset and its variant
SETTING = tuple(
    key
    for key in keys(Role.DATA | Role.NETWORK | Role.PROTOCOL)
    if key not in ("dataset", "variant")
)


_FAR = 0.05  # from a blind guess


@dataclass(frozen=True)
class Choice:
    """One model that counts; accuracies are fractions in [0, 1], or None if there is none."""

    dataset: str
    variant: dict[str, Any]
    #: what else must be equal for choices to share a table: base images, network, ...
    setting: dict[str, Any]
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
    chance: float | None  #: accuracy of a blind guess; None where the classes are not known
    run: str  #: hash
    folder: str
    #: what it was chosen among, by draw: ``draw``, ``step`` and ``validation`` accuracy (None if
    #: it has none), ``run`` (hash), and ``why`` it does not count (empty for the one that does)
    candidates: list[dict[str, Any]]


def choices(selected: Selected, unreported: Sequence[str] = ()) -> list[Choice]:
    """List the choice of every search with a model that counts, sorted by dataset, algorithm,
    trial, seed and fold.

    Args:
        selected: the steps and draws that count.
        unreported: environments whose accuracy must not be reported.
    """
    names = ("dataset", "variant", *SETTING, "held_out", "seed")
    searches: dict[tuple[str, str], list[SelectedRun]] = defaultdict(list)
    for run in selected.runs:
        searches[run.label, identity_key(run.identity, names)].append(run)
    by_run = selected.tests.groupby("run", sort=False)
    tests: dict[Any, Any] = {
        run: zip(lines["env"], lines["accuracy"], strict=True) for run, lines in by_run
    }
    chosen = []
    for index, run in enumerate(selected.runs):
        if run.reason:
            continue
        identity = run.identity
        n_classes = classes_of(identity)
        reported = set(tested(identity)) - set(unreported)
        accuracies = [accuracy for env, accuracy in tests.get(index, ()) if env in reported]
        search = searches[run.label, identity_key(identity, names)]
        candidates = [_candidate(candidate) for candidate in search]
        chosen.append(
            Choice(
                dataset=identity["dataset"],
                fold=identity["fold"],
                space=identity["space"],
                trial=identity["trial"],
                seed=identity["seed"],
                draw=identity["draw"],
                run=identity["run"],
                variant=dict(identity["variant"]),
                setting={key: identity[key] for key in SETTING},
                algorithm=run.label,
                held_out=tested(identity),
                step=run.step,
                hparams=dict(identity["hparams"]),
                validation=_number(run.accuracy),
                test=mean(accuracies) if accuracies else None,
                chance=1 / n_classes if n_classes else None,
                folder=run.folder,
                candidates=sorted(candidates, key=itemgetter("draw")),
            )
        )
    chosen.sort(
        key=lambda choice: (choice.algorithm, choice.trial, choice.seed, sortable(choice.fold))
    )
    return sorted(
        chosen, key=lambda choice: (choice.dataset, str(choice.variant), str(choice.setting))
    )


def _candidate(run: SelectedRun) -> dict[str, Any]:
    """Describe one of the runs that a model was chosen among, as :class:`Choice` does."""
    return {
        "draw": run.identity["draw"],
        "step": None if run.step < 0 else run.step,
        "validation": _number(run.accuracy),
        "run": run.identity["run"],
        "why": run.reason,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def choices_table(chosen: Sequence[Choice]) -> Table:
    """Build a table with one line per model that counts, those of one dataset."""
    columns = [
        Column("algorithm", key=True),
        Column("trial", help="repetition of the search", key=True),
        Column("seed", key=True),
        Column("fold", key=True),
        Column("held out", key=True),
        Column(
            "draw", unit="count", help="number of the hyperparameter draw, 0 is the default set"
        ),
        Column("of", unit="count", help="draws that it was chosen among"),
        Column("step", unit="count", help="optimizer updates done at the chosen evaluation"),
        Column("validation", unit="percent", help="validation accuracy that spoke for it"),
        Column("test", unit="percent", help="mean accuracy over the held-out environments"),
        Column(
            "run",
            help="hash in the name of its folder, whose identity.json has the command that made it",
        ),
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
            **entry("validation", choice.validation, reason="the method has no accuracy"),
            **entry("test", choice.test, reason="no test row of a held-out environment"),
            "run": choice.run,
            "hyperparameters": hparams_text(choice.hparams),
        }
        for choice in chosen
    ]
    note = (
        "report=hparams writes exact values and every candidate with its validation accuracy to "
        "hparams.json."
    )
    notes = [*_on_reversed(chosen), note]
    return table(lines, "hparams", "Chosen hyperparameters", columns, notes)


def _on_reversed(chosen: Sequence[Choice]) -> list[str]:
    """Explain models that validation finds good and that are worse than a blind guess in the test.

    Accuracies count from 5 points above and below the guess.
    """
    found = []
    for choice in chosen:
        if choice.validation is None or choice.test is None or choice.chance is None:
            continue
        if choice.test < choice.chance - _FAR and choice.validation > choice.chance + _FAR:
            found.append((choice.test, choice.validation, choice))
    if not found:
        return []
    test, validation, lowest = min(found, key=itemgetter(0))
    verb = "does" if len(found) == 1 else "do"
    return [
        f"{len(found)} of {len(chosen)} models {verb} worse than a blind guess in the held-out "
        f"environment though validation is good: {lowest.algorithm}, fold {lowest.fold}, has "
        f"{percent(validation)}% there and {percent(test)}% in {', '.join(lowest.held_out)}. No "
        "images were mixed up: what predicts the label in the training environments (and in "
        "validation images, which are theirs), such as the color of a digit, is reversed in the "
        "held-out one."
    ]


def hparams_text(hparams: dict[str, Any]) -> str:
    """Format hyperparameters as ``lr=0.0001, vrex_lambda=10``, to four significant digits."""
    words = []
    for key, value in sorted(hparams.items()):
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        words.append(f"{key}={text}")
    return ", ".join(words)
