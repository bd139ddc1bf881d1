"""What packed runs say of how they were made: the ``recorded`` part of an ``entry.yaml``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from dgbench.reports.archive.packed_runs import Line, started
from dgbench.reports.reading.collect import code_parts

#: what nobody can type in where the runs do not say it
DERIVED = ("code", "datasets", "runs", "studies")


def recorded_of(lines: Sequence[Line]) -> dict[str, Any]:
    """The same keys for any runs; a list is empty where the runs are older than what it lists.

    - ``code``, ``python``, ``packages``, ``hardware``, ``commands``: every one that occurs;
    - ``datasets``: name, base images, hash of the files;
    - ``runs``, ``studies``: how many; ``hours``: during which at least one run trained, from the last start of each.
    """
    sessions = [session for line in lines for session in line.get("sessions", [])]
    identities = [line["run"]["identity"] for line in lines]
    names = dict.fromkeys(name for session in sessions for name in session["packages"])
    return {
        "code": _all(code for identity in identities for code in code_parts(identity["code"])),
        "commands": list(dict.fromkeys(shlex.join(session["typed"]) for session in sessions)),
        "python": _all(session["python"] for session in sessions),
        "packages": {
            name: versions
            for name in names
            if (versions := _all(version for s in sessions if (version := s["packages"].get(name))))
        },
        "hardware": _all(map(_machine, sessions)),
        "datasets": _all(map(_dataset, identities)),
        "runs": len(lines),
        "studies": len({_study(identity) for identity in identities}),
        "hours": _hours(lines),
    }


def recorded_faults(found: dict[str, Any], said: dict[str, Any]) -> list[str]:
    """Where an entry says something else than its runs do; what the runs do not say may be typed in."""
    return [
        f"recorded.{key} is {json.dumps(said[key])}, its runs say {json.dumps(value)}"
        for key, value in found.items()
        if (value or key in DERIVED) and said[key] != value
    ]


def _all(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _machine(session: dict[str, Any]) -> str:
    gpus: list[str] = session["gpus"]
    counted = [f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)]
    threads = f"{session['cores']} cores, threads: {session['threads']}"
    device = [] if session["device"] == "auto" else [f"trainer.device={session['device']}"]
    return ", ".join([session["cpu"], threads, *counted, *device, session["system"]])


def _dataset(identity: dict[str, Any]) -> str:
    content = identity.get("content", "")
    base = "" if identity["base"] == identity["dataset"] else f" ({identity['base']})"
    return f"{identity['dataset']}{base}" + (f", files {content}" if content else "")


def _study(identity: dict[str, Any]) -> str:
    left_out = ("run", "fold", "held_out", "beyond", "n_parameters", "n_trainable")
    return json.dumps({key: value for key, value in identity.items() if key not in left_out}, sort_keys=True)


def _hours(lines: Sequence[Line]) -> float:
    """Time that the last sessions of all runs cover together, each moment counted once."""
    spans = []
    for line in lines:
        last = (line.get("sessions") or [{}])[-1]
        if "seconds" in last:
            start = started(last)
            spans.append((start, start + last["seconds"]))
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return round(total / 3600, 2)
