"""The keys of ``conf/dataset``: what every dataset takes, and values that several share."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Predicate
from pydantic import BeforeValidator, Field

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.validation import Checked, Number, Refusal, shown

if TYPE_CHECKING:
    from dgbench.data.environments import Environments

MOST_PIXELS = 8192  # of a side: 200 MB an image
MOST_WORKERS = 1024
NO_SIDE = f"is not a positive number of pixels up to {MOST_PIXELS}"


def mapping_or(fault: str) -> BeforeValidator:
    """Return a validator that refuses what is no mapping, with ``fault`` as the reason."""

    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(fault)
        return value

    return BeforeValidator(check)


def different(values: Sequence[str | float]) -> Sequence[str | float]:
    """Return the values, or refuse them if one is repeated."""
    for value in values:
        if list(values).count(value) > 1:
            raise ValueError(f"names {value} twice; name each once")
    return values


#: part of a folder's name
FolderName = Annotated[
    str,
    Predicate(lambda name: re.fullmatch(r"(?![._])[^/\\\x00-\x1f\x7f]+", name) is not None),
    Refusal("cannot name a folder", "use letters, digits, - and _, with a letter or digit first"),
]
Seed = Annotated[int, Field(ge=0), Refusal("is not an integer >= 0", "0 is the default")]
ValFraction = Annotated[
    Number, Field(gt=0, lt=1), Refusal("is not in (0, 1)", "DomainBed uses 0.2")
]
PoolFraction = Annotated[Number, Field(gt=0, lt=1), Refusal("is not in (0, 1)", "0.2 is usual")]
#: column of a list that tells train, val and test; None takes ``subset``
SubsetColumn = Annotated[
    Annotated[str, Field(pattern=r"\S")] | None,
    Refusal("is no name of a column", "null takes subset, none follows no column"),
]
Text = Annotated[str, Field(pattern=r"\S")]
SplitBy = Annotated[Text | None, Refusal("is no name of a column", "null splits row by row")]
SplitPattern = Annotated[
    Text | None, Refusal("is no regular expression", "null splits image by image")
]
MinImages = Annotated[
    int, Field(ge=0), Refusal("is not an integer >= 0", "0 leaves no environment out")
]
#: of a picture in pixels; None leaves it to the initial weights
ImageSize = Annotated[int, Field(ge=1, le=MOST_PIXELS)] | None
Workers = Annotated[
    Annotated[int, Field(ge=1, le=MOST_WORKERS)] | None,
    Refusal(f"is not an integer from 1 to {MOST_WORKERS}", "null takes one per core"),
]
Numbers = Annotated[Sequence[Number], Refusal("is no list of finite numbers", "correct it")]


def _path_as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


#: text that is not blank, or a path from Python; ``~`` is expanded where it is used
PathText = Annotated[
    str, Predicate(lambda path: path.strip() != ""), BeforeValidator(_path_as_text)
]
CacheFolder = Annotated[
    PathText, Refusal("is no path", "name a folder with space for decoded images")
]
DataFolder = Annotated[
    PathText, Refusal("is no path", "name the folder that holds MNIST/raw, or set paths.data_dir")
]


class DatasetOptions(Checked):
    """The class behind ``conf/dataset/NAME.yaml``; its fields are the keys.

    Its module imports no torch.

    Args:
        name: of the dataset, in the rows.
    """

    key = "dataset"

    name: FolderName

    @abstractmethod
    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """List the files, and describe what the dataset holds, without decoding anything.

        Args:
            absent_ok: if the files are absent, return what the configuration knows: environments
                and classes, without counts or content.
            download: try to download what :meth:`build` would.

        Raises:
            ConfigError: a value that does not fit the files.
            DataError: files that are absent (unless ``absent_ok`` and the configuration names the
                environments) or wrong.
        """

    @abstractmethod
    def build(self) -> Environments:
        """Build the environments with their images; ``environments.info`` is the DatasetInfo.

        Raises:
            ConfigError, DataError: as :meth:`describe`; also images that cannot be decoded.
        """


def known_size(image_size: int | None, usual: str = "224 is usual") -> int:
    """Return the side of decoded images in pixels, or refuse None.

    Raises:
        ConfigError: it is not known.
    """
    if image_size is None:
        raise ConfigError(f"dataset.image_size=null {NO_SIDE}; {usual}")
    return image_size


def list_of_names(key: str, values: object, fix: str) -> list[str]:
    """Convert a list of different names to text; refuse anything else.

    Args:
        key: below ``dataset``.
        values: names or numbers.
        fix: what to give instead, which the files tell.

    Raises:
        ConfigError: no list, or a value that is no name or is repeated.
    """
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
        raise ConfigError(f"dataset.{key}={shown(values)} is no list of names; {fix}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ConfigError(f"dataset.{key} holds {shown(value)}, which is no name; {fix}")
    names = list(map(str, values))
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"dataset.{key} names {name} twice; name each once")
    return names


def expanded(path: str) -> Path:
    """Expand ``~`` in a path."""
    return Path(path).expanduser()
