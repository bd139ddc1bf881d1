"""The studies of a command: itself, or those of its grid and of its search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError, DgbenchError
from dgbench.plan.compose import Composed, Composer
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.hyperparameters import hyperparameters
from dgbench.plan.identity import PLAIN_GRADIENT, RANDOM_HEAD, folder_name, shared_parts, study_spec
from dgbench.plan.inputs import InitialWeights, dataset_options, described, filled_dataset, named_weights
from dgbench.plan.overrides import open_keys
from dgbench.plan.protocols import check_validation
from dgbench.plan.search import Scheme, Settings, base_values, scheme_of
from dgbench.plan.settings import TrainerSettings, trainer_settings
from dgbench.records.spec import RunSpec, StudySpec, digest


def grid_combinations(grid: dict[str, Any]) -> list[list[str]]:
    """The overrides of every combination of the lists under ``grid``; one without any where there are none.

    An entry that is null, as one that is to be taken out of an experiment's grid, counts as not there.

    Raises:
        ConfigError: an entry is no list.
    """
    lists = grid_lists(grid)
    return [[f"{key}={value}" for key, value in zip(lists, own, strict=True)] for own in product(*lists.values())]


def grid_lists(grid: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists under ``grid`` by the key that each sets.

    Raises:
        ConfigError: an entry is no list.
    """
    grid = {key: values for key, values in dict(_flat(grid)).items() if values is not None}
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key}={values} is no list; write grid.{key}=[...], or null to leave it out")
    return grid


def _flat(grid: dict[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Entries with dots in their keys; an experiment writes ``dataset.ratio``, a word of the command line nests it."""
    for key, values in grid.items():
        if isinstance(values, dict):
            yield from _flat(values, f"{under}{key}.")
        else:
            yield f"{under}{key}", values


ABSENT = "absent"  #: initial weights that are not here, in a plan
KEPT = 256  # sets of hyperparameters that are remembered


@dataclass(frozen=True, eq=False)
class PlannedSearch:
    """A search, as its job names it.

    Args:
        planner: that planned it.
        words: overrides of the job and its grid, without what the search sets.
        scheme: how it is trained.
        base: the keys that vary, for trial 0.
    """

    planner: Planner
    words: Sequence[str]
    scheme: Scheme
    base: Settings

    def study(self, settings: Settings, repeats: int = 0) -> PlannedStudy:
        """One of its studies: what the search sets is added to its words."""
        drawn = [*self.words, *(f"{key}={value}" for key, value in settings.items())]
        return self.planner.study(drawn, self.planner.compose(drawn), repeats, self)


@dataclass(frozen=True)
class PlannedStudy:
    """A study as its configuration and the files that it reads describe it; nothing is decoded, built or started.

    Args:
        words: the overrides that compose it.
        config: plain resolved values by top-level key.
        dataset: options of the dataset, which can also build it.
        info: what the dataset tells of itself.
        weights: initial weights.
        spec: what its runs share.
        folds: the folds to train.
        parent: folder that its own folder stands in.
        repeats: how many more models per fold its search trains once it has chosen; given by its first study.
        search: that it belongs to, if any.
    """

    words: Sequence[str]
    config: Mapping[str, Any]
    dataset: Any
    info: DatasetInfo
    weights: InitialWeights
    spec: StudySpec
    folds: Sequence[Fold]
    parent: Path
    repeats: int = 0
    search: PlannedSearch | None = None

    @cached_property
    def folder(self) -> Path:
        """Where its runs are kept."""
        return self.parent / folder_name(self.spec, self.info.name)

    def run_spec(self, fold: Fold) -> RunSpec:
        """What one of its runs is."""
        return RunSpec.of(self.spec, fold.key())

    def run_folder(self, fold: Fold) -> Path:
        """Where one of its runs is kept."""
        return self.folder / f"fold-{fold.name}-{self.run_spec(fold).digest}"


@dataclass
class Planner:
    """Plans studies; datasets, weights and folds of equal configurations are looked at once.

    Args:
        composer: composes configurations; None where they are composed already.
        parent: folder of the studies; None: as the configuration says.
        download: try to download images that a dataset would download when it is built; a plan does not.
        fetch_weights: download initial weights that are not here, since their content is part of what a run is. A plan
            does not: it counts the runs of such a study as missing.
    """

    composer: Composer | None
    parent: Path | None = None
    download: bool = False
    fetch_weights: bool = True
    _datasets: dict[str, tuple[InitialWeights, dict[str, Any], Any, DatasetInfo]] = field(default_factory=dict)
    _folds: dict[str, list[Fold]] = field(default_factory=dict)
    _hparams: dict[str, dict[str, Any]] = field(default_factory=dict)
    _shared: dict[str, tuple[TrainerSettings, dict[str, dict[str, Any]]]] = field(default_factory=dict)

    def downloading(self) -> Planner:
        """The same, which also tries to download images that are absent."""
        return Planner(self.composer, self.parent, download=True)

    def fetching_nothing(self) -> Planner:
        """The same for a plan, which asks no network."""
        return Planner(self.composer, self.parent, fetch_weights=False)

    def compose(self, words: Sequence[str]) -> Composed:
        """The configuration of a job."""
        assert self.composer is not None
        return self.composer.compose(words)

    def studies(self, words: Sequence[str]) -> Iterator[PlannedStudy]:
        """The studies of the job with these overrides.

        Raises:
            ConfigError, DataError, WeightsError: a study that cannot work.
        """
        job = self.compose(words)
        for chosen in grid_combinations(job["grid"]):
            typed = [*words, *open_keys(chosen)]
            own = self.compose(typed) if chosen else job
            scheme = scheme_of(own)
            if scheme is None:
                yield self.study(typed, own)
                continue
            search = PlannedSearch(self, typed, scheme, base_values(own, scheme))
            for n, settings in enumerate(scheme.studies(search.base)):
                yield search.study(settings, 0 if n else scheme.repeats)

    def content(self, composed: Composed) -> str:
        """Changes with the files of a job's dataset."""
        return self._described(composed)[3].content

    def key(self, composed: Composed) -> str:
        """Equal for jobs that plan the same runs over the same files."""
        return digest([composed.key, self.content(composed)])

    def place(self, words: Sequence[str]) -> tuple[Path, str]:
        """Folder of a job's studies, and its :meth:`key`; its words where it cannot work: it says why in its turn."""
        composed = self.compose(words)
        try:
            return Path(composed.parent), self.key(composed)
        except DgbenchError:
            return Path(composed.parent), " ".join(words)

    def study(
        self, words: Sequence[str], composed: Composed, repeats: int = 0, search: PlannedSearch | None = None
    ) -> PlannedStudy:
        """One study.

        Raises:
            ConfigError, DataError, WeightsError: it cannot work.
        """
        weights, filled, dataset, info = self._described(composed)
        folds = composed.text("dataset", "init", "backbone", "protocol")
        if folds not in self._folds:
            self._folds[folds] = planned_folds(composed["protocol"], info)
        check_validation(composed["selection"].get("environments"), info.given)
        config = {**composed.plain(), "dataset": filled}
        alike = composed.text(
            "dataset", "init", "backbone", "tuning", "averaging", "sharpness", "head", "callbacks", "trainer"
        )
        if alike not in self._shared:
            settings = trainer_settings(config["trainer"])
            self._shared[alike] = settings, shared_parts(config, info, settings)
        settings, shared = self._shared[alike]
        asked = f"{alike}\n{composed.text('hparams', 'algorithm')}"
        if asked not in self._hparams:
            if len(self._hparams) >= KEPT:  # random draws, each with values of its own
                self._hparams.clear()
            self._hparams[asked] = hyperparameters(config, settings, info.smallest_training)
        away = weights.to_fetch() is not None
        if away and self.fetch_weights:  # before a download that images which are not there would make useless
            described(dataset, absent_ok=False, download=self.download)
        named = weights.identity if self.fetch_weights or not away else ABSENT
        return PlannedStudy(
            words=words,
            config=config,
            dataset=dataset,
            info=info,
            weights=weights,
            spec=study_spec(config, named, self._hparams[asked], shared),
            folds=self._folds[folds],
            parent=self.parent or Path(composed.parent),
            repeats=repeats,
            search=search,
        )

    def _described(self, composed: Composed) -> tuple[InitialWeights, dict[str, Any], Any, DatasetInfo]:
        """Weights, keys of the dataset, its options, and what it tells of itself."""
        key = composed.text("dataset", "init", "backbone")
        if key not in self._datasets:
            weights = named_weights(composed.plain())
            filled = filled_dataset(weights, composed["dataset"])
            dataset = dataset_options(filled)
            info = described(dataset, absent_ok=True, download=self.download)
            self._datasets[key] = weights, filled, dataset, info
        return self._datasets[key]


def planned_again(config: Mapping[str, Any], parent: Path) -> PlannedStudy:
    """The study of a run folder, from the configuration that was written there.

    Args:
        config: plain resolved values by top-level key.
        parent: folder that the study's own folder stands in.
    """
    known = {"sharpness": PLAIN_GRADIENT, "head": RANDOM_HEAD, "callbacks": {}, **config}
    return Planner(None, parent, download=True).study([], Composed.of_plain(known, str(parent)))
