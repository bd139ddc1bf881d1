"""What ``conf/adaptation`` names: a method, its stream, and what rows say of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.plan.building import build_plain
from dgbench.plan.code import named, user_code
from dgbench.plan.settings import FileName
from dgbench.records.run_identity import RunIdentity
from dgbench.records.spec import digest
from dgbench.seeding import STREAM
from dgbench.trained.adaptation.contract import Adaptation
from dgbench.trained.adaptation.stream import AdaptingModel, Stream
from dgbench.trained.matched import Matched
from dgbench.trained.predictor import Predictor
from dgbench.validation import AtLeast0, Checked, Count1, Refusal, Switch


class AdaptationKeys(Checked):
    """Keys of ``conf/adaptation`` that every method has; the rest are the method's own."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any] = Field(init=False)
    key: ClassVar[str] = "adaptation"

    name: FileName
    batch_size: Count1
    episodic: Switch
    stream_seed: Annotated[
        AtLeast0 | None, Refusal("is not an integer >= 0", "give one, or null for the run's seed")
    ]


@dataclass(frozen=True)
class ChosenAdaptation:
    """A method with its stream, for any model.

    Args:
        keys: of the stream, and the method's own.
        repeats: the seed of the stream is that of the rows, which repeat runs of seed 0
            (``seed_moves=stream``).
    """

    keys: AdaptationKeys
    method: Adaptation
    repeats: bool = False

    @staticmethod
    def of(content: Mapping[str, Any], repeats: bool = False) -> ChosenAdaptation | None:
        """Build what the keys of ``conf/adaptation`` choose; None is no adaptation.

        Raises:
            ConfigError: a key that is unknown, a value that cannot be, or a class that is no
                method.
        """
        if "_target_" not in content:
            if repeats:
                raise ConfigError(
                    "seed_moves=stream repeats the order of a stream, which adaptation=none does "
                    "not have; choose another adaptation"
                )
            return None
        keys = AdaptationKeys(**content)
        method = build_plain(keys.__pydantic_extra__, "adaptation")
        if not isinstance(method, Adaptation):
            raise ConfigError(
                f"adaptation._target_={content['_target_']} is no method of adaptation; name a "
                "subclass of dgbench.trained.adaptation.Adaptation"
            )
        if repeats and keys.stream_seed is None:
            raise ConfigError(
                "seed_moves=stream needs the seeds of the streams; add "
                "'adaptation.stream_seed=[0,1,2]'"
            )
        return ChosenAdaptation(keys, method, repeats)

    @property
    def name(self) -> str:
        """What rows and tables call it."""
        return self.keys.name

    @property
    def key(self) -> str:
        """Digest of everything that decides predictions, besides the model and its seed."""
        content = {**named(self.keys.model_dump()), "user_code": self._user_code}
        return digest([content, self.repeats])

    @property
    def _user_code(self) -> dict[str, str]:
        return user_code(self.keys.__pydantic_extra__)

    def adapting(self, network: Matched, info: DatasetInfo) -> AdaptingModel:
        """Make a model that adapts.

        Args:
            network: the model, which predicts a batch in one call.
            info: the dataset.

        Raises:
            ConfigError: why it cannot be adapted; nothing was evaluated.
        """
        self._check(network, info)
        return AdaptingModel(self.method, network, self.stream(network.model))

    def _check(self, network: Matched, info: DatasetInfo) -> None:
        word = f"adaptation={self.name}"
        model = network.model
        if model.preprocessing.vectors:
            raise ConfigError(f"{word} needs images, and {info.name} holds vectors; leave it out")
        if model.group_size:
            raise ConfigError(
                f"{word} chooses which images are seen together, and this model predicts "
                f"{model.group_size} images together already; leave it out"
            )
        if next(model.parameters(), None) is None:
            raise ConfigError(
                f"{word} changes a network, and this model is a function without parameters; name "
                "a run, a model of timm, or a module"
            )
        record = model.record
        if self.repeats and record is not None and record.identity["seed"] != 0:
            raise ConfigError(
                "seed_moves=stream repeats runs of seed 0, and this run has seed "
                f"{record.identity['seed']}; name runs of seed 0"
            )
        self.method.check(network, info.image)
        least = self.method.least_images(network)
        if self.keys.batch_size < least:
            raise ConfigError(
                f"adaptation.batch_size={self.keys.batch_size} gives BatchNorm no statistics; give "
                f"{least} or more"
            )

    def stream(self, model: Predictor) -> Stream:
        """Describe the stream that a model sees, by default in an order of the run's own seed."""
        seed = self.keys.stream_seed
        if seed is None:
            seed = 0 if model.record is None else int(model.record.identity["seed"])
        return Stream(self.keys.batch_size, seed, self.keys.episodic)

    def summary(self, model: Predictor) -> str:
        """Describe method and stream in a line."""
        stream = self.stream(model)
        forgets = "after each batch" if stream.episodic else "at the end of each environment"
        text = (
            f"adaptation={self.name} on batches of {stream.batch_size} unlabeled images in the "
            f"order of seed {stream.seed}, forgotten {forgets}"
        )
        understood = self.method.understood(model)
        return f"{text}; {understood}" if understood else text

    def described(self, model: Predictor) -> dict[str, Any]:
        """Describe the method and the stream of a model in full, for ``identity.json``."""
        return {**named(self.keys.model_dump()), "stream_seed": self.stream(model).seed}

    def identity(self, identity: RunIdentity, step: int) -> RunIdentity:
        """Say in the identity of a model's rows how it was adapted.

        Args:
            identity: of the model without adaptation.
            step: optimizer steps that it had made.
        """
        shown = self.keys.model_dump()
        for key in ("_target_", "name"):
            shown.pop(key, None)
        if self.repeats or shown["stream_seed"] is None:
            del shown["stream_seed"]
        hparams = dict(identity.hparams)
        for key, value in shown.items():
            hparams[f"adaptation.{key}"] = value
        changed = replace(
            identity,
            run=digest([identity.run, step, self.key]),
            adaptation=self.name,
            hparams=hparams,
            grouped=True,
            user_code={**identity.user_code, **self._user_code},
        )
        if not self.repeats:
            return changed
        assert self.keys.stream_seed is not None
        return replace(changed, seed=self.keys.stream_seed, seed_moves=STREAM)
