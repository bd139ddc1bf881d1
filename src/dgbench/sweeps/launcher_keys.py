"""What the keys of ``hydra.launcher`` may be; other keys of Slurm are checked by Slurm itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from dgbench.plan.settings import Count0, Count1, Positive
from dgbench.validation import Checked, Refusal

Workers = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Refusal("is not an integer >= 1", "give one, or null for as many as there are cores or GPUs"),
]
Limit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Refusal("is not an integer >= 1", "give one, or null for the cluster's own limit"),
]
Usual = Annotated[
    Annotated[int, Field(ge=1)] | None, Refusal("is not an integer >= 1", "give one, or null for the cluster's default")
]
Duration = Annotated[Positive, Refusal("is not a number > 0", "give one")]


class LauncherKeys(Checked):
    """Keys of a launcher."""

    model_config = ConfigDict(extra="ignore")
    key = "hydra.launcher"


class LocalKeys(LauncherKeys):
    """Keys of ``hydra/launcher=local``."""

    workers: Workers
    per_gpu: Count1
    threads: Count1


class SlurmKeys(LauncherKeys):
    """Keys of ``hydra/launcher=slurm``."""

    timeout_min: Limit
    signal_delay_s: Count0
    max_num_timeout: Count0
    nodes: Usual
    tasks_per_node: Usual
    cpus_per_task: Usual
    gpus_per_node: Annotated[
        Annotated[int, Field(ge=0)] | None, Refusal("is not an integer >= 0", "give one, or null for none")
    ]
    mem_gb: Annotated[
        Positive | None, Refusal("is not a number > 0", "give one, or null for the cluster's default")
    ]  # fmt: skip
    array_parallelism: Limit
    resubmit: Count0
    poll_seconds: Duration
    silence_minutes: Duration
