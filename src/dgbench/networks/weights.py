"""Initial weights: random, or from a file that is known by its sha256 and fits the network tensor by tensor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import ConfigError, WeightsError
from dgbench.networks.weight_files import (
    FORMATS,
    encoder_tensors,
    fetch_command,
    fetched,
    here,
    misfit,
    read_tensors,
    some_of,
)

if TYPE_CHECKING:  # what a file is called and holds is asked when a study is planned, before torch is loaded
    from torch import Tensor, nn

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INPUT_SIZE = 224
HUB = "https://huggingface.co/{repo}/resolve/main/{file}"
FILE = "model.safetensors"


@dataclass(frozen=True)
class ImageRecord:
    """What images the weights were trained on.

    Args:
        mean, std: subtracted from and divided by, per channel, of values in [0, 1].
        input_size: side in pixels.
    """

    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    input_size: int = INPUT_SIZE


class RandomWeights:
    """The networks' own random initialization."""

    images = ImageRecord()
    text_model: str | None = None

    def __init__(self, *, arch: str | None = None, name: str = "random") -> None:
        self.name = self.identity = name  #: for the rows

    def to_fetch(self) -> str | None:
        """Nothing has to be fetched."""
        return None

    def check(self, make: Callable[[], nn.Module]) -> None:
        """Nothing can be wrong."""

    def load(self, featurizer: nn.Module) -> None:
        """Leave the weights as they were drawn."""


class PretrainedWeights:
    """Weights of a published network, or of any file in one of the layouts of :mod:`dgbench.networks.weight_files`.

    Args:
        arch: timm's name of the network's architecture; None for one that has no published weights.
        name: for the rows.
        published: architecture -> version -> ``url``, ``license`` where it is known (for model cards), ``sha256``, or
            its beginning, where one is stated, ``text``, OpenCLIP's name of the model, where the file holds a text
            encoder too, and, where they differ from ImageNet's, ``mean``, ``std`` and ``input_size``; the first version
            is the default.
        version: one of those.
        path, url: a file to take instead of the published one.
        sha256: what the file's must begin with, at least 8 hexadecimal digits; None takes any.
        allow_missing: patterns of tensors that the file may lack; they keep their random values.
        allow_unexpected: patterns of tensors that the file may have and the network has not.
        mean, std: instead of the weights' own record.
        cache_dir: where downloads are kept.
        timeout: seconds to wait for the network.

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
        """For the rows: name, version and the beginning of the file's sha256."""
        name = self.name if self.version is None else f"{self.name}_{self.version}"
        return f"{name}:{self.sha256[:12]}"

    def to_fetch(self) -> str | None:
        """The command that fetches the file; None where it lies here. Asks no network."""
        folder = self._cache_dir / "weights"
        absent = self._path is None and here(str(self._url), folder) is None
        return fetch_command(str(self._url), folder) if absent else None

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
        """Of the file, 64 hexadecimal digits.

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

    def check(self, make: Callable[[], nn.Module]) -> None:
        """Whether the weights fit the network that ``make`` makes; here its tensors get shapes and no memory.

        Raises:
            ConfigError: the network is of a kind that has no published weights.
            WeightsError: tensors are missing, unexpected, or of another shape.
        """
        import torch

        with torch.device("meta"):
            self._fitting(make())

    def load(self, featurizer: nn.Module) -> None:
        """Copy the weights into the network, and see that they arrived.

        Raises:
            ConfigError, WeightsError: as :meth:`check`.
        """
        import torch

        from dgbench.networks.timm_networks import TimmFeaturizer

        fitting = self._fitting(featurizer)
        assert isinstance(featurizer, TimmFeaturizer)
        featurizer.body.load_state_dict(fitting, strict=False)
        loaded = featurizer.body.state_dict()
        wrong = [name for name, value in fitting.items() if not torch.equal(loaded[name], value.to(loaded[name]))]
        if wrong:
            raise WeightsError(f"{self.file} did not arrive in {some_of(wrong)} of {self.arch}; report this as a bug")

    def _fitting(self, featurizer: nn.Module) -> dict[str, Tensor]:
        """The tensors that go into the network, cut to its channels and image size."""
        from dgbench.networks.timm_networks import TimmFeaturizer

        if not isinstance(featurizer, TimmFeaturizer):
            raise ConfigError(f"init={self.name} fits no {type(featurizer).__name__}; use init=random")
        expected = featurizer.body.state_dict()
        published = self.tensors
        try:
            adapted = featurizer.adapted(published)
        except Exception as error:  # a converter of timm's stumbles over tensors of another network
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
            raise WeightsError(
                f"{self.file} does not fit {self.arch} ({reason}); choose the backbone it was made for"
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
    """The entry of a tag, by its name."""
    import timm  # seconds
    from timm.models import get_pretrained_cfg

    tags = [name.partition(".")[2] for name in timm.list_pretrained(f"{arch}.*")]
    if not tags:
        raise ConfigError(f"init=timm has no weights for {arch}; see timm.list_pretrained(), or use init=random")
    if version is not None and version not in tags:
        raise ConfigError(f"init.version={version} is no tag of {arch}; choose from {', '.join(tags)}")
    about: Any = get_pretrained_cfg(arch if version is None else f"{arch}.{version}")
    tag, hub = str(about.tag), about.hf_hub_id
    url = HUB.format(repo=hub, file=about.hf_hub_filename or FILE) if hub else about.url
    if not url:
        raise ConfigError(f"init=timm knows no address of {arch}.{tag}; choose another of {', '.join(tags)}")
    entry = {"url": url, "license": about.license, "mean": about.mean, "std": about.std}
    return {tag: {**entry, "input_size": about.input_size[1]}}
