"""The file of one model's predictions, written some thousand lines at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dgbench.batches import EvalBatch
from dgbench.data.environments import Environments
from dgbench.records.files import WholeFile
from dgbench.records.prediction_file import ATTRIBUTE, TOP, schema

#: columns with few different values
CODED = ("eval_set", "env", "subset", "label", "predicted", "top.list.element")
GROUP = 4096  # lines kept until they are written; a file of many small pieces would be twice as large


def columns_of(batch: EvalBatch, logits: Tensor, environments: Environments) -> list[dict[str, Any]]:
    """The columns that need images: of each run, with names that all of them share.

    Args:
        batch: n images.
        logits: (R, n, K).
        environments: of the images.
    """
    import pyarrow as pa

    assert batch.positions is not None
    n, k = len(batch.y), min(TOP, logits.shape[2])
    # argmax decides, as in the counted errors; the order of equal logits is not that of a sort everywhere
    predicted = logits.argmax(2).cpu().numpy()
    best = logits.sort(dim=2, descending=True, stable=True).indices[:, :, :k]
    probability = logits.double().softmax(2).gather(2, best).float().cpu().numpy()
    top, positions = best.cpu().numpy(), batch.positions.cpu().numpy()
    ends = pa.array(np.arange(0, n * k + 1, k, dtype=np.int32))
    attributes = environments.catalog.attributes_at(positions)
    shared = {
        "image": pa.array(environments.catalog.names_at(positions), pa.string()),
        "label": batch.y.cpu().numpy(),
        **{ATTRIBUTE + name: pa.array(values).dictionary_encode() for name, values in attributes.items()},
    }
    return [
        {**shared, "predicted": predicted[i], "top": (ends, top[i]), "probability": (ends, probability[i])}
        for i in range(len(logits))
    ]


class PredictionLines:
    """The lines of one file, written some thousand at a time."""

    def __init__(self, path: Path, about: Mapping[str, Any], attributes: Sequence[str]) -> None:
        import pyarrow.parquet as pq

        self._schema = schema(about, attributes)
        self._file = WholeFile(path)
        # names of images are sorted mostly, so the end of each is enough; probabilities differ in their last bytes
        self._writer: Any = pq.ParquetWriter(
            self._file.file,
            self._schema,
            compression="zstd",
            use_dictionary=[*CODED, *(ATTRIBUTE + name for name in attributes)],
            column_encoding={"image": "DELTA_BYTE_ARRAY", "probability.list.element": "BYTE_STREAM_SPLIT"},
        )
        self._waiting: list[Any] = []

    def add(self, columns: Mapping[str, Any]) -> None:
        """Lines of one batch; a word stands for all of them."""
        import pyarrow as pa

        n = len(columns["label"])
        arrays = [_array(columns[name], self._schema.field(name).type, n) for name in self._schema.names]
        self._waiting.append(pa.record_batch(arrays, schema=self._schema))
        if sum(map(len, self._waiting)) >= GROUP:
            self._write()

    def finish(self) -> None:
        """Give the file its name."""
        try:
            self._write()
            self._writer.close()
            self._file.commit()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Leave no file."""
        with suppress(OSError):  # it writes its end first, and the disk may be full
            self._writer.close()
        with suppress(OSError):
            self._file.discard()

    def _write(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting).unify_dictionaries())
            self._waiting = []


def _array(values: Any, kind: Any, n: int) -> Any:
    import pyarrow as pa

    if values is None:
        return pa.nulls(n, kind)
    if isinstance(values, str):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), [values])
    if isinstance(values, tuple):
        ends, inner = values
        return pa.ListArray.from_arrays(ends, pa.array(inner.reshape(-1), kind.value_type))
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
