"""Weights that timm publishes, by architecture and tag."""

from __future__ import annotations

from typing import Any

from dgbench.errors import ConfigError
from dgbench.networks.weights import PretrainedWeights

HUB = "https://huggingface.co/{repo}/resolve/main/{file}"
FILE = "model.safetensors"


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
        given = rest.get("path") is not None or rest.get("url") is not None
        entries = {} if given or arch is None else _published(arch, version)
        super().__init__(arch=arch, version=version, published={str(arch): entries} if entries else None, **rest)


def _published(arch: str, version: str | None) -> dict[str, dict[str, Any]]:
    """The entry of a tag, by its name."""
    import timm  # seconds
    from timm.models import get_pretrained_cfg

    known = [name.partition(".")[2] for name in timm.list_pretrained(f"{arch}.*")]
    if not known:
        raise ConfigError(f"init=timm has no weights for {arch}; see timm.list_pretrained(), or use init=random")
    if version is not None and version not in known:
        raise ConfigError(f"init.version={version} is no tag of {arch}; choose from {', '.join(known)}")
    about: Any = get_pretrained_cfg(arch if version is None else f"{arch}.{version}")
    tag, hub = str(about.tag), about.hf_hub_id
    url = HUB.format(repo=hub, file=about.hf_hub_filename or FILE) if hub else about.url
    if not url:
        raise ConfigError(f"init=timm knows no address of {arch}.{tag}; choose another of {', '.join(known)}")
    entry = {"url": url, "license": about.license, "mean": about.mean, "std": about.std}
    return {tag: {**entry, "input_size": about.input_size[1]}}
