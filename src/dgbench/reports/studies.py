"""A study: the folds of one algorithm, hyperparameter set and seed, reduced to its errors at the selected steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.errors import DgbenchError
from dgbench.measures import Measures
from dgbench.protocols.selection import Rows, Selection

FULL = "full"


@dataclass(frozen=True)
class Study:
    """Errors of one (algorithm, seed). All errors are fractions in [0, 1]."""

    algorithm: str  #: as tables name it
    seed: int
    held_out: dict[str, float]  #: given environment -> error of the member that never saw it
    everywhere: dict[str, float]  #: environment -> error of the member trained on all given ones
    steps: dict[str, int]  #: fold -> selected step
    missing: dict[str, str]  #: expected fold -> why it has no errors
    measures: Measures


def expected_folds(protocol: str, given: Sequence[str], present: Sequence[str]) -> list[str]:
    """The folds a complete study has: ``0`` to ``N-1`` and ``full`` for ``loo``; for others those that are present."""
    if protocol == "loo":
        return [*map(str, range(len(given))), FULL]
    return sorted(set(present))


def evaluate_study(
    members: Mapping[str, Rows],
    identity: Mapping[str, Any],
    selection: Selection,
    *,
    algorithm: str | None = None,
    unusable: Mapping[str, str] | None = None,
) -> Study:
    """Select a step in each member and read off its errors.

    Args:
        members: fold -> rows of that member (at least the keys of :class:`dgbench.records.Row`, with
            ``env_held_out``).
        identity: identity of any member of the study.
        selection: chooses the step.
        algorithm: name for tables; by default the identity's.
        unusable: fold -> why its errors must not be used (failed, unfinished), even where there are rows.
    """
    given: list[str] = list(identity["given"])
    missing = dict(unusable or {})
    held_out: dict[str, float] = {}
    everywhere: dict[str, float] = {}
    steps: dict[str, int] = {}
    for fold, rows in members.items():
        if fold in missing:
            continue
        try:
            step = selection(rows).step
        except DgbenchError as problem:
            missing[fold] = str(problem)
            continue
        test = [row for row in rows if row["step"] == step and row["subset"] == "test"]
        # a leave-one-out member is judged where it never trained, the full member wherever there are test rows
        target = everywhere if fold == FULL else held_out
        judged = {
            r["env"]: r["wrong"] / r["seen"] for r in test if fold == FULL or (r["env_held_out"] and r["env"] in given)
        }
        target.update(judged)
        steps[fold] = step
        if not judged:
            missing[fold] = f"no test row at step {step}"
    for fold in expected_folds(identity["protocol"], given, list(members)):
        if fold not in members and fold not in missing:
            missing[fold] = "no rows"
    no_held_out = _join({fold: why for fold, why in missing.items() if fold != FULL})
    no_everywhere = _join({fold: why for fold, why in missing.items() if fold == FULL})
    if everywhere and set(everywhere) <= set(given):
        no_everywhere = "only the given environments exist, so the ideal is not known"
    measures = Measures.of(held_out, everywhere, no_held_out=no_held_out, no_everywhere=no_everywhere)
    ordered = {env: held_out[env] for env in given if env in held_out}
    name = algorithm or algorithm_name(identity)
    return Study(name, identity["seed"], ordered, everywhere, steps, missing, measures)


def algorithm_name(identity: Mapping[str, Any]) -> str:
    """``vrex``, or ``vrex+swad`` where its weights were averaged."""
    averaging = identity["averaging"]
    return str(identity["algorithm"]) + ("" if averaging == "none" else f"+{averaging}")


def fold_name(fold: str, given: Sequence[str]) -> str:
    """``fold 2 (0.10 held out)`` for a leave-one-out fold, ``fold full`` otherwise."""
    if fold.isdecimal() and int(fold) < len(given):
        return f"fold {fold} ({given[int(fold)]} held out)"
    return f"fold {fold}"


def _join(missing: Mapping[str, str]) -> str:
    return "; ".join(f"fold {fold}: {why}" for fold, why in missing.items())
