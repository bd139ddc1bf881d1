"""A prepared process is given the pages that it had."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
if sys.argv[1] == "prepared":
    from dgbench.training.processes import prepare_process
    prepare_process()
def step():
    blocks = [torch.ones(12 * 2**20) for _ in range(3)]  # 48 MB each, which glibc maps anew if nobody tells it
for _ in range(6):  # blocks of memory find their places
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of four steps that follow others."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_later_steps_ask_the_kernel_for_no_new_pages() -> None:
    assert faults("prepared") * 10 < faults("plain")
