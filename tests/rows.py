"""A row of a run of 100 steps, which is evaluated once: a whole row file in one line."""

from __future__ import annotations

from dgbench.records.rows import Row
from dgbench.records.run_identity import RunIdentity

IDENTITY = RunIdentity(
    run="abc", dataset="pacs", variant={}, base="pacs", evaluation="sampled", data_seed=0,
    split_seed=0, given=["photo", "sketch"], algorithm="erm", hparams={"steps": 100},
    backbone="resnet18", protocol="loo", fold="1", held_out=["sketch"], seed=0, code="0.1.0",
)  # fmt: skip
ROW = Row(
    identity=IDENTITY,
    step=100,
    env="sketch",
    subset="test",
    held_out=True,
    seen=200,
    wrong=53.25,
    loss=0.1,
)
WHOLE = f"{ROW.to_json()}\n"
