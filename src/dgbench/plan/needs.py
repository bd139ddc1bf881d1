"""What keys of a configuration need so that something reads them.

Hydra refuses a key that a chosen file lacks. The keys below stand in the chosen files, and count
only beside certain other values; every other key is read in whatever configuration has it
(``tests/plan/test_needs.py`` sorts all of them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.data.description import AS_LISTED, DatasetInfo
from dgbench.plan.hyperparameters import SHARED

Config = Mapping[str, Any]
Dataset = Callable[[], DatasetInfo]
Met = Callable[[str, Config, Dataset], bool]


@dataclass(frozen=True)
class Need:
    """What a key needs to be read, and what a user should know who typed it where it is not."""

    #: dotted key, plain values by top-level key, what describes the dataset -> whether it is read
    met: Met
    fix: str  #: what makes it count, or is to be written instead
    #: whether results are others than the word says; it is refused then, and else only named. A key
    #: that is part of a run's identity is named: a command that makes the run again has to type it
    misleads: bool = True


def value_at(config: Config, key: str) -> Any:
    """Find the value of a dotted key; return None if there is none."""
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def default_of(target: str) -> Met:
    """Make the condition of a key that is only the default of another one, which was not typed."""

    def met(key: str, config: Config, _: Dataset) -> bool:
        value = value_at(config, target)
        return value is not None and value == value_at(config, key)

    return met


def where(target: str, test: Callable[[Any], bool] = bool) -> Met:
    """Make the condition that another key's value is of a kind; a missing one is None."""
    return lambda _, config, __: test(value_at(config, target))


def _default_of_protocol(key: str, config: Config, _: Dataset) -> bool:
    part = key.removeprefix("dataset.split").removeprefix(".")
    parts = [part] if part else ["train", "val", "test"]
    split = value_at(config, "dataset.split") or {}
    return any(
        split.get(name) is not None and config["protocol"].get(name) == split[name]
        for name in parts
    )


def _default_of_groups(_: str, config: Config, __: Dataset) -> bool:
    protocol = config["protocol"]
    own = protocol.get("groups") is None and protocol.get("k") is None
    return own and protocol.get("default_groups") is not None


def draws(_: str, config: Config, __: Dataset) -> bool:
    """Return whether a study draws hyperparameters."""
    hparams = config["hparams"]
    return bool(hparams["draw"]) or hparams.get("scheme") is not None


def _is_logged(_: str, config: Config, __: Dataset) -> bool:
    return bool(config["logger"].get("_target_") or config["callbacks"])


def _reads_shared(key: str, config: Config, _: Dataset) -> bool:
    name = key.removeprefix("hparams.")
    algorithm = config["algorithm"]
    declared = algorithm.get("hparams") or {}
    shared: Sequence[str] = algorithm.get("shared", SHARED)
    return name in declared or name in shared


def _chosen_scheme(key: str, config: Config, _: Dataset) -> bool:
    name = key.removeprefix("dataset.augmentations").removeprefix(".").partition(".")[0]
    return not name or name == value_at(config, "dataset.augment")


def _fills_images(key: str, config: Config, _: Dataset) -> bool:
    normalize = value_at(config, "dataset.normalize")
    return isinstance(normalize, Mapping) and normalize.get(key.rpartition(".")[2]) is None


def _takes_published(_: str, config: Config, __: Dataset) -> bool:
    init = config["init"]
    return init.get("path") is None and init.get("url") is None


def _holds_data(_: str, config: Config, __: Dataset) -> bool:
    folder = config["paths"]["data_dir"]
    dataset = config["dataset"]
    if dataset.get("base") == "digits":  # of a package
        return False
    return any(str(dataset.get(key) or "").startswith(str(folder)) for key in ("root", "data_dir"))


def _has_files(_: str, config: Config, __: Dataset) -> bool:
    return bool(config["dataset"].get("base") != "digits")


def _is_cut(_: str, __: Config, described: Dataset) -> bool:
    return described().val_from != AS_LISTED


def _is_planned(_: str, config: Config, __: Dataset) -> bool:
    return bool(config["plan"] or config["grid"] or config["hparams"].get("scheme") is not None)


def never(*_: Any) -> bool:
    """Be met nowhere."""
    return False


_OF_RATIO = "dataset.given says which environments are given; leave one of the two out"
_SAID_BY_LIST = (
    "the list of the dataset says which images validate; leave it out, or set "
    "dataset.subset_column=none"
)
_BY_FIXED = (
    "protocol=fixed reads it where protocol.train, val and test are not set; add protocol=fixed"
)
_BY_GROUPS = (
    "protocol=multi_test and target_oracle read it where protocol.groups and k are null; add one "
    "of them"
)
_NO_SUCH_DEFAULT = (
    "it is only the default of backbone.{}, which this backbone does not have or which was typed"
)

_none_given = where("dataset.given", lambda given: given is None)

#: keys, or beginnings of keys, of any dataset and network
OF_DATASETS: Mapping[str, Need] = {
    "dataset.ratio": Need(_none_given, _OF_RATIO),
    "dataset.scale": Need(_none_given, _OF_RATIO),
    "dataset.split": Need(_default_of_protocol, _BY_FIXED),
    "dataset.test_groups": Need(_default_of_groups, _BY_GROUPS),
    "dataset.fetch": Need(
        never, "dgbench fetch alone reads it, from the file of the dataset; leave it out"
    ),
    "dataset.val_fraction": Need(_is_cut, _SAID_BY_LIST, misleads=False),
    "dataset.split_seed": Need(_is_cut, _SAID_BY_LIST, misleads=False),
    "dataset.resolution": Need(
        _has_files, "dataset.base=digits has 8 x 8 pixels; leave it out", misleads=False
    ),
    "dataset.data_dir": Need(
        _has_files, "dataset.base=digits comes with a package; leave it out", misleads=False
    ),
    "paths.data_dir": Need(
        _holds_data,
        "no image of this dataset is looked for there; leave it out, or see dataset.root",
        misleads=False,
    ),
    "head.unit_length": Need(
        default_of("backbone.unit_length"), _NO_SUCH_DEFAULT.format("unit_length")
    ),
    "init.norm": Need(default_of("backbone.norm"), _NO_SUCH_DEFAULT.format("norm")),
    "init.mean": Need(
        _fills_images, "it is only the default of dataset.normalize.mean; leave it out"
    ),
    "init.std": Need(
        _fills_images, "it is only the default of dataset.normalize.std; leave it out"
    ),
    "init.version": Need(
        _takes_published, "init.path and init.url name a file; leave one of the two out"
    ),
    "init.timeout": Need(
        where("init.path", lambda path: path is None),
        "init.path is not downloaded; leave it out",
        misleads=False,
    ),
    "protocol.exclusive": Need(
        where("protocol.setting", lambda setting: setting == "compositional"),
        "add protocol.setting=compositional",
    ),
    "protocol.minor_images": Need(
        where("protocol.minor"), "protocol.minor=0 has no such environments; leave it out"
    ),
    "protocol.default_groups": Need(
        _default_of_groups, "protocol.groups and protocol.k take precedence; leave them out"
    ),
}

_NOT_TRAINED = "trainer.steps=0 evaluates the initial weights and trains nothing; leave it out"
_CACHED = "tuning.cache_features=true reads it; add that, or leave it out"
_ALONE = "execution.mode=single trains one run after the other; leave it out"
_DRAWS = "draws of hyperparameters read it; add hparams.draw=N or hparams=search"
_OTHER_HPARAMS = "this algorithm reads others, see docs/reference/algorithms.md; leave it out"
_stacks = where("execution.mode", lambda mode: mode != "single")

#: the same of ``train`` and ``dgbench.train``
OF_TRAINING: Mapping[str, Need] = {
    **OF_DATASETS,
    "dataset.augmentations": Need(_chosen_scheme, "dataset.augment=NAME chooses it; add that"),
    "dataset.log2_batch_sizes": Need(draws, _DRAWS),
    **{f"hparams.{name}": Need(_reads_shared, _OTHER_HPARAMS) for name in SHARED},
    "hparams.rng": Need(draws, _DRAWS),
    "hparams.shared.search": Need(draws, _DRAWS),
    "algorithm.search": Need(draws, _DRAWS),
    **{
        f"trainer.{key}": Need(where("trainer.steps"), _NOT_TRAINED, misleads=False)
        for key in (
            "schedule",
            "gradient_clip",
            "accumulate",
            "environments_per_step",
            "sampling",
        )
    },
    "trainer.log_every": Need(
        _is_logged,
        "a logger shows these lines; add logger=csv, tensorboard or wandb",
        misleads=False,
    ),
    "trainer.matmul": Need(
        where("trainer.precision", lambda precision: precision != "64-true"),
        "it is for single precision, and trainer.precision=64-true; leave one of the two out",
        misleads=False,
    ),
    "averaging.rule.batchnorm_batches": Need(
        where("backbone.norm", lambda norm: norm in (None, "train")),
        "running statistics are frozen; leave it out, or set backbone.norm=train",
        misleads=False,
    ),
    "tuning.head_lr": Need(
        where("tuning.head_steps"),
        "tuning.head_steps=0 has no such steps; leave it out",
        misleads=False,
    ),
    "tuning.cache_gb": Need(where("tuning.cache_features"), _CACHED, misleads=False),
    "tuning.cache_dir": Need(where("tuning.cache_features"), _CACHED, misleads=False),
    "execution.max_runs": Need(_stacks, _ALONE, misleads=False),
    "execution.memory_gb": Need(_stacks, _ALONE, misleads=False),
    "card": Need(_is_planned, "plans read it; add plan=true", misleads=False),
}
