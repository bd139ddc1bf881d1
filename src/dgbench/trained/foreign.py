"""Models that dgbench did not train: of timm, programs, and any callable images -> logits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError, DgbenchError, WeightsError, one_line, reason_of
from dgbench.networks.checkpoint_layouts import Question, groups_of
from dgbench.networks.pickles import unknown_classes
from dgbench.networks.weight_files import is_torchscript, read_tensors
from dgbench.networks.weights import TimmWeights
from dgbench.plan.building import imported
from dgbench.trained.domainbed import domainbed_model, is_domainbed
from dgbench.trained.predictor import Predictor
from dgbench.validation import some_of

EXPORTED = ".pt2"
PICKLE = ".pkl"  # DomainBed's
TORCHSCRIPT = (".pt", ".pth", ".ts", ".torchscript")


class Foreign(Predictor):
    """Any function from normalized images to logits.

    Args:
        function: (n, C, H, W) -> (n, K).
        classes: names of the K classes; empty if they are those of the dataset, in its order.
        preprocessing: of the images that it takes.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        classes: Sequence[str],
        preprocessing: Preprocessing,
    ) -> None:
        super().__init__(classes, preprocessing)
        self.function = function  # a module becomes a child, with its parameters
        if not (isinstance(function, nn.Module) and type(function).__name__ == "GraphModule"):
            self.eval()  # an exported program has the mode that it was exported in

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits.

        Raises:
            ConfigError: the function cannot take such images.
        """
        try:
            return self.function(x)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # somebody else's function may raise anything
            raise ConfigError(
                f"the model cannot take images of shape {tuple(x.shape)} ({one_line(error)}); "
                "name a function from images to logits, or another dataset"
            ) from error


def foreign(
    model: str | Callable[[Tensor], Tensor],
    classes: Sequence[str] = (),
    weights: str | Path | None = None,
    trust: bool = False,
) -> Callable[[Preprocessing], Predictor]:
    """Resolve what names a model to a function that loads it.

    It is called once the images of the dataset are known.

    Args:
        model: a ``torch.export`` file (.pt2), a TorchScript file, a ``model.pkl`` of DomainBed,
            ``MODULE:FUNCTION``, the name of a timm model, or a callable.
        classes: names of the outputs; empty if they are the dataset's.
        weights: file with the tensors of a timm model; None takes timm's published ones.
        trust: load files of ``torch.export`` and TorchScript, which are programs.

    Returns:
        A function of the preprocessing of the dataset, for a model that names no images of its own.
        It raises ConfigError for an unknown function or a program that is not trusted, WeightsError
        for a file that cannot be read, or holds something else.

    Raises:
        ConfigError: it is neither callable, a file, MODULE:FUNCTION, nor a model of timm.
    """
    if not isinstance(model, str):
        if not callable(model):
            raise ConfigError(
                f"model={model!r} cannot be called; give a function from images to logits"
            )
        return partial(Foreign, model, classes)
    path = Path(model).expanduser()
    if path.suffix in (EXPORTED, PICKLE, *TORCHSCRIPT) and path.exists():
        return partial(_load_file, path, classes, trust)
    if ":" in model:
        return lambda preprocessing: Foreign(_imported(model), classes, preprocessing)
    import timm

    if not path.is_file() and ("/" in model or not timm.is_model(model.partition(".")[0])):
        raise ConfigError(
            f"model={model} is neither a file or folder nor a model of timm; name a run's folder, "
            "a .pt2 or TorchScript file, a model.pkl of DomainBed, MODULE:FUNCTION, or a name of "
            "timm.list_models()"
        )
    return partial(_timm, model, classes, weights)


def _load_file(
    path: Path, classes: Sequence[str], trust: bool, preprocessing: Preprocessing
) -> Predictor:
    if path.suffix != EXPORTED and not is_torchscript(path):
        return _of_tensors(path, classes, trust)
    program = _program(path, trust)
    return Foreign(program, classes, preprocessing)


def _of_tensors(path: Path, classes: Sequence[str], trust: bool) -> Predictor:
    """Rebuild DomainBed's model, whose file says what its network is.

    Raises:
        WeightsError: the file holds another model's tensors, or none.
    """
    content = read_tensors(path)
    if is_domainbed(content) or path.suffix == PICKLE:
        return domainbed_model(path, content, trust, classes)
    if not dict(groups_of(content)):
        unknown = some_of(unknown_classes(content)) or "plain values"
        raise WeightsError(
            f"model={path} holds no named tensors but {unknown}, which is never run; name another "
            "file"
        )
    raise WeightsError(
        f"model={path} holds tensors and no network; name the network too, e.g. model=resnet18 "
        f"weights={path}"
    )


def _program(path: Path, trust: bool) -> Callable[[Tensor], Tensor]:
    if not trust:
        raise ConfigError(
            f"model={path} is a program, which would run; if you trust whoever made it, add "
            "trust=true"
        )
    try:
        if path.suffix == EXPORTED:
            return torch.export.load(path).module()  # type: ignore[no-any-return]
        with warnings.catch_warnings():  # TorchScript is deprecated, its files are there
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-any-return,no-untyped-call]
    except Exception as error:  # both readers raise whatever they stumble over
        raise WeightsError(
            f"model={path} cannot be loaded ({one_line(error)}); export it again with "
            "torch.export.save"
        ) from error


def _imported(name: str) -> Callable[[Tensor], Tensor]:
    function: Any = imported(name, "model")
    if not callable(function):
        raise ConfigError(f"model={name} is no function from images to logits; name one")
    return function  # type: ignore[no-any-return]


def _timm(
    name: str, classes: Sequence[str], weights: str | Path | None, preprocessing: Preprocessing
) -> Predictor:
    import timm

    if preprocessing.vectors:
        raise ConfigError(
            f"model={name} of timm sees images, the dataset holds vectors; choose another dataset"
        )
    try:
        if weights is None:
            arch, _, tag = name.partition(".")
            file = TimmWeights(arch=arch, version=tag or None, name=name).file
            network: Any = timm.create_model(
                name, pretrained=True, pretrained_cfg_overlay={"file": str(file)}
            )
        else:
            network = _filled(name, read_tensors(Path(weights).expanduser()), weights)
    except Exception as error:  # timm raises anything
        if weights is not None and isinstance(error, WeightsError):
            raise
        if isinstance(error, DgbenchError):
            reason = str(error).partition(";")[0]
        else:
            reason = reason_of(error)[:120]
        raise WeightsError(
            f"model={name} cannot be had ({reason}); give its tensors with weights=FILE, a .pth "
            "or .safetensors file"
        ) from error
    pretrained = network.pretrained_cfg
    channels, *sides = pretrained.get("input_size", preprocessing.image)
    if not pretrained.get("fixed_input_size", False):
        sides = preprocessing.image[1:]
    inputs = Preprocessing((channels, *sides), tuple(pretrained["mean"]), tuple(pretrained["std"]))
    names = list(classes) or list(pretrained.get("label_names") or [])
    return Foreign(network, names, inputs)


def _filled(name: str, content: Any, weights: str | Path) -> nn.Module:
    """Build the network with as many outputs as the file's last layer, and load the file."""
    import timm

    with torch.device("meta"):
        bare: Any = timm.create_model(name, pretrained=False)
    last = f"{bare.pretrained_cfg['classifier']}.bias"
    bias = _first_named(content, last)
    if bias is None:
        raise WeightsError(
            f"weights={weights} has no {last}, so it is no {name} with a classifier; give another"
        )
    network: nn.Module = timm.create_model(name, pretrained=False, num_classes=len(bias))
    question = Question(
        file=Path(weights),
        network=network.state_dict(),
        arch=name,
        adapt=dict,
        may_lack=("*.num_batches_tracked",),
        option="",
    )
    tensors, _ = question.answer(content)
    network.load_state_dict(tensors, strict=False)
    return network


def _first_named(content: Any, name: str) -> Tensor | None:
    """Find the first tensor in a file that is called ``name``, behind any prefix."""
    for tensors in dict(groups_of(content)).values():
        for key, value in tensors.items():
            if key == name or key.endswith(f".{name}"):
                return value
    return None
