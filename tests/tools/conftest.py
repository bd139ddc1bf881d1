"""A tiny study as training leaves it, packed and filled in as an entry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.records.rows import ROW_FILE, Row, append_rows
from dgbench.records.run_identity import RunIdentity
from dgbench.records.spec import RunSpec
from tools.archive.checking import check_archive
from tools.archive.entries import CHECKSUMMED
from tools.archive.listing import write_index
from tools.archive.packed_runs import PackedRun, read_packed, recorded_of, write_packed
from tools.archive.packing import pack
from tools.archive.tables import board_of, studies_of, table_text

GIVEN = ["0.80", "0.90", "0.8250", "0.10"]
GRID = [f"{i / 10:.2f}" for i in range(11)]
CODE = "0.1.0+abcdef0"
# of 1,000 images whose color agrees with the label, and does not
WRONG = {
    "erm": (100, 700),
    "vrex": (250, 400),
}


def spec_of(algorithm: str, seed: int, fold: str, data_seed: int = 0) -> RunSpec:
    held_out = [] if fold == "full" else [GIVEN[int(fold)]]
    training = [env for env in GIVEN if env not in held_out]
    variant = {"ratio": 3, "scale": 1, "name": "sr_cmnist"}
    return RunSpec(
        dataset={
            "dataset": "sr_cmnist", "variant": variant, "base": "digits", "evaluation": "exact",
            "data_seed": data_seed, "split_seed": 0, "given": GIVEN, "content": "feed",
        },
        algorithm=algorithm, objective="x.Y", user_code={}, hparams={"lr": 0.001}, backbone="mlp",
        network={"width": 8}, init="random", head={"name": "random"}, tuning={"name": "ft"},
        averaging={"name": "none"}, sharpness={"name": "none"}, callbacks={},
        training={"steps": 20}, protocol="loo", seed=seed, draw=0, trial=0, space="domainbed",
        fold={"name": fold, "training": training, "held_out": held_out},
    )  # fmt: skip


def identity_of(spec: RunSpec, code: str = CODE) -> RunIdentity:
    facts = {key: spec.dataset[key] for key in spec.dataset if key != "variant"}
    return RunIdentity(
        **facts, run=spec.digest, variant={"ratio": 3, "scale": 1}, algorithm=spec.algorithm,
        hparams={**spec.hparams, "steps": 20}, backbone="mlp", protocol="loo",
        fold=spec.fold["name"], held_out=spec.fold["held_out"], seed=spec.seed, code=code,
    )  # fmt: skip


def rows_of(identity: RunIdentity) -> Iterator[Row]:
    agree, differ = (count + 3 * identity.seed for count in WRONG[identity.algorithm])
    everywhere = identity.fold == "full"
    for env in GIVEN:
        held_out = env in identity.held_out
        yield Row(
            identity=identity,
            step=20,
            env=env,
            subset="val",
            held_out=held_out,
            seen=50,
            wrong=9,
            loss=0.5,
        )
    for env in dict.fromkeys([*GRID, *GIVEN] if everywhere else GIVEN):
        e = float(env)
        held_out = env in identity.held_out or env not in GIVEN
        wrong, loss = (1 - e) * agree + e * differ, (1 - e) * 0.4 + e * 1.3
        yield Row(
            identity=identity,
            step=20,
            env=env,
            subset="test",
            held_out=held_out,
            seen=1000,
            wrong=wrong,
            loss=loss,
        )


def write_run(root: Path, spec: RunSpec, code: str = CODE, minute: int = 0) -> Path:
    """A run folder: rows, status, identity.json and progress.json; ten minutes long."""
    folder = (
        root
        / f"sr_cmnist-{spec.algorithm}-s{spec.seed}"
        / f"fold-{spec.fold['name']}-{spec.digest}"
    )
    folder.mkdir(parents=True)
    append_rows(folder / ROW_FILE, rows_of(identity_of(spec, code)))
    (folder / "status").write_text("DONE\n")
    session = {
        "time": f"2026-11-23T10:{minute:02}:00+0000", "host": "secret-host", "pid": 77,
        "code": code, "typed": ["python", "train.py", "dataset.root=/disk/ann/PACS"],
        "command": ["/disk/ann/train.py"], "threads": 1, "python": "3.11.7",
        "packages": {"torch": "2.15.0", "timm": None}, "cpu": "a CPU", "cores": 2, "gpus": [],
        "cuda": None, "device": "auto", "resumed_from": 0, "together": 5,
        "system": "Linux-6.1.0-cluster7-x86_64-with-glibc2.36",
    }  # fmt: skip
    document = {
        "run": spec.digest,
        "spec": spec.to_json(),
        "dataset": {"fingerprint": "f00"},
        "sessions": [session],
    }
    (folder / "identity.json").write_text(json.dumps(document))
    # 10:00 that day
    (folder / "progress.json").write_text(json.dumps({"time": 1795428000.0 + 60 * minute + 600}))
    return folder


def write_study(
    root: Path,
    algorithms: tuple[str, ...] = ("erm", "vrex"),
    code: str = CODE,
    data_by_seed: bool = False,
) -> Path:
    """Two seeds of each algorithm, every fold."""
    for algorithm in algorithms:
        for seed in (0, 1):
            for fold in ("0", "1", "2", "3", "full"):
                write_run(
                    root, spec_of(algorithm, seed, fold, seed * data_by_seed), code, minute=5 * seed
                )
    return root


def fill_in(folder: Path) -> None:
    """What a human says."""
    for name in ("entry.yaml", "README.md"):
        text = (folder / name).read_text().replace("license: ???", "license: CC0-1.0")
        (folder / name).write_text(text.replace("???", "said"))


@dataclass(frozen=True)
class Archive:
    """An archive with one entry, and ways to tamper with it."""

    results: Path

    @property
    def entry(self) -> Path:
        return self.results / "tiny"

    def faults(self, only: str = "tiny") -> list[str]:
        """What is wrong with the entry of this name; with the whole archive if it is empty."""
        return check_archive(self.results, only)

    def say(self, change: Callable[[dict[str, Any]], object], folder: Path | None = None) -> None:
        """Change what ``entry.yaml`` says."""
        file = (folder or self.entry) / "entry.yaml"
        content = yaml.safe_load(file.read_text())
        change(content)
        file.write_text(yaml.safe_dump(content, sort_keys=False))

    def forge(self, change: Callable[[list[PackedRun]], object]) -> None:
        """Change packed runs, and make everything that follows from them anew."""
        rows = self.entry / "rows.jsonl.xz"
        lines = read_packed(rows)
        change(lines)
        write_packed(lines, rows)
        self.say(lambda content: content.update(recorded=recorded_of(lines)))
        studies = studies_of(rows, "last")
        (self.entry / "measures.csv").write_text(table_text(studies))
        (self.entry / "leaderboard.csv").write_text(table_text(board_of(studies)))
        self.sum_again()

    def sum_again(self) -> None:
        """Checksums of what is there."""
        made = {
            name: hashlib.sha256((self.entry / name).read_bytes()).hexdigest()
            for name in CHECKSUMMED
        }
        self.say(lambda content: content.update(sha256=made))


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study") / "multirun")


@pytest.fixture
def archive(study: Path, tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "results")
    pack("tiny", [study], made.results)
    fill_in(made.entry)
    write_index(made.results)
    return made
