"""What a step of each algorithm costs, in steps of ERM, beside the floor that its passes set.

The floor is built from parts timed in the same run: forward and backward passes of the network over
all images of a step, passes of the networks that an algorithm adds, and Adam updates. Minibatches
are random images of 28 x 28 pixels, 64 from each of 3 environments, on DomainBed's network. Run it
with `make bench-algorithms`; it rewrites docs/data/algorithm_costs.json, which
docs/reference/algorithms.md prints.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import get_class
from made_study import config_of
from torch import nn
from torch.nn import functional as F

from dgbench.batches import EnvBatch, TrainingImages
from dgbench.configuration import CONF
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN
from dgbench.plan.hyperparameters import hyperparameters
from dgbench.plan.settings import TrainerSettings
from dgbench.training.modules import SingleRun
from dgbench.training.processes import prepare_process

BATCH = 64
# what an algorithm that looks at all training images sees, before the clock starts
IMAGES = 3 * BATCH
SIZES = Sizes(
    n_features=0,
    n_classes=2,
    n_envs=3,
    image=(2, 28, 28),
    n_steps=5000,
    n_images=IMAGES,
    n_trained_on=50_000,
)
STEPS, REPEATS = 6, 5  # steps: a whole round of the discriminators' turns
COSTS = CONF.parent / "docs" / "data" / "algorithm_costs.json"
ALLOWED = 1.3


@dataclass(frozen=True)
class Passes:
    """Passes over the images of one step, in units of all N images; every algorithm not listed has
    ERM's.

    Args:
        forward: through featurizer and classifier, kept for a backward pass.
        silent: forward passes that no gradient needs.
        backward: ordinary backward passes.
        second: backward passes through a gradient (each costs about a forward and two backward
            passes).
        context: silent passes of ARM's context network.
        updates: Adam updates of all parameters.
        translate: images through DDG's translator, forward and backward; translate_silent: forward.
        judge: DDG's discriminator of images, forward and backward; slope: and a backward pass
            through its gradient.
        why: one line for the table.
    """

    forward: float = 1
    silent: float = 0
    backward: float = 1
    second: float = 0
    context: float = 0
    updates: float = 1
    translate: float = 0
    translate_silent: float = 0
    judge: float = 0
    slope: float = 0
    why: str = "one forward, one backward"


PASSES = {
    "arm": Passes(context=1, why="and one of the untrained context network"),
    "cdann": Passes(
        backward=0.5,
        silent=0.5,
        forward=0.5,
        why="every second step trains the discriminator alone",
    ),
    "dann": Passes(
        backward=0.5,
        silent=0.5,
        forward=0.5,
        why="every second step trains the discriminator alone",
    ),
    "erdg": Passes(silent=1, why="and one forward for the frozen features"),
    "adrmx": Passes(
        forward=2 / 3,
        silent=4 / 3,
        backward=2 / 3,
        updates=2 / 3,
        why="two featurizers; two of three steps train the discriminator alone",
    ),
    "ddg": Passes(  # its first half, the longer one
        forward=0,
        silent=3,
        backward=0,
        translate=3,
        translate_silent=2,
        judge=2,
        slope=1,
        why=(
            "first half: the translator and its discriminator, featurizer silent; then eight "
            "halves of a minibatch"
        ),
    ),
    "disam": Passes(forward=2, backward=2, why="twice, at the raised weights too"),
    "fact": Passes(
        forward=2, silent=2, backward=2, why="every image twice, and as often through the teacher"
    ),
    "fish": Passes(updates=3, why="one update for each environment"),
    "iga": Passes(second=1, why="and one backward through the gradients"),
    "mixstyle": Passes(forward=2, backward=2, why="every image stands in two pairs"),
    "miro": Passes(silent=1, why="and one forward of the initial featurizer"),
    "mldg": Passes(
        forward=2 / 3, backward=2 / 3, updates=2, why="one episode of two environments, two updates"
    ),
    "sagm": Passes(forward=2, backward=2, why="twice, at the raised weights too"),
    "sam": Passes(forward=2, backward=2, why="twice, at the raised weights too"),
    "transfer": Passes(
        forward=2,
        silent=1,
        backward=2,
        updates=2,
        why="two updates of the featurizer, and features for the adversary",
    ),
    "sag_net": Passes(
        forward=2,
        silent=1,
        backward=2,
        updates=2,
        why="three updates, two of them of the featurizer",
    ),
}


class Clock(pl.Callback):
    """Seconds of each Lightning batch."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.times: list[float] = []

    def on_train_batch_start(self, *args: Any) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(self, *args: Any) -> None:
        self.times.append(time.perf_counter() - self.begun)


class Repeat:
    """One minibatch to warm up, then all of them for the clock."""

    def __init__(self, batches: list[EnvBatch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[EnvBatch]]:
        yield from (self.batches[:1], self.batches)


def random_batches() -> list[EnvBatch]:
    """Draw STEPS minibatches of random images and labels, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    n = SIZES.n_envs * BATCH
    return [
        EnvBatch(
            torch.rand(n, *SIZES.image, generator=generator),
            torch.randint(SIZES.n_classes, (n,), generator=generator),
            (BATCH,) * SIZES.n_envs,
            torch.arange(n),
        )
        for _ in range(STEPS)
    ]


def module(name: str) -> SingleRun:
    """Build the module that trains an algorithm: default hyperparameters past any annealing, new
    random networks.
    """
    config = config_of([f"algorithm={name}"])
    algorithm = get_class(config["algorithm"]["objective"])
    hparams = hyperparameters(config, TrainerSettings(**config["trainer"]), smallest=0)
    # what is late in a run
    zeros = {key: 0 for key in hparams if "anneal" in key or key in ("iters", "linear_steps")}
    hparams = {**hparams, **zeros, "batch_size": BATCH}
    networks, sizes = build_networks(
        lambda image: MNISTCNN(image),
        SIZES,
        lambda sizes: algorithm.networks_needed(sizes, hparams),
        algorithm.extra_channels,
        seed=0,
    )
    run = SingleRun(algorithm(sizes, hparams), networks)
    batch = random_batches()[0]
    images = [TrainingImages(batch.x, batch.y, batch.env, torch.arange(IMAGES))]
    run.training_images = lambda _: images
    return run


def step_seconds(name: str, batches: list[EnvBatch]) -> float:
    """Time a step of an algorithm as train.py takes it, in seconds: the mean of STEPS steps."""
    clock = Clock()
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[clock],
    )  # fmt: skip
    trainer.fit(module(name), train_dataloaders=Repeat(batches))
    return clock.times[-1] / STEPS


def seconds(call: Callable[[], Any]) -> float:
    """Time a call: the median seconds of REPEATS calls, after one that is not counted."""
    call()
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def parts(batch: EnvBatch) -> dict[str, float]:
    """Time each kind of pass of :class:`Passes` on one minibatch, in seconds."""
    erm = module("erm")
    networks, optimizer = erm.networks, torch.optim.Adam(erm.networks.parameters())
    weights = list(networks.parameters())

    def loss() -> torch.Tensor:
        return F.cross_entropy(networks.logits(batch.x), batch.y)

    def silent(network: nn.Module, *arguments: Any) -> None:
        with torch.no_grad():
            network(batch.x, *arguments)

    def second() -> None:
        gradients = torch.autograd.grad(loss(), weights, create_graph=True)
        torch.autograd.grad(sum(g.square().sum() for g in gradients), weights)  # type: ignore[arg-type]

    ddg = module("ddg").networks
    gray, features = batch.x.mean(1, keepdim=True), networks["featurizer"](batch.x).detach()
    translator, discriminator = ddg["translator"], ddg["image_discriminator"]

    def translated() -> torch.Tensor:
        translation: torch.Tensor = translator(translator(gray), features)
        return translation.mean()

    def judged(x: torch.Tensor) -> torch.Tensor:
        return sum(output.square().mean() for output in discriminator(x))  # type: ignore[return-value]

    def slope() -> None:
        x = batch.x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(judged(x), [x], create_graph=True)
        (judged(x) + gradient.square().sum()).backward()

    def translated_silently() -> None:
        with torch.no_grad():
            translated()

    context = module("arm").networks["context"]
    forward = seconds(loss)
    forward_backward = seconds(lambda: loss().backward())
    return {
        "forward": forward,
        "silent": seconds(lambda: silent(networks["featurizer"])),
        "backward": forward_backward - forward,
        "second": seconds(second) - forward_backward,
        "context": seconds(lambda: silent(context, batch.sizes)),
        "updates": seconds(optimizer.step),
        "translate": seconds(lambda: translated().backward()),
        "translate_silent": seconds(translated_silently),
        "judge": seconds(lambda: judged(batch.x).backward()),
        "slope": seconds(slope),
    }


def floor(passes: Passes, part: dict[str, float]) -> float:
    """Sum the seconds that the passes of an algorithm take at least."""
    return sum(getattr(passes, name) * value for name, value in part.items())


def main() -> None:
    """Time every algorithm of conf/algorithm, or those named, against ERM, interleaved, and print
    the table.
    """
    prepare_process()
    warnings.filterwarnings("ignore", message=".*no `val_dataloader`.*")
    table = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    names = sys.argv[1:] or [path.stem for path in sorted((CONF / "algorithm").glob("*.yaml"))]
    batches = random_batches()
    part = parts(batches[0])
    erm_floor = floor(Passes(), part)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; ms per pass over 3 x "
        f"{BATCH} images:"
    )
    print(", ".join(f"{name} {1e3 * value:.1f}" for name, value in part.items()) + "\n")
    print(f"{'algorithm':<15}{'x ERM':>7}{'floor':>7}{'over floor':>12}  passes")
    for name in names:
        pairs = [(step_seconds("erm", batches), step_seconds(name, batches)) for _ in range(3)]
        cost = statistics.median(algorithm / erm for erm, algorithm in pairs)
        passes = PASSES.get(name, Passes())
        bound = floor(passes, part) / erm_floor
        excess = cost / bound
        table[name] = {"cost": round(cost, 2), "floor": round(bound, 2), "passes": passes.why}
        mark = " !" if excess > ALLOWED else "  "
        numbers = f"{cost:>7.2f}{bound:>7.2f}{excess:>12.2f}"
        print(f"{name:<15}{numbers}{mark}{passes.why}", flush=True)
    COSTS.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
