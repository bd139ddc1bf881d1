"""``--help | head``: a reader who takes the first lines only gets no traceback."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


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
