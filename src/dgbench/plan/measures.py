"""Measures by name: the files of ``conf/measure``, those of a user's own folder, and what a report
shows and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

from pydantic import InstanceOf

from dgbench.analysis.measures import Measure, MeasureFault
from dgbench.configuration import CONF, config_options
from dgbench.errors import ConfigError, MeasureError
from dgbench.plan.building import class_at
from dgbench.records.files import read_yaml
from dgbench.records.run_identity import RunIdentity
from dgbench.validation import NonBlank, Refusal, Several

IDEAL = "ideal"  #: the measure that the others try to predict
WORST = "worst"  #: the measure that every study with all of its held-out errors has
#: the order of tables; measures that it does not name follow by the alphabet
_ORDER = ("average", "worst", "gap", "worst_gap", "worst_gap_of_means", IDEAL)
_COMPARED = ("worst_gap", "average")
GROUP = "measure"
#: columns and lines that stand beside those of measures, in some table
RESERVED = frozenset(
    (
        *(key.name for key in fields(RunIdentity)),
        *("N", "algorithm", "coefficient", "difference", "less", "measure", "seed", "seeds"),
        *("ideal at", "ideal_env", "label", "missing", "sampled", "selected steps", "selection"),
        *("setting", "steps", "trained_on_tested", "given environments"),
        *("adjusted_average", "environment", "group", "overall", "worst_group"),
    )
)
#: errors that a measure is tried on before it is used
_TRIED = (0.1, 0.2, 0.3, 0.8)
Chosen = str | Measure  #: what a caller names a measure by
#: measures of a report or of a function of the Python API
Measures = Annotated[
    Several[InstanceOf[Measure] | NonBlank],
    Refusal("is no list of measures", "write e.g. [average,worst_gap]"),
]


@dataclass(frozen=True)
class MeasureChoice:
    """The measures of tables."""

    shown: tuple[Measure, ...]  #: in their order
    #: those that rank and compare algorithms, of runs: the first one that results have ranks them
    compared: tuple[Measure, ...]

    @property
    def of_runs(self) -> list[Measure]:
        """Those shown that have a value for each seed."""
        return [measure for measure in self.shown if measure.of == "runs"]

    @property
    def practical(self) -> list[Measure]:
        """Those shown that have a value for each seed and need held-out errors alone."""
        return [measure for measure in self.of_runs if measure.needs != "everywhere"]

    @property
    def predicting(self) -> list[Measure]:
        """Those compared, then the other practical ones: what is correlated with the ideal."""
        return _distinct([*self.compared, *self.practical])

    @property
    def ranked(self) -> list[Measure]:
        """The ideal and those compared."""
        return [self.named(IDEAL), *self.compared]

    @cached_property
    def computed(self) -> list[Measure]:
        """Every measure of runs that some table needs: those of dgbench and the chosen ones."""
        behind = [self.of_a_run(measure) for measure in self.shown if measure.of == "means"]
        named = [*_of_dgbench().values(), *self.shown, *self.compared, *behind]
        return _distinct([measure for measure in named if measure.of == "runs"])

    @property
    def own(self) -> list[Measure]:
        """Those shown or compared that are none of dgbench."""
        chosen = _distinct([*self.shown, *self.compared])
        return [measure for measure in chosen if measure.name not in _of_dgbench()]

    def named(self, name: str) -> Measure:
        """Return the measure of runs of that name."""
        return next(measure for measure in self.computed if measure.name == name)

    def of_a_run(self, measure: Measure) -> Measure:
        """Return the measure that has, of one seed, the value that another has of mean errors."""
        described = {"name", "title", "formula", "prose", "beside_ideal", "of"}
        for other in [*_of_dgbench().values(), *self.shown, *self.compared]:
            alike = other.model_dump(exclude=described) == measure.model_dump(exclude=described)
            if type(other) is type(measure) and other.of == "runs" and alike:
                return other
        return measure.model_copy(update={"of": "runs", "name": f"{measure.name}_of_a_run"})


def choose(
    shown: Iterable[Chosen] | None = None,
    compared: Iterable[Chosen] | None = None,
    place: str = "",
) -> MeasureChoice:
    """Choose measures by their names or as they are.

    Args:
        shown: those of tables; None takes every file of ``conf/measure``, and of ``measure/`` in
            the folder that ``--config-dir`` names.
        compared: those that rank and compare algorithms, the first one first; None takes worst+gap
            and the average.
        place: before the names of the two in messages, e.g. ``report.``.

    Raises:
        ConfigError: an unknown name, a file or an object that is no measure, two measures of one
            name or title, or one that cannot compare algorithms.
    """
    there = measures_there()
    listed = list(there.values())
    ranking = [there[name] for name in _COMPARED]
    if shown is not None:
        listed = _named(shown, f"{place}measures", there)
    if compared is not None:
        ranking = _named(compared, f"{place}compared", there)
    for measure in ranking:
        if measure.of == "means":
            raise ConfigError(
                f"{place}compared holds {measure.name}, which has no value for a seed, and seeds "
                "are what compares algorithms; name a measure of runs"
            )
        if measure.name == IDEAL:
            raise ConfigError(
                f"{place}compared holds {IDEAL}, which the others are judged against; leave it out"
            )
    choice = MeasureChoice(tuple(listed), tuple(ranking))
    _refuse_collisions([*_of_dgbench().values(), *choice.shown, *choice.compared])
    return choice


def measures_there() -> dict[str, Measure]:
    """Map name -> measure: those of dgbench, then those of the user's own folders.

    Raises:
        ConfigError: a file of the user's names no measure, or has the name of one of dgbench.
    """
    there = dict(_of_dgbench())
    files: list[Path] = []
    for folder in _own_folders():
        files += sorted(folder.glob("*.yaml"))
    for file in files:
        if file.stem in there:
            raise ConfigError(f"{file} has the name of another measure; give it a name of its own")
        there[file.stem] = read_measure(file)
    return there


def check_own_measures() -> None:
    """Refuse a measure of the user's own that tables could not show, before anything is trained.

    Raises:
        ConfigError: there is one.
    """
    if any(folder.is_dir() for folder in _own_folders()):
        choose()


def read_measure(file: Path) -> Measure:
    """Build the measure that a file names.

    Raises:
        ConfigError: it cannot be read, or names none.
    """
    try:
        keys = read_yaml(file)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file} cannot be read ({reason}); correct it") from None
    if not isinstance(keys, Mapping) or not isinstance(keys.get("_target_"), str):
        raise ConfigError(f"{file} names no class; write _target_: MODULE.CLASS")
    values = {"name": file.stem, **{str(key): value for key, value in keys.items()}}
    if values["name"] != file.stem:
        raise ConfigError(
            f"{file} says name: {values['name']}, and reports name it {file.stem}; leave the name "
            "out, or rename the file"
        )
    kind: type[Measure] = class_at(values.pop("_target_"), f"{GROUP}._target_", Measure)  # type: ignore[type-abstract]
    return tried(kind(**values))


def tried(measure: Measure) -> Measure:
    """Compute a measure of four errors, so that a fault is found before it is used.

    Raises:
        ConfigError: it has one.
    """
    try:
        first, again = measure(_TRIED), measure(_TRIED)
    except MeasureFault as fault:
        errors = ", ".join(map(str, _TRIED))
        raise ConfigError(f"{fault} (tried with the errors {errors})") from None
    except MeasureError:  # four errors may be too few
        return measure
    if first != again:
        raise ConfigError(
            f"measure {measure.name} gave {first:g} and then {again:g} of the same errors; let it "
            "be a function of them alone"
        )
    return measure


@cache
def _of_dgbench() -> Mapping[str, Measure]:
    """Map name -> measure of the files of ``conf/measure``, in the order of tables."""
    names = {file.stem: file for file in sorted((CONF / GROUP).glob("*.yaml"))}
    order = [*_ORDER, *(name for name in names if name not in _ORDER)]
    return {name: read_measure(names[name]) for name in order}


def _own_folders() -> list[Path]:
    """List the folders ``measure/`` that Hydra finds beside those of dgbench.

    Before a sweep's first job nothing is composed yet, and ``--config-dir`` tells.
    """
    hydra = sys.modules.get(
        "hydra.core.hydra_config"
    )  # where it is not loaded, nothing is composed
    if hydra is None or not hydra.HydraConfig.initialized():
        option = config_options(sys.argv[1:])
        if not option:
            return []
        name = option[1] if len(option) > 1 else option[0].partition("=")[2]
        return [Path(name) / GROUP]
    sources = hydra.HydraConfig.get().runtime.config_sources
    folders = [Path(source.path) for source in sources if source.schema == "file"]
    return [folder / GROUP for folder in folders if folder.resolve() != CONF.resolve()]


def _named(chosen: Iterable[Chosen], key: str, there: Mapping[str, Measure]) -> list[Measure]:
    """Find the measures that a caller means.

    Raises:
        ConfigError: there is none, none of such a name, or one twice.
    """
    measures: list[Measure] = []
    for item in chosen:
        if isinstance(item, Measure):
            measure = tried(item)
        elif item in there:
            measure = there[item]
        else:
            raise ConfigError(_unknown(item, key, list(there)))
        if measure in measures:
            raise ConfigError(f"{key} holds {measure.name} twice; name it once")
        measures.append(measure)
    if not measures:
        raise ConfigError(f"{key} is empty; name a measure, e.g. {key}=[average]")
    return measures


def _unknown(name: str, key: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return (
        f"{key} holds {name}, which is no measure; {meant}choose from {', '.join(names)}, or add "
        f"FOLDER/{GROUP}/{name}.yaml and --config-dir FOLDER"
    )


def _refuse_collisions(measures: Sequence[Measure]) -> None:
    """Refuse names and titles that stand for something else in a table.

    Raises:
        ConfigError: there is one.
    """
    holders: dict[tuple[str, str], Measure] = {}
    for measure in measures:
        for kind, text in (("name", measure.name), ("title", measure.title)):
            other = holders.setdefault((kind, text), measure)
            if other != measure:
                raise ConfigError(
                    f"measures {other.name} and {measure.name} have the {kind} {text!r}; give one "
                    "another"
                )
            if text in RESERVED:
                raise ConfigError(
                    f"measure {measure.name} has the {kind} {text!r}, which tables use for "
                    "something else; give it another"
                )


def _distinct(measures: Sequence[Measure]) -> list[Measure]:
    """Keep the first of measures that are named several times."""
    return list({measure.name: measure for measure in measures}.values())
