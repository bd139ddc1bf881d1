"""One record per run: which of several is used, whether they agree, which text counts, which are repetitions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.records.files import read_regular
from dgbench.records.rows import DEFAULTS, IDENTITY_FILE, ROW_FILE, Role, identity_key, keys, shown
from dgbench.records.status import DONE
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import Run

if TYPE_CHECKING:
    from dgbench.reports.reading.row_files import RowArray

    Record = tuple[Run, RowArray]

Errors = dict[tuple[int, int, int], float]  # step, numbers of environment and subset -> error in percent

TOLERANCE = 1e-9  # percentage points that sums in another order may change


def without_duplicates(found: list[Record], names: Sequence[str]) -> tuple[list[Record], list[Problem]]:
    """Keep one record per run: a finished one, then the longest, then the first by name.

    Two records that disagree are a finding: the same run came out differently, as rounding makes it where other
    runs trained beside it, or something worse.

    Args:
        found: all records.
        names: of environments and subsets, in the order of their numbers.

    Returns:
        The records that are used, and a problem for each that is not: a ``duplicate``, or a ``disagreement`` with the
        size of it.
    """
    problems = []
    for same, why in ((_hash_key, "same run"), (_content_key, "same run under another run hash")):
        groups = defaultdict(list)
        for record in found:
            groups[same(record[0])].append(record)
        found = []
        for group in groups.values():
            group.sort(key=lambda record: (record[0].status != DONE, -record[0].last_step, record[0].folder))
            used = group[0]
            found.append(used)
            for other in group[1:]:
                difference = _contradiction(used[0], other[0]) or _difference(used, other, names)
                text = f"{why} as {used[0].folder}, which is used" + (f"; {difference}" if difference else "")
                problems.append(Problem("disagreement" if difference else "duplicate", other[0].folder, text))
    return found, problems


def _contradiction(used: Run, other: Run) -> str:
    """What the identities of two records of one run say differently; empty where nothing.

    A value that is the default may be that of a row older than its key, and an archive holds no split where every
    seed has its own.
    """
    for key, ours in used.identity.items():
        theirs = other.identity[key]
        unknown = DEFAULTS.get(key, BY_SEED)
        if key not in ("run", "code") and ours != theirs and unknown not in (ours, theirs):
            return f"{key} is {shown(ours)} there, {shown(theirs)} here: one of them is not what its hash says"
    return ""


def _difference(used: Record, other: Record, names: Sequence[str]) -> str:
    """How two records of one run differ where both have an error; empty where they agree."""
    ours, theirs = _errors(used[1]), _errors(other[1])
    differ = {key: abs(ours[key] - theirs[key]) for key in ours.keys() & theirs.keys()}
    differ = {key: points for key, points in differ.items() if points > TOLERANCE}
    if not differ:
        return ""
    steps = sorted({step for step, _, _ in differ})
    worst = max(sorted(differ, key=lambda key: (key[0], names[key[1]], names[key[2]])), key=lambda key: differ[key])
    step, env, subset = worst[0], names[worst[1]], names[worst[2]]
    when = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
    return (
        f"errors differ at {when}, most by {differ[worst]:.3g} percentage points ({env} {subset} at step {step}); "
        f"{_company(used[0])} there, {_company(other[0])} here{_codes(used[0], other[0])}"
    )


def _errors(rows: RowArray) -> Errors:
    keys = zip(rows["step"].tolist(), rows["env"].tolist(), rows["subset"].tolist(), strict=True)
    return dict(zip(keys, (100 * rows["wrong"] / rows["seen"]).tolist(), strict=True))


def _company(run: Run) -> str:
    if run.together is None:
        return "an unknown number of runs trained together"
    return "it trained alone" if run.together == 1 else f"{run.together} runs trained together"


def _codes(used: Run, other: Run) -> str:
    ours, theirs = used.identity["code"], other.identity["code"]
    return "" if ours == theirs else f"; code {ours} there, {theirs} here"


def _hash_key(run: Run) -> str:
    return str(run.identity["run"])


def _content_key(run: Run) -> str:
    return json.dumps({key: value for key, value in run.identity.items() if key != "run"}, sort_keys=True, default=str)


def with_newest_text(found: list[Record]) -> tuple[list[Record], list[Problem]]:
    """Keep the runs of the newest text of every module of a user's own: an edited objective is another one.

    Args:
        found: records of different runs.

    Returns:
        The records that count, and one problem for every import path with runs of older texts.
    """
    newest: dict[str, tuple[float, str]] = {}  # import path -> when it last trained, and digest of its text
    for run, _ in found:
        if run.identity["user_code"]:
            trained = _trained_at(Path(run.folder))
            for path, text in run.identity["user_code"].items():
                newest[path] = max(newest.get(path, (trained, text)), (trained, text))
    kept, older = [], defaultdict(list)
    for record in found:
        texts = record[0].identity["user_code"]
        outdated = [path for path, text in texts.items() if text != newest[path][1]]
        if outdated:
            older[outdated[0]].append(record[0])
        else:
            kept.append(record)
    problems = []
    for path, runs in older.items():
        texts_before = len({run.identity["user_code"][path] for run in runs})
        counted = (
            f"{len(runs)} run{'s' * (len(runs) != 1)} of {texts_before} older text{'s' * (texts_before != 1)} of it"
        )
        why = f"{counted}, e.g. {runs[0].folder}: those of the text {newest[path][1]}, trained last, count"
        problems.append(Problem("older code", path, why))
    return kept, problems


def _trained_at(folder: Path) -> float:
    """When a run was last started, in seconds since 1970; 0 where its folder is not here, as of runs in an archive."""
    try:
        started = json.loads(read_regular(folder / IDENTITY_FILE))["sessions"][-1]["time"]
        return datetime.fromisoformat(started).timestamp()
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        pass
    try:
        return (folder / ROW_FILE).stat().st_mtime
    except OSError:
        return 0.0


BY_SEED = "by seed"
SEEDED = keys(Role.DATA_SEED)  #: keys that may be said to be :data:`BY_SEED`


def fold_seeds(identities: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Identities with ``data_seed`` and ``split_seed`` said to be :data:`BY_SEED` where every seed has its own.

    A trial of DomainBed draws its own data and split, so runs that differ in them are repetitions there, and must share
    a table. Where one seed of a setting occurs with several, they stay apart: they are no repetitions.
    """
    found = [dict(who) for who in identities]
    shared = keys(Role.DATASET | Role.FORM | Role.NETWORK | Role.PROTOCOL)
    for name in SEEDED:
        found = _folded(found, name, shared)
        shared = (*shared, name)  # splits of different data are no repetitions
    return found


def _folded(identities: Sequence[dict[str, Any]], name: str, shared: Sequence[str]) -> list[dict[str, Any]]:
    own: dict[str, dict[int, set[Any]]] = defaultdict(lambda: defaultdict(set))
    settings = [identity_key(who, shared) for who in identities]
    for setting, who in zip(settings, identities, strict=True):
        own[setting][who["seed"]].add(who[name])
    folded = {
        setting
        for setting, seeds in own.items()
        if len(set().union(*seeds.values())) > 1 and all(len(found) == 1 for found in seeds.values())
    }
    return [
        {**who, name: BY_SEED} if setting in folded else who for setting, who in zip(settings, identities, strict=True)
    ]
