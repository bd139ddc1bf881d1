"""Build commands that train what a report lacks, from what was typed for the runs that are there.

They stand alone: another launcher or sweep is left out, a folder of configuration and a path of
modules of the user's own are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dgbench.configuration import command_line, command_words, config_options, with_python_path
from dgbench.plan.overrides import SEARCH_KEYS, override
from dgbench.records.files import read_json, read_yaml
from dgbench.records.rows import IDENTITY_FILE
from dgbench.reports.reading.folders import printable

OUTPUTS = "outputs"  #: folder of the studies of a command without ``-m``
#: hyperparameters that every algorithm reads
OF_ALL = (
    "hparams.lr",
    "hparams.weight_decay",
    "hparams.batch_size",
)
#: keys that a search sets in each of its studies
SET_BY_SEARCH = (
    "hparams.draw",
    "hparams.trial",
    "seed",
)


@dataclass(frozen=True)
class Typed:
    """What trained a run: overrides of its study alone, options, and where modules of the user's
    own are.
    """

    words: tuple[str, ...] | None  #: None if they are not known
    options: tuple[str, ...] = ()  #: of Hydra, such as ``--config-dir``
    python_path: str = ""

    @classmethod
    def of(cls, run: Path) -> Typed:
        """Read it from the folder of a run; without words where no file tells them."""
        session = _last_session(run)
        command, typed = (_texts(session.get(key)) for key in ("command", "typed"))
        words = tuple(command[1:]) if command else _hydra_words(run)
        path = session.get("python_path")
        python_path = printable(path) if isinstance(path, str) else ""
        return cls(words, tuple(config_options(typed)), python_path)

    def command(self, run: Path, instead: Sequence[str], without: Sequence[str] = ()) -> str:
        """Write the command that trains with these words.

        ``instead`` replaces those that set the same key.

        Args:
            run: folder of the run; what is trained comes to lie beside its study.
            instead: overrides.
            without: keys whose overrides are left out.
        """
        parent = run.parent.parent
        place = (
            [override("paths.output_dir", str(parent))] if parent.name not in ("", OUTPUTS) else []
        )
        dropped = {*map(_key, instead), *map(_key, place), *without}
        kept = [
            word for word in self.words or () if _key(word) not in dropped and not _of_sweep(word)
        ]
        hint = "" if self.words is not None else f", with the other keys as in {run}"
        line = command_line([*command_words("train"), *self.options, *kept, *instead, *place])
        return with_python_path(line, self.python_path) + hint


def filling_command(run: Path, folds: Sequence[str]) -> str:
    """Build the command that trains what a study lacks: what the user typed, narrowed to those
    folds.

    Args:
        run: folder of one of its runs.
        folds: to train; none names no folds.
    """
    instead = [f"protocol.folds=[{','.join(folds)}]"] if folds else []
    return Typed.of(run).command(run, instead, without=["protocol.folds"])


def algorithm_command(run: Path, algorithm: str, example: Path) -> str:
    """Build the command that trains an algorithm, as it was trained elsewhere, on the dataset of
    another run.

    Args:
        run: folder of a run on the dataset, of some algorithm; hyperparameters of that one are left
            out.
        algorithm: its name.
        example: folder of a run of the algorithm, on any dataset.
    """
    here = Typed.of(run)
    there = Typed.of(example)
    of_other = [key for key in map(_key, here.words or ()) if _of_algorithm(key)]
    chosen = [word for word in there.words or () if _of_algorithm(_key(word))]
    named = [] if any(_key(word) == "algorithm" for word in chosen) else [f"algorithm={algorithm}"]
    typed = replace(
        here,
        options=there.options or here.options,
        python_path=there.python_path or here.python_path,
    )
    return typed.command(run, [*named, *chosen], ["protocol.folds", *SET_BY_SEARCH[:2], *of_other])


def adding_commands(lacking: Iterable[tuple[str, Path, Sequence[int]]]) -> list[str]:
    """Build the commands that train algorithms with more seeds, or trials of their search, from
    what the user typed.

    Args:
        lacking: name of an algorithm, folder of one of its runs, and the seeds, or numbers of
            trials, to add; those that were typed alike share a command.
    """
    together: dict[tuple[Any, ...], tuple[Path, Typed, list[str]]] = {}
    overrides: dict[tuple[Any, ...], tuple[str, tuple[str, ...]]] = {}
    for algorithm, run, repetitions in lacking:
        typed = Typed.of(run)
        listed = ",".join(map(str, repetitions))
        is_search = any(
            word.startswith(("hparams=search", "hparams.scheme")) for word in typed.words or ()
        )
        override = f"hparams.scheme.trials=[{listed}]" if is_search else f"grid.seed=[{listed}]"
        left_out: tuple[str, ...] = SET_BY_SEARCH[:2] if is_search else ()
        other_keys = {"algorithm", _key(override), *left_out}
        remaining = tuple(word for word in typed.words or () if _key(word) not in other_keys)
        key = (override, remaining, typed.options, typed.python_path, run.parent.parent)
        together.setdefault(key, (run, typed, []))[2].append(algorithm)
        overrides[key] = (override, left_out)
    commands = []
    for key, (run, typed, algorithms) in together.items():
        override, left_out = overrides[key]
        names = list(dict.fromkeys(algorithms))
        named = f"grid.algorithm=[{','.join(names)}]" if len(names) > 1 else f"algorithm={names[0]}"
        commands.append(typed.command(run, [named, override], left_out))
    return commands


def _last_session(run: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        session = read_json(run / IDENTITY_FILE)["sessions"][-1]
        if isinstance(session, dict):
            return session
    return {}


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [printable(word) for word in value if isinstance(word, str)]


def _hydra_words(run: Path) -> tuple[str, ...] | None:
    """Read the overrides from Hydra's record in the study's folder, which older versions wrote.

    None without.
    """
    with suppress(OSError, ValueError):
        typed = read_yaml(run.parent / ".hydra" / "overrides.yaml")
        if isinstance(typed, list):
            return tuple(
                printable(str(word)) for word in typed if isinstance(word, str | int | float)
            )
    return None


def _of_sweep(word: str) -> bool:
    """Return whether a word has a meaning for sweeps alone, or a grid whose choice stands among the
    words.
    """
    return word.lstrip("+").startswith(("hydra/", "hydra.", "sweep.", "grid."))


def _of_algorithm(key: str) -> bool:
    """Return whether a key belongs to an algorithm, wherever it is trained."""
    group, _, name = key.partition(".")
    if group == "hparams":
        return bool(name) and key not in OF_ALL and name.partition(".")[0] not in SEARCH_KEYS
    return group in ("algorithm", "averaging", "sharpness")


def _key(word: str) -> str:
    return word.lstrip("+").partition("=")[0].removeprefix("grid.")
