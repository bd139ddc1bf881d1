"""Types and bounds of configuration values, asked for every study before anything heavy is loaded
or written.

A field is a key of ``conf/``; what it means stands there. A key that a choice of a group lacks is
not asked, and where a group may name a class of a user's own, keys that are not listed here are
left to that class. Datasets, protocols, searches and initial weights check their keys themselves,
when a study is planned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from annotated_types import Predicate
from omegaconf import OmegaConf
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dgbench.errors import ConfigError
from dgbench.records.checks import printable_text
from dgbench.records.predictions import need_pyarrow
from dgbench.seeding import ALL, Moved
from dgbench.validation import (
    AtLeast0,
    AtLeast1,
    Checked,
    Count0,
    Count1,
    Folder,
    Keys,
    NonBlank,
    NotNegative,
    Number,
    Positive,
    Refusal,
    Switch,
    config_error,
    shown,
)

Name = Annotated[
    NonBlank,
    Predicate(lambda name: not printable_text(name)),
    Refusal("is no name", "give some printable text, rows and folders carry it"),
]
#: of what a folder or a file is named after
FileName = Annotated[
    Annotated[Name, Predicate(lambda name: not re.search(r"[/\\]|^\.", name))],
    Refusal("cannot name a folder", "give printable text without / and \\, and no dot first"),
]
N = TypeVar("N")
Channels = Annotated[list[N], Field(min_length=3, max_length=3)]
Norm = Annotated[
    Literal["train", "frozen", "fixed"], Refusal("is unknown", "choose train, frozen or fixed")
]
Patterns = Annotated[
    list[NonBlank], Refusal("is no list of patterns", 'give one, e.g. ["fc.*"], or []')
]


def _plain_list(value: Any) -> Any:
    """Convert OmegaConf's sequence, in which Hydra hands over a list; return else as it is."""
    return list(value) if OmegaConf.is_list(value) else value


_ONE_OR_NULL = Refusal("is not an integer >= 1", "give one, or null")


class TrainerSettings(Checked):
    """Keys of ``conf/trainer``."""

    key = "trainer"

    steps: Annotated[
        AtLeast0, Refusal("is not an integer >= 0 (below 2^63)", "0 evaluates the initial weights")
    ] = 5000
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: Count0 = 0
    gradient_clip: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Refusal("is not a norm > 0", "give one, or null"),
    ] = None
    accumulate: Count1 = 1
    environments_per_step: Annotated[
        AtLeast1 | None, Refusal("is not an integer >= 1", "give one, or null for all")
    ] = None
    small_environments: Literal["refuse", "repeat"] = "refuse"
    sampling: Literal["uniform", "class_balanced", "pooled"] = "uniform"
    eval_every: Count1 = 500
    eval_subsets: Annotated[
        list[Literal["train", "val", "test"]],
        Refusal("is not a list of val and test", "it may add train"),
    ] = Field(default=["val", "test"])
    eval_test: Literal["always", "best"] = "always"
    class_errors: Switch = False
    predictions: Literal["none", "last", "best"] = "none"
    eval_batch_size: Count1 = 2048
    device: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    devices: Count1 = 1
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = "32-true"
    matmul: Literal["highest", "high", "medium"] = "highest"
    channels_last: Switch = False
    checkpoint_seconds: Annotated[NotNegative, Refusal("is not a number >= 0", "give one")] = 30.0
    log_every: Count1 = 50

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.warmup_steps and self.warmup_steps >= self.steps:
            raise ConfigError(
                f"trainer.warmup_steps={self.warmup_steps} is not below "
                f"trainer.steps={self.steps}; give fewer"
            )
        if not {"val", "test"} <= set(self.eval_subsets):
            raise ConfigError(
                f"trainer.eval_subsets={shown(self.eval_subsets)} must hold val and test; it may "
                "add train"
            )
        if self.sampling == "pooled" and self.environments_per_step is not None:
            raise ConfigError(
                "trainer.sampling=pooled draws from all environments together, of which "
                f"trainer.environments_per_step={self.environments_per_step} would choose some; "
                "leave one of them out"
            )
        for key, alone in (
            ("eval_test", "always"),
            ("predictions", "none"),
            ("class_errors", False),
        ):
            value = getattr(self, key)
            if self.devices > 1 and value not in (alone, "always"):
                raise ConfigError(
                    f"trainer.{key}={shown(value)} needs one process, each of several sees a part; "
                    f"set it to {shown(alone)}"
                )
        if self.predictions != "none":
            need_pyarrow(f"trainer.predictions={self.predictions}")
        return self

    def changed(self) -> dict[str, Any]:
        """Return the keys that change numbers (:data:`RECORDED`) and are not at their default, for
        the rows.
        """
        recorded = self.model_dump(include=RECORDED, exclude_defaults=True)
        return {f"trainer.{key}": value for key, value in recorded.items()}

    def minibatches(self, environments: int) -> int:
        """Count the minibatches of a step, of a run that trains on this many environments.

        Raises:
            ConfigError: more are to be drawn than there are.
        """
        drawn = self.environments_per_step
        if drawn is None:
            return environments
        if drawn > environments:
            raise ConfigError(
                f"trainer.environments_per_step={drawn} is more than the {environments} training "
                f"environments of a fold; set {environments} or less, or null for all of them"
            )
        return drawn

    def check_batch_size(self, size: int) -> None:
        """Refuse a minibatch that cannot be cut into equal parts.

        Raises:
            ConfigError: no multiple of the micro-batches.
        """
        parts = self.accumulate * self.devices
        if size % parts:
            raise ConfigError(
                f"hparams.batch_size={size} cannot be cut into "
                f"trainer.accumulate={self.accumulate} x trainer.devices={self.devices} equal "
                f"parts; set hparams.batch_size to a multiple of {parts}"
            )


#: settings that change numbers; the others say where and how the same numbers are computed
COUNTING = (
    "steps",
    "schedule",
    "warmup_steps",
    "gradient_clip",
    "accumulate",
    "eval_every",
    "eval_subsets",
    "eval_test",
    "eval_batch_size",
    "devices",
    "precision",
    "matmul",
    "environments_per_step",
    "small_environments",
    "sampling",
)
RECORDED = {
    "schedule",
    "warmup_steps",
    "gradient_clip",
    "accumulate",
    "devices",
    "precision",
    "matmul",
    "environments_per_step",
    "small_environments",
    "sampling",
}


class TuningSettings(Checked):
    """Keys of ``conf/tuning``."""

    key = "tuning"

    name: FileName = "ft"
    trains: Annotated[
        Literal["everything", "lora", "bias", "norm"],
        Refusal("is unknown", "choose everything, lora, bias or norm"),
    ] = "everything"
    rank: Annotated[AtLeast1, Refusal("is not an integer >= 1", "give one, e.g. 8")] = 8
    alpha: Annotated[Positive, Refusal("is not a number > 0", "give one, e.g. the rank")] = 8.0
    targets: Annotated[
        Annotated[list[NonBlank], Field(min_length=1), BeforeValidator(_plain_list)] | None,
        Refusal("is no list of names", 'give one, e.g. ["*attn.qkv"], or null'),
    ] = None
    freeze_stages: Annotated[
        AtLeast0 | Literal["all"], Refusal("is no number of stages", "give 1, 2, ... or all")
    ] = 0
    cache_features: Switch = False
    cache_gb: Annotated[Positive, Refusal("is not a number > 0", "give one, in gigabytes")] = 4.0
    cache_dir: Annotated[
        NonBlank | None, Refusal("is no folder", "give its path, or null for memory")
    ] = None
    head_steps: Annotated[
        AtLeast0, Refusal("is not an integer >= 0", "0 has no steps of the head")
    ] = 0
    head_lr: Annotated[
        Positive | None, Refusal("is not a number > 0", "give one, or null for the algorithm's lr")
    ] = None
    layer_decay: Annotated[
        Annotated[Positive, Field(le=1)] | None,
        Refusal("is not in (0, 1]", "give e.g. 0.65, or null for none"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _without_class(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key != "_target_"}


class Open(Keys):
    """Keys of a group whose class may be a user's own and have others."""

    model_config = ConfigDict(extra="allow")
    # or the documentation cannot import the class
    __pydantic_extra__: dict[str, Any] = Field(init=False)


class Named(Open):
    """A choice that rows name."""

    name: FileName = "name"


class AveragingRuleKeys(Open):
    """How weights are averaged."""

    start: Annotated[AtLeast1, Refusal("is not a step", "give 1 or more, 100 is published")] = 100
    flavor: Annotated[
        Literal["state", "parameters", "renewed"],
        Refusal("is unknown", "choose state, parameters or renewed"),
    ] = "state"
    n_converge: Count1 = 3
    n_tolerance: Count1 = 6
    tolerance_ratio: Annotated[
        NotNegative, Refusal("is not a number >= 0", "give one, 0.3 is published")
    ] = 0.3
    batchnorm_batches: Annotated[
        AtLeast0, Refusal("is not an integer >= 0", "give one, 500 is published")
    ] = 500
    beta: Annotated[Positive, Refusal("is not a number > 0", "give one, 0.5 is published")] = 0.5


class AveragingKeys(Named):
    """Keys of ``conf/averaging``."""

    rule: AveragingRuleKeys = AveragingRuleKeys()


class Sharpness(Named):
    """Keys of ``conf/sharpness``."""

    rho: Annotated[
        Positive, Refusal("is not a number > 0", "0.05 is published; sharpness=none does not climb")
    ] = 0.05
    alpha: Annotated[NotNegative, Refusal("is not a number >= 0", "give one")] = 0.1


class AlgorithmKeys(Named):
    """Keys of ``conf/algorithm``, less its hyperparameters."""

    objective: Annotated[
        NonBlank, Refusal("is no class", "give the import path of an Algorithm")
    ] = "class"
    shared: Annotated[
        list[NonBlank],
        Refusal("is no list of names", "name the shared hyperparameters that are read"),
    ] = Field([])
    hparams: dict[str, Any] | None = None
    search: dict[str, Any] | None = None


class Backbone(Named):
    """Keys of ``conf/backbone`` that several networks have."""

    norm: Norm = "train"
    projection: Annotated[
        AtLeast1 | None, Refusal("is not an integer >= 1", "give one, 512 is CLIP's, or null")
    ] = None
    unit_length: Switch = False
    hparams: dict[str, str] | None = None


class Head(Named):
    """Keys of ``conf/head``."""

    unit_length: Switch = False
    prompts: Annotated[
        list[Annotated[str, Field(pattern=r"\{\}")]],
        Field(min_length=1),
        Refusal(
            "is no list of texts with {} where the class stands", 'write e.g. ["a photo of a {}."]'
        ),
    ] = Field(["{}"])
    class_names: Annotated[
        Mapping[str | int, str],
        Refusal("is no mapping of names by class", "write e.g. {dog: puppy}"),
    ] = Field({})
    scale: Annotated[
        Positive | None, Refusal("is not a number > 0", "give one, or null for the encoder's own")
    ] = None
    model: Annotated[
        NonBlank | None,
        Refusal("is no name of a model of OpenCLIP", "give one, or null for what init says"),
    ] = None


class Init(Named):
    """Keys of ``conf/init`` that files of weights have."""

    norm: Norm = "train"
    path: Annotated[NonBlank | None, Refusal("is no file", "give its path, or null")] = None
    url: Annotated[NonBlank | None, Refusal("is no address", "give one, or null")] = None
    sha256: Annotated[
        Annotated[str, Field(pattern=r"^[0-9a-fA-F]{8,64}$")] | None,
        Refusal("is no sha256", "give its first 8 to 64 hexadecimal digits, or null"),
    ] = None
    mean: Annotated[
        Channels[Number] | None, Refusal("is not three numbers", "null takes the weights' own")
    ] = None
    std: Annotated[
        Channels[Positive] | None,
        Refusal("is not three numbers > 0", "null takes the weights' own"),
    ] = None
    version: Annotated[
        NonBlank | None, Refusal("is no name of published weights", "give one, or null")
    ] = None
    timeout: Annotated[Positive, Refusal("is not a number of seconds > 0", "give one")] = 5.0
    cache_dir: Folder = "cache"
    key: Annotated[
        NonBlank | None,
        Refusal("is no name of a mapping in the file", "give one, e.g. teacher, or null"),
    ] = None
    prefix: Annotated[
        NonBlank | None, Refusal("is no beginning of names", "give one, e.g. net., or null")
    ] = None
    allow_missing: Patterns = Field([])
    allow_unexpected: Patterns = Field([])


class Hparams(Open):
    """Keys of ``conf/hparams`` that say how hyperparameters are drawn.

    Every other one is a hyperparameter.
    """

    space: Name = "domainbed"
    draw: Annotated[AtLeast0, Refusal("is not an integer >= 0", "draw 0 is the default set")] = 0
    trial: Annotated[AtLeast0, Refusal("is not an integer >= 0", "give one")] = 0
    rng: Literal["per_name", "single_stream"] = "per_name"


class Execution(Keys):
    """Keys of ``conf/execution``."""

    mode: Annotated[
        Literal["auto", "single", "stacked"],
        Refusal("is unknown", "choose auto, single or stacked"),
    ]
    max_runs: Annotated[AtLeast1 | None, _ONE_OR_NULL] = None
    memory_gb: Annotated[
        Positive | None,
        Refusal("is not a number > 0", "give one, or null for half of the device's memory"),
    ] = None


class Sweep(Keys):
    """Keys below ``sweep``."""

    runs_per_job: Annotated[AtLeast1 | None, _ONE_OR_NULL] = None


Peak = Annotated[Positive, Refusal("is not a number > 0", "give TFLOP/s")]


class Peaks(Keys):
    """Keys below ``card.tflops``."""

    half: Peak
    tf32: Peak
    single: Peak
    double: Peak


class Card(Keys):
    """Keys below ``card``."""

    name: Name
    utilization: Annotated[
        Annotated[Positive, Field(le=1)], Refusal("is not in (0, 1]", "give a share, e.g. 0.37")
    ]
    tflops: Peaks

    def rate(self, trainer: TrainerSettings) -> float:
        """Compute the operations per second that such training is assumed to reach."""
        single = "single" if trainer.matmul == "highest" else "tf32"
        kind = {"32-true": single, "64-true": "double"}.get(trainer.precision, "half")
        peak: float = getattr(self.tflops, kind)
        return 1e12 * peak * self.utilization


class Paths(Keys):
    """Keys of ``conf/paths``."""

    data_dir: Folder
    cache_dir: Folder
    output_dir: Folder


class Logger(Open):
    """Keys of ``conf/logger``."""

    target: Annotated[
        NonBlank | None,
        Field(alias="_target_"),
        Refusal("is no class", "give the import path of a Lightning Logger, or null"),
    ] = None
    project: Annotated[
        NonBlank | None,
        Refusal("is no name of a W&B project", "give one, or null for WANDB_PROJECT or dgbench"),
    ] = None
    entity: Annotated[
        NonBlank | None, Refusal("is no W&B user or team", "give one, or null for your default")
    ] = None
    mode: Annotated[
        Literal["online", "offline", "disabled"] | None,
        Refusal("is unknown", "choose online, offline, disabled or null"),
    ] = None
    group: Annotated[
        NonBlank | None, Refusal("is no name", "give one, or null for the study's folder")
    ] = None
    name: Annotated[
        NonBlank | None, Refusal("is no name", "give one, or null for the study's folder")
    ] = None
    tags: Annotated[
        list[NonBlank] | None, Refusal("is no list of names", "write e.g. logger.tags=[first]")
    ] = None


class Configuration(Keys):
    """A whole composed configuration: the keys of ``conf/train.yaml``."""

    model_config = ConfigDict(extra="ignore")

    seed: Annotated[
        AtLeast0, Refusal("is not an integer >= 0 (below 2^63)", "0 is a seed like any other")
    ] = 0
    seed_moves: Moved = ALL
    plan: Switch = False
    retry: Literal["all", "failed", "none"] = "all"
    wait: Switch = True
    grid: Annotated[
        Mapping[str, Any], Refusal("is no set of lists by key", "write e.g. grid.seed=[0,1,2]")
    ] = Field({})
    sweep: Sweep | None = None
    card: Card | None = None
    trainer: TrainerSettings | None = None
    tuning: TuningSettings | None = None
    averaging: AveragingKeys | None = None
    sharpness: Sharpness | None = None
    algorithm: AlgorithmKeys | None = None
    backbone: Backbone | None = None
    head: Head | None = None
    init: Init | None = None
    hparams: Hparams | None = None
    protocol: Named | None = None
    execution: Execution | None = None
    paths: Paths | None = None
    logger: Logger | None = None


def check_configuration(config: Mapping[str, Any]) -> None:
    """Refuse values that cannot work, whichever part of a command would read them.

    Raises:
        ConfigError: the first one, with its key and the fix.
    """
    try:
        Configuration.model_validate(config)
    except ValidationError as error:
        raise config_error(error, "") from None
