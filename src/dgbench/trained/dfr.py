"""A run's last layer fitted anew on groups of equal size (deep feature reweighting, DFR).

The features stay as they were trained; a logistic regression with an L1 penalty on standardized
features takes the place of the classifier (Kirichenko et al., 2023, "Last layer re-training is
sufficient for robustness to spurious correlations"; DFR on validation images, as their code for
Waterbirds computes it):

1. Half of the validation images choose the strength C of the penalty: on the other half, cut down
   to equally many images of each group, each C is fitted; the one with the highest accuracy in the
   worst group wins, the largest C on ties.
2. With this C, 20 classifiers are fitted to the validation images, each with another draw of
   equally many images of each group. Their coefficients are averaged.

Features are standardized by those of the training images (in 1. by those that are fitted). Groups
are the classes of each training environment, or the classes at each value of an attribute. Only
training environments are looked at. Several classes are fitted one against the rest, as liblinear
does, and the scores are the logits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dgbench.data.datasets.painted import PaintedStore
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm
from dgbench.records.spec import digest
from dgbench.seeding import derive
from dgbench.trained.diwa import averaging_with
from dgbench.trained.predictor import LoadedModel
from dgbench.training.run_folder import ModelRecord
from dgbench.validation import some_of

DFR = "dfr"
#: inverse strengths of the penalty that are tried, the weakest penalty first
STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
FITS = 20  #: classifiers whose coefficients are averaged
ENVIRONMENTS = "environments"  #: what makes groups within classes, unless an attribute is named
PAINTED = "feature"  #: name of the feature of painted images
AT_ONCE = 256  #: images in a batch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GroupedFeatures:
    """Features of n images and the groups that they belong to."""

    features: Floats  #: (n, m)
    labels: Ints  #: (n,) classes
    groups: Ints  #: (n,) positions in ``names``
    names: Sequence[str]  #: of the groups: ``CLASS, ENVIRONMENT`` or ``CLASS, VALUE``

    def at(self, rows: Ints) -> GroupedFeatures:
        """Select some of the images."""
        return GroupedFeatures(
            self.features[rows], self.labels[rows], self.groups[rows], self.names
        )

    def balanced(self, rng: np.random.Generator) -> GroupedFeatures:
        """Draw equally many images of each group, as many as the smallest one has.

        Raises:
            ConfigError: a group has no image.
        """
        members = []
        for group in range(len(self.names)):
            members.append(rng.permutation(np.flatnonzero(self.groups == group)))
        sizes = [len(rows) for rows in members]
        smallest = min(sizes)
        if not smallest:
            raise ConfigError(
                f"averaging=dfr: group ({self.names[sizes.index(0)]}) has too few val images to "
                "choose a penalty on half of them; group by something else with groups=, or give "
                "the training environments more val images"
            )
        return self.at(np.concatenate([rows[:smallest] for rows in members]))

    def worst_accuracy(self, predicted: Ints) -> float:
        """Compute the lowest accuracy of a group; one without images does not count."""
        right = predicted == self.labels
        present = np.unique(self.groups)
        return float(min(right[self.groups == group].mean() for group in present))


@dataclass(frozen=True)
class LinearClassifier:
    """Scores of standardized features: K of them, or that of the second of two classes."""

    coefficients: Floats  #: (K, m) or (1, m)
    intercepts: Floats  #: (K,) or (1,)

    def predict(self, features: Floats) -> Ints:
        """Predict the classes of (n, m) standardized features."""
        scores = features @ self.coefficients.T + self.intercepts
        if scores.shape[1] == 1:
            return (scores[:, 0] > 0).astype(np.int64)
        classes: Ints = scores.argmax(1)
        return classes


def fitted(features: Floats, labels: Ints, strength: float, seed: int) -> LinearClassifier:
    """Fit a logistic regression with an L1 penalty by liblinear, each class against the rest.

    Args:
        features: (n, m), standardized.
        labels: (n,), in which each of the K classes occurs.
        strength: C, the inverse of the penalty's weight.
        seed: of the order in which liblinear goes through coordinates.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    n_classes = int(labels.max()) + 1
    positives = [1] if n_classes == 2 else range(n_classes)
    coefficients = []
    intercepts = []
    for positive in positives:
        model = LogisticRegression(
            C=strength, solver="liblinear", random_state=seed, **_l1_penalty(LogisticRegression)
        )
        with warnings.catch_warnings():
            # the authors take what 100 iterations reach
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, labels == positive)
        coefficients.append(model.coef_[0])
        intercepts.append(model.intercept_[0])
    return LinearClassifier(np.array(coefficients), np.array(intercepts))


def _l1_penalty(regression: type) -> dict[str, Any]:
    """Write an L1 penalty as the installed scikit-learn takes it, which changed in 1.8."""
    penalty = signature(regression).parameters.get("penalty")
    is_current = penalty is None or penalty.default == "deprecated"
    return {"l1_ratio": 1.0} if is_current else {"penalty": "l1"}


def chosen_strength(images: GroupedFeatures, rng: np.random.Generator, seed: int) -> float:
    """Choose C by the worst group of one half of the images, fitted on the other half.

    Raises:
        ConfigError: a group has no image in the half that is fitted.
    """
    from sklearn.preprocessing import StandardScaler

    order = rng.permutation(len(images.labels))
    half = len(order) // 2
    fitting = images.at(order[half:]).balanced(rng)
    judging = images.at(order[:half])
    scaler = StandardScaler().fit(fitting.features)
    features = scaler.transform(fitting.features)
    judged_features = scaler.transform(judging.features)
    accuracies = []
    for strength in STRENGTHS:
        classifier = fitted(features, fitting.labels, strength, seed)
        accuracies.append(judging.worst_accuracy(classifier.predict(judged_features)))
    return STRENGTHS[int(np.argmax(accuracies))]


def averaged_classifier(
    images: GroupedFeatures, strength: float, scaler: Any, rng: np.random.Generator, seed: int
) -> LinearClassifier:
    """Average the coefficients of classifiers on several draws of groups of equal size.

    Args:
        images: validation images.
        strength: C.
        scaler: scikit-learn's, fitted to the training images.
        rng: draws the images.
        seed: as of :func:`fitted`.
    """
    classifiers = []
    for _ in range(FITS):
        drawn = images.balanced(rng)
        features = scaler.transform(drawn.features)
        classifiers.append(fitted(features, drawn.labels, strength, seed))
    return LinearClassifier(
        np.mean([one.coefficients for one in classifiers], axis=0),
        np.mean([one.intercepts for one in classifiers], axis=0),
    )


def reweighted(
    model: LoadedModel,
    environments: Environments,
    training: Sequence[str],
    groups: str | None,
    tell: Callable[[str], None],
) -> LoadedModel:
    """Put a new last layer on a run's features.

    Args:
        model: the run, on the device of the images; its classifier is replaced.
        environments: the dataset that it was trained on, as its fold sees it.
        training: environments that it was trained on, of which alone images are looked at.
        groups: attribute whose values make groups within classes; None: the environments.
        tell: called with what was found.

    Raises:
        ConfigError: it has no linear classifier on features, or the groups cannot be made.
    """
    from sklearn.preprocessing import StandardScaler

    _need_linear_classifier(model)
    images = _validation_images(model, environments, training, groups)
    record = model.record
    seed = derive(record.identity["seed"], DFR) % 2**31
    rng = np.random.default_rng(seed)
    sizes = np.bincount(images.groups, minlength=len(images.names))
    tell(
        f"{len(sizes)} groups of class and {groups or 'environment'}, "
        f"the smallest of {sizes.min()} val images ({images.names[int(sizes.argmin())]})"
    )
    strength = chosen_strength(images, rng, seed)
    scaler = StandardScaler()
    for _, _, features in _batches(model, environments, training, "train"):
        scaler.partial_fit(features)
    classifier = averaged_classifier(images, strength, scaler, rng, seed)
    tell(f"the mean of {FITS} last layers, C = {strength:g} by the worst group of half of them")
    model.run.networks["classifier"] = _layer(classifier, scaler, model)
    result = LoadedModel(model.run, _record(model, groups), model.step)
    result.averaged = (record.identity["run"],)
    return result


def _need_linear_classifier(model: LoadedModel) -> None:
    """Refuse a run whose predictions are no linear function of features of single images."""
    predicts_usually = type(model.run.algorithm).predict is Algorithm.predict
    is_linear = isinstance(model.run.networks["classifier"], nn.Linear)
    if not (predicts_usually and is_linear):
        raise ConfigError(
            "averaging=dfr fits a linear classifier on features anew, and "
            f"{model.record.identity['algorithm']} does not predict with one; name runs of "
            "another algorithm"
        )


def _validation_images(
    model: LoadedModel, environments: Environments, training: Sequence[str], groups: str | None
) -> GroupedFeatures:
    """Compute the features of the training environments' ``val`` images, and group these.

    Raises:
        ConfigError: there is no such attribute, or no image of a class.
    """
    classes = environments.catalog.classes
    labels: list[int] = []
    values: list[str] = []
    parts: list[Floats] = []
    for env, positions, features in _batches(model, environments, training, "val"):
        parts.append(features)
        labels += environments.catalog.labels[positions].tolist()
        values += _values(environments, positions, groups, env)
    missing = [name for k, name in enumerate(classes) if k not in labels]
    if missing:
        raise ConfigError(
            f"averaging=dfr: the training environments have no val image of class {missing[0]}; "
            "leave averaging= out, or split off val images"
        )
    pairs = list(zip(labels, values, strict=True))
    kinds = sorted(set(pairs))
    numbers = {kind: number for number, kind in enumerate(kinds)}
    return GroupedFeatures(
        np.concatenate(parts),
        np.array(labels, dtype=np.int64),
        np.array([numbers[pair] for pair in pairs], dtype=np.int64),
        [f"{classes[label]}, {value}" for label, value in kinds],
    )


def _values(environments: Environments, positions: Ints, groups: str | None, env: str) -> list[str]:
    """List what makes groups within classes, for (n,) positions of images of one environment.

    Raises:
        ConfigError: there is no such attribute.
    """
    if groups is None or groups == ENVIRONMENTS:
        return [env] * len(positions)
    attributes = environments.catalog.attributes
    if groups in attributes:
        return [str(value) for value in environments.catalog.attributes_at(positions)[groups]]
    store = environments.store
    if groups == PAINTED and isinstance(store, PaintedStore):
        return [str(value) for value in store.feature.cpu()[torch.from_numpy(positions)].tolist()]
    known = [ENVIRONMENTS, *attributes]
    if isinstance(store, PaintedStore):
        known.append(PAINTED)
    raise ConfigError(
        f"groups={groups} is no attribute of {environments.info.name}; choose from "
        f"{some_of(known, 12)}"
    )


@torch.no_grad()
def _batches(
    model: LoadedModel, environments: Environments, training: Sequence[str], subset: str
) -> Iterator[tuple[str, Ints, Floats]]:
    """Yield environment, (n,) positions and (n, m) features of a subset's images."""
    for env in training:
        positions = environments.table.subset(env, subset)
        for first in range(0, len(positions), AT_ONCE):
            rows = positions[first : first + AT_ONCE]
            x, _ = environments.store.gather(torch.from_numpy(rows))
            features: Tensor = model.features(x.to(model.run.networks.dtype))
            yield env, rows, features.double().cpu().numpy()


def _layer(classifier: LinearClassifier, scaler: Any, model: LoadedModel) -> nn.Linear:
    """Build the layer from features as they are to logits: the standardization is multiplied in.

    Of two classes the logits are -s / 2 and s / 2, whose softmax is the logistic function of the
    score s.
    """
    weight = classifier.coefficients / scaler.scale_
    bias = classifier.intercepts - weight @ scaler.mean_
    if len(weight) == 1:
        weight = np.concatenate([-weight / 2, weight / 2])
        bias = np.concatenate([-bias / 2, bias / 2])
    old = model.run.networks["classifier"]
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight = nn.Parameter(torch.from_numpy(weight), requires_grad=False)
    layer.bias = nn.Parameter(torch.from_numpy(bias), requires_grad=False)
    return layer.to(next(old.parameters()))


def _record(model: LoadedModel, groups: str | None) -> ModelRecord:
    """Build the record of a run with its last layer fitted anew."""
    record = model.record
    identity = record.identity
    values = groups or ENVIRONMENTS
    changed = {
        "run": digest([DFR, identity["run"], model.step, values]),
        "hparams": {**identity["hparams"], "averaging.groups": values},
        "averaging": averaging_with(identity, DFR),
    }
    return replace(record, identity={**identity, **changed})
