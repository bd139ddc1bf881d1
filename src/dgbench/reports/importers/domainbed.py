"""DomainBed's sweeps: folders with ``results.jsonl``, one JSON object a line, and a ``done``
marker.

DomainBed splits every environment i into a large ``in`` and a small ``out`` part and records the
accuracy on both. What they are for depends on whether the run trained on i, and that is how they
become our subsets:

===============  ===================================  ==========================================
record key       i was trained on                     i was held out
===============  ===================================  ==========================================
env{i}_in_acc    ``train``                            ``test``: the accuracy that tables report
env{i}_out_acc   ``val``: training-domain validation  ``val``: what the oracle looks at
===============  ===================================  ==========================================

Records do not say how many images were seen, so ``seen`` is 1 and ``wrong`` the error; the accuracy
as read stands in a column of its own. One that is no fraction in [0, 1] is named and left out; for
validation it counts as NaN, which loses to every accuracy, as in DomainBed. The trial is the seed:
it decides DomainBed's splits, too. There is no model of all environments.

A path may also be one file that holds the records of many runs, those of a run one after the other,
as ``cat */results.jsonl`` writes it; it has no ``done`` markers.

``train_autolr.py`` (ERM++) trains twice: with validation, to find the learning rates, and then on
all images of the training environments. The records of the second training have
``fd_env{i}_in_acc`` alone. As in ``collect_results --auto_lr``, its last accuracies are the result,
and those on ``out`` of the first training's last record validate it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dgbench.errors import RecordError
from dgbench.records.files import open_regular
from dgbench.reports.importers import IMPORTED, swad
from dgbench.reports.importers.domainbed_records import (
    NOTHING,
    Repeated,
    is_continued,
    lines_of_runs,
    record_in,
    records_of,
)
from dgbench.reports.importers.logs import (
    RESULTS,
    LoggedRun,
    SweepDescription,
    identity_of,
    rows_of,
    without_duplicates,
)
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import ASSUMED, Problem, printable, searched
from dgbench.reports.reading.row_files import Run, bounded

_LOOKED_AT = 10  # lines, to tell whose records they are
_MOST_OF_A_RUN = 1000  # lines; they show a file of many runs, which may exceed the memory


def read_domainbed(
    path: str | Path | None,
    require_done: bool = True,
    backbone: str = "domainbed",
    init: str = "domainbed",
    environments: Sequence[str] | None = None,
) -> Collection:
    """Read every ``results.jsonl`` under a folder, of DomainBed or of SWAD's code family
    (:mod:`.swad`).

    Args:
        path: folder of the sweep, or a file of many runs.
        require_done: leave out runs without a ``done`` marker; DomainBed's own collector takes
            them.
        backbone: what tables call the network; DomainBed chooses it by dataset and does not record
            it.
        init: what tables call the initial weights.
        environments: names of the environments, in order; by default those of the known datasets,
            else env0, env1, ...

    Raises:
        RecordError: there is no folder, or no run in it.
    """
    if path is None:
        raise RecordError(
            "no folder to import; name that of a DomainBed sweep with import.path=DIR"
        )
    problems: list[Problem] = []
    if os.path.isfile(path):
        setting = SweepDescription(backbone, init, environments, require_done)
        return _read_file(Path(path), setting, problems)
    inside = searched(Path(path), (RESULTS,), problems) if os.path.isdir(path) else ()
    folders = sorted(folder for folder, files in inside if files)
    if not folders:
        clue = (
            f" ({problems[0].kind} {problems[0].where}: {problems[0].reason})" if problems else ""
        )
        raise RecordError(
            f"no {RESULTS} under {path}{clue}; name the folder of a DomainBed sweep with "
            "import.path=DIR"
        )
    setting = SweepDescription(backbone, init, environments, require_done)
    runs: list[LoggedRun] = []
    folds: list[swad.LoggedFold] = []
    for folder in folders:
        try:
            _read_folder(folder, setting, runs, folds, problems)
        except (RecordError, OSError) as error:
            reason = (
                str(error)
                if isinstance(error, RecordError)
                else f"{RESULTS}: {error.strerror}; make it readable"
            )
            problems.append(Problem("folder left out", printable(folder), reason))
    runs += swad.runs_of(folds, setting, problems)
    if not runs:
        raise RecordError(
            f"none of the {len(folders)} files {RESULTS} under {path} holds a run; the first "
            f"fault: {problems[0].where}: {problems[0].reason}"
        )
    runs = without_duplicates(runs, problems)
    return Collection([logged.run for logged in runs], rows_of(runs), problems, [])


def _read_file(file: Path, setting: SweepDescription, problems: list[Problem]) -> Collection:
    """Read a file of many runs, one run at a time: it may be larger than memory.

    Raises:
        RecordError: done markers are asked for, which it has not; it cannot be read; or it holds no
            run.
    """
    if setting.require_done:
        raise RecordError(
            f"{file} is a file, which has no done markers; add import.require_done=false to take "
            "the runs as they are"
        )
    runs: list[LoggedRun] = []
    label = printable(str(file))
    try:
        with open_regular(file) as handle:
            for start, lines, repeated in lines_of_runs(handle):
                place = f"{file}:{start}"
                try:
                    logged = _read_run(place, lines, problems, setting, start, repeated)
                except RecordError as error:
                    problems.append(Problem("run left out", f"{label}:{start}", str(error)))
                    continue
                if logged is not None:
                    runs.append(logged)
    except OSError as error:
        raise RecordError(f"{label}: {error.strerror}; make it readable") from None
    if not runs:
        reason = f"{problems[0].where}: {problems[0].reason}" if problems else "it is empty"
        raise RecordError(f"{label} holds no run of DomainBed; the first fault: {reason}")
    problems.append(Problem(ASSUMED, label, f"{len(runs):,} runs without done markers"))
    runs = without_duplicates(runs, problems)
    return Collection([logged.run for logged in runs], rows_of(runs), problems, [])


def _read_folder(
    folder: str,
    setting: SweepDescription,
    runs: list[LoggedRun],
    folds: list[swad.LoggedFold],
    problems: list[Problem],
) -> None:
    """Read the log of one folder, and add what it holds to the runs of DomainBed, or to the folds
    of SWAD's code.

    Raises:
        RecordError: the folder is no run.
        OSError: its file cannot be read, or is no regular file.
    """
    file = Path(folder, RESULTS)
    with open_regular(file) as handle:
        lines = list(islice(handle, _MOST_OF_A_RUN))
        if _are_of_many_runs(lines):
            raise RecordError(
                f"{RESULTS} holds the records of many runs; name the file itself: "
                f"import.path={printable(file)} import.require_done=false"
            )
        lines += handle.readlines()
    if any(
        b"real_test_envs" in line and swad.is_log(record_in(line)) for line in lines[:_LOOKED_AT]
    ):
        folds += swad.read_folds(lines, file, problems)
        return
    logged = _read_run(folder, lines, problems, setting)
    if logged is not None:
        runs.append(logged)


def _are_of_many_runs(lines: Sequence[bytes]) -> bool:
    """Tell whether the first lines of a log are of three runs or more; a run may have odd lines.

    Logs of SWAD's code, whose folds differ in their args, are none of these.
    """
    if not lines or is_continued(lines[0], lines[-1]) or b"real_test_envs" in lines[0]:
        return False
    return sum(len(of_a_run) > 1 for _, of_a_run, _ in lines_of_runs(lines)) > 2


def _read_run(
    folder: str,
    lines: Sequence[bytes],
    problems: list[Problem],
    setting: SweepDescription,
    start: int | None = None,
    repeated: Repeated = NOTHING,
) -> LoggedRun | None:
    """Read a run of DomainBed; None where it holds no record.

    Whatever is left out is added to ``problems``.

    Args:
        folder: where it stands.
        lines: of its log.
        problems: receives what is left out.
        setting: what the records do not say.
        start: number of the first line in a file of many runs; None of a folder of one.
        repeated: what the lines repeat, of :func:`.domainbed_records.lines_of_runs`.

    Raises:
        RecordError: the folder is no run.
    """
    file = Path(folder, RESULTS) if start is None else Path(folder.rpartition(":")[0])
    records, faults = records_of(lines, start or 1, repeated)
    problems += [fault.in_file(file) for fault in bounded(faults)]
    if records is None:
        problems.append(
            Problem("run without records", printable(folder), f"{RESULTS} holds no whole record")
        )
        return None
    args = records.first["args"]
    count = len(records.keys)
    held_out = tuple(sorted({*args["test_envs"], *(args.get("val_envs") or [])}))
    identity = _identity(records.first, held_out, count // 2, setting)
    if records.repeated:
        reason = f"{records.repeated} steps were recorded twice; the later ones are used"
        problems.append(Problem("repeated records", printable(file), reason))
    last_step = int(records.steps[-1])
    done = start is not None or os.path.exists(f"{folder}/done")
    status = "DONE" if done or not setting.require_done else "UNKNOWN"
    if not done:
        consequence = (
            "left out; import.require_done=false uses it"
            if setting.require_done
            else "used all the same"
        )
        problems.append(
            Problem(
                "no done marker",
                printable(folder),
                f"last record at step {last_step}; {consequence}",
            )
        )
    finite = int(np.isfinite(records.accuracy).sum())
    reason = "" if done else "no done marker"
    run = Run(printable(folder), identity, status, reason, last_step, finite)
    is_held_out = np.array([place // 2 in held_out for place in range(count)])
    return LoggedRun(run, records.steps, records.accuracy, is_held_out)


def _identity(
    record: Mapping[str, Any], held_out: tuple[int, ...], count: int, setting: SweepDescription
) -> dict[str, Any]:
    """Build the fields of :class:`dgbench.records.run_identity.RunIdentity`.

    Args:
        record: of the run, with ``args`` and ``hparams``.
        held_out: indices of the environments never trained on.
        count: of the environments.
        setting: what the record does not say.

    Raises:
        RecordError: names or held-out environments do not fit their count.
    """
    args = record["args"]
    draw, trial = int(args.get("hparams_seed", 0)), int(args.get("trial_seed", 0))
    protocol = {0: "loo", 1: "loo", 2: "pairs"}.get(len(held_out), "multi_test")
    return identity_of(
        setting,
        args,
        held_out,
        count,
        place=[args["dataset"], args["algorithm"], held_out, draw, trial],
        hparams=record.get("hparams") or {},
        draw=draw,
        trial=trial,
        protocol="multi_test" if args.get("val_envs") else protocol,
        code=f"{IMPORTED} from DomainBed",
    )
