"""Convert the authors' SimCLR-v2 weights of ResNet-50 from TensorFlow to a file for ``init=file``.

    gsutil cp -r gs://simclr-checkpoints/simclrv2/pretrained/r50_1x_sk0 .
    pip install tensorflow-cpu
    python tools/simclr_v2.py r50_1x_sk0/model.ckpt-250228 simclr_v2.safetensors
    python train.py backbone=resnet50 init=file init.path=simclr_v2.safetensors init.name=simclr_v2
    \
        'init.mean=[0,0,0]' 'init.std=[1,1,1]' ...

The checkpoint numbers convolutions, and the BatchNorm behind each, in the order in which the
network is built; a block with a projection builds that first. Only ``r50_1x_sk0`` has the layers of
ResNet-50: the others are wider, or have selective kernels. TensorFlow pads the images of the first
pooling at the end alone and PyTorch at both sides, so features differ a little from those of the
authors. Heads are left out.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgbench.errors import WeightsError

BLOCKS = (3, 4, 6, 3)  # of ResNet-50, by stage
STATISTICS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
VARIABLE = re.compile(
    r"base_model/(conv2d|batch_normalization)(?:_(\d+))?/(kernel|gamma|beta|moving_mean|moving_variance)"
)


def main() -> int:
    """Read the checkpoint, write the file; says in one line what stands in the way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", help="model.ckpt-250228, without .index or .data")
    parser.add_argument("file", type=Path, help="written, .safetensors")
    options = parser.parse_args()
    try:
        from tensorflow.train import load_checkpoint
    except ImportError:
        print("TensorFlow reads the checkpoint: pip install tensorflow-cpu", file=sys.stderr)
        return 1
    from safetensors.torch import save_file

    try:
        reader = load_checkpoint(options.checkpoint)
        names = [name for name in reader.get_variable_to_shape_map() if VARIABLE.fullmatch(name)]
        tensors = converted({name: reader.get_tensor(name) for name in names})
    except (WeightsError, ValueError) as error:
        print(f"{options.checkpoint}: {error}", file=sys.stderr)
        return 1
    save_file(tensors, options.file)
    print(
        f"{len(tensors)} tensors in {options.file}; train with init=file init.path={options.file}"
    )
    return 0


def converted(variables: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Rename and transpose: variables of TensorFlow -> tensors with the names of torchvision and
    timm.

    Args:
        variables: at least those of the encoder, ``base_model/...``; kernels are (height, width,
            in, out).

    Raises:
        WeightsError: they are not those of a ResNet-50.
    """
    layers = list(convolutions())
    tensors: dict[str, Tensor] = {}
    for name, value in variables.items():
        if not (match := VARIABLE.fullmatch(name)):
            continue
        kind, number, what = match[1], int(match[2] or 0), match[3]
        if number >= len(layers):
            raise WeightsError(
                f"{name} is the layer after the last of ResNet-50; only r50_1x_sk0 has its layers"
            )
        convolution, norm = layers[number]
        place = f"{convolution}.weight" if kind == "conv2d" else f"{norm}.{STATISTICS[what]}"
        tensor = torch.from_numpy(np.array(value))
        tensors[place] = tensor.permute(3, 2, 0, 1).contiguous() if kind == "conv2d" else tensor
    if lacking := 5 * len(layers) - len(tensors):
        raise WeightsError(
            f"{lacking} of the {5 * len(layers)} variables of ResNet-50 are not there"
        )
    return tensors


def convolutions() -> Iterator[tuple[str, str]]:
    """List the names of each convolution and the BatchNorm behind it, in the order in which SimCLR
    builds them.
    """
    yield "conv1", "bn1"
    for stage, blocks in enumerate(BLOCKS, 1):
        for block in range(blocks):
            here = f"layer{stage}.{block}"
            if block == 0:
                yield f"{here}.downsample.0", f"{here}.downsample.1"
            yield from ((f"{here}.conv{i}", f"{here}.bn{i}") for i in (1, 2, 3))


if __name__ == "__main__":
    sys.exit(main())
