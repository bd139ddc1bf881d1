"""Files of weights: had once, read without running what is in them, and the encoder's tensors by name.

How published files are laid out, read from the projects' own loading code:

==========================  =============================================  ===================
published by                tensors stand under, the encoder's begin with  left out
==========================  =============================================  ===================
MoCo v1, v2                 state_dict, module.encoder_q.                  encoder_k., queue
MoCo v3, ResNet and ViT     state_dict, module.base_encoder.               momentum_encoder.,
                                                                           predictor.
SimCLR by VISSL             classy_state_dict / base_model / model /
                            trunk, _feature_blocks.
SimCLR by solo-learn        state_dict, backbone.                          projector.,
                                                                           classifier.
torchvision, timm,          nothing or state_dict, nothing
SimCLR out of TensorFlow
==========================  =============================================  ===================

The rest has the names of timm, which for ResNets are torchvision's, or names that timm converts
(:meth:`dgbench.networks.timm_networks.TimmFeaturizer.adapted`): CLIP of OpenAI and OpenCLIP, SigLIP, DINOv2, DINOv3,
torchvision's RegNets with SWAG weights, ConvNeXt of its authors. Classifiers are left out there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
import shlex
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.downloads import download
from dgbench.errors import DataError, WeightsError

if TYPE_CHECKING:  # files are asked for when a study is planned, before torch is loaded
    from torch import Tensor

log = logging.getLogger("dgbench")
FORMATS = ".pth, .pth.tar, .pt or .safetensors"
HUB = re.compile(r"^https://huggingface\.co/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)$")
CONTAINERS = ("state_dict", "classy_state_dict", "base_model", "model", "trunk")
WRAPPER = "module."  # DistributedDataParallel's


def fetched(url: str, folder: Path, timeout: float) -> Path:
    """The file at an address: as it lies in ``folder`` or in the Hugging Face cache, else downloaded.

    Args:
        url: http, https or file address. Those of the Hugging Face hub follow the variable HF_ENDPOINT.
        folder: where downloads are kept.
        timeout: seconds to wait for an answer, and for each piece.

    Raises:
        WeightsError: it cannot be had, or the download broke off; nothing is left behind.
    """
    local, target = here(url, folder), _target(url, folder)
    if local:
        return local
    log.info("downloading %s to %s", url, target)
    reasons: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=folder) as place:  # others may download it, too
            file = Path(place, target.name)
            download([url], file, None, say=reasons.append, probe_seconds=timeout, silence_seconds=timeout)
            os.replace(file, target)
    except (OSError, DataError) as error:
        reason = (reasons or [str(error)])[-1].removeprefix(f"{target.name}: ").removeprefix(f"{url}: ").split(";")[0]
        raise WeightsError(
            f"{url} cannot be downloaded ({reason}, after waiting for up to {timeout:g} s); give a local file with "
            "init.path=FILE, wait longer with init.timeout=SECONDS, or start from random weights with init=random"
        ) from error
    return target


def here(url: str, folder: Path) -> Path | None:
    """The file at an address, if it lies in ``folder`` or in the Hugging Face cache; asks no network."""
    target, hub = _target(url, folder), HUB.match(url)
    if target.exists():
        return target
    return _in_hub_cache(hub["repo"], hub["file"]) if hub else None


def fetch_command(url: str, folder: Path) -> str:
    """What to type for the file at an address to lie where :func:`here` looks."""
    return shlex.join(["curl", "-fL", "--create-dirs", "-o", str(_target(url, folder)), url])


def _target(url: str, folder: Path) -> Path:
    return folder / f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{url.rstrip('/').rsplit('/', 1)[-1]}"


def _in_hub_cache(repo: str, file: str) -> Path | None:
    """Where the Hugging Face cache of this machine has a file, if it has; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo, file)
    return Path(path) if isinstance(path, str) else None


def read_tensors(file: Path) -> Any:
    """What a file holds, without running anything that may be in it."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        import torch

        if is_torchscript(file):  # as OpenAI publishes CLIP; its tensors are read, its code is not run
            with warnings.catch_warnings(action="ignore", category=FutureWarning):  # there is no other reader
                return torch.jit.load(file, map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{file} is damaged or holds more than tensors and plain values, which is never run; download it again, or "
            "save its state_dict alone"
        ) from error
    except Exception as error:  # both readers raise whatever they stumble over
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise WeightsError(f"{file} cannot be read ({reason}); download it again, as {FORMATS}") from error


def is_torchscript(file: Path) -> bool:
    """Whether a file holds a program of TorchScript."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


@dataclass(frozen=True)
class Layout:
    """One way to name tensors.

    Args:
        encoder: what the names of the encoder's tensors start with.
        others: what the names of other parts of the pretraining start with.
    """

    encoder: str
    others: tuple[str, ...] = ()


LAYOUTS = (
    Layout("encoder_q.", ("encoder_k.", "queue")),
    Layout("base_encoder.", ("momentum_encoder.", "predictor.")),
    Layout("_feature_blocks."),
    Layout("backbone.", ("projector.", "predictor.", "classifier.", "momentum_", "queue")),
    Layout(""),
)


def encoder_tensors(content: Any) -> dict[str, Tensor]:
    """The encoder's tensors of a weights file, without the names of containers and of other parts.

    Args:
        content: what the file holds.

    Returns:
        Tensors by name; those of unknown parts keep their name. Empty where the file holds no named tensors.
    """
    tensors = _tensors(content)
    if tensors and all(name.startswith(WRAPPER) for name in tensors):
        tensors = {name.removeprefix(WRAPPER): value for name, value in tensors.items()}
    layout = next(
        candidate
        for candidate in LAYOUTS
        if candidate.encoder == "" or any(n.startswith(candidate.encoder) for n in tensors)
    )
    return {n.removeprefix(layout.encoder): v for n, v in tensors.items() if not n.startswith(layout.others or "\0")}


def _tensors(content: Any) -> dict[str, Tensor]:
    from torch import Tensor

    while isinstance(content, Mapping):
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[name] for name in CONTAINERS if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            return tensors
        content = inner
    return {}


def misfit(
    network: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    may_lack: Sequence[str] = (),
    may_add: Sequence[str] = (),
) -> str:
    """What keeps tensors from fitting a network, in words; empty where they fit.

    Args:
        network: its own tensors by name.
        tensors: those that it is to get.
        may_lack: patterns of names that ``tensors`` may lack.
        may_add: patterns of names that the network may lack.
    """
    missing = _unmatched(network.keys() - tensors.keys(), may_lack)
    extra = _unmatched(tensors.keys() - network.keys(), may_add)
    shapes = [name for name in network if name in tensors and network[name].shape != tensors[name].shape]
    problems = [f"lacks {some_of(missing)}"] if missing else []
    problems += [f"has {some_of(extra)} too much"] if extra else []
    if shapes:
        first, more = shapes[0], f" (and {len(shapes) - 1} more shapes)" if len(shapes) > 1 else ""
        problems.append(f"{first} is {tuple(tensors[first].shape)} instead of {tuple(network[first].shape)}{more}")
    return "; ".join(problems)


def _unmatched(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns))


def some_of(names: Sequence[str], shown: int = 3) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
