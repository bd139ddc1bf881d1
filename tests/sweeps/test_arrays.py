"""Jobs reach the queue in arrays that the cluster takes,
and wait where its limits leave no room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dgbench.errors import ConfigError
from dgbench.sweeps import queue
from dgbench.sweeps.arrays import Arrays, ArrayTooLargeError, NoRoomError, Pack, refusal

POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, ...)"
)
ARRAY = "sbatch: error: Batch job submission failed: Invalid job array specification"


class Cluster:
    """Takes arrays of a size, and jobs up to a number; speaks as sbatch does."""

    def __init__(self, largest: int, room: int) -> None:
        self.largest, self.room = largest, room
        self.arrays: list[tuple[list[Pack], int]] = []
        self.refused = 0

    def submit(self, packs: Sequence[Pack], parallelism: int) -> list[str]:
        try:
            if len(packs) > self.largest:
                raise RuntimeError(ARRAY)
            if len(packs) > self.room:
                raise RuntimeError(f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}")
        except RuntimeError as error:
            self.refused += 1
            raise refusal(error) from error
        self.room -= len(packs)
        self.arrays.append((list(packs), parallelism))
        return [f"{len(self.arrays)}_{i}" for i in range(len(packs))]


def sent(cluster: Cluster, n: int, largest: int, parallelism: int = 256) -> Arrays:
    arrays = Arrays(cluster.submit, parallelism, largest)
    arrays.waiting += [[number] for number in range(n)]
    arrays.send()
    return arrays


def test_arrays_of_the_size_that_the_cluster_takes() -> None:
    """2,500 jobs, 1,001 in an array: of equal size, with the parallelism divided among them."""
    cluster = Cluster(1001, 10**6)
    arrays = sent(cluster, 2500, 1001)
    assert [len(packs) for packs, _ in cluster.arrays] == [834, 834, 832]
    assert [parallelism for _, parallelism in cluster.arrays] == [85] * 3
    assert [pack for packs, _ in cluster.arrays for pack in packs] == [[i] for i in range(2500)]
    assert (arrays.waiting, arrays.limit, cluster.refused) == ([], "", 0)


def test_a_size_that_the_cluster_did_not_say() -> None:
    cluster = Cluster(100, 10**6)
    arrays = sent(cluster, 250, 1001)
    assert sum(len(packs) for packs, _ in cluster.arrays) == 250 and not arrays.waiting
    assert arrays.largest <= 100


def test_what_has_no_room_waits_until_it_has() -> None:
    cluster = Cluster(1001, 300)
    arrays = sent(cluster, 1000, 1001)
    assert (len(arrays.waiting), arrays.limit, arrays.is_shared) == (
        700,
        "AssocMaxSubmitJobLimit",
        False,
    )
    assert cluster.refused < 20
    cluster.room, cluster.refused = 40, 0
    arrays.send(most=40)
    assert len(arrays.waiting) == 660 and cluster.refused < 8
    cluster.room = 10**6
    arrays.send()
    assert (arrays.waiting, arrays.limit) == ([], "")
    numbers = [number for packs, _ in cluster.arrays for pack in packs for number in pack]
    assert numbers == list(range(1000))


@pytest.mark.parametrize(
    ("said", "kind", "part"),
    [
        *(
            (f"sbatch: error: {limit}\n{POLICY}", NoRoomError, limit)
            for limit in (  # as slurmctld 22.05 with a database says them
                "AssocMaxSubmitJobLimit",
                "AssocGrpSubmitJobsLimit",
                "QOSMaxSubmitJobPerUserLimit",
                "MaxSubmitJobsPerAccount",
                "QOSGrpSubmitJobsLimit",
            )
        ),
        (
            "Batch job submission failed: Resource temporarily unavailable",
            NoRoomError,
            "MaxJobCount",
        ),
        (ARRAY, ArrayTooLargeError, "Invalid"),
        (
            f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}",
            ConfigError,
            "QOSMaxWall.*hydra.launcher",
        ),
        (
            "sbatch: error: invalid partition specified: none",
            ConfigError,
            "partition.*hydra.launcher",
        ),
    ],
)
def test_limits_are_told_from_mistakes(said: str, kind: type[Exception], part: str) -> None:
    error = refusal(RuntimeError(said))
    assert type(error) is kind
    with pytest.raises(kind, match=part):
        raise error


def test_one_job_that_is_no_array_is_refused() -> None:
    cluster = Cluster(0, 10)
    with pytest.raises(ConfigError, match="Invalid job array"):
        sent(cluster, 3, 1001)


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ("MaxArraySize            = 1001\nSchedulerParameters     = (null)", 1001),
        (
            (
                "MaxArraySize            = 1001\nSchedulerParameters     = "
                "bf_interval=2,max_array_tasks=300"
            ),
            300,
        ),
        ("MaxArraySize            = 0", 1),
        (None, 1001),
    ],
)
def test_the_size_is_read_from_the_configuration(
    said: str | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(command: list[str]) -> str:
        if said is None:
            raise queue.QueueError("no answer")
        return said

    fake: Callable[..., Any] = answer
    monkeypatch.setattr(queue, "_ask", fake)
    assert queue.largest_array() == size
