"""A command and the studies of its grid and of its search: where they go, and how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig

from dgbench.data.datasets.small_environments import TooFewImagesError, with_batch_refusal
from dgbench.data.description import DatasetInfo, need_training_images
from dgbench.errors import ConfigError, DgbenchError, RunsFailedError
from dgbench.plan.building import (
    InitialWeights,
    conf_of,
    dataset_options,
    described,
    filled_dataset,
    named_weights,
)
from dgbench.plan.compose import HOW, Composed, Composer
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.hyperparameters import hyperparameters
from dgbench.plan.identity import folder_name, shared_parts, study_spec
from dgbench.plan.labels import check_labels
from dgbench.plan.needs import OF_TRAINING, Need
from dgbench.plan.overrides import grammar, leaves, open_keys
from dgbench.plan.protocols import check_validation
from dgbench.plan.search import Scheme, Settings, base_values, scheme_of
from dgbench.plan.settings import TrainerSettings, check_configuration
from dgbench.plan.unread import UNREAD_ALONE, UNREAD_IN_SWEEPS, Reading, check_needs, refuse_unread
from dgbench.records.commands import JobPlace
from dgbench.records.spec import RunSpec, StudySpec, digest
from dgbench.seeding import ALL
from dgbench.validation import shown

T = TypeVar("T")
MOST_REMEMBERED = 256  # sets of hyperparameters that are remembered
MOST_SHOWN_WHOLE = 4  # more studies in one job than this get a line each
#: what the studies of a command have in common
SHARED_BY_STUDIES = (HOW - {"paths"}) | {"grid", "paths.output_dir"}


def grid_lists(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Read the lists under ``grid``, by the key that each sets.

    An entry that is null, as one that is to be taken out of an experiment's grid, counts as not
    there. Keys may have dots: an experiment writes ``dataset.ratio``, the command line nests it.

    Raises:
        ConfigError: an entry is no list, or sets how a command runs, not what it trains.
    """
    lists = {key: values for key, values in dict(leaves(grid)).items() if values not in (None, {})}
    for key, values in lists.items():
        if {key, key.partition(".")[0]} & SHARED_BY_STUDIES:
            raise ConfigError(
                f"grid.{key} sets what all studies of a command have in common; write {key}=VALUE"
            )
        if not isinstance(values, list) or not values:
            raise ConfigError(
                f"grid.{key}={shown(values)} is no list; write grid.{key}=[...], or null to leave "
                "it out"
            )
    return lists


@dataclass(frozen=True, eq=False)
class PlannedSearch:
    """A search of hyperparameters, as a command plans it."""

    planner: Planner  #: that planned it
    words: Sequence[str]  #: overrides of the command and its grid, without what the search sets
    scheme: Scheme  #: how it is trained
    base: Settings  #: the keys that vary, for trial 0

    def study(self, settings: Settings, repeats: int = 0) -> PlannedStudy:
        """Plan one of its studies: what the search sets is added to its words."""
        words = [*self.words, *(f"{key}={value}" for key, value in settings.items())]
        return self.planner.study(words, self.planner.checked(words), repeats, self)


@dataclass(frozen=True)
class PlannedStudy:
    """A study as its configuration and the files that it reads describe it.

    Nothing is decoded, built or started.
    """

    words: Sequence[str]  #: the overrides that compose it
    config: Mapping[str, Any]  #: plain resolved values by top-level key
    dataset: Any  #: options of the dataset, which can also build it
    info: DatasetInfo  #: what the dataset tells of itself
    weights: InitialWeights  #: initial weights
    spec: StudySpec  #: what its runs share
    folds: Sequence[Fold]  #: the folds to train
    parent: Path  #: folder that its own folder stands in
    #: how many more models per fold its search trains once it has chosen; given by its first study
    repeats: int = 0
    search: PlannedSearch | None = None  #: that it belongs to, if any

    @cached_property
    def folder(self) -> Path:
        """Where its runs are kept."""
        return self.parent / folder_name(self.spec, self.info.name)

    def run_spec(self, fold: Fold) -> RunSpec:
        """Build the specification of the run of a fold."""
        return RunSpec.of(self.spec, fold.key())

    def run_folder(self, fold: Fold) -> Path:
        """Return the folder of the run of a fold."""
        return self.folder / f"fold-{fold.name}-{self.run_spec(fold).digest}"


class PlannedDataset(NamedTuple):
    """The dataset that a configuration names, not loaded."""

    keys: dict[str, Any]  #: of ``conf/dataset``, with what the initial weights say filled in
    options: Any  #: which can also build it
    info: DatasetInfo  #: what it tells of itself


@dataclass
class Planner:
    """Plans studies; datasets, weights and folds of equal configurations are looked at once."""

    composer: Composer | None  #: composes configurations, or None if they are composed already
    parent: Path | None = None  #: folder of the studies; None: as the configuration says
    #: try to download images that a dataset would download when it is built; a plan does not
    download: bool = False
    #: download initial weights that are not here, since their content is part of what a run is. A
    #: plan does not: it counts the runs of such a study as missing.
    fetch_weights: bool = True
    _made: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict), init=False)

    @staticmethod
    def of_sweep(loader: ConfigLoader, config: DictConfig) -> Planner:
        """Make the planner of the jobs of a sweep."""
        return Planner(Composer(loader, partial(loader.load_sweep_config, config)))

    def compose(self, words: Sequence[str]) -> Composed:
        """Compose the configuration of these overrides."""
        assert self.composer is not None
        return self.composer.compose(words)

    def checked(self, words: Sequence[str]) -> Composed:
        """Compose a configuration and check its values.

        Raises:
            ConfigError: one that cannot work.
        """
        composed = self.compose(words)
        check_configuration(composed.plain())
        return composed

    def _once(self, kind: str, text: str, make: Callable[[], T]) -> T:
        """Return the object that configurations with this text share, made at the first call."""
        made: dict[str, T] = self._made[kind]
        if text not in made:
            made[text] = make()
        return made[text]

    def studies(self, words: Sequence[str]) -> Iterator[PlannedStudy]:
        """Plan the studies of the command with these overrides.

        Raises:
            ConfigError, DataError, WeightsError: a study that cannot work.
        """
        for study_words, composed in self._of_grid(words):
            scheme = scheme_of(composed)
            if scheme is None:
                yield self.study(study_words, composed)
                continue
            search = PlannedSearch(self, study_words, scheme, base_values(composed, scheme))
            for n, settings in enumerate(scheme.studies(search.base)):
                yield search.study(settings, 0 if n else scheme.repeats)

    def _of_grid(self, words: Sequence[str]) -> Iterator[tuple[list[str], Composed]]:
        """Compose the configurations of a command's grid, each with its words.

        Without a grid it is the command's own configuration.
        """
        whole = self.checked(words)
        lists = grid_lists(whole.plain().get("grid") or {})  # a shift has none
        for values in product(*lists.values()):
            combination = [
                f"{key}={grammar(value)}" for key, value in zip(lists, values, strict=True)
            ]
            study_words = [*words, *open_keys(combination)]
            yield study_words, self.checked(study_words) if combination else whole

    def readings(self, words: Sequence[str]) -> Iterator[Reading]:
        """Iterate over what the studies of a command may read of its words: configurations, and
        their datasets.
        """
        for _, composed in self._of_grid(words):
            yield composed.plain(), partial(self._described, composed)

    def _described(self, composed: Composed) -> DatasetInfo:
        return self._dataset(composed).info

    def key(self, composed: Composed) -> str:
        """Make a key, equal for configurations that plan the same runs over the same files."""
        return digest([composed.key, self._dataset(composed).info.content])

    def place(self, words: Sequence[str]) -> JobPlace:
        """Return the folder of a command's studies and its :meth:`key`.

        The key of a command that cannot work is its words.
        """
        composed = self.compose(words)
        try:
            key = self.key(composed)
        except DgbenchError:  # which it says itself when it runs
            key = " ".join(words)
        return JobPlace(Path(composed.parent), key)

    def need_images(self) -> None:
        """Download the first dataset if no job has its images on disk.

        If that fails the jobs are refused before any of them starts.

        Raises:
            DataError: no dataset that was looked at is on disk, and the first cannot be downloaded.
        """
        planned: list[PlannedDataset] = list(self._made["dataset"].values())
        if planned and not any(dataset.info.present for dataset in planned):
            described(planned[0].options, absent_ok=False, download=True)

    def study(
        self,
        words: Sequence[str],
        composed: Composed,
        repeats: int = 0,
        search: PlannedSearch | None = None,
    ) -> PlannedStudy:
        """Plan the study of a configuration whose values were checked.

        Raises:
            ConfigError, DataError, WeightsError: it cannot work.
        """
        weights = self._weights_of(composed)
        try:
            dataset = self._dataset(composed)
        except TooFewImagesError as error:
            raise _with_batch(error, composed) from None

        folds = self._folds(composed, dataset.info)
        check_validation(composed["selection"].get("environments"), dataset.info.given)
        config = {**composed.plain(), "dataset": dataset.keys}
        alike = composed.text(
            "dataset",
            "init",
            "backbone",
            "tuning",
            "averaging",
            "sharpness",
            "head",
            "callbacks",
            "trainer",
        )
        settings = self._once("settings", alike, lambda: TrainerSettings(**config["trainer"]))
        check_labels(config, settings)
        shared = self._once("shared", alike, lambda: shared_parts(config, dataset.info, settings))
        for fold in folds:
            settings.minibatches(len(fold.training))  # refuses more than there are
        if len(self._made["hparams"]) >= MOST_REMEMBERED:
            self._made["hparams"].clear()  # random draws, each with values of its own
        asked = f"{alike}\n{composed.text('hparams', 'algorithm', 'protocol')}"
        images = _training_images(folds, dataset.info)
        smallest = dataset.info.smallest_training
        hparams = self._once(
            "hparams", asked, lambda: hyperparameters(config, settings, smallest, images)
        )
        if self.fetch_weights and weights.to_fetch() is not None:
            # before a download that images which are not there would make useless
            described(dataset.options, absent_ok=False, download=self.download)
        identity = weights.identity if self.fetch_weights else weights.planned_identity
        return PlannedStudy(
            words=words,
            config=config,
            dataset=dataset.options,
            info=dataset.info,
            weights=weights,
            spec=study_spec(config, identity, hparams, shared),
            folds=folds,
            parent=self.parent or Path(composed.parent),
            repeats=repeats,
            search=search,
        )

    def _folds(self, composed: Composed, info: DatasetInfo) -> list[Fold]:
        def planned() -> list[Fold]:
            folds = planned_folds(composed["protocol"], info)
            for env in trained_in(folds):
                need_training_images(env, info.counts.get(env, {}).get("train", 1))
            return folds

        return self._once(
            "folds", composed.text("dataset", "init", "backbone", "protocol"), planned
        )

    def _weights_of(self, composed: Composed) -> InitialWeights:
        return self._once(
            "weights", composed.text("init", "backbone"), lambda: named_weights(composed.plain())
        )

    def _dataset(self, composed: Composed) -> PlannedDataset:
        def make() -> PlannedDataset:
            keys = filled_dataset(self._weights_of(composed).images, composed["dataset"])
            options = dataset_options(keys)
            return PlannedDataset(
                keys, options, described(options, absent_ok=True, download=self.download)
            )

        return self._once("dataset", composed.text("dataset", "init", "backbone"), make)


def _with_batch(error: TooFewImagesError, composed: Composed) -> TooFewImagesError:
    """Add to the line what a minibatch needs, if its size is known and no image is repeated."""
    config = composed.plain()
    settings = TrainerSettings(**config["trainer"])
    if settings.small_environments == "repeat":
        return error
    given = tuple(error.images)
    info = DatasetInfo(
        name="",
        variant={},
        base="",
        split_seed=0,
        given=given,
        everywhere=given,
        n_classes=0,
        image=(0,),
        only_tested=error.only_tested,
    )
    try:
        batch_size = hyperparameters(config, settings, 0, {})["batch_size"]
        folds = planned_folds(config["protocol"], info)
    except ConfigError:  # which is said once the images fit
        return error
    return with_batch_refusal(error, batch_size, set(trained_in(folds)))


def _training_images(folds: Sequence[Fold], info: DatasetInfo) -> dict[str, int]:
    """Count the training images of environments that some fold trains on, if they are counted."""
    images = {}
    for env in trained_in(folds):
        if env in info.counts:
            images[env] = info.counts[env]["train"]
    return images


def trained_in(folds: Sequence[Fold]) -> list[str]:
    """List the environments that any of these folds trains on, each once."""
    envs: dict[str, None] = {}
    for fold in folds:
        envs |= dict.fromkeys(fold.training)
    return list(envs)


def planned_again(config: Mapping[str, Any], parent: Path) -> PlannedStudy:
    """Plan the study of a run folder, from the configuration written there.

    It may lack keys that are newer.
    """
    newer = {
        "sharpness": conf_of("sharpness", "none"),
        "head": conf_of("head", "random"),
        "callbacks": {},
    }
    complete = {**newer, "seed_moves": ALL, **config}
    check_configuration(complete)
    return Planner(None, parent, download=True).study([], Composed.of_plain(complete, str(parent)))


@dataclass
class Command:
    """Holds what a user typed: a configuration, and the studies that it stands for."""

    config: DictConfig  #: the composed configuration
    words: Sequence[str]  #: the overrides that it was composed from
    composer: Composer  #: composes other overrides
    parent: Path  #: folder that the studies go to
    chooses_threads: bool = False  #: a command does; a Python caller may have set torch's number
    #: a command of several studies shows its plan first; jobs of a sweep do not
    prints_plan: bool = True

    def __post_init__(self) -> None:
        if self.prints_plan and self.config.wait is False:
            raise ConfigError(
                "wait=false submits a sweep to a queue; add -m and hydra/launcher=slurm, or leave "
                "it out"
            )

    @staticmethod
    def of_hydra(config: DictConfig) -> Command:
        """Read the command that Hydra runs at this moment.

        Raises:
            ConfigError: a launcher without a sweep.
        """
        from hydra import compose
        from hydra.core.global_hydra import GlobalHydra
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        hydra = HydraConfig.get()
        sweeps = hydra.mode is RunMode.MULTIRUN
        launcher = hydra.runtime.choices.get("hydra/launcher", "basic")
        if not sweeps and launcher != "basic":
            raise ConfigError(
                f"hydra/launcher={launcher} starts the jobs of a sweep; add -m, or leave it out"
            )
        typed = [*map(str, hydra.overrides.task), *map(str, hydra.overrides.hydra)]
        refuse_unread(typed, UNREAD_IN_SWEEPS if sweeps else UNREAD_ALONE)
        parent = hydra.sweep.dir if sweeps else config.paths.output_dir
        name = str(hydra.job.config_name)
        words = [str(word) for word in hydra.overrides.task]
        loader = GlobalHydra.instance().config_loader()
        composer = Composer(
            loader, lambda overrides: compose(name, overrides), {tuple(words): config}
        )
        return Command(config, words, composer, Path(str(parent)), True, prints_plan=not sweeps)

    def planner(self) -> Planner:
        """Make the planner of its studies."""
        return Planner(self.composer, self.parent)

    def place(self) -> JobPlace:
        """Return where the command keeps its records as a job of a sweep."""
        return JobPlace(self.parent, self.planner().key(Composed.of_config(self.config, "")))

    def check_words(
        self, tell: Callable[[str], None], needs: Mapping[str, Need] = OF_TRAINING
    ) -> None:
        """Refuse typed words that nothing reads, or name them; a sweep did so for all of its jobs.

        Raises:
            ConfigError: one that would mislead.
        """
        if self.prints_plan:
            check_needs(self.words, lambda: self.planner().readings(self.words), needs, tell)

    def values(self) -> dict[str, Any]:
        """Return the plain resolved values by top-level key."""
        return Composed.of_config(self.config, "").plain()


def planned_studies(command: Command) -> list[PlannedStudy]:
    """Plan every study of a command once and check it; what is absent may be downloaded.

    Nothing is decoded, built or started.

    Raises:
        ConfigError, DataError, WeightsError: one that cannot work.
    """
    planner = command.planner()
    # wrong values are refused before anything is downloaded
    studies = list(planner.studies(command.words))
    datasets = {id(study.dataset): study for study in studies}.values()
    if any(
        described(study.dataset, absent_ok=True, download=True) != study.info for study in datasets
    ):
        studies = list(replace(planner, download=True).studies(command.words))
    distinct = {}
    for study in studies:
        names = tuple(fold.name for fold in study.folds)
        distinct[study.folder, names] = study
    return list(distinct.values())


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended."""

    folders: Sequence[Path] = ()  #: run folders of all its studies
    failed: Sequence[str] = ()  #: what failed, by study; empty if nothing did

    def raise_failed(self) -> None:
        """Raise an error that names in one line what failed, if anything did.

        Raises:
            RunsFailedError: something did.
        """
        if not self.failed:
            return
        named = "; ".join(self.failed[:MOST_SHOWN_WHOLE])
        n_more = len(self.failed) - MOST_SHOWN_WHOLE
        if n_more > 0:
            named += f" and of {n_more} more"
        raise RunsFailedError(
            f"{named} failed; see log.txt and status in its folder, correct the cause and start "
            "the same command again"
        )
