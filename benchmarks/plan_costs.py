"""What plans count against the clock: operations of a step on the meta device, and seconds of the
step on this CPU.

Prints, for networks and algorithms of several families, counted operations, clocked milliseconds,
the operations per second that they give, and how far that is from the family's median: within 25 %
a plan that knows one speed of a family knows the others. Then whether operations and seconds have
the same order. Run it with `make bench-plan`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import torch
from made_study import config_of

from dgbench.batches import EnvBatch
from dgbench.plan.studies import planned_again
from dgbench.training.blueprint import Blueprint
from dgbench.training.cost import count
from dgbench.training.processes import prepare_process

REPEATS = 3
WIDE = ("backbone=mlp", "backbone.width=1024", "hparams.batch_size=64")
COMMON = (
    "dataset=pacs",
    "dataset.root=nowhere",
    "init=random",
    "trainer.device=cpu",
    "hparams.batch_size=16",
)
CASES = [  # family, side of the images, title, overrides
    ("ResNet", 64, "resnet18 erm", ("backbone=resnet18",)),
    ("ResNet", 64, "resnet18 sam", ("backbone=resnet18", "algorithm=sam")),
    ("ResNet", 64, "resnet18 mldg", ("backbone=resnet18", "algorithm=mldg")),
    ("ResNet", 64, "resnet18 lp", ("backbone=resnet18", "tuning=lp")),
    ("ResNet", 64, "resnet34 erm", ("backbone=resnet18", "backbone.arch=resnet34")),
    ("ResNet", 64, "resnet50 fish", ("backbone=resnet50", "algorithm=fish")),
    ("ResNet", 64, "resnet50 miro", ("backbone=resnet50", "algorithm=miro")),
    ("transformer", 64, "deit_s16 erm", ("backbone=deit_s16",)),
    ("transformer", 64, "deit_s16 sam", ("backbone=deit_s16", "algorithm=sam")),
    ("transformer", 64, "vit_b16 irm", ("backbone=vit_b16", "algorithm=irm")),
    ("perceptron", 64, "mlp-512 erm", (*WIDE, "backbone.width=512")),
    ("perceptron", 64, "mlp-1024 coral", (*WIDE, "algorithm=coral")),
    ("perceptron", 64, "mlp-1024 mixup", (*WIDE, "algorithm=mixup")),
    ("depthwise", 64, "efficientnet_lite0 erm",
        ("backbone=timm", "backbone.arch=efficientnet_lite0")),
    ("depthwise", 64, "efficientnet_lite0 sam",
        ("backbone=timm", "backbone.arch=efficientnet_lite0", "algorithm=sam")),
]  # fmt: skip


class Case:
    """A step that can be clocked, and its counted operations.

    Args:
        words: overrides; image files need not be there, minibatches are random.
        device: that it is taken on.
    """

    def __init__(self, words: Sequence[str], device: str = "cpu") -> None:
        planned = planned_again(config_of([*COMMON, *words]), Path(tempfile.gettempdir()))
        self.cost = count(planned)
        blueprint = Blueprint(planned)
        networks, sizes = blueprint.networks(blueprint.folds[0])
        self.module = blueprint.trained(networks, sizes, sizes.image).to(device).train()
        self.optimizers = dict(
            zip(self.module.trained_groups(), self.module.configure_optimizers(), strict=True)
        )
        batch_sizes = (blueprint.hparams["batch_size"],) * sizes.n_envs
        n = sum(batch_sizes)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(n, *sizes.image, generator=generator, dtype=blueprint.dtype)
        y = torch.randint(sizes.n_classes, (n,), generator=generator)
        self.batch = EnvBatch(
            x.to(device), y.to(device), batch_sizes, torch.arange(n, device=device)
        )

    def steps(self, n: int = 1) -> torch.Tensor:
        """Take ``n`` steps and return their losses."""
        return self.module.train_steps([self.batch] * n, self.optimizers).flatten()

    def seconds(self) -> float:
        """Measure the CPU seconds of one step in one thread, optimizers included; others may use
        the machine meanwhile.

        A step before it is not clocked: it gets from the system the memory that another case gave
        back, which a step of training finds at hand.
        """
        self.steps()
        begun = time.process_time()
        self.steps()
        return time.process_time() - begun


def main() -> None:
    """Time all cases in turns and print the table; words on the command line choose families."""
    prepare_process()
    torch.set_num_threads(1)
    chosen = [case for case in CASES if case[0] in (sys.argv[1:] or [case[0]])]
    cases = [Case([f"dataset.image_size={side}", *words]) for _, side, _, words in chosen]
    times = [[case.seconds() for case in cases] for _ in range(REPEATS)]
    clocked = [statistics.median(column) for column in zip(*times, strict=True)]
    rates = [case.cost.step / seconds for case, seconds in zip(cases, clocked, strict=True)]
    print(f"torch {torch.__version__}, one thread, median of {REPEATS} rounds\n")
    print(
        f"{'family':<13}{'network, algorithm':<25}{'GFLOP':>8}{'ms':>9}{'GFLOP/s':>9}"
        f"{'of median':>11}"
    )
    for family, rows in groupby(range(len(cases)), lambda i: chosen[i][0]):
        members = list(rows)
        median = statistics.median(rates[i] for i in members)
        for i in members:
            ratio = rates[i] / median
            mark = "" if abs(ratio - 1) <= 0.25 else " !"
            step = f"{cases[i].cost.step / 1e9:>8.1f}{1e3 * clocked[i]:>9.1f}"
            rate = f"{rates[i] / 1e9:>9.1f}{ratio:>11.2f}"
            print(f"{family:<13}{chosen[i][2]:<25}{step}{rate}{mark}")
        by_flops = sorted(members, key=lambda i: cases[i].cost.step)
        in_order = by_flops == sorted(members, key=lambda i: clocked[i])
        print(
            (
                f"{family}: {'the same order' if in_order else 'another order'} by operations and "
                "by seconds"
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
