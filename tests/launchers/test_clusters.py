"""A cluster of the tests does not outlive them, however they end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launchers.clusters import ROOT, processes_with

START = """
import subprocess, sys, time
from tests.launchers.clusters import ended_with_us

with ended_with_us("slurm", sys.argv[1]):
    environment = {"SLURM_CONF": f"{sys.argv[1]}/slurm.conf"}
    subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    print("started", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_it_ends_when_its_tests_are_killed(tmp_path: Path) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout and tests.stdout.readline() == "started\n"
    variable = f"SLURM_CONF={tmp_path}/slurm.conf"
    assert len(processes_with(variable)) == 1
    tests.kill()
    tests.wait()
    tests.stdout.close()
    deadline = time.monotonic() + 60
    while processes_with(variable):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)
