"""What is known of a dataset without decoding an image: environments, classes, counts, files, what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dgbench.data.environments import Environments

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


class DatasetOptions(Protocol):
    """What ``conf/dataset/NAME.yaml`` names: a frozen dataclass in a module that imports no torch."""

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Check every value that needs no pixels, list the files, and say what the dataset holds. Decodes nothing.

        Args:
            absent_ok: where the files are absent, return what the configuration knows: environments and classes,
                without counts or content.
            download: try to download what :meth:`build` would.

        Raises:
            ConfigError: a value that cannot work.
            DataError: files that are absent (unless ``absent_ok`` and the configuration names the environments) or
                wrong.
        """

    def build(self) -> Environments:
        """The environments with their images; ``environments.info`` is the :class:`DatasetInfo`.

        Raises:
            ConfigError, DataError: as :meth:`describe`; also images that cannot be decoded.
        """


@dataclass(frozen=True)
class Preprocessing:
    """What was done to the images that a network was trained on.

    Args:
        image: C, H, W of what the network sees, or d where it sees vectors.
        mean, std: of each channel, subtracted from and divided by, of values in [0, 1]; empty of vectors, which are
            taken as they are.
        pictures: the channels are red, green and blue, so that an image file can be brought to this form; False where
            a dataset paints channels of its own.
    """

    image: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pictures: bool = True

    @property
    def vectors(self) -> bool:
        """Whether the network sees vectors, not images."""
        return len(self.image) == 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @staticmethod
    def of_json(plain: Mapping[str, Any]) -> Preprocessing:
        """The inverse of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        mean, std = (tuple(map(float, plain[key])) for key in ("mean", "std"))
        return Preprocessing(tuple(map(int, plain["image"])), mean, std, bool(plain["pictures"]))
