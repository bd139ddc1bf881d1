"""What a model takes, as :mod:`dgbench.training.cost` counts it: kept by plans, which read it
without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dgbench.data.description import Counts
from dgbench.plan.studies import PlannedStudy


@dataclass(frozen=True)
class Cost:
    """What a model takes; operations as :class:`dgbench.training.cost.Meter` counts them."""

    step: float  #: operations of an optimizer step, the mean over all steps of a run
    n_envs: int  #: training environments of that step
    image: float  #: operations of one prediction
    #: operations of the features of one image that are computed before training, and kept
    kept: float
    surveys: int  #: how many times a run looks at all of its training images
    memory: int  #: most bytes at a time: weights, gradients, moments and activations of a step
    disk: int  #: bytes of a finished run's checkpoints

    def per_minibatch(self, study: PlannedStudy) -> float:
        """Compute the operations of all that a study does per minibatch of one environment that it
        trains on.

        Features that are kept are computed once for a study. Images that are not here are counted
        as published, in environments of equal size.
        """
        trainer = study.config["trainer"]
        images = _images(study)
        evaluations = -(-trainer["steps"] // trainer["eval_every"])
        flops = self.kept * sum(sum(counts.values()) for counts in images.values())
        minibatches = 0
        for fold in study.folds:
            trained = sum(images[env]["train"] for env in fold.training)
            scored = sum(
                _scored(images[env], env in fold.training, trainer["eval_subsets"])
                for env in fold.scored
            )
            n_envs = trainer.get("environments_per_step") or len(fold.training)
            flops += trainer["steps"] * self.step * n_envs / self.n_envs
            flops += self.image * (evaluations * scored + self.surveys * trained)
            minibatches += trainer["steps"] * n_envs
        return flops / max(minibatches, 1)


def _images(study: PlannedStudy) -> Counts:
    """Count the images of each environment by subset.

    The published numbers are taken if the images are not here.
    """
    info = study.info
    dataset = study.config["dataset"]
    published = dataset.get("published") or {}
    share = dataset.get("val_fraction", 0)
    n = published.get("images", 0) // len(info.given)
    subsets = {"train": round(n * (1 - share)), "val": round(n * share), "test": 0}
    return info.counts or dict.fromkeys(info.given, subsets)


def _scored(images: Mapping[str, int], trained_on: bool, subsets: Sequence[str]) -> int:
    """Count the images of an environment that an evaluation scores, see
    :class:`dgbench.data.environments.Table`.
    """
    test = images["test"] or (0 if trained_on else images["train"])
    return images["val"] + test + (images["train"] if trained_on and "train" in subsets else 0)
