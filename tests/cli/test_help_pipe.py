"""``| head``: a reader who takes the first lines only gets no traceback and no advice."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT

RESULTS_CHECK = "from dgbench.cli.main import main; main(['results', 'check'])"


def test_a_reader_may_close_the_pipe() -> None:
    command = subprocess.Popen(
        [sys.executable, "-u", "train.py", "--help"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout and command.stderr
    command.stdout.close()
    assert command.stderr.read() == ""
    assert command.wait(60) == 0
    command.stderr.close()


@pytest.mark.parametrize("buffered", [True, False])
def test_a_command_without_hydra_ends_when_nobody_reads_it(buffered: bool) -> None:
    command = subprocess.Popen(
        [sys.executable, *(() if buffered else ("-u",)), "-c", RESULTS_CHECK],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout and command.stderr
    command.stdout.close()
    assert command.stderr.read() == "computing everything again ...\n"
    assert command.wait(60) == 128 + signal.SIGPIPE
    command.stderr.close()
