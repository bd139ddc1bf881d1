"""``predictions.parquet``: what one run predicts for every image that it is evaluated on.

No torch; pyarrow is optional.

One line is one image of one eval set:

===============  ===================================================================================
``image``        name: the path below the dataset's root where images are files, else its number
``eval_set``     images swept once, e.g. ``val/photo``; ``test+k`` is painted with the k-th other
                 feature
``env``          environment; null where an eval set belongs to several (exact evaluation mixes
                 them)
``subset``       ``train``, ``val`` or ``test``; null where ``env`` is
``label``        true class, a number
``predicted``    predicted class
``top``          the :data:`TOP` most probable classes, most probable first; all where there are no
                 more
``probability``  their probabilities, softmax of the logits
``attribute.*``  what a list of images says of them besides
===============  ===================================================================================

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
TOP = 10
ATTRIBUTE = "attribute."  #: beginning of the names of further columns
MOST_VALUES = 50  #: of an attribute; one with more, as a file's number, makes no groups
#: attribute -> value -> class -> training images
TrainingGroups = dict[str, dict[str, dict[str, int]]]
_KEY, _FORMAT = b"dgbench", 1


def need_pyarrow(key: str) -> None:
    """Refuse a setting that needs pyarrow where that is not installed.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            f"{key} needs pyarrow, which is not installed; pip install 'dgbench[parquet]'"
        )


def schema(about: Mapping[str, Any], attributes: Sequence[str] = ()) -> pyarrow.Schema:
    """Build the schema: columns, further ones by name, metadata; ``about`` as
    :func:`about_predictions` gives it.
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
    """Read what a file says of its run.

    Keys: ``run`` (hash), ``step``, ``evaluation`` (``last`` or ``best``), ``classes`` (names),
        ``training`` and
    ``held_out`` (environments), ``algorithm``, ``dataset``, ``seed``, ``fold``, ``root`` (folder of
    the images as the configuration gives it, or None), ``training_groups`` (attribute -> value ->
    class -> images that the run was trained on; absent where none is known), ``recipes`` (of every
    recorded error ``env``, ``subset`` and ``mixture``: the weight of each eval set).

    Raises:
        RecordError: it is no such file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as file:
            content = json.loads((pq.read_schema(file).metadata or {})[_KEY])
        if content.pop("format") != _FORMAT:
            raise ValueError("another format")
    except (
        OSError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        pa.ArrowException,
    ) as error:
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


# and eight hexadecimal digits, before the footer, where no reader of Parquet looks
_SEAL = b"\ndgbench crc32 "
_END = 8  # bytes of a Parquet file behind its footer: the footer's size, and a mark


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
    """Check an open Parquet file by its seal, if it has one; files of before have none.

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
    """Find where the footer of an open Parquet file begins, and where the file ends; 0 where there
    is none.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _END))
    size = int.from_bytes(file.read(4), "little")
    return max(0, end - _END - size), end


def parquet_size(file: Any) -> int:
    """Compute how many bytes an open Parquet file takes in memory: repeated values count each time."""
    sizes = (max(part.total_uncompressed_size, 8 * part.num_values) for part in _parts(file))
    return sum(sizes)


def _parts(file: Any) -> list[Any]:
    """List the parts of the columns of an open Parquet file."""
    groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    return [group.column(index) for group in groups for index in range(group.num_columns)]


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
        parts = _parts(file)
        strings = {column.name for column in file.schema_arrow if pa.types.is_string(column.type)}
        texts = {
            part.path_in_schema for part in parts if "RLE_DICTIONARY" in part.encodings
        } & strings
        return pq.read_table(
            handle,
            columns=columns,
            read_dictionary=list(texts),
            page_checksum_verification=True,
        )
