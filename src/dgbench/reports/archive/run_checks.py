"""What a packed run must agree with in itself: its hash, its identity and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dgbench.records.rows import DEFAULTS
from dgbench.records.spec import DIRTY, RunSpec, canonical
from dgbench.records.status import DONE
from dgbench.reports.archive.packed_runs import FOLDERS, Line
from dgbench.reports.archive.straight_line import is_exact, line_faults
from dgbench.reports.reading.collect import code_parts

#: key of an identity -> the same in a specification
_SAME: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{
        key: lambda spec, key=key: spec["dataset"][key]  # type: ignore[misc]
        for key in ("dataset", "base", "evaluation", "data_seed", "split_seed", "given", "content")
    },
    **{
        key: lambda spec, key=key: spec[key]  # type: ignore[misc]
        for key in ("algorithm", "backbone", "init", "protocol", "seed", "draw", "trial", "space")
    },
    "head": lambda spec: (spec.get("head") or {}).get("name", "random"),
    "averaging": lambda spec: spec["averaging"]["name"],
    "fold": lambda spec: spec["fold"]["name"],
    "held_out": lambda spec: spec["fold"]["held_out"],
    "folds": lambda spec: spec["fold"].get("folds"),
}


def run_faults(line: Line, frozen: bool = False) -> list[str]:
    """What is wrong with one packed run, one line each.

    Args:
        line: whose rows have passed the checks of :mod:`dgbench.reports.reading.archive_reader`.
        frozen: it may be older than specifications and sessions.
    """
    checks = (_of_status, _of_sessions, _of_flags, _of_counts, line_faults)
    return [*_of_spec(line, frozen), *(why for check in checks for why in check(line))]


def _of_spec(line: Line, frozen: bool) -> Iterator[str]:
    identity, spec = line["run"]["identity"], line.get("spec")
    if not line.get("sessions") and not frozen:
        yield "it does not say with what code and packages it was trained (identity.json was lost, or it is imported)"
    if spec is None:
        if not frozen:
            yield "it has no specification, so its hash cannot be computed again (only frozen entries may lack them)"
        return
    try:
        made = RunSpec(**spec).digest
        odd = [key for key, of in _SAME.items() if canonical(identity.get(key, DEFAULTS.get(key))) != of(spec)]
        odd += [f"hparams.{key}" for key in spec["hparams"] if not _equal(identity["hparams"], spec["hparams"], key)]
        variant = spec["dataset"]["variant"]
        odd += ["hparams.steps"] * (
            identity["hparams"].get("steps", spec["training"]["steps"]) != spec["training"]["steps"]
        )
        odd += [f"variant.{key}" for key in identity["variant"] if not _equal(variant, identity["variant"], key, True)]
    except (TypeError, KeyError, AttributeError) as error:
        yield f"its specification is none of this code ({type(error).__name__}: {error})"
        return
    if made != identity["run"]:
        yield f"its specification hashes to {made}, its hash is {identity['run']}"
    if odd:
        yield f"its rows and its specification differ in {', '.join(odd)}"


def _equal(found: dict[str, Any], expected: dict[str, Any], key: str, optional: bool = False) -> bool:
    """Whether one of two mappings has the value that the other one has."""
    return (optional and key not in found) or (key in found and canonical(found[key]) == canonical(expected[key]))


def _of_status(line: Line) -> Iterator[str]:
    about = line["run"]
    planned = (line.get("spec") or {}).get("training", {}).get("steps")
    if planned is not None and about["status"] == DONE and about["last_step"] != planned:
        yield f"it is {DONE}, its last row is of step {about['last_step']} of {planned}"
    if DIRTY in str(about["identity"]["code"]):
        yield f"its code {about['identity']['code']} is in no commit; train from committed code"


def _of_sessions(line: Line) -> Iterator[str]:
    about, sessions = line["run"], line.get("sessions", [])
    code = code_parts(about["identity"]["code"])
    if sessions and (odd := set(code) - {session.get("code") for session in sessions}):
        yield f"its rows are of code {', '.join(sorted(odd))}, none of its sessions is"
    words = [about["folder"], about["reason"], *(word for session in sessions for word in session.get("typed", []))]
    if private := [word for word in words if FOLDERS.search(word)]:
        yield f"it names a folder of one machine: {private[0]}"


def _of_flags(line: Line) -> Iterator[str]:
    """``env_held_out`` of every row follows from the identity, but where classes have environments of their own."""
    if (line.get("spec") or {}).get("fold", {}).get("membership"):
        return
    identity, rows = line["run"]["identity"], line["rows"]
    for env, subset, flag in zip(rows["env"], rows["subset"], rows["env_held_out"], strict=True):
        if flag != (env not in identity["given"] or env in identity["held_out"]):
            yield f"{env} {subset}: env_held_out is {str(flag).lower()}, its fold says otherwise"


def _of_counts(line: Line) -> Iterator[str]:
    """Images are counted one by one, but where an exact evaluation expects a part of one."""
    rows = line["rows"]
    for env, subset, wrong, loss in zip(rows["env"], rows["subset"], rows["wrong"], rows["loss"], strict=True):
        if loss < 0:
            yield f"{env} {subset}: loss is {loss}, cross entropy is not negative"
        if not (is_exact(line) and subset == "test") and not float(wrong).is_integer():
            yield f"{env} {subset}: wrong is {wrong}, no whole number of images"
