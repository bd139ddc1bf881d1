"""``| head``: a reader who takes the first lines only gets no traceback and no advice."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

FETCH_LIST = ("-m", "dgbench.cli.main", "fetch", "list")


def unread(*words: str) -> tuple[str, int]:
    """What Python says on standard error, and its exit code, where nobody reads its standard
    output.
    """
    command = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout and command.stderr
    command.stdout.close()
    said = command.stderr.read()
    command.stderr.close()
    return said, command.wait(60)


def test_a_reader_may_close_the_pipe() -> None:
    assert unread("-u", "train.py", "--help") == ("", 0)


@pytest.mark.parametrize("buffered", [True, False])
def test_a_command_without_hydra_ends_when_nobody_reads_it(buffered: bool) -> None:
    said, code = unread(*(() if buffered else ("-u",)), *FETCH_LIST)
    assert said == ""
    assert code == 128 + signal.SIGPIPE
