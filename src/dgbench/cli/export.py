"""``dgbench export``: a trained run as a folder to hand on; from Python, ``dgbench.export``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgbench.cli.entry import plain_command, sign_of_life
from dgbench.cli.help import option_lines
from dgbench.errors import ConfigError

OPTIONS: Mapping[str, str] = {
    "run": "folder of a finished run",
    "output": "folder to write, an earlier export is replaced (default: exports/STUDY-fold-FOLD)",
    "step": "weights of the last evaluation, or of the best one on training environments' validation images "
    "(default: last)",
    "format": "[onnx,pt2], what to write besides model.safetensors: ONNX, a program of torch.export (default: neither)",
    "push": "ORG/NAME of a repository of the Hugging Face hub to upload to; it is made, private, where there is none. "
    "HF_TOKEN and HF_ENDPOINT count",
}


def main() -> None:
    """The command line."""
    plain_command(_export, _help)


def _export(words: Sequence[str]) -> None:
    options = split(words)
    if "run" not in options:
        raise ConfigError("run= is missing; name the folder of a run, see dgbench export --help")
    listed = options.get("format", "").removeprefix("[").removesuffix("]")
    formats = [name.strip() for name in listed.split(",") if name.strip()]
    sign_of_life("loading the model ...")
    from dgbench.trained.export import export

    target = export(
        options["run"], options.get("output"), options.get("step", "last"), formats, options.get("push", "")
    )
    print(f"model: {target} ({', '.join(sorted(path.name for path in target.iterdir()))})")
    if "push" in options:
        print(f"pushed to {options['push']}")


def split(words: Sequence[str]) -> dict[str, str]:
    """The command's options by name.

    Raises:
        ConfigError: a word that is none.
    """
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in OPTIONS:
            raise ConfigError(f"{word} is no option of dgbench export; it takes {', '.join(f'{k}=' for k in OPTIONS)}")
        if not value:
            raise ConfigError(f"{key}= is empty; give a value, or leave it out")
        options[key] = value
    return options


def _help() -> str:
    return "\n".join(
        [
            "Write a trained run as a folder to hand on: weights (safetensors), what they are, a model card.",
            "\n  dgbench export run=RUN [KEY=VALUE ...]\n",
            "Examples:",
            "  dgbench export run=outputs/STUDY/RUN",
            "  dgbench export run=outputs/STUDY/RUN step=best format=[onnx,pt2] output=my_model push=ORG/NAME",
            "\nOptions:",
            *option_lines(OPTIONS),
            "\ndocs/how_to/models.md says more.",
        ]
    )
