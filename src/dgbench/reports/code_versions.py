"""Code versions that a user declares to be one: a change between them that touched no result, or only other results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dgbench.errors import RecordError
from dgbench.reports.collect import Collection

#: ways out where versions would share a table
ADVICE = (
    "split_by=code, name fewer folders with runs=[DIR], or, where no result depends on the change, declare them the "
    "same with same_code=[...]"
)


def with_same_code(collection: Collection, versions: Sequence[str]) -> Collection:
    """The collection with one code version for runs of any of these, a name that lists them all.

    Raises:
        RecordError: no run is of one of them.
    """
    present = sorted({str(run.identity["code"]) for run in collection.runs})
    if absent := [version for version in versions if version not in present]:
        raise RecordError(f"same_code names {', '.join(absent)}, but the runs are of {', '.join(present)}; name these")
    together = " and ".join(sorted(versions))
    runs = [
        replace(run, identity={**run.identity, "code": together}) if run.identity["code"] in versions else run
        for run in collection.runs
    ]
    return replace(collection, runs=runs)
