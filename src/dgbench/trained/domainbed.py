"""A ``model.pkl`` of DomainBed's ``train.py`` as a model.

Networks are rebuilt from what the file says, and weights are found by name. The file holds ``args``
(dataset, algorithm, test environments, ...), ``model_hparams``, the shape of an image, numbers of
classes and environments, and ``model_dict``, the state of the algorithm. Nothing of it is run:
hyperparameters that a random search drew are numbers of NumPy, read as numbers.

Source: ``domainbed/scripts/train.py`` (``save_checkpoint``), ``networks.py`` and ``algorithms.py``
(``predict``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.data.description import Preprocessing
from dgbench.errors import WeightsError, one_line
from dgbench.network_specs import LinearSpec, TaperedSpec
from dgbench.networks.build import build_head
from dgbench.networks.checkpoint_layouts import misfit, not_finite
from dgbench.networks.pickles import Inert, unknown_classes
from dgbench.networks.small import MNISTCNN, WideResNet
from dgbench.networks.timm_networks import ResNet
from dgbench.networks.weights import IMAGENET
from dgbench.plan.domainbed_names import DATASETS
from dgbench.plan.names import our_name
from dgbench.records.checks import printable_text
from dgbench.trained.predictor import Predictor
from dgbench.validation import some_of

PARTS = ("args", "model_dict", "model_hparams", "model_input_shape", "model_num_classes")
MOST_CLASSES = 100_000
MOST_SIDE = 1024  # pixels
#: algorithms whose ``predict`` is more than a classifier on a featurizer, and why they are not
#: rebuilt
OTHERWISE = {
    "ARM": "predicts groups of images together",
    "MTL": "puts an embedding of the environments before its classifier",
    "URM": "puts a function behind its featurizer",
}
#: beginnings of the names of featurizer and classifier in ``model_dict``, in the order in which
#: ``predict`` uses them
NETWORKS = (
    ("network_sma.0.", "network_sma.1."),  # ERM++ predicts with its average
    ("network.net.0.", "network.net.1."),  # Fish
    ("network.0.", "network.1."),  # nn.Sequential(featurizer, classifier)
    ("network_f.", "network_c."),  # SagNet
    ("featurizer.", "classifier."),
)


Shape = tuple[int, int, int]  # C, H, W
# a pattern of a name, and what takes its place
Renaming = tuple[str, str | Callable[[re.Match[str]], str]]


@dataclass(frozen=True)
class _Family:
    """A network of DomainBed: ours that computes the same, and how names become ours."""

    build: Callable[[Shape, Mapping[str, Any]], nn.Module]
    renamings: Sequence[Renaming]


def _counted_from_one(name: str) -> Callable[[re.Match[str]], str]:
    """Return what replaces ``conv1.`` by ``NAME.0.``."""
    return lambda match: f"{name}.{int(match[1]) - 1}."


def _resnet(image: Shape, hparams: Mapping[str, Any]) -> nn.Module:
    if hparams.get("vit"):
        raise ValueError("a vision transformer, whose code DomainBed loads from a hub")
    return ResNet(image, "resnet18" if hparams.get("resnet18") else "resnet50")


#: side of the images -> what DomainBed's ``Featurizer`` makes for them
FAMILIES: Mapping[int, _Family] = {
    28: _Family(
        lambda image, _: MNISTCNN(image),
        [(r"^conv(\d)\.", _counted_from_one("convs")), (r"^bn(\d)\.", r"norms.\1.")],
    ),
    32: _Family(
        lambda image, _: WideResNet(image),
        [
            (r"^conv1\.", "conv."),
            (r"^bn1\.", "bn."),
            (r"^layer(\d)\.", _counted_from_one("groups")),
            (r"\.shortcut\.0\.", ".shortcut."),
        ],
    ),
    224: _Family(_resnet, [(r"^network\.", "body.")]),
}


class DomainBedModel(Predictor):
    """Featurizer and classifier of a ``model.pkl``, which map (n, C, H, W) images to (n, K) logits.

    Args:
        networks: featurizer and classifier.
        image: C, H, W.
        title: what tables call it.
        seen: environments that it was trained on, by the name of their dataset, ours.
    """

    def __init__(
        self,
        networks: nn.Module,
        image: Shape,
        title: str,
        seen: Mapping[str, Sequence[str]],
        classes: Sequence[str] = (),
    ) -> None:
        if image[0] == 3 and image[1] == 224:
            preprocessing = Preprocessing(image, *IMAGENET)
        else:
            preprocessing = Preprocessing.unchanged(image)
        super().__init__(classes, preprocessing)
        self.networks = networks
        self.title = title
        self.seen = {name: tuple(environments) for name, environments in seen.items()}
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits."""
        logits: Tensor = self.networks(x)
        return logits


def is_domainbed(content: Any) -> bool:
    """Return whether a file holds what DomainBed's ``train.py`` saves."""
    return isinstance(content, Mapping) and content.keys() >= set(PARTS)


def domainbed_model(
    file: Path, content: Any, trust: bool, classes: Sequence[str] = ()
) -> DomainBedModel:
    """Rebuild the model that a ``model.pkl`` holds.

    Args:
        file: for messages, and to be unpickled if that is trusted.
        content: of the file, as :func:`~dgbench.networks.weight_files.read_tensors` gives it.
        trust: unpickle values of other classes, which runs code.
        classes: names of the K classes; empty if they are those of the dataset.

    Raises:
        WeightsError: it is something else, not trusted, or of a network or algorithm that is not
            rebuilt here.
    """
    if not is_domainbed(content):
        raise WeightsError(
            f"model={file} is no model.pkl of DomainBed, which holds {', '.join(PARTS)}; name a "
            "run, a program or MODULE:FUNCTION"
        )
    described = [content[name] for name in PARTS if name != "model_dict"]
    if any(isinstance(value, Inert) for value in described) or unknown_classes(described):
        names = some_of(unknown_classes(described))
        if not trust:
            raise WeightsError(
                f"model={file} describes itself with values of {names}, which would run; if you "
                "trust whoever made it, add trust=true"
            )
        content = _unpickled(file)
    try:
        saved = _Saved.of(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightsError(
            f"model={file} is no model.pkl of DomainBed ({one_line(error)}); name another"
        ) from error
    networks = _networks(file, saved)
    title = f"{our_name(saved.algorithm)}@{DATASETS.get(saved.dataset, (saved.dataset,))[0]}"
    seen = _seen(saved.dataset, saved.tested)
    return DomainBedModel(networks, saved.image, title, seen, classes)


@dataclass(frozen=True)
class _Saved:
    """What a ``model.pkl`` says of its model."""

    algorithm: str  #: DomainBed's name
    dataset: str  #: DomainBed's name
    tested: list[int]  #: numbers of the test environments
    hparams: Mapping[str, Any]
    image: Shape
    n_classes: int
    state: Mapping[str, Tensor]  #: tensors of the algorithm, by name

    @staticmethod
    def of(content: Any) -> _Saved:
        """Read the content of a file.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a part is missing, or something else.
        """
        args = dict(content["args"])
        hparams = dict(content["model_hparams"])
        channels, height, width = map(int, content["model_input_shape"])
        image = (channels, height, width)
        n_classes = int(content["model_num_classes"])
        algorithm = str(args["algorithm"])
        dataset = str(args["dataset"])
        tested = [int(number) for number in args["test_envs"]]
        state = {}
        for name, value in dict(content["model_dict"]).items():
            if isinstance(value, Tensor):
                state[str(name)] = value
        if not (0 < n_classes <= MOST_CLASSES and 0 < min(image) <= max(image) <= MOST_SIDE):
            raise ValueError(f"{n_classes} classes of images of {image}")
        for name in (algorithm, dataset):
            fault = printable_text(name)
            if fault:
                raise ValueError(f"a name {fault}")
        return _Saved(algorithm, dataset, tested, hparams, image, n_classes, state)


def _unpickled(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=False)
    except Exception as error:  # whatever its code raises
        raise WeightsError(
            f"model={file} cannot be unpickled ({one_line(error)}); install what it imports"
        ) from error


def _seen(dataset: str, tested: Sequence[int]) -> dict[str, list[str]]:
    """Name the environments that a model was trained on.

    Nothing is known of a dataset of somebody's own.
    """
    if dataset not in DATASETS:
        return {}
    ours, environments = DATASETS[dataset]
    return {ours: [name for number, name in enumerate(environments) if number not in tested]}


def _networks(file: Path, saved: _Saved) -> nn.Module:
    """Build featurizer and classifier, and fill them with the tensors of the file.

    Raises:
        WeightsError: they are of a network or algorithm that is not rebuilt, do not fit, or are not
            finite.
    """
    algorithm = saved.algorithm
    image = saved.image
    state = saved.state
    if algorithm in OTHERWISE:
        raise WeightsError(
            f"model={file} is of {algorithm}, which {OTHERWISE[algorithm]}, and is not rebuilt; "
            "give a function that loads it, model=MODULE:FUNCTION"
        )
    family = FAMILIES.get(image[1])
    if family is None or image[1] != image[2]:
        raise WeightsError(
            f"model={file} sees images of {image}, and networks of DomainBed are rebuilt for "
            f"sides of {', '.join(map(str, FAMILIES))}; give a function that loads it, "
            "model=MODULE:FUNCTION"
        )
    pair = next((pair for pair in NETWORKS if _has_all(state, pair)), None)
    if pair is None:
        raise WeightsError(
            f"model={file} is of {algorithm} and has no featurizer and classifier "
            f"({some_of(sorted(state))}); give a function that loads it, model=MODULE:FUNCTION"
        )
    kind = TaperedSpec if saved.hparams.get("nonlinear_classifier") else LinearSpec
    try:
        with torch.random.fork_rng(devices=[]):
            featurizer: Any = family.build(image, saved.hparams)
            classifier = build_head(kind(featurizer.n_features, saved.n_classes))
            networks = nn.Sequential(featurizer, classifier)
    except Exception as error:  # of a network that is not rebuilt
        raise WeightsError(
            f"model={file} has {one_line(error)}; give a function, model=MODULE:FUNCTION"
        ) from error
    tensors = _renamed(state, pair, family)
    problems = misfit(networks.state_dict(), tensors, may_add=("0.body.fc.*",))
    if problems:
        raise WeightsError(
            f"model={file}: the weights of {algorithm} do not fit the network that its "
            f"hyperparameters name: {problems}; give a function that loads it, "
            "model=MODULE:FUNCTION"
        )
    names = not_finite(tensors)
    if names:
        raise WeightsError(
            f"model={file} holds numbers that are not finite, in {some_of(names)}: its training "
            "diverged"
        )
    networks.load_state_dict(tensors, strict=False)
    return networks


def _has_all(state: Mapping[str, Tensor], prefixes: Sequence[str]) -> bool:
    """Return whether some name of a state begins with each of the prefixes."""

    def occurs(prefix: str) -> bool:
        return any(name.startswith(prefix) for name in state)

    return all(map(occurs, prefixes))


def _renamed(
    state: Mapping[str, Tensor], pair: tuple[str, str], family: _Family
) -> dict[str, Tensor]:
    """Give the tensors of featurizer and classifier our names, behind ``0.`` and ``1.``."""
    tensors = {}
    featurizer, classifier = pair
    for name, value in state.items():
        if name.startswith(featurizer):
            inside = name.removeprefix(featurizer)
            for pattern, ours in family.renamings:
                inside = re.sub(pattern, ours, inside)
            tensors[f"0.{inside}"] = value
        elif name.startswith(classifier):
            tensors[f"1.{name.removeprefix(classifier)}"] = value
    return tensors
