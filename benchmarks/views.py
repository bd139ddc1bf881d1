"""Draws what FACT and JiGen make of images, for a person to look at: ``python benchmarks/views.py
--to VIEWS.png``.

One column is an image, a few of each training environment. FACT: the image, the partner whose
Fourier amplitudes are mixed in, and the mixture, whose phases are the image's own; a title says the
partner's weight. JiGen: the shuffled tiles, some of them gray; a title says the number of the
order. `--dataset pacs,root=DIR` takes other images, in the words of ``python -m
dgbench.cli.contact_sheet``; hyperparameters have their defaults, but all images are shuffled.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from dgbench.algorithms.fact import FACT
from dgbench.algorithms.ji_gen import JiGen
from dgbench.batches import EnvBatch
from dgbench.cli.api import composed
from dgbench.cli.contact_sheet import draw
from dgbench.configuration import CONF
from dgbench.containers import Networks
from dgbench.network_specs import Sizes
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.pixels import to_pixels
from dgbench.objectives.step import Hyperparameters, Step
from dgbench.plan.building import built, dataset_options
from dgbench.plan.hyperparameters import resolve
from dgbench.training.modules.predicting import InputDraws

Sheet = tuple[str, list[str], tuple[list[str], Tensor]]


def images(words: str, each: int, seed: int) -> tuple[EnvBatch, Sizes, list[str]]:
    """Draw a minibatch of ``each`` images of every environment; return it, its sizes and the
    environments' names.
    """
    name, *keys = words.split(",")
    overrides = [f"dataset={name}", *(f"dataset.{key}" for key in keys)]
    source = built(dataset_options(composed(overrides)["dataset"]))
    rng = np.random.default_rng(seed)
    names = list(source.info.given)
    chosen = [rng.choice(source.table.subset(env, "train"), each, replace=False) for env in names]
    x, y = source.store.gather(torch.from_numpy(np.concatenate(chosen)))
    norm = source.catalog.preprocessing
    sizes = Sizes(
        1,
        source.info.n_classes,
        len(names),
        tuple(x.shape[1:]),
        pixel_mean=tuple(norm.mean),
        pixel_std=tuple(norm.std),
    )
    return EnvBatch(x, y, (each,) * len(names)), sizes, names


def step_of(
    kind: type[Algorithm], name: str, batch: EnvBatch, sizes: Sizes, seed: int, **values: Any
) -> tuple[Any, Step]:
    """Build an algorithm with its defaults or these values, and the :class:`Step` that it gets on
    these images.
    """
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml"))
    hparams = resolve(
        {"hparams": {}, "search": {"domainbed": {}}},
        {**config, "search": {}},
        kind="large",
        read=[],
        chosen=values,
    )
    algorithm = kind(sizes, hparams)
    numbers = {
        key: torch.tensor(value) for key, value in hparams.items() if key not in algorithm.static
    }
    nets = Networks({"featurizer": nn.Linear(1, 1), "classifier": nn.Linear(1, 1)})
    noise = InputDraws(algorithm, seed).at(0, batch.sizes, batch.x)
    state = algorithm.initial_state(nets)
    return algorithm, Step(nets, batch, Hyperparameters(numbers), state, noise, torch.tensor(0))


def fact_sheet(batch: EnvBatch, sizes: Sizes, seed: int) -> Sheet:
    """Lay out images, partners and mixtures, with the partners' weights as titles."""
    algorithm, step = step_of(FACT, "fact", batch, sizes, seed)
    x, mixed, _ = algorithm.views(step)
    shown = [to_pixels(view, sizes) for view in (x, x[step.random["partner"]], mixed)]
    titles = [f"{float(weight):.2f}" for weight in step.hp.eta * step.random["lam"]]
    return (
        "FACT: amplitudes of another image",
        ["image", "partner", "mixed"],
        (titles, torch.stack(shown)),
    )


def jigsaw_sheet(batch: EnvBatch, sizes: Sizes, seed: int) -> Sheet:
    """Lay out shuffled images, with the numbers of their orders as titles."""
    algorithm, step = step_of(JiGen, "ji_gen", batch, sizes, seed, beta=0.0)
    x, order = algorithm.view(step)
    return (
        "JiGen: orders of the tiles",
        ["shuffled"],
        ([str(int(o)) for o in order], to_pixels(x, sizes)[None]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="pacs", help="NAME[,KEY=VALUE...] (default: pacs)")
    parser.add_argument("--to", type=Path, required=True, help="the picture to write")
    parser.add_argument(
        "--each", type=int, default=3, help="images of each environment (default: 3)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the images and of what is drawn (default: 0)"
    )
    options = parser.parse_args()
    batch, sizes, names = images(options.dataset, options.each, options.seed)
    draw(
        [fact_sheet(batch, sizes, options.seed), jigsaw_sheet(batch, sizes, options.seed)],
        options.to,
    )
    print(f"{options.to}: {options.each} images each of {', '.join(names)}")


if __name__ == "__main__":
    main()
