"""What is known of a dataset without decoding an image.

Environments, classes, counts, files, and what becomes of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import normalize

from dgbench.errors import ConfigError, DataError
from dgbench.records.checks import printable_text
from dgbench.validation import some_of

SUBSETS = ("train", "val", "test")
#: where images for validation come from that a list names, see DatasetInfo.val_from
AS_LISTED = "as listed"
Counts = Mapping[str, Mapping[str, int]]


def check_names(kind: str, names: Iterable[str]) -> None:
    """Refuse names that rows cannot hold, and names that a reader could mistake for one another.

    Args:
        kind: ``environments`` or ``classes``, for the message.
        names: of all environments or classes; repetitions are allowed.

    Raises:
        DataError: a name is empty, too long or not printable, or differs from another by case,
            blanks or Unicode normalization alone.
    """
    spellings: dict[str, str] = {}
    pairs: dict[str, None] = {}
    for name in names:
        fault = printable_text(name) if name.strip() else f"is {name!r}, which is blank"
        if fault:
            raise DataError(
                f"a name among the {kind} of the dataset {fault}; rename it where the dataset "
                "lists it"
            )
        normalized = normalize("NFC", name.casefold())
        first = spellings.setdefault("".join(normalized.split()), name)
        if first != name:
            pairs[f"{first!a} and {name!a}"] = None
    if pairs:
        raise DataError(
            f"the {kind} {some_of(list(pairs))} of the dataset differ by case, blanks or Unicode "
            "form alone; write them alike where the dataset lists them, or rename one"
        )


def need_training_images(env: str, images: int) -> None:
    """Refuse to train on an environment whose images are all for validation or test.

    Raises:
        ConfigError: it has no training images.
    """
    if not images:
        raise ConfigError(
            f"environment {env} has no training images, since its dataset only tests "
            "models there; train on others, e.g. with protocol=fixed"
        )


def with_base(dataset: str, base: str) -> str:
    """Name a dataset, with its base if that is MNIST or the digits: ``sr_cmnist (digits)``."""
    return f"{dataset} ({base})" if base in ("mnist", "mnist_train", "digits") else dataset


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A dataset in numbers and names; planning, checks and rows read it.

    Raises:
        DataError: names of environments that :func:`check_names` refuses.
    """

    name: str  #: of the dataset, in the rows
    variant: Mapping[str, Any]  #: what else tells this form of the dataset from others
    base: str  #: where its images come from
    #: seeds that decide its splits and its images
    split_seed: int
    given: tuple[str, ...]  #: names of the given environments, in order
    #: names of all environments; the given ones if ``beyond`` is false
    everywhere: tuple[str, ...]
    n_classes: int  #: K; 0 if neither the configuration nor a file tells it
    #: C, H, W of what a network sees, or d of vectors; 0 if the configuration leaves it to the
    #: initial weights
    image: tuple[int, ...]
    data_seed: int = 0
    evaluation: str = "sampled"  #: ``exact`` or ``sampled``
    #: whether there are environments besides the given ones; a model of all given ones is tested
    #: there
    beyond: bool = False
    #: environment -> ``train``, ``val``, ``test`` -> images, of the given environments; empty if
    #: the files are absent
    counts: Counts = field(default_factory=dict)
    #: given environments with fewer images than ``dataset.min_images``: tested, never trained on
    only_tested: tuple[str, ...] = ()
    #: 16 hexadecimal digits that change with the image files; empty if they are absent
    content: str = ""
    # What follows is for people (:mod:`dgbench.data.understanding`); no hash and no row holds it.
    #: in the order of the outputs; empty if only their number is known
    class_names: tuple[str, ...] = ()
    val_from: str = ""  #: where images for validation come from, in words
    left_out: Mapping[str, int] = field(default_factory=dict)  #: files that are not read, by reason

    def __post_init__(self) -> None:
        check_names("environments", [*self.given, *self.everywhere])

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
        """Training images of the smallest environment that may be trained on, 0 without files."""
        trained = [
            counts["train"] for env, counts in self.counts.items() if env not in self.only_tested
        ]
        return min(trained, default=0)

    def identity(self) -> dict[str, Any]:
        """Return what identifies this dataset.

        The keys are ``dataset variant base evaluation data_seed split_seed given``.
        """
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
        """Return what rows record of the dataset: :meth:`identity` and ``content``."""
        return {**self.identity(), "content": self.content}


def unlike_published(
    published: Mapping[str, Any], images: int, classes: int, environments: Sequence[str]
) -> list[tuple[str, Any, Any]]:
    """List how a copy differs from what was published.

    Each difference is (``images``, ``classes`` or ``environments``, found, published).

    Args:
        published: as in ``conf/dataset``; keys that it lacks, or that are None, are not compared.
        images, classes: how many the copy has.
        environments: its environments, in any order.
    """
    names = published.get("environments")
    expected = {**published, "environments": names and sorted(names)}
    copy = {"images": images, "classes": classes, "environments": sorted(environments)}
    return [
        (key, value, expected[key])
        for key, value in copy.items()
        if expected.get(key) not in (None, value)
    ]


@dataclass(frozen=True)
class Preprocessing:
    """What was done to the images that a network was trained on."""

    image: tuple[int, ...]  #: C, H, W of what the network sees, or d of vectors
    #: of each channel, subtracted from and divided by, of values in [0, 1]; empty for vectors,
    #: which are taken as they are
    mean: tuple[float, ...]
    std: tuple[float, ...]
    #: the channels are red, green and blue, so that an image file can be brought to this form;
    #: False where a dataset paints channels of its own
    pictures: bool = True

    @staticmethod
    def unchanged(image: tuple[int, ...]) -> Preprocessing:
        """Return the preprocessing that leaves values in [0, 1] as they are.

        Images of three channels are pictures.
        """
        channels = image[0]
        return Preprocessing(image, (0.0,) * channels, (1.0,) * channels, pictures=channels == 3)

    @property
    def vectors(self) -> bool:
        """Whether the network sees vectors, not images."""
        return len(self.image) == 1

    @staticmethod
    def of_json(plain: Mapping[str, Any]) -> Preprocessing:
        """Restore a preprocessing from what ``dataclasses.asdict`` made of it.

        Raises:
            KeyError, TypeError, ValueError: the mapping holds none.
        """
        mean = tuple(map(float, plain["mean"]))
        std = tuple(map(float, plain["std"]))
        image = tuple(map(int, plain["image"]))
        channels = image[0] if len(image) == 3 else 0
        if (
            min(image) < 1
            or not len(mean) == len(std) == channels
            or not all(map(math.isfinite, (*mean, *std)))
        ):
            raise ValueError(f"images of {image} with mean {mean} and deviation {std}")
        return Preprocessing(image, mean, std, bool(plain["pictures"]))
