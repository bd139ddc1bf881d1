"""What W&B has taken: a mark of ours beside each run and study, and how W&B is spoken to.

No torch is imported here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgbench.records.commands import JOBS
from dgbench.records.files import read_json, write_whole
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.records.spec import digest

MARK_FILE = "wandb.json"  #: in the folder of a run or study that W&B knows
PROJECT = "dgbench"
#: seconds that are waited for at most; ``WANDB_INIT_TIMEOUT`` and ``WANDB_FINISH_TIMEOUT`` replace
#: them
PATIENCE = {"init_timeout": 20, "finish_timeout": 60}
OFF_FILE = "wandb_off"  #: among the jobs of a sweep, whose first one found no W&B
SWEEP_FILE = "multirun.yaml"  #: written whenever a sweep begins
AGENT_VARIABLES = (
    "WANDB_SWEEP_ID",
    "WANDB_RUN_ID",
    "WANDB_SWEEP_PARAM_PATH",
)  #: of ``wandb agent``


@dataclass(frozen=True)
class Mark:
    """What W&B has of a run or study."""

    id: str  #: of the W&B run
    #: nothing is missing: written after W&B ended its run without an error
    done: bool = False
    offline: bool = False  #: it is in the folder ``wandb``, to be sent with ``wandb sync``
    content: str = ""  #: digest of what was sent of a study


def read_mark(folder: Path) -> Mark | None:
    """Read the mark of a folder, or return None if W&B has nothing of it, or it is damaged."""
    try:
        return Mark(**read_json(folder / MARK_FILE))
    except (OSError, ValueError, TypeError):
        return None


def write_mark(folder: Path, mark: Mark) -> None:
    """Write the mark of a folder.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(folder / MARK_FILE, json.dumps(asdict(mark)) + "\n")


def forget_mark(folder: Path) -> None:
    """Remove the mark of a folder, which is then sent again from its beginning."""
    (folder / MARK_FILE).unlink(missing_ok=True)


def is_sent(folder: Path) -> bool:
    """Return whether W&B has all of a run or study, online or in files to sync."""
    mark = read_mark(folder)
    return mark is not None and mark.done


def connection(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Choose settings of a W&B run that keep quiet and wait a short time.

    Args:
        settings: those that the installed version of W&B knows.
    """
    chosen: dict[str, Any] = {}
    for name, seconds in PATIENCE.items():
        if f"WANDB_{name.upper()}" not in os.environ:
            chosen[name] = seconds
    chosen |= {"finish_timeout_raises": True, "console": "off", "silent": True}
    return {name: value for name, value in chosen.items() if name in settings}


def project_name(key: str | None) -> str:
    """Return the W&B project: that of the key, else that of ``WANDB_PROJECT``, else ours."""
    return key or os.environ.get("WANDB_PROJECT") or PROJECT


def comparison(identity: Mapping[str, Any], selection: str) -> str:
    """Name what a dashboard may average: runs of one algorithm in one setting.

    They differ in fold and seed.

    The digits at the end tell apart what the words do not: other hyperparameters, say.

    Args:
        identity: of any of the runs, see :class:`~dgbench.records.run_identity.RunIdentity`.
        selection: what chose their steps; empty if all steps are shown.
    """
    algorithm = identity["algorithm"]
    if identity["averaging"] != "none":
        algorithm += f"+{identity['averaging']}"
    form = "".join(f" {name}={value}" for name, value in identity["variant"].items())
    dataset = f"{identity['dataset']} {identity['base']}{form}"
    network = f"{identity['backbone']} {identity['init']} {identity['tuning']}"
    shared = identity_key(identity, keys(Role.SETTING | Role.TRAINING | Role.CODE))
    words = [algorithm, dataset, network, identity["protocol"], selection]
    return f"{' | '.join(filter(None, words))} #{digest(shared)[:4]}"


# A sweep whose W&B cannot be reached


def turn_off(sweep: Path) -> None:
    """Tell the other jobs of a sweep that W&B is off.

    They then neither wait for it nor warn again.
    """
    if (sweep / SWEEP_FILE).is_file():
        (sweep / JOBS).mkdir(exist_ok=True)
        (sweep / JOBS / OFF_FILE).touch()


def is_off(sweep: Path) -> bool:
    """Return whether a job of the sweep that runs now has found no W&B."""
    try:
        return (sweep / JOBS / OFF_FILE).stat().st_mtime >= (sweep / SWEEP_FILE).stat().st_mtime
    except OSError:
        return False


# wandb agent


@dataclass(frozen=True)
class Agent:
    """The trial that ``wandb agent`` has started this command for."""

    sweep: str
    run: str  #: id of its W&B run
    parameters: Mapping[str, Any]  #: by name, as the sweep chose them


def agent_of_environment() -> Agent | None:
    """Read what ``wandb agent`` tells of its trial, or return None if it did not start this."""
    sweep, run, file = (os.environ.get(name) for name in AGENT_VARIABLES)
    if not (sweep and run):
        return None
    return Agent(sweep, run, _parameters(Path(file)) if file else {})


def _parameters(file: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text())
        content.pop("wandb_version", None)
        return {name: entry["value"] for name, entry in content.items()}
    except (OSError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return {}


@contextmanager
def without_agent() -> Iterator[None]:
    """Hide an agent from W&B, which gives every run of a process the agent's id otherwise."""
    hidden = {name: os.environ.pop(name) for name in AGENT_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
