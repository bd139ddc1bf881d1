"""What a run is: the values that decide its results, the hash that names it, and its code.

A run is what is trained, not how it was typed. Whatever is not in a :class:`RunSpec` changes no
result (``dgbench.plan.identity`` builds one from a configuration and lists what it leaves out, with
reasons).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from dgbench.version import __version__

HASH_DIGITS = 12
#: values that stand in the hash of a study by a digest of their own
PARTS = (
    "dataset",
    "hparams",
    "network",
    "tuning",
    "averaging",
    "sharpness",
    "head",
    "callbacks",
    "training",
)
MOST_DIGESTS = 256  #: parts whose digest is remembered
_DIGESTS: dict[int, tuple[Any, str]] = {}  #: id of a part -> the part itself, and its digest


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """What all runs of a study share: one dataset, algorithm, set of hyperparameters and seed."""

    #: facts that the dataset tells of itself (``DatasetInfo.facts``), and its options
    dataset: dict[str, Any]
    algorithm: str
    #: name of dgbench's class that computes the objective, or the import path of a user's own
    objective: str
    #: import path of a user's own -> digest of its module's text, see ``dgbench.plan.code``
    user_code: dict[str, str]
    hparams: dict[str, Any]  #: resolved values of exactly the hyperparameters that are read
    backbone: str
    network: dict[str, Any]  #: arguments of the featurizer
    init: str  #: initial weights; names their content
    head: dict[str, Any]  #: what the classifier starts from
    tuning: dict[str, Any]  #: what of the network is trained
    averaging: dict[str, Any]  #: what averages the weights over steps
    sharpness: dict[str, Any]  #: how updates look at raised weights
    callbacks: dict[str, Any]  #: those that may change what is trained
    training: dict[str, Any]  #: settings of the training loop that change numbers
    protocol: str
    seed: int
    draw: int  #: labels of a search: number of the draw, 0 is the default set
    trial: int
    space: str

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits, equal for equal science however it was typed."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        digests = {name: _part(values[name]) for name in PARTS}
        return digest(values | digests)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the canonical form that is hashed."""
        plain: dict[str, Any] = canonical(asdict(self))
        return plain


@dataclass(frozen=True, kw_only=True)
class RunSpec(StudySpec):
    """One model to train: a study and what it is trained on."""

    #: name, environments trained on and held out, and what else tells it from other folds
    fold: dict[str, Any]

    @staticmethod
    def of(study: StudySpec, fold: Mapping[str, Any]) -> RunSpec:
        """Build the specification of the run of one fold of a study."""
        values = {f.name: getattr(study, f.name) for f in fields(StudySpec)}
        return RunSpec(**values, fold=dict(fold))


def canonical(value: Any) -> Any:
    """Convert to plain JSON values.

    10 and 10.0 become one number, a tuple and a list one sequence.

    Raises:
        TypeError: a value that has no such form, e.g. a tensor.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        is_whole = value.is_integer() and abs(value) < 2**53
        return int(value) if is_whole else value
    if isinstance(value, (dict, Mapping)):  # the usual class first: a sweep hashes 100,000 studies
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, Sequence)):
        return [canonical(item) for item in value]
    raise TypeError(f"{type(value).__name__} {value!r} is no plain value")


def digest(content: Any) -> str:
    """Hash plain values to 12 hexadecimal digits, over their canonical JSON."""
    text = json.dumps(canonical(content), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def _part(value: dict[str, Any]) -> str:
    """Return the digest of a part that studies of a sweep share: one object, hashed once."""
    known = _DIGESTS.get(id(value))
    if known is not None and known[0] is value:
        return known[1]
    if len(_DIGESTS) >= MOST_DIGESTS:
        _DIGESTS.clear()
    hashed = digest(value)
    _DIGESTS[id(value)] = (value, hashed)
    return hashed


ROOT = Path(__file__).resolve().parents[3]  #: of the repository, if dgbench runs from one
DIRTY = "-dirty"
#: a new file here is new code, e.g. an algorithm with its configuration
CODE_FOLDERS = ("src", "conf")
GIT_SECONDS = 20.0  #: for an answer of git
GIT_ATTEMPTS = 3  #: if git is ended by a signal or takes too long


@functools.cache
def code_version() -> str:
    """Find dgbench's version, with the commit, and ``-dirty`` if the code differs from it.

    Changed files count, and new ones.

    Without git or outside of a repository the version alone. Asked once per process: code that was
    imported does not change with the files.
    """
    described = _git("describe", "--always", "--dirty", "--exclude", "*")
    if described is None:
        return __version__
    is_dirty = described.endswith(DIRTY)
    if not is_dirty and _git("ls-files", "--others", "--exclude-standard", "--", *CODE_FOLDERS):
        described += DIRTY
    return f"{__version__}+{described}"


@functools.cache
def commit() -> dict[str, str | bool | None]:
    """Read ``commit`` in full, and whether the code is ``dirty``; both None without git."""
    full = _git("rev-parse", "HEAD")
    return {"commit": full, "dirty": None if full is None else code_version().endswith(DIRTY)}


def _git(*words: str) -> str | None:
    """Ask git about the repository of this package, or return None if there is no answer.

    It is asked again if a signal ended git or it took too long: a queue that ends a job signals
    every process in it, and the version that the job then writes must be the one that the next job
    writes.
    """
    # never the commit of a repository that merely surrounds an installed package
    if not (ROOT / ".git").exists():
        return None
    command = ["git", *words]
    for _ in range(GIT_ATTEMPTS):
        try:
            answer = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=GIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            continue
        except OSError:
            return None
        if answer.returncode >= 0:
            return answer.stdout.strip() if answer.returncode == 0 else None
    return None
