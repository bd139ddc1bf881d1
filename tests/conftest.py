"""The command line as a user has it: real processes, without paying for the imports of each."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1  # of Linux' prctl: the signal that a process gets when its parent ends


@pytest.fixture(autouse=True)
def words_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the words of the command line, which a command run in this process sets."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))


@pytest.fixture
def double() -> Iterator[None]:
    """Double precision by default, on one thread."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# Reads one request a line, forks a child that runs the command in its own session, answers with its
# exit status. The child is a process like any other: it can be killed, gets its own signals, and
# has its own standard error.
SERVER = f"""
import gc, json, os, runpy, signal, sys, traceback
runpy.run_path({str(ROOT / "tests" / "read_once.py")!r})
runpy.run_path({str(ROOT / "tests" / "start_once.py")!r})
import timm, torch, pytorch_lightning, torchvision, sklearn.datasets, pandas
import dgbench.cli.outcome, dgbench.training.train_runs, dgbench.training.study
import dgbench.data.datasets.spurious, dgbench.reports.reading.collect
torch.set_num_threads(1)
gc.freeze()
# a job in the background may have inherited that it is ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    ask = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(ask["cwd"])
            for stream, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(ask[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            os.environ.update(ask["env"])
            sys.argv = [ask["script"], *ask["arguments"]]
            try:
                exec(ask["before"], {{}})
            except BaseException:
                traceback.print_exc()
                raise SystemExit(71)
            runpy.run_path(ask["script"], run_name="__main__")
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
os._exit(0)  # what is frozen would be called leaked
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``code`` is minus the signal for one that was killed."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """Lines of standard error that start with ``dgbench:``."""
        return [line for line in self.err.splitlines() if line.startswith("dgbench:")]


Command = Callable[..., Ended]


def clean_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a user who set nothing but one thread."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("WANDB", "HYDRA", "DGBENCH", "PYTEST", "SLURM"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", **(changes or {})}


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """``command("train.py", "seed=1", cwd=...)`` runs a command in a process of its own and waits
    for its end.

    ``before`` is Python code that the process runs first, e.g. to make it die at a chosen moment.
    """
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        cwd=tmp_path_factory.mktemp("server"),
    )
    assert server.stdin and server.stdout
    streams = tmp_path_factory.mktemp("streams")

    def run(
        script: str,
        *arguments: object,
        cwd: Path,
        before: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        ask: dict[str, Any] = {
            "script": str(ROOT / script),
            "arguments": [str(word) for word in arguments],
            "cwd": str(cwd),
            "before": before,
            "env": dict(env or {}),
            "out": str(streams / "out"),
            "err": str(streams / "err"),
        }
        server.stdin.write(json.dumps(ask) + "\n")  # type: ignore[union-attr]
        server.stdin.flush()  # type: ignore[union-attr]
        code = int(server.stdout.readline())  # type: ignore[union-attr]
        ended = Ended(code, (streams / "out").read_text(), (streams / "err").read_text())
        assert code != 71, f"the code that was to run before the command failed:\n{ended.err}"
        return ended

    yield run
    server.stdin.close()
    server.wait()
    server.stdout.close()


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of every run under a folder."""
    return [
        json.loads(line)
        for file in folder.rglob("errors.jsonl")
        for line in file.read_text().splitlines()
    ]


TINY = (
    "dataset.base=digits",
    "execution=single",
    "backbone.width=8",
    "trainer.steps=12",
    "trainer.eval_every=4",
    "trainer.device=cpu",
    "trainer.checkpoint_seconds=0",
)


@pytest.fixture(scope="session")
def train(command: Command) -> Command:
    """``train("algorithm=vrex", cwd=...)``: 12 steps on the digits, an evaluation and a checkpoint
    every 4.
    """

    def run(*arguments: object, **options: Any) -> Ended:
        return command("train.py", *TINY, *arguments, **options)

    return run


@pytest.fixture
def rows_of() -> Callable[[Path], dict[str, bytes]]:
    """Every row file under a folder: its path below that folder -> its bytes.

    Without the version of the code, which changes when somebody commits between two commands.
    """

    def read(folder: Path) -> dict[str, bytes]:
        files = sorted(folder.rglob("errors.jsonl"))
        return {
            str(p.relative_to(folder)): re.sub(rb'"code":"[^"]*"', b"", p.read_bytes())
            for p in files
        }

    return read


@pytest.fixture
def image_tree(tmp_path: Path) -> Callable[..., Path]:
    """``image_tree(photo={"cat": 5, "dog": 6}, sketch=...)`` makes PNG images
    root/environment/class/00.png.

    Sides differ from image to image; cats are bright, the next class darker, so that something can
    be learned.
    """

    def make(name: str = "tree", **environments: Mapping[str, int]) -> Path:
        return draw_tree(tmp_path / name, environments)

    return make


def draw_tree(root: Path, environments: Mapping[str, Mapping[str, int]]) -> Path:
    """The images of :func:`image_tree`: environment -> class -> how many."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for env, classes in environments.items():
        for k, (label, count) in enumerate(classes.items()):
            folder = root / env / label
            folder.mkdir(parents=True)
            for i in range(count):
                shape = (10 + i % 3, 12 + i % 2, 3)
                pixels = rng.integers(0, 60, shape) + 190 // (k + 1)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02}.png")
    return root


@pytest.fixture(scope="module")
def shared_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three environments of three classes with 8 images each, one tree for the tests of a file that
    only read it.
    """
    counts = {"cat": 8, "dog": 8, "emu": 8}
    return draw_tree(tmp_path_factory.mktemp("shared") / "tree", dict.fromkeys("abc", counts))


@pytest.fixture(scope="session", autouse=True)
def read_once() -> None:
    """In the process of the tests, too."""
    importlib.import_module("tests.read_once")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every phase take long, and say a line of each unit."""
    monkeypatch.setattr("dgbench.phases.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("dgbench.phases.LINE_SECONDS", 0.0)


def pytest_configure() -> None:
    """Started by make, tests end with it, also where it is killed;
    their processes end with them.
    """
    if "MAKELEVEL" in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of a few markers (``make test-all``) are looked for where one of them is written."""
    markers = set(re.findall(r"\w+", config.option.markexpr)) - {"or"}
    if not markers or "not" in markers or collection_path.suffix != ".py":
        return None
    return (
        None
        if markers & set(re.findall(r"pytest\.mark\.(\w+)", collection_path.read_text()))
        else True
    )


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again
    and again.
    """
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Some libraries call what is frozen at the end leaked."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of clusters mostly wait: they begin first, beside others."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)
