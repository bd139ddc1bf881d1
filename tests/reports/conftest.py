"""Run folders made of synthetic rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dgbench.records.rows import ROW_FILE, Row, append_rows
from dgbench.records.run_identity import RunIdentity

GIVEN = ["0.90", "0.85", "0.80", "0.10"]
GRID = [f"{i / 20:.2f}" for i in range(21)]


def identity(
    algorithm: str = "erm", fold: str = "0", seed: int = 0, **changes: object
) -> RunIdentity:
    held_out = [] if fold == "full" else [GIVEN[int(fold)]]
    values: dict[str, object] = {
        "run": f"{algorithm}-{fold}-{seed}", "dataset": "sr_cmnist",
        "variant": {"ratio": 3, "scale": 1}, "base": "digits", "evaluation": "exact",
        "data_seed": 0, "split_seed": 0, "given": GIVEN, "algorithm": algorithm,
        "hparams": {"lr": 0.001}, "backbone": "mlp", "protocol": "loo", "fold": fold,
        "held_out": held_out, "seed": seed, "code": "0.1.0",
    }  # fmt: skip
    return RunIdentity(**{**values, **changes})  # type: ignore[arg-type]


def run_rows(
    who: RunIdentity,
    error: Callable[[str, int], float],
    steps: Iterable[int] = (100, 200),
    grid: list[str] = GRID,
) -> list[Row]:
    """What training writes for one run: val in every given environment, test in every environment
    it is judged.
    """
    rows = []
    judged = (
        [*grid, *(env for env in who.given if env not in grid)] if who.fold == "full" else who.given
    )
    for step in steps:
        for subset, envs in (("val", who.given), ("test", judged)):
            for env in envs:
                unseen = env in who.held_out or env not in who.given
                wrong = 1000 * error(env, step)
                rows.append(
                    Row(
                        identity=who,
                        step=step,
                        env=env,
                        subset=subset,
                        held_out=unseen,
                        seen=1000,
                        wrong=wrong,
                        loss=0.5,
                    )
                )
    return rows


def write_run(
    root: Path,
    who: RunIdentity,
    error: Callable[[str, int], float] = lambda env, step: 0.25,
    *,
    status: str = "DONE",
    folder: str = "",
    steps: Iterable[int] = (100, 200),
    grid: list[str] = GRID,
    together: int | None = None,
) -> Path:
    path = root / (folder or f"{who.algorithm}_seed{who.seed}_fold{who.fold}")
    path.mkdir(parents=True)
    (path / "status").write_text(status + "\n")
    rows = run_rows(who, error, steps, grid)
    append_rows(path / ROW_FILE, [replace(row, together=together) for row in rows])
    return path


@pytest.fixture
def make() -> SimpleNamespace:
    """The helpers above: test modules cannot import this file."""
    return SimpleNamespace(
        GIVEN=GIVEN, GRID=GRID, identity=identity, run_rows=run_rows, write_run=write_run
    )


@pytest.fixture
def small_study(tmp_path: Path) -> Path:
    """erm and vrex, 2 seeds, every fold; held-out errors are those of the test docstrings."""
    held_out = {"erm": [0.2, 0.2, 0.2, 0.8], "vrex": [0.3, 0.3, 0.3, 0.4]}
    slope = {"erm": 0.9, "vrex": 0.4}
    for algorithm in held_out:
        for seed in (0, 1):
            for fold, env in enumerate(GIVEN):
                who = identity(algorithm, str(fold), seed)
                value = held_out[algorithm][fold] + 0.02 * seed
                write_run(
                    tmp_path, who, lambda e, s, env=env, value=value: value if e == env else 0.1
                )  # type: ignore[misc]
            top = slope[algorithm]
            write_run(
                tmp_path,
                identity(algorithm, "full", seed),
                lambda e, s, top=top: top * (1 - float(e)),
            )  # type: ignore[misc]
    return tmp_path
