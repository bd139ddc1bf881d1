"""A prepared process is given the pages that it had, searches for no GPU and trains with normal
numbers only.
"""

import subprocess
import sys

import pytest
import torch

SCRIPT = """
import resource, sys
import torch
if sys.argv[1] == "prepared":
    from dgbench.training.processes import prepare_process
    prepare_process()
def step():
    # 48 MB each, which glibc maps anew if nobody tells it
    blocks = [torch.ones(12 * 2**20) for _ in range(3)]
for _ in range(6):  # blocks of memory find their places
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of four steps that follow others."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_later_steps_ask_the_kernel_for_no_new_pages() -> None:
    assert faults("prepared") * 10 < faults("plain")


@pytest.mark.skipif(
    torch.version.cuda is None or torch.cuda.is_available(), reason="of CUDA builds without a GPU"
)
def test_a_step_of_an_optimizer_opens_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from dgbench.training.processes import prepare_process

    def asked() -> int:
        asked_for.append("NVML")
        return -1

    asked_for: list[str] = []
    monkeypatch.setattr(torch.cuda, "_raw_device_count_nvml", asked)
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as Lightning's import sets it
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(1)
    optimizer.step()
    assert asked_for
    prepare_process()
    asked_for.clear()
    optimizer.step()
    assert not asked_for


SMALL = """
import torch
from dgbench.training.processes import normal_numbers, prepare_process
torch.set_num_threads(2)
prepare_process()
numbers = torch.full((2**20,), 2e-38)
def small() -> bool:
    return bool((numbers * 0.01).view(torch.int32).any())
with normal_numbers():
    print(small())
print(2e-308 / 4 > 0, torch.set_flush_denormal(False))
"""


def test_numbers_too_small_for_a_normal_float_are_zero_in_every_thread_while_training() -> None:
    """Gradients of a saturated discriminator are such numbers: DANN's steps took forty times as
    long with them.
    """
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, check=True)
    small, doubles, supported = done.stdout.split()
    if supported == "False":
        pytest.skip("this processor cannot leave them out")
    assert (small, doubles) == ("False", "True")
