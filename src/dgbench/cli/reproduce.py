"""``report=reproduce run=HASH``: the one command that makes a run, or a study, again."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hydra import compose
from omegaconf import OmegaConf

from dgbench.configuration import command_line, command_words
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.code import present_paths, refuse_code_of_run
from dgbench.plan.needs import OF_TRAINING
from dgbench.plan.overrides import grammar, open_keys, shortest_words
from dgbench.plan.settings import FileName
from dgbench.plan.studies import planned_again
from dgbench.plan.unread import without_misleading
from dgbench.records.files import read_yaml
from dgbench.records.rows import IDENTITY_FILE
from dgbench.records.spec import RunSpec, code_version
from dgbench.reports.document import OF_DOCUMENTS
from dgbench.reports.reading.folders import places
from dgbench.validation import Checked, Folders, Refusal, Switch

_RUN = re.compile(r"^fold-.*-(?P<hash>[0-9a-f]{12})$")
_STUDY = re.compile(r"^.+-s\d+-(?P<hash>[0-9a-f]{12})$")
#: keys that a command need not repeat
NOT_TYPED = frozenset(
    {
        "hydra", "paths", "logger", "selection", "execution", "grid", "per_dataset", "per_algorithm", "plan", "retry",
        "wait", "sweep", "card", "hparams.scheme", "init.cache_dir", "init.timeout", "protocol.folds",
        "trainer.checkpoint_seconds", "trainer.predictions",
        "tuning.cache_dir", "tuning.cache_features", "tuning.cache_gb",
    }
)  # fmt: skip


class Reproduce(Checked):
    """Prints the command, after composing it and finding the same hashes; says on stderr what else differs.

    What each key means stands in ``conf/report/reproduce.yaml``.
    """

    key = "report"

    run: Annotated[str | int | None, Refusal("is no hash of a run or study", "give the end of its folder's name")]
    roots: Folders
    trust: Switch = False
    name: FileName = "reproduce"
    unread: ClassVar[Sequence[str]] = OF_DOCUMENTS

    def show(self) -> int:
        """Print the command that makes the run or study again.

        Returns:
            exit code 0.

        Raises:
            ConfigError: no run, or several, have that hash.
            RecordError: the run's files do not say how it was made, or name code that is not trusted.
        """
        folder = self._find()
        runs = [folder]
        if not _RUN.match(folder.name):
            runs = sorted(
                path for path in folder.iterdir() if _RUN.match(path.name) and (path / IDENTITY_FILE).is_file()
            )
        if not runs:
            raise RecordError(f"{folder} holds no run that was begun; start its command again")
        saved = [present_paths(_read(run / "config.yaml")) for run in runs]
        if old := [run for run, config in zip(runs, saved, strict=True) if "fold" not in config]:
            raise RecordError(f"{old[0]} was made by an older dgbench; check out the code that made it")
        folds = [config.pop("fold") for config in saved]
        if self.trust is not True:
            for config in saved:
                refuse_code_of_run(config, str(folder))
        identities = [_read(run / IDENTITY_FILE) for run in runs]
        words = shortest_words(saved[0], _compose, _matters)
        words = without_misleading(words, saved[0], OF_TRAINING)
        planned = _check(words, runs, identities, folds)
        trained = {fold["name"] for fold in folds}
        if trained != set(planned):
            names = [grammar(name) if not name.isdecimal() else name for name in planned if name in trained]
            words = [*words, "protocol.folds=" + (names[0] if len(names) == 1 else f"[{','.join(names)}]")]
        print(command_line([*command_words("train"), *words]))
        for note in dict.fromkeys(note for identity in identities for note in _notes(identity, len(runs))):
            print(f"note: {note}", file=sys.stderr)
        return 0

    def _find(self) -> Path:
        digits = str(self.run or "")
        if not re.fullmatch(r"[0-9a-f]{4,12}", digits):
            raise ConfigError(
                f"run={self.run} is no hash of a run or study; give the digits at the end of its folder's name, or the "
                "first 4"
            )
        by_hash: dict[str, Path] = {}
        searched = places(self.roots)
        for root in searched:
            for path, folders, _ in os.walk(root):
                for name in folders:
                    match = _RUN.match(name) or _STUDY.match(name)
                    if match and match["hash"].startswith(digits):
                        by_hash.setdefault(match["hash"], Path(path) / name)
                folders[:] = [name for name in folders if not _RUN.match(name) and not name.startswith(".")]
        if len(by_hash) != 1:
            roots = ", ".join(map(str, searched))
            matches = f"{len(by_hash)} runs or studies ({', '.join(sorted(by_hash))})" if by_hash else "no run or study"
            raise ConfigError(
                f"run={digits}: {matches} under {roots}; give the whole hash, or name folders with runs=[DIR]"
            )
        return next(iter(by_hash.values()))


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(read_yaml(file))  # JSON is YAML, too
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(f"{file} cannot be read; the run was made by an older dgbench, or never began") from error


def _compose(words: Sequence[str]) -> Any:
    return compose("train", open_keys(words))


def _matters(key: str) -> bool:
    parts = key.split(".")
    return not any(".".join(parts[: n + 1]) in NOT_TYPED for n in range(len(parts))) or key == "execution.mode"


def _check(
    words: Sequence[str], runs: Sequence[Path], identities: Sequence[dict[str, Any]], folds: Sequence[dict[str, Any]]
) -> list[str]:
    """Compose the command and compare the hash of every run.

    Returns:
        Names of the folds that it trains.

    Raises:
        RecordError: it would make another run.
    """
    config: dict[str, Any] = OmegaConf.to_container(_compose(words), resolve=True)  # type: ignore[assignment]
    config.pop("hydra", None)
    planned = planned_again(config, runs[0].parents[1])
    for run, identity, fold in zip(runs, identities, folds, strict=True):
        run_spec = RunSpec.of(planned.spec, fold)
        if run_spec.digest != identity["run"]:
            current, saved = run_spec.to_json(), identity["spec"]
            differing = [key for key in sorted({*current, *saved}) if current.get(key) != saved.get(key)]
            raise RecordError(
                f"{run}: its configuration composes to run {run_spec.digest} with this code, in "
                f"{', '.join(differing) or 'the hash itself'}; "
                f"check out the code that made it, {identity['sessions'][-1]['code']}"
            )
    return [fold.name for fold in planned.folds]


def _notes(identity: dict[str, Any], runs: int) -> list[str]:
    session = identity["sessions"][-1]
    notes = []
    code, current = session["code"], code_version()
    if code != current:
        commit = session.get("commit")
        dirty = ", which had changes that no commit holds" if session.get("dirty") else ""
        notes.append(
            f"it was made by {code}{dirty}; this is {current}" + (f" (git checkout {commit})" if commit else "")
        )
    if session["together"] > runs:
        notes.append(
            f"it trained in a stack of {session['together']} models: alone, its losses may differ in the last digits; "
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
