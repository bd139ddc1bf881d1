"""The Hydra entry point of every command: finds ``conf/``, and says in one line what is wrong.

``HYDRA_FULL_ERROR=1`` shows tracebacks instead.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.cli.identity import study_folder
from dgbench.errors import DgbenchError

CONF = Path(__file__).resolve().parents[3] / "conf"

Task = Callable[[DictConfig], None]


def hydra_main(config_name: str) -> Callable[[Task], Callable[[], None]]:
    """``hydra.main`` with one-line errors: exit code 1 for what the user can mend, 130 after Ctrl-C.

    In a sweep a job that fails is told at once and does not stop the others.
    """
    register_resolvers()

    def decorate(task: Task) -> Callable[[], None]:
        @functools.wraps(task)
        def main() -> None:
            wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
            os.environ["HYDRA_FULL_ERROR"] = "1"  # or Hydra prints its own report and exits before we see the error
            failures: list[str] = []
            home = os.getpid()
            os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages for tensors, before torch is imported
            sys.argv[1:] = sweep_first([open_key(word) for word in sys.argv[1:]])

            @functools.wraps(task)
            def guarded(config: DictConfig) -> None:
                try:
                    task(config)
                except Exception as error:  # whatever broke this job, the others of a sweep go on
                    if wants_traceback or os.getpid() != home:  # a launcher's worker tells its parent by raising
                        raise
                    failures.append(_say(explain(error, config_name)))

            try:
                hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(guarded)()
            except KeyboardInterrupt:
                _say("interrupted; the same command goes on where this one stopped")
                sys.exit(130)
            except Exception as error:
                if wants_traceback:
                    raise
                failures.append(_say(explain(error, config_name)))
            if failures:
                sys.exit(1)

        return main

    return decorate


def register_resolvers() -> None:
    """What ``${...:}`` in ``conf/`` may name beside OmegaConf's own."""
    OmegaConf.register_new_resolver("study_folder", study_folder, replace=True)


def open_key(word: str) -> str:
    """``hparams.set`` and ``grid`` take keys that stand in no file, so overrides may add them."""
    return f"++{word}" if word.startswith(("hparams.set.", "hparams.set=", "grid.", "grid=")) else word


def sweep_first(words: list[str]) -> list[str]:
    """``-m`` may stand anywhere; Hydra's parser takes it only where it does not part the overrides."""
    return sorted(words, key=lambda word: word not in ("-m", "--multirun"))


def explain(error: BaseException, config_name: str) -> str:
    """One line that names the fix."""
    if isinstance(error, DgbenchError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):  # some of Hydra's are both
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{what}; free some space and start the same command again"
        return f"{what}; name a folder you may write with hydra.run.dir or paths.output_dir"
    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return f"{type(error).__name__}: {' '.join(str(error).split())}; HYDRA_FULL_ERROR=1 shows where"
    text = str(error)
    override = getattr(error, "override", None)
    if override:
        reason = text.splitlines()[0].removesuffix(
            " See https://hydra.cc/docs/1.2/advanced/override_grammar/basic for details"
        )
        return f"{override} cannot be read: {reason}; write KEY=VALUE, and quote it for the shell, e.g. 'KEY=[1,2]'"
    choice = re.search(r"Could not find '([^']+)/([^']+)'", text)
    if choice:
        group, name = choice.groups()
        options = [path.stem for path in sorted((CONF / group).glob("*.yaml"))]
        return (
            f"{group}={name} is unknown; {_meant(name, options)}choose from {', '.join(options) or 'no group ' + group}"
        )
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        return f"key {key[1]} is unknown; {_meant(key[1], list(_known_keys(config_name)))}see docs/configuration.md"
    missing = getattr(error, "full_key", None)
    where = f"{missing}: " if missing else ""
    return where + " ".join(text.split("\n    full_key")[0].split())


def _meant(typed: str, known: list[str]) -> str:
    close = get_close_matches(typed, known, n=1)
    return f"did you mean {close[0]}? " if close else ""


def _known_keys(config_name: str) -> Iterator[str]:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield from _keys(OmegaConf.to_container(compose(config_name)), "")
    yield from (folder.name for folder in CONF.iterdir() if folder.is_dir())


def _keys(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")


def _say(text: str) -> str:
    print(f"dgbench: {text}", file=sys.stderr, flush=True)
    return text
