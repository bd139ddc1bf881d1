"""A trained model as an ordinary module that knows its own preprocessing and classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.data.description import Preprocessing
from dgbench.errors import RecordError
from dgbench.objectives.contract import Algorithm
from dgbench.trained.inputs import batches
from dgbench.training.modules import SingleRun
from dgbench.training.run_folder import ModelRecord

AT_ONCE = 256  # pictures predicted in one batch


@dataclass(frozen=True)
class Predictions:
    """What a model says of n pictures.

    Args:
        logits: (n, K).
        classes: names of the K classes.
    """

    logits: Tensor
    classes: tuple[str, ...]

    @property
    def labels(self) -> Tensor:
        """(n,) int64, numbers of the predicted classes."""
        return self.logits.argmax(1)

    @property
    def names(self) -> list[str]:
        """Names of the n predicted classes."""
        return [self.classes[label] for label in self.labels.tolist()]

    @property
    def probabilities(self) -> Tensor:
        """(n, K), the softmax of the logits."""
        return self.logits.softmax(1)


class Predictor(nn.Module):
    """What has logits, classes and a way from pictures to its input.

    Args:
        classes: names of the K classes, in the order of the logits.
        preprocessing: from pictures to input.
        group_size: pictures whose predictions depend on one another; 0: each by itself.

    Attributes:
        record: what a run is; None of any other model.
        step: optimizer steps that a run had made; 0 of any other model.
    """

    record: ModelRecord | None = None
    step: int = 0

    def __init__(self, classes: Sequence[str], preprocessing: Preprocessing, group_size: int = 0) -> None:
        super().__init__()
        self.classes, self.preprocessing, self.group_size = tuple(classes), preprocessing, group_size

    @torch.no_grad()
    def predict(self, images: Any) -> Predictions:
        """The class of every picture.

        Pictures are resized and normalized as those that the model was trained on. A method whose predictions depend on
        what it sees together (ARM) takes the pictures in groups of ``group_size``, in the order given.

        Args:
            images: image files, PIL images, arrays or tensors, one or many; see
                :func:`dgbench.trained.inputs.batches`. An array (n, d) for a model of vectors.

        Raises:
            DataError: something that is no picture, or has other channels than the model was trained on.
        """
        group = max(1, self.group_size)
        size = group * max(1, AT_ONCE // group)
        parts = [self._logits(batch) for batch in batches(images, self.preprocessing, size)]
        return Predictions(torch.cat(parts), self.classes)

    def _logits(self, batch: Tensor) -> Tensor:
        like = next(self.parameters(), torch.empty(0))
        logits: Tensor = self(batch.to(like.device, like.dtype)).cpu()
        return logits


class LoadedModel(Predictor):
    """A trained run in evaluation mode: (n, C, H, W) normalized images, or (n, d) vectors -> (n, K) logits.

    Args:
        module: the run.
        record: what it is.
        step: optimizer steps after which it had these weights.

    Attributes:
        run: the :class:`~dgbench.training.modules.SingleRun`; ``run.networks`` holds featurizer and classifier.
    """

    record: ModelRecord

    def __init__(self, module: SingleRun, record: ModelRecord, step: int) -> None:
        super().__init__(record.classes, record.preprocessing, module.algorithm.group_size(module.algorithm.values))
        self.run, self.record, self.step = module, record, step
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W), normalized as the preprocessing says -> (n, K) logits."""
        logits: Tensor = self.run(x)
        return logits

    @property
    def networks_that_predict(self) -> tuple[str, ...]:
        """Names of the networks that predictions depend on."""
        usual = type(self.run.algorithm).predict is Algorithm.predict
        return ("featurizer", "classifier") if usual else tuple(self.run.networks)

    def features(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, m) features, in front of the classifier.

        Raises:
            RecordError: a featurizer that reads more than the image (ARM's).
        """
        if self.run.algorithm.extra_channels:
            name = self.record.identity["algorithm"]
            raise RecordError(f"the featurizer of {name} reads more than an image; choose another algorithm's run")
        features: Tensor = self.run.networks.featurizer(x)
        return features


class Ensemble(Predictor):
    """Several models as one: the mean of their logits, as ensembles of averages (EoA) predict.

    Source: Arpit et al. 2022, "Ensemble of Averages", section 3.2.

    Args:
        members: models of the same classes and images.

    Raises:
        RecordError: they have other classes, or see other images.
    """

    def __init__(self, members: Sequence[Predictor]) -> None:
        first = members[0]
        for other in members[1:]:
            if other.classes != first.classes:
                raise RecordError(
                    f"an ensemble needs models of the same classes in the same order; these have {_few(first.classes)} "
                    f"and {_few(other.classes)}"
                )
            if other.preprocessing != first.preprocessing:
                raise RecordError("an ensemble needs models of images of one size and normalization; load them apart")
        super().__init__(first.classes, first.preprocessing, max(member.group_size for member in members))
        self.members = nn.ModuleList(members)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, K) logits."""
        return torch.stack([member(x) for member in self.members]).mean(0)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
