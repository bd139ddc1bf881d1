"""``dgbench.train``: what ``python train.py`` does, from Python."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.cli.train import run_command
from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.building import build
from dgbench.plan.compose import Composer
from dgbench.plan.explain import explain
from dgbench.plan.names import in_our_names
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import Command
from dgbench.plan.unread import UNREAD_IN_PYTHON, key_of, refuse_unread, replaced
from dgbench.records.status import is_done, read_status
from dgbench.reports.frames import EVALUATION, results
from dgbench.validation import Place, Words, checked

log = logging.getLogger("dgbench")

#: what Hydra keeps of the application that runs in a process
_OF_HYDRA: tuple[Any, ...] = (GlobalHydra, VersionBase)


@dataclass(frozen=True)
class TrainResult:
    """What became of the runs that a call of :func:`train` asked for.

    Args:
        frame: results of the finished runs, as :func:`dgbench.results` gives them, at the step that
            the configuration's ``selection`` chose.
        folders: of all runs, finished or not.
        failed: folder of a run that is not finished -> what its status says.
    """

    frame: pd.DataFrame = field(repr=False)
    folders: list[Path]
    failed: dict[Path, str]


@checked
def train(overrides: Words = (), output: Place | None = None) -> TrainResult:
    """Train what is unfinished of a study, skip what is done, and give the results of all its runs.

    Prints what the command prints. One study, or several with ``grid``; a sweep over processes
    (``-m``) is left to the command line. A run that fails is named in the result and does not stop
    the others.

    Args:
        overrides: as typed after ``python train.py``, e.g. ``["algorithm=vrex", "seed=1"]``.
        output: folder that receives the study's folder; None is ``paths.output_dir``, ``outputs``
            by default.

    Raises:
        ConfigError: an override that is unknown or cannot work.
        DgbenchError: what keeps the whole study from training, e.g. data that are missing.
        OSError: the folder cannot be written.
    """
    words = open_keys(in_our_names(list(overrides)))
    options = [word for word in words if word.startswith("-")]
    if options:
        raise ConfigError(
            f"{options[0]} is an option of the command line; pass KEY=VALUE, several studies with "
            "grid"
        )
    with _own_hydra(words):
        config = compose("train", words)  # says first what no key is
        refuse_unread(words, UNREAD_IN_PYTHON)
        for line in replaced(words):
            log.warning(line)
        parent = _output(output, str(config.paths.output_dir), words)
        loader = GlobalHydra.instance().config_loader()
        composer = Composer(
            loader, lambda other_words: compose("train", other_words), {tuple(words): config}
        )
        ended = run_command(Command(config, words, composer, parent.resolve()))
        selection = build(config, "selection")
    for problem in ended.failed:
        print(f"{problem} failed")
    failed = {
        folder: str(read_status(folder)) or "not started"
        for folder in ended.folders
        if not is_done(folder)
    }
    done = [folder for folder in ended.folders if folder not in failed]
    frame = results(done, selection) if done else pd.DataFrame(columns=list(EVALUATION))
    return TrainResult(frame, list(ended.folders), failed)


def _output(output: str | Path | None, configured: str, words: Sequence[str]) -> Path:
    """Choose the folder of studies.

    Raises:
        ConfigError: the argument and a typed word name two.
    """
    if output is None:
        return Path(configured)
    typed = any(key_of(word) == "paths.output_dir" for word in words)
    if typed and Path(output).resolve() != Path(configured).resolve():
        raise ConfigError(
            f"output={output} and paths.output_dir={configured} name two folders; leave one of "
            "them out"
        )
    return Path(output)


def composed(words: Sequence[str]) -> dict[str, Any]:
    """Compose the configuration of train.py.

    Returns:
        Plain values of its dataset, paths, protocol and trainer.

    Raises:
        ConfigError: an override that is unknown or cannot be read.
    """
    with _own_hydra(words):
        config = compose("train", list(words))
        groups = ("dataset", "paths", "protocol", "trainer")
        return {key: OmegaConf.to_container(config[key], resolve=True) for key in groups}


def composed_adaptations(
    words: Sequence[str], searched: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Compose what ``dgbench evaluate`` does to models, once for each value of the lists typed.

    Args:
        words: overrides of ``adaptation``; a list that is one value is written ``[[a,b]]``.
        searched: override of ``hydra.searchpath``, of a folder of the user's own.

    Returns:
        Plain values of the keys of ``adaptation``.

    Raises:
        ConfigError: an override that is unknown or cannot be read.
    """
    with _own_hydra(words, "evaluate"):
        choices = [_one_by_one(word) for word in words]
        composed_keys = []
        for chosen in product(*choices):
            config = compose("evaluate", [*searched, *chosen])
            keys: Any = OmegaConf.to_container(config.adaptation, resolve=True)
            composed_keys.append(keys)
        return composed_keys


def _one_by_one(word: str) -> list[str]:
    """Make an override of each value of a list, in order; any other override stays alone."""
    key, _, value = word.partition("=")
    if not value.startswith("["):
        return [word]
    elements = value.removeprefix("[").removesuffix("]")
    if not elements.strip():
        raise ConfigError(f"{word} names no value; give one, or leave it out")
    listed = OverridesParser.create().parse_override(f"{key}={elements}")
    if not listed.is_sweep_override():
        return [f"{key}={elements}"]
    return [f"{key}={element}" for element in listed.sweep_string_iterator()]


@contextmanager
def _own_hydra(words: Sequence[str], name: str = "train") -> Iterator[None]:
    """Set up Hydra as in a fresh process, to compose from ``conf/``, and restore it later.

    This works inside a Hydra application as well.

    Raises:
        ConfigError: what Hydra raises within, explained in one line.
    """
    saved = {
        kind: Singleton._instances.pop(kind) for kind in _OF_HYDRA if kind in Singleton._instances
    }
    try:
        with initialize_config_dir(str(CONF), job_name=name, version_base="1.3"):
            yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, name, words)) from error
    finally:
        for kind in _OF_HYDRA:
            Singleton._instances.pop(kind, None)
        Singleton._instances.update(saved)
