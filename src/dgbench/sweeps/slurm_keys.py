"""Check the keys of ``hydra/launcher=slurm``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from dgbench.sweeps.local import LauncherKeys
from dgbench.validation import Count0, Folder, NonBlank, OneLine, Positive, Refusal

Limit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Refusal("is not an integer >= 1", "give one, or null for the cluster's own limit"),
]
Usual = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Refusal("is not an integer >= 1", "give one, or null for the cluster's default"),
]
Duration = Annotated[Positive, Refusal("is not a number > 0", "give one")]


# of the batch script
Line = Annotated[Annotated[NonBlank, OneLine], Refusal("is no text of one line", "give some")]


class SlurmKeys(LauncherKeys):
    """Keys of ``hydra/launcher=slurm``."""

    timeout_min: Limit
    signal_delay_s: Count0
    max_num_timeout: Count0
    nodes: Usual
    tasks_per_node: Usual
    cpus_per_task: Usual
    gpus_per_node: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Refusal("is not an integer >= 0", "give one, or null for none"),
    ]
    mem_gb: Annotated[
        Positive | None,
        Refusal("is not a number > 0", "give one, or null for the cluster's default"),
    ]
    array_parallelism: Limit
    submitit_folder: Folder
    name: Line
    partition: Line | None
    account: Line | None
    qos: Line | None
    constraint: Line | None
    exclude: Line | None
    setup: Annotated[
        list[Line] | None, Refusal("is no list of shell lines", 'write e.g. ["module load cuda"]')
    ]
    additional_parameters: Annotated[
        Mapping[Line, Line | int | float | bool | None],
        Refusal("is no mapping of options", "write e.g. {mail-type: END}"),
    ]
    resubmit: Count0
    poll_seconds: Duration
    silence_minutes: Duration
