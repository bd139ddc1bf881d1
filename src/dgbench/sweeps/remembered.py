"""What plans worked out with torch, kept in the cache so that the same plan needs none.

These are costs, and what can be trained. An answer counts for the same code and the same packages
alone; it is not kept for code that no version names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dgbench.plan.studies import PlannedStudy
from dgbench.records.files import read_json, write_whole
from dgbench.records.spec import code_version, digest
from dgbench.sweeps.sizes import gpus

FOLDER = "plans"  #: in the folder of caches
PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "pytorch-lightning",
    "open-clip-torch",
    "wandb",
    "tensorboard",
)


@dataclass(frozen=True)
class Remembered:
    """Answers of one kind about studies, by a key that says all that they depend on."""

    kind: str

    def read(self, study: PlannedStudy, key: Any) -> Mapping[str, Any] | None:
        """Read an answer, or return None if there is none."""
        with suppress(OSError, ValueError):
            answer = read_json(self._file(study, key))
            if isinstance(answer, dict):
                return answer
        return None

    def keep(self, study: PlannedStudy, key: Any, answer: Mapping[str, Any]) -> None:
        """Write an answer, unless the folder cannot be written or no version names the code."""
        if "dirty" in code_version() or study.spec.user_code:
            return
        with suppress(OSError):
            file = self._file(study, key)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(answer) + "\n")

    def _file(self, study: PlannedStudy, key: Any) -> Path:
        asked = digest([self.kind, key, study.spec.user_code, _surroundings()])
        return Path(str(study.config["paths"]["cache_dir"])) / FOLDER / f"{self.kind}-{asked}.json"


@cache
def _surroundings() -> list[str]:
    """List what an answer depends on beside the study: versions, and whether there are GPUs."""
    return [code_version(), *map(_installed, PACKAGES), f"{len(gpus())} GPUs"]


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"
