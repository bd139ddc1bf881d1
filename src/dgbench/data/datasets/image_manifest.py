"""Images that a CSV or JSON file lists."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.data.datasets.image_table import ImageTable, table_of_rows
from dgbench.errors import DataError

OWN = ("path", "environment", "class", "subset")  # columns; further ones are attributes


def table_of_list(
    manifest: Path, root: Path, environments: Sequence[str] | None, classes: str, bad_files: Sequence[str]
) -> ImageTable:
    """The images of a CSV or JSON file with ``path``, ``environment``, ``class`` and, optionally, ``subset``.

    CSV has these names in its first line; JSON is a list of objects. Paths are below ``root``. A subset is ``train``,
    ``val``, ``test`` or empty. Further columns become attributes, which predictions and ``report=errors`` show.

    Raises:
        ConfigError, DataError: see :func:`~dgbench.data.datasets.image_table.table_of`; also a list that cannot be
            read.
    """
    if not manifest.is_file():
        raise DataError(f"dataset.manifest={manifest} is no file; give a CSV or JSON list of path, environment, class")
    try:
        text = manifest.read_text(encoding="utf-8-sig")
        entries = json.loads(text) if manifest.suffix == ".json" else list(csv.DictReader(text.splitlines()))
        rows = [
            (str(e["path"]), str(e["environment"]), str(e["class"]), str(e.get("subset") or "") or None)
            for e in entries
        ]
        attributes = {str(e["path"]): _attributes(e) for e in entries}
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise DataError(
            f"dataset.manifest={manifest} cannot be read ({type(error).__name__}: {error}); give a CSV with a first "
            "line path,environment,class or a JSON list of objects with these keys"
        ) from error
    return table_of_rows(rows, root, environments, classes, bad_files, attributes)


def _attributes(entry: Mapping[Any, Any]) -> dict[str, str]:
    """The further columns; values beyond the named ones, which CSV may hold, have no name."""
    return {str(name): "" if value is None else str(value) for name, value in entry.items() if name and name not in OWN}
