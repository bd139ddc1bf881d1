"""Notes below tables: classes that models were tested on and could not learn.

A run records them for the environments that it is tested in; rows of before, and of models that
dgbench did not train, do not say, and nothing is said of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from dgbench.reports.tables import percent
from dgbench.validation import some_of

_MOST = 4  # notes of a table


def shares_in(identity: Mapping[str, Any], env: str) -> dict[str, float]:
    """Look up the classes that a run could not learn, with their shares of an environment's tested
    images.
    """
    beginning = f"{env}: "
    recorded: Mapping[str, float] = identity.get("unlearnable") or {}
    return {
        key.removeprefix(beginning): share
        for key, share in recorded.items()
        if key.startswith(beginning)
    }


def notes_of_study(identities: Iterable[Mapping[str, Any]], held_out: pd.DataFrame) -> list[str]:
    """Name the classes that the runs of one study could not learn, and their share of each error.

    Args:
        identities: of its runs; rows will do.
        held_out: its errors, with ``fold``, ``env`` and ``error``.
    """
    by_fold = {identity["fold"]: identity for identity in identities}
    notes = []
    errors = held_out["error"].astype(float)
    for fold, env, error in zip(held_out["fold"], held_out["env"], errors, strict=True):
        shares = shares_in(by_fold.get(fold, {}), env)
        if shares:
            bound = _bound(sum(shares.values()), [error])
            notes.append(f"fold {fold}: {_sentence(env, shares, '')} {bound}")
    return _first(notes, "folds or environments")


def notes_of_setting(identities: Iterable[Mapping[str, Any]], held_out: pd.DataFrame) -> list[str]:
    """Name the same of all models of one table.

    Args:
        identities: of the runs that count.
        held_out: their errors, with ``env`` and ``error``, one line for each study.
    """
    lacking: dict[str, Counter[tuple[tuple[str, float], ...]]] = defaultdict(Counter)
    for identity in identities:
        for env in dict.fromkeys(map(str, identity["held_out"])):
            lacking[env][tuple(shares_in(identity, env).items())] += 1
    errors = held_out.dropna(subset=["error"]).groupby("env", sort=False)["error"]
    notes = []
    for name, values in errors:
        env = str(name)
        kinds = lacking[env]
        for shares, models in kinds.items():
            if not shares:
                continue
            some = "" if len(kinds) == 1 else f" of {models} of {kinds.total()} models"
            share_of_env = dict(shares)
            bound = _bound(sum(share_of_env.values()), values.tolist())
            notes.append(f"{_sentence(env, share_of_env, some)} {bound}")
    return _first(notes, "environments")


def _sentence(env: str, shares: Mapping[str, float], models: str) -> str:
    share = percent(sum(shares.values()))
    return (
        f"no training environment{models} has {some_of(list(shares))}, {share}% of the images of "
        f"{env}:"
    )


def _bound(share: float, errors: list[float]) -> str:
    """Bound the points of an error, or of each of several, that such images make up."""
    lowest = min(errors)
    highest = max(errors)
    if percent(lowest) == percent(highest):
        return f"at most {percent(min(share, lowest))} of its {percent(lowest)} points of error"
    return (
        f"at most {percent(share)} points of the errors there, which are {percent(lowest)} to "
        f"{percent(highest)}"
    )


def _first(notes: list[str], more: str) -> list[str]:
    if len(notes) <= _MOST:
        return notes
    return [*notes[:_MOST], f"and {len(notes) - _MOST} more {more} with such classes"]
