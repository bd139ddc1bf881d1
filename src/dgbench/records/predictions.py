"""``predictions.parquet``: what one run predicts for every image that it is evaluated on.

Imports no torch; pyarrow is optional. One line is one image of one eval set:

===============  ==================================================================================
``image``        name: the path below the dataset's root if images are files, else its number
``eval_set``     images swept once, e.g. ``val/photo``; ``test+k`` is painted with the k-th other
                 feature
``env``          environment; null if an eval set belongs to several (exact evaluation mixes them)
``subset``       ``train``, ``val`` or ``test``; null where ``env`` is
``label``        true class, a number
``predicted``    predicted class
``top``          the :data:`TOP` most probable classes, most probable first; all if there are fewer
``probability``  their probabilities, softmax of the logits
``attribute.*``  what a list of images tells about them besides
===============  ==================================================================================

An eval set that is two subsets of an environment (``protocol=target_oracle``) stands there twice.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dgbench.errors import ConfigError, RecordError
from dgbench.records.files import Checksum, check_expansion, open_regular

if TYPE_CHECKING:
    import pyarrow

PREDICTION_FILE = "predictions.parquet"
TOP = 10  #: classes that are written for an image
ATTRIBUTE = "attribute."  #: beginning of the names of further columns
MOST_VALUES = 50  #: of an attribute; one with more, as a file's number, makes no groups
#: attribute -> value -> class -> training images
TrainingGroups = dict[str, dict[str, dict[str, int]]]
_KEY = b"dgbench"  #: of the metadata
_FORMAT = 1


def need_pyarrow(key: str) -> None:
    """Refuse a setting that needs pyarrow if that is not installed.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            f"{key} needs pyarrow, which is not installed; pip install 'dgbench[parquet]'"
        )


def schema(about: Mapping[str, Any], attributes: Sequence[str] = ()) -> pyarrow.Schema:
    """Build the schema: columns, further ones by name, and metadata.

    ``about`` is as :func:`about_predictions` gives it.
    """
    import pyarrow as pa

    number = pa.int16() if len(about["classes"]) < 2**15 else pa.int32()
    word = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field("image", pa.string(), nullable=False),
        pa.field("eval_set", word, nullable=False),
        pa.field("env", word),
        pa.field("subset", word),
        pa.field("label", number, nullable=False),
        pa.field("predicted", number, nullable=False),
        pa.field("top", pa.list_(number), nullable=False),
        pa.field("probability", pa.list_(pa.float32()), nullable=False),
        *(pa.field(ATTRIBUTE + name, word) for name in attributes),
    ]
    return pa.schema(fields, {_KEY: json.dumps({"format": _FORMAT, **about}).encode()})


def about_predictions(path: Path) -> dict[str, Any]:
    """Read what a file tells about its run.

    Keys: ``run`` (hash), ``step``, ``evaluation`` (``last`` or ``best``), ``classes`` (names),
    ``training`` and ``held_out`` (environments), ``algorithm``, ``dataset``, ``seed``, ``fold``,
    ``root`` (folder of the images as the configuration gives it, or None), ``training_groups``
    (attribute -> value -> class -> images that the run was trained on; absent if none is known),
    ``recipes`` (of every recorded error ``env``, ``subset`` and ``mixture``: the weight of each
    eval set).

    Raises:
        RecordError: it is no such file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    faults = (
        OSError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        pa.ArrowException,
    )
    try:
        with open_regular(path) as file:
            content = json.loads((pq.read_schema(file).metadata or {})[_KEY])
        if content.pop("format") != _FORMAT:
            raise ValueError("another format")
    except faults as error:
        raise RecordError(f"{path} holds no predictions of dgbench ({error}); delete it") from error
    description: dict[str, Any] = content
    return description


def read_predictions(path: Path) -> pyarrow.Table:
    """Read the lines of a file.

    Raises:
        RecordError: it cannot be read.
    """
    import pyarrow as pa

    try:
        with open_regular(path) as file:
            check_parquet_seal(file)
        return read_parquet(path)
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be read ({error}); delete it") from error


#: begins a seal, before eight hexadecimal digits and the footer, where no reader of Parquet looks
_SEAL = b"\ndgbench crc32 "
_END = 8  #: bytes of a Parquet file behind its footer: the footer's size, and a mark


def seal_parquet(file: BinaryIO) -> None:
    """Write a checksum of all that an open, whole Parquet file holds into it, before its footer."""
    start, end = _footer(file)
    file.seek(0)
    checksum = Checksum.of_beginning(file)
    file.seek(start)
    footer = file.read(end - start)
    file.seek(start)
    file.write(_SEAL + b"%08x" % checksum.crc32 + footer)


def check_parquet_seal(file: BinaryIO) -> None:
    """Check an open Parquet file by its seal, if it has one; older files have none.

    Raises:
        OSError: a byte of it was changed.
    """
    start, _ = _footer(file)
    length = len(_SEAL) + 8
    file.seek(max(0, start - length))
    seal = file.read(length)
    if not seal.startswith(_SEAL):
        return
    file.seek(0)
    checksum = Checksum.of_beginning(file, start - length)
    file.seek(start)
    if b"%08x" % checksum.with_next(file).crc32 != seal[len(_SEAL) :]:
        raise OSError(errno.EIO, "damaged")


def _footer(file: BinaryIO) -> tuple[int, int]:
    """Find where the footer of an open Parquet file begins, and where the file ends.

    Both are 0 if there is none.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _END))
    size = int.from_bytes(file.read(4), "little")
    return max(0, end - _END - size), end


def parquet_size(file: Any) -> int:
    """Compute how many bytes an open Parquet file takes in memory.

    Repeated values count each time.
    """
    return sum(max(part.total_uncompressed_size, 8 * part.num_values) for part in _parts(file))


def _parts(file: Any) -> list[Any]:
    """List the parts of the columns of an open Parquet file."""
    parts = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        parts += [group.column(index) for index in range(group.num_columns)]
    return parts


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Read the lines of a Parquet file, whoever wrote it; repeated texts are kept once.

    Raises:
        RecordError: it expands beyond all measure.
        OSError, pyarrow.ArrowException: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_regular(path) as handle:
        file = pq.ParquetFile(handle, page_checksum_verification=True)
        check_expansion(path, parquet_size(file))
        strings = {column.name for column in file.schema_arrow if pa.types.is_string(column.type)}
        repeated = set()
        for part in _parts(file):
            if "RLE_DICTIONARY" in part.encodings:
                repeated.add(part.path_in_schema)
        return pq.read_table(
            handle,
            columns=columns,
            read_dictionary=list(repeated & strings),
            page_checksum_verification=True,
        )
