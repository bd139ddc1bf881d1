"""What a job estimates: pairs of environments, estimators, and which rows each is to have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dgbench.data.description import DatasetInfo
from dgbench.data.options import DatasetOptions
from dgbench.errors import ConfigError
from dgbench.plan.building import (
    InitialWeights,
    build,
    dataset_options,
    described,
    filled_dataset,
    named_weights,
    without,
)
from dgbench.plan.folds import Fold, planned_folds
from dgbench.plan.settings import TrainerSettings, check_configuration
from dgbench.records.shift_rows import (
    HALF,
    LABELS,
    SHIFT_FILE,
    TRIAL,
    ShiftIdentity,
    read_shift_rows,
)
from dgbench.records.spec import code_version, digest
from dgbench.seeding import derive
from dgbench.shift.estimators import Estimator
from dgbench.validation import Checked, Count0, Count1, NonBlank, Positive, Refusal, Switch

REFERENCE = "reference"
# keys of conf/trainer that count here
USED = (
    "device",
    "precision",
    "matmul",
    "checkpoint_seconds",
)


@dataclass(frozen=True)
class EnvironmentPair:
    """Two sides of given environments."""

    pairs: str  #: how they were chosen, ``folds``, ``each`` or ``reference``
    name: str  #: of the pair among those
    p: tuple[str, ...]
    q: tuple[str, ...]


@dataclass(frozen=True)
class Slot:
    """One estimate of a pair: its row is written once."""

    kind: str
    number: int
    null: str

    def key(self, pair: EnvironmentPair) -> tuple[str, str, str, int, str]:
        """Return the key of its row."""
        return pair.pairs, pair.name, self.kind, self.number, self.null

    def seed(self, base: int, pair: EnvironmentPair) -> int:
        """Derive the seed of everything that is drawn for it."""
        return derive(
            base, "shift", pair.pairs, *pair.p, "|", *pair.q, self.kind, self.number, self.null
        )


@dataclass(frozen=True)
class PlannedEstimator:
    """One estimator on one dataset."""

    estimator: Estimator
    identity: ShiftIdentity  #: of its rows
    folder: Path  #: where they are kept
    pairs: Sequence[EnvironmentPair]
    slots: Sequence[Slot]  #: estimates of each pair

    @property
    def file(self) -> Path:
        """File of its rows."""
        return self.folder / SHIFT_FILE

    @property
    def size(self) -> int:
        """Rows that it is to have."""
        return len(self.pairs) * len(self.slots)

    def left(self) -> Iterator[tuple[EnvironmentPair, Slot]]:
        """Find the estimates that have no row yet.

        If those of a pair depend on one another it is all of the pair.
        """
        done = {row.key for row in read_shift_rows(self.file)[0]} if self.file.exists() else set()
        for pair in self.pairs:
            pending = [slot for slot in self.slots if slot.key(pair) not in done]
            if pending and self.estimator.whole_pair:
                pending = list(self.slots)
            for slot in pending:
                yield pair, slot


@dataclass(frozen=True)
class PlannedShift:
    """A whole job."""

    config: Mapping[str, Any]  #: plain resolved values by top-level key
    dataset: DatasetOptions
    info: DatasetInfo
    weights: InitialWeights  #: of the backbone
    settings: TrainerSettings
    estimators: Sequence[PlannedEstimator]


def planned_shift(
    config: Mapping[str, Any], words: Sequence[str], parent: Path, download: bool = False
) -> PlannedShift:
    """Plan everything that a job estimates, and check it; nothing is decoded, trained or written.

    Args:
        config: plain resolved values by top-level key.
        words: overrides that were typed.
        parent: folder that holds those of the estimators.
        download: try to download absent images and weights; without it, absent weights have an
            identity of their own.

    Raises:
        ConfigError, DataError, WeightsError: the job cannot work.
    """
    check_configuration(config)
    check_keys(config, words)
    weights = named_weights(config)
    plain = {**config["dataset"], **({"augment": "none"} if "augment" in config["dataset"] else {})}
    config = {**config, "dataset": filled_dataset(weights.images, plain)}
    dataset = dataset_options(config["dataset"])
    info = described(dataset, absent_ok=not download, download=download)
    settings = TrainerSettings(**config["trainer"])
    planned = []
    for estimator in _estimators(config):
        keys = {
            **dict(estimator),
            **{key: config[key] for key in ("min_per_class", "max_per_class")},
        }
        shared = {
            **info.facts(),
            "init": weights.identity if download else weights.planned_identity,
            **{key: config[key] for key in ("features", "images", "seed")},
        }
        content = {
            **shared,
            "backbone": without(config, "backbone", "hparams")["backbone"],
            "estimator": keys,
            "precision": settings.precision,
            "matmul": settings.matmul,
        }
        identity = ShiftIdentity(
            run=digest(content),
            **shared,
            backbone=config["backbone"]["name"],
            estimator=estimator.name,
            settings=keys,
            code=code_version(),
        )
        if estimator.against_reference:
            pairs = [EnvironmentPair(REFERENCE, env, (REFERENCE,), (env,)) for env in info.given]
        else:
            pairs = pairs_of(config["pairs"], planned_folds(config["protocol"], info), info.given)
        slots = slots_of(config["trials"], config["halves"], estimator.nulls_of(config["null"]))
        folder = parent / f"shift-{info.name}-{estimator.name}-{identity.run}"
        planned.append(PlannedEstimator(estimator, identity, folder, pairs, slots))
    return PlannedShift(config, dataset, info, weights, settings, planned)


def _estimators(config: Mapping[str, Any]) -> list[Estimator]:
    """Build the chosen estimators.

    Raises:
        ConfigError: settings of one that is not chosen, or one that needs other features.
    """
    chosen = [name for name, keys in config["estimator"].items() if "_target_" in keys]
    for name, keys in config["estimator"].items():
        if name not in chosen:  # a preset's settings of an estimator that other words took away
            raise ConfigError(
                f"estimator.{name} has settings ({', '.join(keys)}) and is not chosen; "
                f"add it, estimator=[{','.join(chosen)},{name}], or leave it out, "
                f"~estimator.{name}"
            )
    estimators: list[Estimator] = []
    for name in chosen:
        estimators.append(build(config["estimator"], name, _convert_="all"))
    for estimator in estimators:
        if config["features"] not in estimator.kinds:
            raise ConfigError(
                f"estimator={estimator.name} compares fixed features; set features=frozen, or "
                "leave the estimator out"
            )
    return estimators


AtLeast2 = Annotated[int, Field(ge=2)]


class ShiftKeys(Checked):
    """Keys of ``conf/shift.yaml`` that no group of its own checks."""

    key = ""

    pairs: Literal["folds", "each"]
    images: Literal["all", "train"]
    features: Literal["frozen", "trained"]
    trials: Count1
    halves: Count0
    min_per_class: Annotated[AtLeast2, Refusal("is not an integer >= 2", "give one")]
    max_per_class: Annotated[AtLeast2 | None, Refusal("is not an integer >= 2", "give one")]
    null: Switch
    cache_dir: Annotated[
        NonBlank | None, Refusal("is no folder", "give its path, or null for memory")
    ]
    cache_gb: Annotated[Positive, Refusal("is not a number > 0", "give one, in gigabytes")]

    @model_validator(mode="after")
    def _halves_have_a_spread(self) -> Self:
        if self.halves == 1:
            raise ConfigError(
                "halves=1 has no spread; give 2 or more (8 is the default), or 0 for no interval"
            )
        return self


def check_keys(config: Mapping[str, Any], words: Sequence[str]) -> None:
    """Refuse keys of the job that cannot work.

    Raises:
        ConfigError: for the first of them.
    """
    ShiftKeys(**{key: config[key] for key in ShiftKeys.model_fields})
    if not config.get("estimator"):
        raise ConfigError(
            "estimator=[] estimates nothing; name files of conf/estimator, e.g. estimator=[joint]"
        )
    typed = [word.lstrip("+").partition("=")[0] for word in words]
    of_trainer = [key for key in typed if key.startswith("trainer.")]
    unused = [key for key in of_trainer if key.partition(".")[2] not in USED]
    if unused:
        read = ", ".join(f"trainer.{key}" for key in USED)
        raise ConfigError(
            f"{unused[0]} says how algorithms are trained, and a shift reads {read}; leave it out "
            "(steps and learning rates of estimators are keys of estimator.NAME)"
        )
    if config["trainer"]["devices"] != 1:
        raise ConfigError(
            "trainer.devices is 1 for a shift, whose classifiers are small; leave trainer=ddp out"
        )
    if "dataset.augment" in typed:
        raise ConfigError(
            "dataset.augment says how training images change, and shift is estimated on images as "
            "they are; leave it out"
        )  # fmt: skip


def pairs_of(pairing: str, folds: Sequence[Fold], given: Sequence[str]) -> list[EnvironmentPair]:
    """Pair the given environments: sides of ``folds`` of the protocol, or ``each`` two of them.

    Raises:
        ConfigError: there is no pair of two sides.
    """
    if len(given) < 2:
        raise ConfigError(
            "shift needs at least 2 given environments, and the dataset has "
            f"{len(given)}; give more"
        )
    if pairing == "each":
        return [EnvironmentPair(pairing, f"{a}|{b}", (a,), (b,)) for a, b in combinations(given, 2)]
    pairs = []
    for fold in folds:
        if fold.membership is not None:
            raise ConfigError(
                "protocol=flexible has other environments for every class; choose pairs=each or "
                "another"
            )
        if not fold.held_out:
            continue
        unseen = tuple(env for env in fold.tested if env not in fold.training)
        if unseen:
            pairs.append(EnvironmentPair(pairing, fold.name, tuple(fold.training), unseen))
    if not pairs:
        raise ConfigError(
            "no fold of this protocol holds an environment out; choose protocol=loo, or pairs=each"
        )
    return pairs


def slots_of(trials: int, halves: int, nulls: Sequence[str]) -> list[Slot]:
    """List the estimates of a pair; labels are shuffled in trials only, not on halves."""
    slots = []
    for number in range(trials):
        slots += [Slot(TRIAL, number, null) for null in nulls]
    for number in range(halves):
        slots += [Slot(HALF, number, null) for null in nulls if null != LABELS]
    return slots
