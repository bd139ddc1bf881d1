"""The Hydra entry point of every command: finds ``conf/``, and says in one line what is wrong.

``HYDRA_FULL_ERROR=1`` shows tracebacks instead.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import sys
from collections.abc import Callable

import hydra
from omegaconf import DictConfig

from dgbench.cli.help import help_text
from dgbench.configuration import CONF
from dgbench.plan.explain import explain
from dgbench.plan.overrides import open_keys

Task = Callable[[DictConfig], None]


def hydra_main(config_name: str) -> Callable[[Task], Callable[[], None]]:
    """``hydra.main`` with one-line errors: exit code 1 for what the user can correct, 130 after Ctrl-C.

    In a sweep a job that fails is reported at once and does not stop the others.
    """

    def decorate(task: Task) -> Callable[[], None]:
        @functools.wraps(task)
        def main() -> None:
            if {"--help", "-h"} & set(sys.argv[1:]):
                _show(help_text(config_name))
                return
            wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
            os.environ["HYDRA_FULL_ERROR"] = "1"  # or Hydra prints its own report and exits before we see the error
            failures: list[str] = []
            home = os.getpid()
            os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages for tensors, before torch is imported

            @functools.wraps(task)
            def guarded(config: DictConfig) -> None:
                try:
                    task(config)
                except BrokenPipeError:
                    _end_if_unread()
                    raise  # a pipe of ours broke
                except Exception as error:  # whatever broke this job, the others of a sweep are run
                    if wants_traceback or os.getpid() != home:  # a launcher's worker tells its parent by raising
                        raise
                    failures.append(_say(explain(error, config_name, sys.argv[1:])))

            try:
                sys.argv[1:] = sweep_first(open_keys(sys.argv[1:]))
                if sys.argv[1:2] in (["-m"], ["--multirun"]):
                    sign_of_life("composing the jobs of the sweep ...")
                hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(guarded)()
            except KeyboardInterrupt:
                _say("interrupted; the same command continues")
                sys.exit(130)
            except Exception as error:
                if wants_traceback:
                    raise
                failures.append(_say(explain(error, config_name, sys.argv[1:])))
            if failures:
                sys.exit(1)

        return main

    return decorate


def plain_command(task: Callable[[list[str]], None], help_text: Callable[[], str]) -> None:
    """Run a command that is no Hydra application, with the same one-line errors and exit codes.

    Args:
        task: what it does with the words that were typed.
        help_text: what is printed for ``--help``, or where nothing was typed.
    """
    words = sys.argv[1:]
    if {"--help", "-h"} & set(words) or not words:
        _show(help_text())
        return
    try:
        task(words)
        sys.stdout.flush()  # here, where it is known what a closed pipe means
    except KeyboardInterrupt:
        _say("interrupted; start the same command again")
        sys.exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError):
            _end_if_unread()
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        _say(explain(error, "train", words))
        sys.exit(1)


def sweep_first(words: list[str]) -> list[str]:
    """``-m`` may stand anywhere; Hydra's parser takes it only where it does not part the overrides."""
    return sorted(words, key=lambda word: word not in ("-m", "--multirun"))


def _reader_left() -> bool:
    """Whether standard output is read no longer, as after ``| head``; then nothing more is written to it."""
    pipe = select.poll()
    pipe.register(sys.stdout.fileno(), select.POLLOUT)
    left = any(event & select.POLLERR for _, event in pipe.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return left


def _end_if_unread() -> None:
    """End as other commands do whose reader has left."""
    if _reader_left():
        sys.exit(128 + signal.SIGPIPE)


def sign_of_life(text: str) -> None:
    """Say what is done next before what takes its time, as the import of torch; not on standard output."""
    print(text, file=sys.stderr, flush=True)


def _show(text: str) -> None:
    """Print a text of which a reader may want the first lines only, as with ``| head``."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        if not _reader_left():
            raise


def _say(text: str) -> str:
    print(f"dgbench: {text}", file=sys.stderr, flush=True)
    return text
