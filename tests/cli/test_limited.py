"""Commands under ``ulimit -v``: whatever ends inside a library is one line and a status of 1."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dgbench.cli import limited

WATCHED = """
import os, resource, signal, sys
from dgbench.cli.limited import watch
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, resource.RLIM_INFINITY))
watch(lambda text: print(f"dgbench: {text}", file=sys.stderr), "raise it")
"""
CHECKOUT = Path(__file__).parents[2]


def watched(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WATCHED + code], capture_output=True, text=True, timeout=60
    )


def test_without_a_limit_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited.os, "fork", lambda: pytest.fail("a process was made"))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    limited.watch(pytest.fail, "")
    assert limited.memory_limit() == ""


@pytest.mark.parametrize("number", ["SIGABRT", "SIGSEGV"])
def test_an_abort_is_one_line(number: str) -> None:
    ended = watched(
        f"resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), signal.{number})"
    )
    assert ended.returncode == 1
    assert ended.stderr == (
        f"dgbench: out of memory: a library gave up ({number}) under the limit of 8,590 MB "
        "(ulimit -v); raise it\n"
    )


def test_the_loader_of_libraries_has_a_status_of_its_own() -> None:
    ended = watched("os._exit(127)")
    assert ended.returncode == 1
    assert "a library gave up (status 127) under the limit of 8,590 MB" in ended.stderr


def test_what_a_library_cannot_do_at_the_end_is_not_said() -> None:
    """As torch, whose own callback imports a package then."""
    code = """
import atexit
def fail(error):
    raise error
atexit.register(fail, MemoryError())
atexit.register(fail, ValueError("shown"))
"""
    ended = watched(code)
    assert "MemoryError" not in ended.stderr and "ValueError: shown" in ended.stderr


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_status_is_that_of_the_command(code: int) -> None:
    ended = watched(f"print('done'); sys.exit({code})")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "done\n", "")


def test_sigterm_reaches_the_command() -> None:
    code = """
import time
def end(number, frame):
    print("ended", flush=True)
    os._exit(130)
signal.signal(signal.SIGTERM, end)
print("begun", flush=True)
time.sleep(50)
"""
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED + code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.kill(process.pid, signal.SIGTERM)
        assert (process.stdout.read(), process.wait(30)) == ("ended\n", 130)


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [350, 1000, 3000])
@pytest.mark.parametrize(
    "words", [("train.py", "dataset.base=digits", "trainer.steps=2"), ("report.py",)]
)
def test_real_commands(words: tuple[str, ...], megabytes: int, tmp_path: Path) -> None:
    """They end as usual, or with one line that names memory; torch alone takes 3.5 GB of address
    space.
    """
    script, *overrides = words
    shell = f'ulimit -c 0; ulimit -v {megabytes * 1024}; exec "$@"'
    words = ("bash", "-c", shell, "bash", sys.executable, str(CHECKOUT / script), *overrides)
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("dgbench: ")]
    assert ended.returncode in (0, 1)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0 or len(lines) == 1, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [220, 300, 480, 1480])
def test_a_report_under_a_limit_ends(megabytes: int, tmp_path: Path) -> None:
    """OpenBLAS, loaded where no memory was left, waited for it forever; Arrow reserves 1 GB, which
    a limit just above that lacked.
    """
    shell = f'ulimit -c 0; ulimit -v {megabytes * 1024}; exec "$@"'
    report = (sys.executable, str(CHECKOUT / "report.py"))
    runs = f"runs=[{CHECKOUT / 'results' / 'sr_cmnist_14_four_algorithms'}]"
    words = ("bash", "-c", shell, "bash", *report, runs)
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert ended.returncode == int(megabytes < 480), ended.stderr
    assert ended.returncode == 0 or ended.stderr.startswith("dgbench: out of memory")
