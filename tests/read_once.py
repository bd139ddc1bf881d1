"""What small studies read again and again is read once in a process: the files of ``conf/``, and
the digits.

Importing this makes it so, here and in the processes that are forked from here. Nor does Hydra
compose a command twice, to learn its mode: composing is most of what a small command costs.
"""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import sklearn.datasets
from hydra import compose, initialize_config_dir
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.hydra import Hydra

CONF = str(Path(__file__).resolve().parents[1] / "conf")
READ: dict[tuple[str, ...], bytes] = {}  # places of files and name of one -> what was read

read_file = ConfigRepository.load_config


def read_once(self: ConfigRepository, config_path: str) -> Any:
    places = [source.path for source in self.sources if source.scheme() == "file"]
    if places != [CONF]:  # a folder of a user's own
        return read_file(self, config_path)
    key = *(source.path for source in self.sources), config_path
    if key not in READ:
        READ[key] = pickle.dumps(read_file(self, config_path), pickle.HIGHEST_PROTOCOL)
    return pickle.loads(READ[key])  # a copy, much faster than a deep one


ConfigRepository.load_config = read_once  # type: ignore[method-assign]
Hydra.get_mode = lambda self, config_name, overrides: None  # type: ignore[method-assign] # no file of conf/ sets it
sklearn.datasets.load_digits = cache(sklearn.datasets.load_digits)

with initialize_config_dir(CONF, version_base="1.3"):
    for command in ("train", "report", "shift"):
        compose(command)
sklearn.datasets.load_digits()
