"""Scripts of the repository that are no part of a package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def script(file: Path) -> ModuleType:
    """The module of a script, e.g. ``docs/outputs.py``; anew at each call."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # a dataclass looks there for its module
    spec.loader.exec_module(module)
    return module
