"""What is known of a dataset without decoding an image: its environments, classes, counts and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A dataset in numbers and names; planning, checks and rows read it.

    Args:
        name: of the dataset, in the rows.
        variant: what else tells this form of the dataset from others.
        base: where its images come from.
        evaluation: ``exact`` or ``sampled``.
        data_seed, split_seed: seeds that decide its images and its splits.
        given: names of the given environments, in order.
        everywhere: names of all environments; where ``beyond`` is false, these are the given ones.
        n_classes: K; 0 where neither the configuration nor a file says it.
        image: C, H, W of what a network sees, or d where it sees vectors; 0 where the configuration leaves it to the
            initial weights.
        beyond: whether there are environments besides the given ones, in which a model of all given ones is tested.
        counts: environment -> ``train``, ``val``, ``test`` -> images, of the given environments; empty where the files
            are absent.
        content: 16 hexadecimal digits that change with the image files; empty where they are absent.
    """

    name: str
    variant: Mapping[str, Any]
    base: str
    evaluation: str
    data_seed: int
    split_seed: int
    given: tuple[str, ...]
    everywhere: tuple[str, ...]
    n_classes: int
    image: tuple[int, ...]
    beyond: bool
    counts: Counts = field(default_factory=dict)
    content: str = ""

    @property
    def present(self) -> bool:
        """Whether the image files are there."""
        return bool(self.content)

    @property
    def kind(self) -> str:
        """What a network sees: ``pictures`` or ``vectors``."""
        return "vectors" if len(self.image) == 1 else "pictures"

    @property
    def smallest_training(self) -> int:
        """Training images of the smallest given environment; 0 where the files are absent."""
        return min((of["train"] for of in self.counts.values()), default=0)

    def identity(self) -> dict[str, Any]:
        """What tells this dataset from others: ``dataset variant base evaluation data_seed split_seed given``."""
        return {
            "dataset": self.name,
            "variant": dict(self.variant),
            "base": self.base,
            "evaluation": self.evaluation,
            "data_seed": self.data_seed,
            "split_seed": self.split_seed,
            "given": list(self.given),
        }

    def facts(self) -> dict[str, Any]:
        """What rows say of a dataset: :meth:`identity` and ``content``."""
        return {**self.identity(), "content": self.content}


def unlike_published(
    published: Mapping[str, Any], images: int, classes: int, environments: Sequence[str]
) -> list[tuple[str, Any, Any]]:
    """What of a copy differs from the published dataset: ``images``, ``classes`` or ``environments``, found, published.

    Args:
        published: as in ``conf/dataset``; what it lacks is compared with nothing.
        images, classes: how many the copy has.
        environments: its environments, in any order.
    """
    found = {"images": images, "classes": classes, "environments": sorted(environments)}
    wanted = {key: published.get(key) for key in found}
    expected = {key: sorted(value) if key == "environments" and value else value for key, value in wanted.items()}
    return [(key, found[key], value) for key, value in expected.items() if value is not None and value != found[key]]
