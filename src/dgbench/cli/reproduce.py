"""``report=reproduce run=HASH``: the one command that makes a run again."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from omegaconf import OmegaConf

from dgbench.cli.entry import CONF, open_key
from dgbench.cli.identity import MACHINE_KEYS, code_version, digest, science
from dgbench.cli.overrides import grammar, shortest_words
from dgbench.errors import ConfigError, RecordError
from dgbench.records import IDENTITY_FILE

_FOLDER = re.compile(r"^fold-.*-(?P<run>[0-9a-f]{12})$")
#: machine keys that a command needs all the same: where the images are, and what arithmetic the rows came from
_NEEDED = ("dataset.", "trainer.device", "execution.mode")


@dataclass(frozen=True)
class Reproduce:
    """Prints the command, after composing it and finding the hash of the run; says on stderr what else differs.

    Args:
        run: the hash at the end of a run folder's name, or its beginning.
        roots: folders searched for it, recursively.
        name: of the report.
    """

    run: str | None
    roots: Sequence[str]
    name: str = "reproduce"

    def show(self) -> int:
        """Print the command.

        Returns:
            exit code 0.

        Raises:
            ConfigError: no run, or several, have that hash.
            RecordError: the run's files do not say how it was made.
        """
        folder = self._find()
        saved = _read(folder / "config.yaml")
        fold = saved.pop("member")
        identity = _read(folder / IDENTITY_FILE)
        words = [*shortest_words(saved, _compose, CONF, _matters), f"protocol.folds=[{grammar(fold['name'])}]"]
        _check(folder, words, identity, fold)
        print(shlex.join(["python", "train.py", *words]))
        for note in _notes(identity):
            print(f"note: {note}", file=sys.stderr)
        return 0

    def _find(self) -> Path:
        wanted = str(self.run or "")
        if not re.fullmatch(r"[0-9a-f]{4,12}", wanted):
            raise ConfigError(
                f"run={self.run} is no hash of a run; give the digits at the end of its folder's name, or the first 4"
            )
        found: dict[str, Path] = {}
        for root in self.roots:
            for path, folders, _ in os.walk(root):
                for name in folders:
                    match = _FOLDER.match(name)
                    if match and match["run"].startswith(wanted):
                        found.setdefault(match["run"], Path(path) / name)
                folders[:] = [name for name in folders if not _FOLDER.match(name) and not name.startswith(".")]
        if len(found) != 1:
            where = ", ".join(map(str, self.roots))
            what = f"{len(found)} runs ({', '.join(sorted(found))})" if found else "no run"
            raise ConfigError(
                f"run={wanted}: {what} under {where}; give the whole hash, or name folders with runs=[DIR]"
            )
        return next(iter(found.values()))


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = yaml.safe_load(file.read_text())  # JSON is YAML, too
        return dict(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError) as error:
        raise RecordError(f"{file} cannot be read; the run was made by an older dgbench, or never began") from error


def _compose(words: Sequence[str]) -> Any:
    return compose("train", [open_key(word) for word in words])


def _matters(key: str) -> bool:
    parts = key.split(".")
    machine = any(".".join(parts[: n + 1]) in MACHINE_KEYS for n in range(len(parts)))
    return not machine or key.startswith(_NEEDED)


def _check(folder: Path, words: Sequence[str], identity: dict[str, Any], fold: dict[str, Any]) -> None:
    """Compose the command and compare hashes.

    Raises:
        RecordError: it would make another run.
    """
    made = science(_compose(words))
    run = digest([made, *identity["beside"], fold])
    if run == identity["run"]:
        return
    saved = science(OmegaConf.create(_read(folder / "config.yaml")))
    saved.pop("member", None)
    odd = [key for key in sorted({*made, *saved}) if made.get(key) != saved.get(key)]
    raise RecordError(
        f"{folder}: its configuration composes to run {run} with this code, in {', '.join(odd) or 'the hash itself'}; "
        f"check out the code that made it, {identity['sessions'][-1]['code']}"
    )


def _notes(identity: dict[str, Any]) -> list[str]:
    session = identity["sessions"][-1]
    notes = []
    made, mine = session["code"], code_version()
    if made != mine:
        commit = session.get("commit")
        dirty = ", which had changes that no commit holds" if session.get("dirty") else ""
        notes.append(f"it was made by {made}{dirty}; this is {mine}" + (f" (git checkout {commit})" if commit else ""))
    if session["stack"] > 1:
        notes.append(
            f"it trained in a stack of {session['stack']} models: alone, its losses may differ in the last digits; "
            "leave protocol.folds out to train the study together"
        )
    if len({str(s["packages"]) for s in identity["sessions"]}) > 1:
        notes.append("it was resumed with other packages than it began with")
    notes.append(
        f"Python {session['python']}, torch {session['packages']['torch']}, {session['cpu']}"
        + (f", {', '.join(session['gpus'])}" if session["gpus"] else "")
        + f", threads: {session['threads']}; identity.json beside the rows has the rest"
    )
    return notes
