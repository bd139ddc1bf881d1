"""What training takes, counted without computing.

A run's own steps are taken on PyTorch's meta device, on shapes alone.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from dgbench.batches import EnvBatch
from dgbench.errors import ConfigError
from dgbench.networks.featurizer import FirstStages
from dgbench.plan.cost import Cost
from dgbench.plan.studies import PlannedStudy
from dgbench.training.blueprint import Blueprint
from dgbench.training.modules import SteppedRun


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations of what runs inside, and the bytes that live at a time.

    Operations are those of matrix products, convolutions and attention, a multiplication and an
    addition being two. torch's own counter hooks modules too, which not every algorithm's second
    backward pass allows; its formulas are used here.

    Attributes:
        flops: operations so far.
        peak: most bytes so far, of tensors that were made inside or noted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.peak = 0
        corrected = {torch.ops.aten.convolution_backward: _convolution_backward}
        self._formulas = FlopCounterMode(display=False, custom_mapping=corrected).flop_registry
        self._living: dict[int, int] = {}  # bytes of a storage by its address
        self._bytes = 0

    def note(self, tensor: Tensor) -> None:
        """Count a tensor until nothing refers to its storage any more; views share one."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._living:
            self._living[address] = storage.nbytes()
            self._bytes += storage.nbytes()
            self.peak = max(self.peak, self._bytes)
            weakref.finalize(storage, self._forget, address)

    def _forget(self, address: int) -> None:
        self._bytes -= self._living.pop(address)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = self._formulas.get(func._overloadpacket)
        if formula:
            self.flops += formula(*args, **kwargs, out_val=out)
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.note(leaf)
        return out


def _convolution_backward(
    grad_out: torch.Size,
    x: torch.Size,
    weight: torch.Size,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
    out_shape: Any,
) -> int:
    """Count the operations of the requested gradients of a convolution, from shapes.

    Each gradient takes as many as the forward pass. torch's own formula takes the weights of a
    grouped convolution for those of a full one.
    """
    positions = math.prod(x if transposed else grad_out)
    n_gradients = sum(output_mask[:2])
    return 2 * positions * math.prod(weight[1:]) * n_gradients


def count(planned: PlannedStudy) -> Cost:
    """Count the :class:`Cost` of the first fold of a study.

    Images, and what an algorithm keeps for each of them, are left out of ``memory`` and ``disk``: a
    study costs the same wherever its images are.

    Raises:
        ConfigError: the size of the images is not known yet.
        Exception: whatever an algorithm raises whose step cannot be traced without numbers.
    """
    if 0 in planned.info.image:
        raise ConfigError(
            "the size of its images comes with initial weights that are not here; set "
            "dataset.image_size"
        )
    blueprint = Blueprint(replace(planned, info=replace(planned.info, counts={})))
    module, feature_flops = _on_meta(blueprint)
    steps = blueprint.settings.steps
    surveyed = {step for step in range(steps) if module.algorithm.survey_due(step)}
    groups = _equal_steps(module, steps)
    batch = _batch(module, blueprint.hparams["batch_size"])
    flops = 0.0
    with Meter() as meter:
        for tensor in module.state_dict(keep_vars=True).values():
            if isinstance(tensor, Tensor):
                meter.note(tensor)
        optimizers = dict(zip(module.trained_groups(), module.configure_optimizers(), strict=True))
        module.train()
        for members in groups:
            step = next((step for step in members if step not in surveyed), members[0])
            before = meter.flops
            counter = torch.empty((), dtype=torch.long, device="meta")
            module._step(step, counter, batch, optimizers)
            flops += len(members) * (meter.flops - before) / steps
    weight_bytes = _bytes(module.state_dict().values())
    moment_bytes = 0
    for optimizer in optimizers.values():
        moment_bytes += _bytes(tree_leaves(list(optimizer.state.values())))
    return Cost(
        step=flops,
        n_envs=len(batch.sizes),
        image=_prediction(module, batch),
        kept=feature_flops,
        surveys=len(surveyed),
        memory=meter.peak,
        disk=2 * weight_bytes + moment_bytes,  # the last weights and the best
    )


def _equal_steps(module: SteppedRun, steps: int) -> list[list[int]]:
    """Group the steps of a training that run the same updates of the same networks."""
    groups = defaultdict(list)
    for step in range(steps):
        updates = module.algorithm.updates(step)
        key = tuple((update.objective, update.groups) for update in updates)
        groups[key, step < module.rule.head_steps].append(step)
    return list(groups.values())


def _bytes(values: Iterable[Any]) -> int:
    """Sum the bytes of the tensors among some values."""
    return sum(value.nbytes for value in values if isinstance(value, Tensor))


def _on_meta(blueprint: Blueprint) -> tuple[SteppedRun, float]:
    """Build the module of the first fold without memory.

    Returns:
        The module, and the operations of one image's cached features.
    """
    feature_flops = 0.0
    with torch.device("meta"):
        networks, sizes = blueprint.networks(blueprint.folds[0])
        image = sizes.image
        if blueprint.tuning.cache_features:
            featurizer: Any = networks["featurizer"]
            frozen = FirstStages(featurizer, blueprint.tuning.count(len(featurizer.stages())))
            with torch.no_grad(), Meter() as meter:
                image = tuple(frozen(torch.empty(1, *image)).shape[1:])
            feature_flops = meter.flops
        return blueprint.trained(SteppedRun, networks, sizes, image).to("meta"), feature_flops


def _batch(module: SteppedRun, size: int) -> EnvBatch:
    """Make minibatches of ``size`` images without memory."""
    shapes = module.algorithm.sizes
    sizes = (size,) * shapes.n_envs
    x = torch.empty(sum(sizes), *shapes.image, dtype=module.networks.dtype, device="meta")
    y = torch.empty(sum(sizes), dtype=torch.long, device="meta")
    drawn = None
    if shapes.n_drawn_from:
        drawn = torch.empty(len(sizes), dtype=torch.long, device="meta")
    return EnvBatch(x, y, sizes, y, drawn)


def _prediction(module: SteppedRun, batch: EnvBatch) -> float:
    """Count the operations of predicting one image."""
    n = len(batch.y)
    drawn = module.eval().draws.for_prediction(n, batch.x.new_empty(()), "cost")
    random = {name: values[None] for name, values in drawn.items()}
    with torch.no_grad(), Meter() as meter:
        module.predicted(module.algorithm.predict, batch.x, random, {})
    return float(meter.flops / n)
