"""Code versions that a user declares to be one: a change between them that touched no result, or only other results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dgbench.errors import RecordError
from dgbench.reports.reading.collect import CODE_SEPARATOR, Collection

#: ways out where versions would share a table
ADVICE = (
    "split_by=code, name fewer folders with runs=[DIR], or, where no result depends on the change, declare them the "
    "same with same_code=[...]"
)


def code_parts(code: object) -> list[str]:
    """The code versions of a run; several where it was resumed with other code."""
    return str(code).split(CODE_SEPARATOR)


def with_same_code(collection: Collection, versions: Sequence[str]) -> Collection:
    """The collection with one code version for runs of any of these, a name that lists them all.

    Raises:
        RecordError: no run is of one of them.
    """
    of = [set(code_parts(run.identity["code"])) for run in collection.runs]
    present = sorted(set().union(*of))
    if absent := [version for version in versions if version not in present]:
        raise RecordError(f"same_code names {', '.join(absent)}, but the runs are of {', '.join(present)}; name these")
    together = CODE_SEPARATOR.join(sorted(versions))
    runs = [
        replace(run, identity={**run.identity, "code": together}) if own <= set(versions) else run
        for run, own in zip(collection.runs, of, strict=True)
    ]
    return replace(collection, runs=runs)
