"""Scripts of the repository that are no part of a package, as modules; and what runs before a
command.
"""

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


#: for ``before`` of a command that must not need torch
NO_TORCH = """
import sys
for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
    sys.modules[name] = None  # importing torch raises now
"""
