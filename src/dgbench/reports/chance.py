"""What any result must beat: a blind guess, and a classifier that always says the most frequent
class.

A blind guess among K classes is wrong with probability 1 - 1/K, whatever the image: in every
environment, so that its average, worst, worst+gap and ideal error are all 1 - 1/K, and its gap is
0. The most frequent class is that of the images that a run trains on; its errors stand in rows
(``majority_wrong``). Both are references: no table ranks them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgbench.analysis import Measure, Measured, select
from dgbench.analysis.accuracy import mean
from dgbench.analysis.measures import ROUNDING
from dgbench.reports.tables import REFERENCE, Table, entry, percent, with_lines

BLIND_GUESS, MOST_FREQUENT = "blind guess", "most frequent class"
#: K of the datasets of conf/dataset that say it, for rows that are older than ``n_classes``
CLASSES = {
    "c_cats_dogs": 2,
    "camelyon17": 2,
    "camelyon17_wilds": 2,
    "celeba_blond": 2,
    "cmnist": 2,
    "cmnist_domainbed": 2,
    "cmnist_irm": 2,
    "domain_net": 345,
    "fmow": 62,
    "l_cifar10": 10,
    "nico_mixed": 2,
    "nico_pp": 60,
    "office_home": 65,
    "pacs": 7,
    "pacs_corrupted": 7,
    "rotated_mnist": 10,
    "spawrious_m2m_easy": 4,
    "spawrious_m2m_hard": 4,
    "spawrious_m2m_medium": 4,
    "spawrious_o2o_easy": 4,
    "spawrious_o2o_hard": 4,
    "spawrious_o2o_medium": 4,
    "sr_cmnist": 2,
    "terra_incognita": 10,
    "vlcs": 5,
    "vlcs_corrupted": 5,
    "waterbirds": 2,
}
OF_TABLE = "table"  #: base images of imported tables, whose names of datasets mean nothing here
_SHOWN = 0.0005  # a difference that a table shows, as a fraction


@dataclass(frozen=True)
class Reference:
    """Errors of a classifier that looks at no image, fractions in [0, 1]."""

    name: str
    measures: Mapping[str, float]  #: by name, those that some study has too
    held_out: Mapping[str, float]  #: tested environment -> error
    #: environment -> error beside models trained on all given environments
    everywhere: Mapping[str, float]


@dataclass(frozen=True)
class Chance:
    """The references of one setting."""

    n_classes: int  #: K
    by_name: bool  #: no row says K: it is that of the dataset's name
    #: the blind guess, and the most frequent class where it differs
    references: tuple[Reference, ...]

    @property
    def error(self) -> float:
        """Error of the blind guess."""
        return 1 - 1 / self.n_classes

    @property
    def notes(self) -> list[str]:
        """Describe the lines of the references."""
        lines = [
            (
                f"Blind guess: right once in K = {self.n_classes} classes, in every environment; "
                "a reference, not ranked."
            )
        ]
        if self.by_name:
            lines[0] = (
                f"{lines[0][:-1]} (K by the name of the dataset: these rows are older than "
                "n_classes)."
            )
        if len(self.references) > 1:
            lines.append(
                "Most frequent class: always says that of a run's training images; a reference, "
                "mean over seeds."
            )
        return lines

    def levels(self, measure: str) -> dict[str, float]:
        """Map each reference that has a measure to its value."""
        return {r.name: r.measures[measure] for r in self.references if measure in r.measures}

    def accuracies(self, environments: Sequence[str]) -> dict[str, float]:
        """Map each reference to its mean accuracy over tested environments, where it is known in
        all of them.
        """
        levels = {}
        for reference in self.references:
            if set(environments) <= reference.held_out.keys():
                errors = [reference.held_out[env] for env in environments]
                levels[reference.name] = 1 - mean(errors)
        return levels


def classes_of(identity: Mapping[str, Any]) -> int | None:
    """Look up K of a run: what its row says, else that of the dataset's name.

    Returns None if neither tells.
    """
    stated = identity.get("n_classes")
    if stated is not None:
        return int(stated)
    return None if identity.get("base") == OF_TABLE else CLASSES.get(str(identity["dataset"]))


def chance_of(
    identities: Sequence[Mapping[str, Any]],
    tests: pd.DataFrame,
    held_out: Collection[str],
    everywhere: Collection[str],
    measures: Sequence[Measure],
) -> Chance | None:
    """Compute the references of runs that share a table.

    Returns None if the number of classes is not known.

    Args:
        identities: of the runs.
        tests: lines of :class:`~dgbench.reports.reading.selected.Selected`.
        held_out: environments in which a complete study is tested.
        everywhere: those in which its model of all given environments is tested.
        measures: those that some study has.
    """
    numbers = {classes_of(identity) for identity in identities}
    (n_classes,) = numbers if len(numbers) == 1 else (None,)
    if n_classes is None or n_classes < 1:
        return None
    error = 1 - 1 / n_classes
    in_held_out = dict.fromkeys(held_out, error)
    in_all = dict.fromkeys(everywhere, error)
    values = Measured.of(measures, in_held_out, in_all).values
    references = [Reference(BLIND_GUESS, values, in_held_out, in_all)]
    frequent = _most_frequent(tests, held_out, everywhere, measures)
    if frequent and _differ(frequent, error):
        references.append(frequent)
    by_name = all(identity.get("n_classes") is None for identity in identities)
    return Chance(n_classes, by_name, tuple(references))


def _differ(reference: Reference, error: float) -> bool:
    """Return whether a table shows some error of a reference that the blind guess has not."""
    errors = [*reference.held_out.values(), *reference.everywhere.values()]
    return any(abs(value - error) >= _SHOWN for value in errors)


def _most_frequent(
    tests: pd.DataFrame,
    held_out: Collection[str],
    everywhere: Collection[str],
    measures: Sequence[Measure],
) -> Reference | None:
    """Average the most frequent class's errors and measures over seeds.

    Returns None if no row says them.

    The errors of a seed and fold follow from its images alone, so that any algorithm's rows tell
    them.
    """
    place = ["seed", "fold", "role", "env"]
    known = tests.loc[tests["majority_error"].notna(), [*place, "majority_error"]]
    if known.empty:
        return None
    known = known.drop_duplicates(place)
    by_env = known.groupby(["seed", "role", "env"], sort=False)["majority_error"].mean()
    seeds: dict[int, dict[str, dict[str, float]]] = {}
    columns = [by_env.index.get_level_values(name).tolist() for name in ("seed", "role", "env")]
    for seed, role, env, error in zip(*columns, by_env.tolist(), strict=True):
        seeds.setdefault(seed, {"held_out": {}, "everywhere": {}})[role][env] = error
    of_held_out = [errors["held_out"] for errors in seeds.values()]
    of_everywhere = [errors["everywhere"] for errors in seeds.values()]
    values: dict[str, list[float]] = {measure.name: [] for measure in measures}
    for in_held_out, in_all in zip(of_held_out, of_everywhere, strict=True):
        no_held_out = _lacking(held_out, in_held_out)
        absences = {
            "held_out": no_held_out,
            "leave_one_out": no_held_out,
            "everywhere": _lacking(everywhere, in_all),
        }
        for name, value in Measured.of(measures, in_held_out, in_all, absences).values.items():
            values[name].append(value)
    return Reference(
        MOST_FREQUENT,
        {name: mean(of_measure) for name, of_measure in values.items() if of_measure},
        _over_seeds(of_held_out),
        _over_seeds(of_everywhere),
    )


def _lacking(environments: Iterable[str], errors: Mapping[str, float]) -> str:
    """Return a reason if an error is missing, else an empty text."""
    return "" if set(environments) <= errors.keys() else "an environment is missing"


def _over_seeds(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average the error in each environment over the seeds that have it."""
    of_env: dict[str, list[float]] = {}
    for of_seed in errors:
        for env, error in of_seed.items():
            of_env.setdefault(env, []).append(error)
    return {env: mean(values) for env, values in of_env.items()}


def with_measures(table: Table, chance: Chance | None, equal: Mapping[str, str]) -> Table:
    """Append the references to a table of measures, with sentences that say what they are.

    Args:
        table: with a column for each measure.
        chance: of its setting.
        equal: column -> the measure whose value it repeats, since the references have no seed.
    """
    if chance is None or not len(table):
        return table
    lines = []
    for reference in chance.references:
        known = reference.measures
        values = {column.name: known.get(column.name) for column in table.columns}
        for column, measure in equal.items():
            values[column] = known.get(measure)
        present = {name: value for name, value in values.items() if value is not None}
        lines.append(_line(reference.name, present))
    return with_lines(table, lines, chance.notes)


def with_errors(table: Table, chance: Chance | None) -> Table:
    """Append the references to a table with a column of errors for each tested environment."""
    if chance is None or not len(table):
        return table
    return with_lines(table, [_line(r.name, r.held_out) for r in chance.references])


def _line(name: str, values: Mapping[str, float]) -> dict[str, Any]:
    return {**entry("algorithm", name, flag="(reference)"), REFERENCE: True, **values}


def accuracy_note(levels: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Write the accuracy of the references on each dataset, as far as it is known.

    Args:
        levels: dataset -> reference -> mean accuracy.
    """
    sentences = []
    for name, title in (
        (BLIND_GUESS, "A blind guess"),
        (MOST_FREQUENT, "Always saying the most frequent class"),
    ):
        known = {
            dataset: of_dataset[name]
            for dataset, of_dataset in levels.items()
            if name in of_dataset
        }
        if known:
            where = " and ".join(
                f"{percent(value)}% on {dataset}" for dataset, value in known.items()
            )
            sentences.append(f"{title} has an accuracy of {where} (a reference, not ranked).")
    return sentences


def beaten(
    level: Mapping[str, float], references: Mapping[str, float], measure: str, highest: bool = False
) -> str:
    """Warn that the leader does no better than a reference, with both numbers.

    The text is empty if it beats all references.

    Args:
        level: algorithm -> mean of the measure that ranks it.
        references: reference -> the same measure of it.
        measure: its name in prose, e.g. ``worst+gap``.
        highest: the highest value is the best one.
    """
    if not level:
        return ""
    sign = -1 if highest else 1
    first, *ties = select({name: sign * value for name, value in level.items()})
    value = level[first]
    stronger = {name: of for name, of in references.items() if sign * (value - of) >= -ROUNDING}
    if not stronger:
        return ""
    names = " and ".join(filter(None, [", ".join([first, *ties][:-1]), [first, *ties][-1]]))
    verbs = ("lead", "do") if ties else ("leads", "does")
    words = {BLIND_GUESS: "a blind guess", MOST_FREQUENT: "always saying the most frequent class"}
    whom = " or ".join(words.get(name, name) for name in stronger)
    numbers = " and ".join(f"{percent(of)}%" for of in stronger.values())
    return (
        f"{names} {verbs[0]} by {measure} and {verbs[1]} no better than {whom}: {percent(value)}% "
        f"against {numbers}."
    )
