"""What a study builds, as far as it takes no image, and why it cannot.

Its plan asks this, and so does its training before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

from dgbench.callbacks.averaging import Averaging
from dgbench.containers import Networks
from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_head, build_networks
from dgbench.networks.featurizer import Featurizer
from dgbench.networks.initial_heads import RandomHead
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.sharpness import SAM
from dgbench.plan.building import InitialWeights, build, class_at, without
from dgbench.plan.folds import Fold
from dgbench.plan.settings import TrainerSettings
from dgbench.plan.studies import PlannedStudy
from dgbench.seeding import Moved, seed_for
from dgbench.training.algorithm_class import algorithm_class
from dgbench.training.modules import SteppedRun
from dgbench.training.modules.trial import draws_globally
from dgbench.training.optimizers import UpdateRule
from dgbench.training.tuning import ALL, FULL_PRECISION, Tuning

R = TypeVar("R", bound=SteppedRun)

IN_PARTS = ("accumulate", "devices")  #: keys of ``conf/trainer`` that cut a minibatch
#: bytes of weights that no machine trains: 4 TB, and as many again for gradients and each moment
MOST_WEIGHT_BYTES = 2**42
#: what to choose for each kind of images
FIXES = {
    "vectors": "choose backbone=feature_mlp, linear or mlp",
    "pictures": "choose a backbone for pictures, such as mlp or mnist_cnn, or dataset=features",
}


class Blueprint:
    """The parts of a study whose combination can be judged before an image is decoded.

    Networks get no memory.

    Args:
        planned: the study as it was planned.

    Raises:
        ConfigError, WeightsError: something cannot be built, or would turn a method into another
            one.
    """

    def __init__(self, planned: PlannedStudy) -> None:
        self.planned = planned
        self.config = planned.config
        self.spec = planned.spec
        self.folds = planned.folds
        self.settings = TrainerSettings(**self.config["trainer"])
        self.algorithm = algorithm_class(self.config["algorithm"]["objective"])
        if planned.info.kind == "vectors" and self.algorithm.why_not_vectors:
            raise ConfigError(
                f"algorithm={self.config['algorithm']['name']} cannot train on vectors of "
                f"features: {self.algorithm.why_not_vectors}; choose another algorithm"
            )
        self.head: RandomHead = build({"head": self.config["head"]}, "head")
        self.tuning: Tuning = build(self.config, "tuning")
        self.averaging()
        if self.config["callbacks"]:
            # imports Lightning, as these callbacks do
            from dgbench.callbacks.users import check_callbacks, check_monitors

            check_callbacks(self.config["callbacks"])
            check_monitors(self.config["callbacks"], self._logged_errors())
        self._check_combination()
        if self.tuning.cache_features:
            self.tuning.check_cache(self.algorithm, self.settings.precision)
        self._check_networks()
        if self.config["execution"]["mode"] == "stacked":
            reason = self.why_not_stacked()
            if reason:
                raise ConfigError(
                    f"{planned.folder.name} cannot be stacked: {reason}; use execution=single"
                )

    @property
    def hparams(self) -> Mapping[str, Any]:
        """Resolved values of every hyperparameter that is read."""
        return self.spec.hparams

    def _logged_errors(self) -> list[str]:
        """List the names of the errors that every evaluation of every fold logs.

        There are none if weights are averaged last. See
        :func:`dgbench.callbacks.loggers.error_values`.
        """
        averaging = self.averaging()
        if averaging is not None and averaging.rule.final_only:
            return []
        subsets = list(self.settings.eval_subsets)
        if self.settings.eval_test != "always":
            subsets = [subset for subset in subsets if subset != "test"]
        names = ["error/training_val"]
        if "test" in subsets and all(fold.held_out for fold in self.folds):
            names.append("error/held_out")
        for env in self.planned.info.everywhere:
            names += [f"error/{subset}/{env}" for subset in subsets]
        return names

    def _check_seed_moves(self, body: nn.Module) -> None:
        """Refuse seeds that move the random inputs of a method without any.

        All seeds would train the same run.

        Raises:
            ConfigError: the algorithm, its surveys and its layers draw nothing.
        """
        if self.config["seed_moves"] != "inputs":
            return
        drawing = ("random_inputs", "prediction_inputs", "digest")
        if any(getattr(self.algorithm, name) is not getattr(Algorithm, name) for name in drawing):
            return
        if not draws_globally(body):
            raise ConfigError(
                "seed_moves=inputs changes nothing for "
                f"algorithm={self.config['algorithm']['name']}, which has no random "
                "inputs: every seed would train the same run; choose all, order or "
                "weights"
            )

    def _check_networks(self) -> None:
        info = self.planned.info
        body = check_network(self.config, self.hparams, info, self.planned.weights)
        self._check_seed_moves(body)
        self._network_alone: str | None = getattr(body, "why_not_stackable", None)
        self.tuning.check_network(body, tuple(max(side, 1) for side in info.image))
        # not self.sizes: a subclass may count images that are not here yet
        self.bare_sizes = replace(Blueprint.sizes(self, self.folds[0]), n_features=body.n_features)
        needed = self.algorithm.networks_needed(self.bare_sizes, self.hparams)
        with torch.device("meta"):
            classifier = build_head(needed["classifier"])
        if self.settings.environments_per_step is not None:
            self._check_drawing()
        self.head.check(classifier, self.planned.weights, bool(getattr(body, "unit_length", False)))

    def _check_drawing(self) -> None:
        """Refuse to draw environments if a method keeps something for each training environment.

        Raises:
            ConfigError: networks or state have a part for each environment.
        """
        allowed = self.algorithm.draws_environments
        if allowed is None:
            drawn = self.bare_sizes.n_envs
            allowed = self._shapes_with(drawn) == self._shapes_with(drawn + 1)
        if not allowed:
            raise ConfigError(
                f"trainer.environments_per_step={self.settings.environments_per_step} cannot go "
                f"with algorithm={self.spec.algorithm}, which keeps something for each training "
                "environment; set it to null, or choose another algorithm"
            )

    def _shapes_with(self, n_envs: int) -> tuple[Any, ...]:
        """Collect the networks and the shapes of the state for steps of ``n_envs`` environments."""
        sizes = replace(self.bare_sizes, n_features=0, n_envs=n_envs)
        with torch.device("meta"):
            networks, sizes = build_networks(
                self.bare_featurizer,
                sizes,
                lambda known: self.algorithm.networks_needed(known, self.hparams),
                self.algorithm.extra_channels,
                0,
            )
            state = self.algorithm(sizes, self.hparams).initial_state(networks)
        needed = self.algorithm.networks_needed(sizes, self.hparams)
        return needed, {name: tuple(value.shape) for name, value in state.items()}

    def bare_featurizer(self, image: tuple[int, ...]) -> nn.Module:
        """Build a featurizer for images of this shape, without initial weights."""
        return Blueprint.featurizer(self, image)

    def _check_combination(self) -> None:
        """Refuse settings that would turn the method into another one.

        These are sharpness-aware updates without one loss, and parts of a minibatch for a method
        that needs the whole.

        Raises:
            ConfigError: with the reason.
        """
        name = self.config["algorithm"]["name"]
        algorithm = self.algorithm
        self.tuning.check_algorithm(name, algorithm)
        sharpness = self.sharpness()
        label = f"sharpness={self.config['sharpness']['name']}"
        if sharpness and algorithm.why_not_sharp:
            raise ConfigError(
                f"{label} cannot be used with algorithm={name}: "
                f"{algorithm.why_not_sharp}; set sharpness=none or choose another "
                "algorithm"
            )
        if self.settings.sampling == "pooled" and not algorithm.pools:
            raise ConfigError(
                f"trainer.sampling=pooled cannot go with algorithm={name}, which sees what "
                "environment each image is of; choose trainer.sampling=uniform, or algorithm=erm"
            )
        for key in IN_PARTS:
            n = getattr(self.settings, key)
            if n > 1 and sharpness:
                raise ConfigError(
                    f"{label} cannot go with trainer.{key}={n}: each part of a minibatch would "
                    f"climb on its own, which is another method; set trainer.{key}=1 or "
                    "sharpness=none"
                )
            if n > 1 and algorithm.why_not_in_parts:
                raise ConfigError(
                    f"algorithm={name} cannot go with trainer.{key}={n}: "
                    f"{algorithm.why_not_in_parts}, which is another method; set trainer.{key}=1 "
                    "or choose another algorithm"
                )

    def sharpness(self) -> SAM | None:
        """Build the rule by which updates look at raised weights, or return None if they do not."""
        return self._chosen("sharpness")  # type: ignore[no-any-return]

    def averaging(self) -> Averaging | None:
        """Build what averages one run's weights, or return None if nothing does."""
        return self._chosen("averaging")  # type: ignore[no-any-return]

    def _chosen(self, group: str) -> Any:
        if "_target_" not in self.config[group]:
            return None
        return build(without(self.config, group, "name"), group)

    def trained(self, kind: type[R], networks: Networks, sizes: Sizes, image: tuple[int, ...]) -> R:
        """Build the module that trains networks, and freeze what ``tuning`` does not train.

        Args:
            kind: class of the module.
            networks, sizes: of :meth:`networks`.
            image: shape of what is trained on: of features if ``tuning.cache_features`` is on.
        """
        for name in self.algorithm.featurizers(sizes, self.hparams):
            body: Any = networks[name]
            self.tuning.freeze(networks, name, body.stages())
            self.tuning.narrow(networks, name, self._seed_for("weights"))
        if self.tuning.cache_features:
            featurizer: Any = networks["featurizer"]
            featurizer.first_stage = self.tuning.count(len(featurizer.stages()))
            sizes = replace(sizes, image=image)
        settings = self.settings
        if settings.channels_last:
            networks.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        values = {**dict(settings), **dict(self.tuning), "sharpness": self.sharpness()}
        rule = UpdateRule(**{field.name: values[field.name] for field in fields(UpdateRule)})
        algorithm = self.algorithm(sizes, self.hparams)
        return kind(algorithm, networks, self._seed_for("inputs"), rule, self.dtype)

    def networks(self, fold: Fold) -> tuple[Networks, Sizes]:
        """Build the networks of a fold with their initial weights.

        Returns:
            The networks, and the sizes with their number of features.
        """
        return build_networks(
            self.featurizer,
            self.sizes(fold),
            lambda sizes: self.algorithm.networks_needed(sizes, self.hparams),
            self.algorithm.extra_channels,
            self._seed_for("weights"),
        )

    def _seed_for(self, part: Moved) -> int:
        return seed_for(part, self.spec.seed, self.config["seed_moves"])

    def sizes(self, fold: Fold) -> Sizes:
        """Return all sizes but the number of features, as far as the description tells."""
        info = self.planned.info
        images = sum(sum(subsets.values()) for subsets in info.counts.values())
        return Sizes(
            n_features=0,
            n_classes=info.n_classes,
            n_envs=self.settings.minibatches(len(fold.training)),
            image=info.image,
            n_steps=self.settings.steps,
            n_images=images,
            n_drawn_from=self._drawn_from(fold),
        )

    def _drawn_from(self, fold: Fold) -> int:
        """Count the environments that each step of a fold draws from, or 0 if it has all."""
        return 0 if self.settings.environments_per_step is None else len(fold.training)

    def featurizer(self, image: tuple[int, ...]) -> nn.Module:
        """Build a featurizer for images of this shape."""
        keys = featurizer_keys(self.config, self.hparams)
        featurizer: nn.Module = build({"backbone": keys}, "backbone", image=image)
        return featurizer

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of weights and hyperparameters."""
        return torch.float64 if self.settings.precision == "64-true" else torch.float32

    def why_not_stacked(self) -> str | None:
        """Explain why runs of this study cannot train together, or return None if they can."""
        return self._why_method_alone() or self._why_settings_alone()

    def _why_method_alone(self) -> str | None:
        """Explain what of protocol, algorithm, network or tuning keeps runs apart."""
        if any(fold.membership for fold in self.folds):
            return f"protocol={self.spec.protocol} scores others in each run"
        if not self.algorithm.stackable:
            return self.algorithm.why_not_stackable
        all_cached = self.tuning.cache_features and self.tuning.freeze_stages == ALL
        if self._network_alone and not all_cached:
            return self._network_alone
        if self.tuning.layer_decay is not None:
            return "tuning.layer_decay gives each layer a learning rate of its own"
        return None

    def _why_settings_alone(self) -> str | None:
        """Explain what of averaging, callbacks, trainer or dropout keeps runs apart."""
        settings = self.settings
        averaging = self.config["averaging"]
        if "_target_" in averaging:
            return f"averaging={averaging['name']} follows one run at a time"
        if self.spec.callbacks:
            return f"callbacks.{next(iter(self.spec.callbacks))} may change one run at a time"
        if settings.precision not in FULL_PRECISION:
            return f"trainer.precision={settings.precision} needs Lightning's own step"
        if settings.devices > 1:
            return f"trainer.devices={settings.devices} shares one run among processes"
        if settings.accumulate > 1:
            return f"trainer.accumulate={settings.accumulate} saves memory where one run is large"
        if settings.channels_last:
            return "trainer.channels_last=true lays out the convolutions of one run"
        options = {**self.hparams, **self.config["backbone"]}
        if any("dropout" in key and options[key] for key in options):
            return "dropout draws from a generator that runs of a stack would share"
        return None


def featurizer_keys(config: Mapping[str, Any], hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Collect ``_target_`` of the featurizer and its arguments but the shape of the image.

    Args:
        config: plain resolved values by top-level key.
        hparams: resolved hyperparameters; an argument whose hyperparameter is not among them has
            its default.
    """
    # constructor's argument -> hyperparameter
    hparam_names = config["backbone"].get("hparams") or {}
    arguments = {key: hparams[hparam] for key, hparam in hparam_names.items() if hparam in hparams}
    return {**without(config, "backbone", "name", "hparams")["backbone"], **arguments}


def check_network(
    config: Mapping[str, Any],
    hparams: Mapping[str, Any],
    info: DatasetInfo,
    weights: InitialWeights,
) -> Featurizer:
    """Build a featurizer without memory, and refuse one that does not go with the study.

    Args:
        config, hparams: see :func:`featurizer_keys`.
        info: of the dataset.
        weights: initial ones; those that must be fetched first are not looked at.

    Raises:
        ConfigError: it takes pictures and the dataset holds vectors, or the other way around, or it
            cannot be built.
        WeightsError: the weights do not fit.
    """
    keys = featurizer_keys(config, hparams)
    name = config["backbone"]["name"]
    takes = getattr(class_at(keys["_target_"], "backbone._target_", nn.Module), "takes", None)
    if takes is not None and info.kind not in takes:  # a user's own may not say
        raise ConfigError(
            f"backbone={name} takes {' or '.join(takes)}, and dataset={info.name} holds "
            f"{info.kind}; {FIXES[info.kind]}"
        )
    image = tuple(max(side, 1) for side in info.image)
    with torch.device("meta"):
        body: Featurizer = build({"backbone": keys}, "backbone", image=image)
    weights_bytes = sum(
        parameter.numel() * parameter.element_size() for parameter in body.parameters()
    )
    if weights_bytes > MOST_WEIGHT_BYTES:
        raise ConfigError(
            f"backbone={name} has {weights_bytes / 1e9:,.0f} GB of weights, more than any machine "
            "has memory for; choose a smaller one, or lower backbone.width"
        )
    if not hasattr(body, "n_features"):
        raise ConfigError(
            f"backbone._target_={keys['_target_']} has no n_features; see docs/how_to/networks.md"
        )
    if weights.to_fetch() is None:
        weights.check(body)
    return body
