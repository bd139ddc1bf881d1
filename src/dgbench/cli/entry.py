"""How every command starts: it finds ``conf/``, tells its help, and says in one line what is wrong.

``HYDRA_FULL_ERROR=1`` shows tracebacks instead.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import select
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import hydra
from omegaconf import DictConfig

from dgbench.cli.limited import watch
from dgbench.configuration import CONF, command_words
from dgbench.errors import LESS_MEMORY, ConfigError
from dgbench.interruption import forget, interrupt, request_first
from dgbench.plan.explain import explain, less_memory
from dgbench.plan.names import in_our_names, refuse_options
from dgbench.plan.overrides import open_keys, options
from dgbench.plan.unread import refuse_run_folder, replaced

Task = Callable[[DictConfig], float | None]
WIDTH = 120
INDENT = 17
_ENTRY = re.compile(
    r"^(?P<indent> *)(?:- )?(?P<key>\w+):\s*(?P<value>[^#]*?)\s*(?:#\s*(?P<note>.*))?$"
)

#: options of Hydra whose value is the next word, and the one whose value need not be there
_WITH_VALUE = (
    "--config-dir",
    "-cd",
    "--config-name",
    "-cn",
    "--config-path",
    "-cp",
    "--cfg",
    "-c",
    "--package",
    "-p",
)
_WITH_CHOICE = ("--info", "-i")

#: command -> what is typed after it, and what that does
EXAMPLES = {
    "train": (
        ("dataset=sr_cmnist algorithm=vrex", "one study"),
        (
            "hparams.lr=1e-4 trainer.steps=1000",
            "other values; every hyperparameter is hparams.NAME",
        ),
        (
            "grid.seed=[0,1,2] plan=true",
            "several studies in one job; plan=true only says what it would train",
        ),
        (
            "-m hydra/launcher=local seed=0,1,2",
            "a sweep of jobs over all cores or GPUs of this machine",
        ),
        (
            "dataset=pacs dataset.root=PACS",
            "photographs: a pretrained ResNet-50, unless a backbone is named",
        ),
    ),
    "shift": (
        ("dataset=sr_cmnist", "every fold, training against held-out environments"),
        (
            "dataset=pacs dataset.root=PACS pairs=each",
            "every two environments, on features of a pretrained network",
        ),
        ("'estimator=[joint,ood_bench,distances,concept]'", "several estimators"),
        (
            "-m dataset=sr_cmnist,cmnist hydra/launcher=local",
            "several datasets, over the cores or GPUs of this machine",
        ),
    ),
    "report": (
        ("", "measures of all runs under multirun and outputs"),
        (
            "report=leaderboard selection=train_val",
            "accuracies, at the steps that validation chooses",
        ),
        ("report=status", "what is done, running, failed or stuck"),
        (
            "'runs=[multirun]' 'only=[measures]'",
            "the runs of a folder, and one table of the report",
        ),
    ),
}
_MORE = {
    "train": (
        "docs/reference/configuration.md has every key, docs/reference/algorithms.md every "
        "hyperparameter"
    ),
    "shift": (
        "docs/how_to/shift.md says what is estimated, docs/reference/configuration.md what each "
        "key means"
    ),
    "report": "docs/how_to/reports.md and docs/reference/configuration.md say what each key means",
}


def hydra_main(config_name: str) -> Callable[[Task], Callable[[], None]]:
    """Wrap ``hydra.main`` with one-line errors.

    The exit code is 1 after what the user can correct, and 130 after Ctrl-C or SIGTERM. In a sweep
    a job that fails is reported at once and does not stop the others.
    """

    def decorate(task: Task) -> Callable[[], None]:
        @functools.wraps(task)
        def main() -> None:
            if {"--help", "-h"} & set(sys.argv[1:]):
                _show(help_text(config_name))
            else:
                _run(task, config_name)

        return main

    return decorate


def _run(task: Task, config_name: str) -> None:
    """Run a command of Hydra with the words that were typed.

    Raises:
        SystemExit: something went wrong; a line has said what.
    """
    watch(_say, f"raise it, or {less_memory(config_name)}")
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    # or Hydra prints its own report and exits before we see the error
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # large pages for tensors, before torch is imported
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    failures: list[str] = []
    guarded = _guarded(task, config_name, wants_traceback, failures)
    with _in_one_line(config_name, wants_traceback, "the same command continues"):
        refuse_options(sys.argv[1:], config_name)
        import_from_beside(sys.argv[1:])
        sys.argv[1:] = options_first(open_keys(in_our_names(sys.argv[1:]), config_name))
        refuse_run_folder(sys.argv[1:], _folder_key(config_name, _is_sweep()))
        for line in replaced(sys.argv[1:]):
            sign_of_life(f"note: {line}")
        if _is_sweep():
            sign_of_life("composing the jobs of the sweep ...")
        # ray.yaml is merged into the defaults of hydra-ray-launcher's own, as it should be
        warnings.filterwarnings(
            "ignore", r"\s*'hydra/launcher/ray' is validated against ConfigStore schema"
        )
        application = hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)
        application(guarded)()
    if failures:
        sys.exit(1)


def _guarded(
    task: Task, config_name: str, wants_traceback: bool, failures: list[str]
) -> Callable[[DictConfig], float | None]:
    """Wrap the task of a command, so that an error in a job is one line and a failure.

    Args:
        task: runs one job.
        config_name: of the command.
        wants_traceback: whether errors are raised as they are.
        failures: receives the line of each error.
    """
    home = (os.uname().nodename, os.getpid())
    folder = os.getcwd()
    variables = _variables()

    @functools.wraps(task)
    def guarded(config: DictConfig) -> float | None:
        # in a worker of another package's launcher
        away = (os.uname().nodename, os.getpid()) != home
        try:
            _stand_in(folder, variables if away else _variables())
            with request_first():
                return task(config)
        except BrokenPipeError:
            end_if_unread()
            raise  # a pipe of ours broke
        except Exception as error:  # whatever broke this job, the others of a sweep are run
            if wants_traceback or away:  # a worker tells its command by raising
                raise
            failures.append(explain(error, config_name, sys.argv[1:]))
            _say(failures[-1])
            if _is_sweep():  # a sweeper sees which jobs failed
                raise
            return None

    return guarded


def _is_sweep() -> bool:
    """Return whether the command that was typed is a sweep."""
    return sys.argv[1:2] in (["-m"], ["--multirun"])


def _folder_key(config_name: str, sweeps: bool) -> str:
    """Name the key of the folder that receives what a command makes."""
    if config_name == "report":
        return "output"
    return "hydra.sweep.dir" if sweeps else "paths.output_dir"


def _variables() -> dict[str, str]:
    """Return the environment variables ``DGBENCH_*``, which stand for paths in ``conf/paths``."""
    return {name: value for name, value in os.environ.items() if name.startswith("DGBENCH_")}


def _stand_in(folder: str, variables: Mapping[str, str]) -> None:
    """Give a job the folder and variables that its command was typed with.

    A worker may have begun anywhere, and ``hydra.job.chdir=true`` moves every job: relative folders
    mean what they mean to the command, which looks for the runs.
    """
    with suppress(OSError):  # another machine may lack it
        os.chdir(folder)
    for name in _variables():
        del os.environ[name]
    os.environ.update(variables)


def plain_command(task: Callable[[list[str]], None], about: Callable[[], str]) -> None:
    """Run a command that is no Hydra application, with the same one-line errors and exit codes.

    Args:
        task: what it does with the words that were typed.
        about: what is printed for ``--help``, or where nothing was typed.
    """
    words = sys.argv[1:]
    if {"--help", "-h"} & set(words) or not words:
        _show(about())
        return
    watch(_say, f"raise it, or {LESS_MEMORY}")
    with _in_one_line(
        "train", os.environ.get("HYDRA_FULL_ERROR") == "1", "start the same command again"
    ):
        task(words)
        sys.stdout.flush()  # here, where it is known what a closed pipe means


@contextmanager
def _in_one_line(config_name: str, wants_traceback: bool, advice: str) -> Iterator[None]:
    """Print an error that is raised inside as one line, and end the process.

    SIGTERM acts as Ctrl-C.
    """
    forget()
    signal.signal(signal.SIGTERM, interrupt)
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # in the background it may be ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        with request_first():
            yield
    except KeyboardInterrupt:
        _say(f"interrupted; {advice}")
        sys.exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError):
            end_if_unread()
        if wants_traceback:
            raise
        _say(explain(error, config_name, sys.argv[1:]))
        sys.exit(1)


def import_from_beside(words: Sequence[str]) -> None:
    """Make Python files beside a user's own folder of configuration importable.

    This holds here and in processes started here.

    Raises:
        ConfigError: a file of the folder would never be read.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", type=Path, nargs="?")
    folder = parser.parse_known_args(words)[0].config_dir
    if not folder:
        return
    refuse_hidden_files(folder)
    beside = str(folder.resolve().parent)
    sys.path.append(beside)
    searched = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([searched, beside]) if searched else beside


def refuse_hidden_files(folder: Path) -> None:
    """Refuse a file of the user's own that Hydra would never read, since dgbench's comes first.

    Args:
        folder: of configuration, as ``--config-dir`` names it.

    Raises:
        ConfigError: it holds another text under the name of a file of ``conf/``.
    """
    for file in sorted(folder.glob("*/**/*.yaml")):
        known = CONF / file.relative_to(folder)
        if known.is_file() and file.read_bytes() != known.read_bytes():
            choice = known.relative_to(CONF).with_suffix("")
            raise ConfigError(
                f"{file} is never read, since dgbench has {choice.parent}={choice.name} itself; "
                "give the file another name"
            )


def options_first(words: list[str]) -> list[str]:
    """Move ``-m``, and then other options, before the overrides.

    Hydra's parser takes no options between overrides.
    """
    is_value = [
        option in _WITH_VALUE or (option in _WITH_CHOICE and "=" not in word)
        for option, word in zip(["", *words], words, strict=False)
    ]
    multirun: list[str] = []
    options: list[str] = []
    overrides: list[str] = []
    for word, value in zip(words, is_value, strict=False):
        if word in ("-m", "--multirun"):
            multirun.append(word)
        elif word.startswith("-") or value:
            options.append(word)
        else:
            overrides.append(word)
    return [*multirun, *options, *overrides]


def _reader_left() -> bool:
    """Return whether standard output is no longer read, as after ``| head``.

    If so, what is written to it is discarded.
    """
    pipe = select.poll()
    pipe.register(sys.stdout.fileno(), select.POLLOUT)
    unread = any(event & select.POLLERR for _, event in pipe.poll(0))
    if unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return unread


def end_if_unread() -> None:
    """End the process if the reader of standard output has left, as other commands do."""
    if _reader_left():
        sys.exit(128 + signal.SIGPIPE)


def sign_of_life(text: str) -> None:
    """Print on standard error what is done next, before something that takes time."""
    print(text, file=sys.stderr, flush=True)


def _show(text: str) -> None:
    """Print a text of which a reader may want the first lines only, as with ``| head``."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        if not _reader_left():
            raise


def _say(text: str) -> None:
    print(f"dgbench: {text}", file=sys.stderr, flush=True)


def option_lines(meanings: Mapping[str, str]) -> list[str]:
    """Format options and what they mean in two columns."""
    width = 2 + max(map(len, meanings))
    return [
        textwrap.fill(
            text, 110, initial_indent=f"  {name:{width}}", subsequent_indent=" " * (width + 4)
        )
        for name, text in meanings.items()
    ]


def help_text(name: str) -> str:
    """Format the text that ``--help`` prints."""
    command = " ".join(command_words(name))
    lines = (CONF / f"{name}.yaml").read_text().splitlines()
    about = lines[0].partition(": ")[2]
    entries = list(_entries(lines))
    groups = [(key, value, note) for key, value, note, group in entries if group]
    keys = [(key, value, note) for key, value, note, group in entries if not group]
    shown = [f"{command} {words}".strip() for words, _ in EXAMPLES[name]]
    width = max(map(len, shown))
    examples = [
        f"  {line:{width}}  {meaning}"
        for line, (_, meaning) in zip(shown, EXAMPLES[name], strict=True)
    ]
    return "\n".join(
        [
            about[:1].upper() + about[1:],
            f"\n  {command} [GROUP=NAME ...] [KEY=VALUE ...]\n",
            "Examples:",
            *examples,
            "\nGroups, each with its default, what it is, and its choices:",
            *(
                _shown(f"{key}={value}", f"{note}: {', '.join(options(key))}")
                for key, value, note in groups
            ),
            "\nKeys, each with its default; those of a group are GROUP.KEY:",
            *(_shown(f"{key}={value}", note) for key, value, note in keys),
            f"\n{_MORE[name]}.",
            (
                "--cfg job prints the composed configuration, --hydra-help the options of Hydra. "
                "Tab completion in bash:"
            ),
            f'  eval "$({command} --shell-completion install=bash)"',
        ]
    )


def _entries(lines: list[str]) -> Iterator[tuple[str, str, str, bool]]:
    """Read the keys in lines of a file of ``conf/`` but for Hydra's own.

    Yields:
        Key, default, comment, and whether it is a group.
    """
    top = ""
    for line in lines:
        match = _ENTRY.match(line)
        if not match:
            continue
        nested = bool(match["indent"])
        group = line.lstrip().startswith("- ")
        top = top if nested else match["key"]
        if top == "hydra" or not (match["value"] or nested):
            continue
        key = match["key"] if group or not nested else f"{top}.{match['key']}"
        yield key, match["value"], match["note"] or "", group


def _shown(key: str, text: str) -> str:
    first = f"  {key:{INDENT}} " if len(key) <= INDENT else f"  {key}\n{'':{INDENT + 3}}"
    wrapped = textwrap.wrap(text, WIDTH - INDENT - 3) or [""]
    return first + f"\n{'':{INDENT + 3}}".join(wrapped)
