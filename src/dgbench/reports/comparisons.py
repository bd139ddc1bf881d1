"""Groups members into comparisons: results of one dataset form, base, evaluation and training setting."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgbench.errors import ConfigError, RecordError
from dgbench.protocols.folds import FULL
from dgbench.protocols.selection import Last, Selection
from dgbench.reports.code_versions import ADVICE
from dgbench.reports.collect import IDENTITY_KEYS, Collection
from dgbench.reports.folders import Problem, fold_of, typed_overrides
from dgbench.reports.importers import IMPORTED
from dgbench.reports.selected import select_runs
from dgbench.reports.studies import Study, evaluate_study, fold_name, grouped_reasons

#: what must be equal for two results to stand in one table
SECTION_KEYS = (
    "dataset", "variant", "base", "evaluation", "data_seed", "split_seed", "given", "backbone", "init", "tuning",
    "protocol", "folds",
)  # fmt: skip
#: protocol of runs that hold out every pair of environments, for leave-one-domain-out validation
PAIRS = "pairs"
#: missing folds that are named with their environments; more are told as ranges
_MOST_NAMED = 4


@dataclass(frozen=True)
class Comparison:
    """Studies that may be compared: algorithms x seeds."""

    identity: dict[str, Any]  #: the shared part of the identity
    studies: list[Study]  #: sorted by algorithm, then seed
    codes: tuple[str, ...] = ()  #: code versions of the finished runs: one, or none when no run is finished

    @property
    def trained_on_tested(self) -> bool:
        """Whether the models saw other images of the environments they are tested in (``protocol=target_oracle``)."""
        return any(study.trained_on_tested for study in self.studies)

    @property
    def algorithms(self) -> list[str]:
        return sorted({study.algorithm for study in self.studies})

    @property
    def seeds(self) -> list[int]:
        return sorted({study.seed for study in self.studies})

    def values(self, measure: str) -> dict[str, dict[int, float]]:
        """algorithm -> seed -> value, for the studies that have it."""
        table: dict[str, dict[int, float]] = defaultdict(dict)
        for study in self.studies:
            value = study.measures.value(measure)
            if value is not None:
                table[study.algorithm][study.seed] = value
        return dict(table)


def compare(
    collection: Collection, selection: Selection, split_by: str | None = None
) -> tuple[list[Comparison], list[Problem]]:
    """Evaluate every study and group them.

    Args:
        collection: what :func:`dgbench.reports.collect.collect` found.
        selection: chooses the step of each member.
        split_by: one more identity key (e.g. ``code``) whose values get comparisons of their own.

    Raises:
        RecordError: one comparison would mix code versions.
        ConfigError: ``split_by`` is no identity key.
    """
    if split_by is not None and split_by not in IDENTITY_KEYS:
        raise ConfigError(f"split_by={split_by} is no identity key; choose one of {', '.join(IDENTITY_KEYS)}")
    keys = SECTION_KEYS + ((split_by,) if split_by and split_by not in SECTION_KEYS else ())
    grouped: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(collection.runs):
        grouped[identity_key(run.identity, keys)].append(index)
    selected = select_runs(collection, selection, split_by)
    silent = silent_folds(collection)
    comparisons: list[Comparison] = []
    problems: list[Problem] = []
    for _, members in sorted(grouped.items()):
        shared = {key: collection.runs[members[0]].identity[key] for key in keys}
        codes = one_code(collection, members, shared)
        if shared["protocol"] == PAIRS:
            problems.append(_pairs(shared, len(members)))
            continue
        studies: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index in members:
            studies[selected.labels[index], collection.runs[index].identity["seed"]].append(index)
        evaluated = []
        for (label, _), indices in sorted(studies.items()):
            runs = [collection.runs[index] for index in indices]
            present = {run.identity["fold"] for run in runs}
            members_of = {run.identity["fold"]: i for run, i in zip(runs, indices, strict=True) if i in selected.rows}
            unusable = {
                run.identity["fold"]: selected.why[index]
                for run, index in zip(runs, indices, strict=True)
                if run.identity["fold"] not in members_of and index not in selected.lost
            }
            for parent in {Path(run.folder).parent for run in runs}:
                unusable |= {fold: why for fold, why in silent.get(parent, {}).items() if fold not in present}
            if runs[0].identity["code"].startswith(IMPORTED):
                unusable.setdefault(FULL, "imported runs have no model of all environments, so the ideal is not known")
            study = evaluate_study(
                {fold: selected.rows[index] for fold, index in members_of.items()},
                runs[0].identity,
                Last(),  # the rows are those of the chosen step
                algorithm=label,
                unusable=unusable,
            )
            evaluated.append(study)
            problems += _missing(study, runs[0].identity, Path(runs[0].folder))
        comparisons.append(Comparison(shared, evaluated, codes))
        problems += _other_environments(evaluated)
    return comparisons, problems


def candidates(comparison: Comparison, seeds: Sequence[int]) -> list[str]:
    """Algorithms whose practical measures, and ideal where it is known at all, exist for every one of those seeds.

    Only they may be chosen among: a measure must not be blamed for missing an algorithm it could not judge. One
    candidate among several algorithms is no choice, so then there is none.
    """
    needed = [comparison.values("worst")] + [values for values in [comparison.values("ideal")] if values]
    pool = [a for a in comparison.algorithms if all(set(seeds) <= values.get(a, {}).keys() for values in needed)]
    return pool if len(pool) > 1 or len(comparison.algorithms) == 1 else []


def variant_text(identity: Mapping[str, Any]) -> str:
    """``sr_cmnist ratio=3 scale=1``: the dataset and its form in words."""
    form = [f"{key}={value}" for key, value in sorted(identity["variant"].items())]
    return " ".join([str(identity["dataset"]), *form])


def words_of(value: object) -> str:
    """``a-b``, and ``a+b-c`` for a list of lists."""
    if not isinstance(value, list):
        return str(value)
    return "-".join("+".join(item) if isinstance(item, list) else str(item) for item in value)


def identity_key(identity: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Equal for identities that agree in all those keys."""
    return json.dumps([identity[key] for key in keys], sort_keys=True, default=str)


def silent_folds(collection: Collection) -> dict[Path, dict[str, str]]:
    """study folder -> fold -> why that fold has no rows, for members that stopped before their first evaluation."""
    found: dict[Path, dict[str, str]] = defaultdict(dict)
    for folder in collection.without_rows:
        fold = fold_of(folder)
        if fold is not None:
            failed = folder.status == "FAILED"
            found[folder.path.parent][fold] = f"failed: {folder.reason}" if failed else "unfinished, no rows yet"
    return found


def one_code(collection: Collection, members: Sequence[int], shared: Mapping[str, Any]) -> tuple[str, ...]:
    """The code version of the finished runs among these; none when no run is finished.

    Raises:
        RecordError: there are several.
    """
    folders: dict[str, str] = {}
    for index in members:
        run = collection.runs[index]
        if not run.unusable:
            folders.setdefault(run.identity["code"], run.folder)
    if len(folders) > 1:
        listed = ", ".join(f"{code} (e.g. {folder})" for code, folder in sorted(folders.items()))
        raise RecordError(
            f"{shared['dataset']} results of {len(folders)} code versions would share a table: {listed}; "
            f"give them tables of their own with {ADVICE}"
        )
    return tuple(folders)


def _pairs(shared: Mapping[str, Any], runs: int) -> Problem:
    why = "every environment is held out several times: used by selection=loo_val and report=leaderboard, not here"
    return Problem("pair runs", f"{variant_text(shared)}, {runs} runs", why)


def _missing(study: Study, identity: Mapping[str, Any], folder: Path) -> list[Problem]:
    imported = identity["code"].startswith(IMPORTED)
    if not study.missing or (imported and set(study.missing) == {FULL}):
        return []
    what = grouped_reasons(study.missing)
    if len(study.missing) <= _MOST_NAMED:
        what = "; ".join(f"{fold_name(fold, identity)}: {why}" for fold, why in study.missing.items())
    overrides = [word for word in typed_overrides(folder) or [] if not word.startswith("protocol.folds=")]
    fill = shlex.join(["python", "train.py", *overrides, f"protocol.folds=[{','.join(study.missing)}]"])
    hint = "" if typed_overrides(folder) is not None else f", with the other keys as in {folder}"
    if imported:
        fill, hint = "run it where the sweep was made and import the folder again", ""
    where = f"{variant_text(identity)}, {study.algorithm} seed {study.seed}"
    return [Problem("missing folds", where, f"{what}. To fill: {fill}{hint}")]


def _other_environments(studies: Sequence[Study]) -> list[Problem]:
    grids = {frozenset(study.everywhere) for study in studies if study.everywhere}
    if len(grids) < 2:
        return []
    sizes = ", ".join(str(size) for size in sorted(len(grid) for grid in grids))
    names = ", ".join(sorted({study.algorithm for study in studies}))
    return [
        Problem("environments differ", names, f"ideal errors are maxima over different sets of {sizes} environments")
    ]
