"""What algorithms and datasets are called here, in papers, and in the code of DomainBed, OoD-Bench
and NICO++.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from dgbench.configuration import command_line, command_words
from dgbench.errors import ConfigError
from dgbench.plan.overrides import options

CODES = ("domainbed", "ood_bench", "nico")


@cache
def algorithm_names() -> Mapping[str, Mapping[str, str]]:
    """Map our name of each algorithm to its ``title`` and its name in each of :data:`CODES` that
    has it.
    """
    text = Path(__file__).with_name("algorithm_names.yaml").read_text(encoding="utf-8")
    names: dict[str, dict[str, str]] = yaml.safe_load(text)
    return names


def name_in_papers(label: str) -> str:
    """Write a label as papers do: ``GroupDRO+SWAD (draw=1)`` for ``group_dro+swad (draw=1)``.

    Unknown names stay.
    """
    name, *rest = re.split(r"(?=[+ ])", label, maxsplit=1)
    averaging, *suffix = re.split(r"(?= )", "".join(rest), maxsplit=1)
    return algorithm_names().get(name, {}).get("title", name) + averaging.upper() + "".join(suffix)


def our_name(name: str) -> str:
    """Map any of an algorithm's names to ours; an unknown name stays as it is.

    Case and what stands between letters and digits do not matter. What follows a ``+`` is an
    averaging and stays: ``JiGen+SWAD`` is ``ji_gen+SWAD``.
    """
    names = ours_by_name()
    exact = names.get(letters_of(name))
    if exact:
        return exact
    first, plus, rest = name.partition("+")
    return names.get(letters_of(first), first) + plus + rest


@cache
def ours_by_name() -> Mapping[str, str]:
    """Map the letters of every name of an algorithm to ours."""
    by_name = {}
    for ours, names in algorithm_names().items():
        for alias in (ours, *names.values()):
            by_name[letters_of(alias)] = ours
    return by_name


def letters_of(name: str) -> str:
    """Return the lowercase letters and digits of a name, with ``++`` written as ``pp``."""
    return "".join(letter for letter in name.lower().replace("++", "pp") if letter.isalnum())


#: options of DomainBed's scripts -> the key that sets the same here
_OPTIONS = {
    "algorithm": "algorithm",
    "dataset": "dataset",
    "seed": "seed",
    "steps": "trainer.steps",
    "checkpoint_freq": "trainer.eval_every",
    "hparams_seed": "hparams.draw",
    "trial_seed": "hparams.trial",
    "data_dir": "paths.data_dir",
    "output_dir": "paths.output_dir",
}
_BETWEEN = "\0"  # words of a command, of which none holds it
_OPTION = re.compile(rf"(?<![^\0])--({'|'.join(_OPTIONS)})(?:[\0=]|$)")
_AGENT_HINT = "in the file of a W&B sweep, command: ends with ${args_no_hyphens} instead of ${args}"
_DASHED_KEY = re.compile(r"--([\w.@/]+)(=.*)")
# options of Hydra whose names are single words
_HYDRAS = (
    "cfg",
    "info",
    "package",
    "run",
    "multirun",
    "resolve",
)
_NAMED = ("algorithm", "dataset", "grid.algorithm", "grid.dataset")
_SEARCHES = ("--config-dir", "-cd", "hydra.searchpath")
# whole also in choice(A,B) and glob(A*), of Hydra's grammar
_NAME = re.compile(r"""[^,\[\](){}*?!'"\s=]+""")


def in_our_names(words: Sequence[str]) -> list[str]:
    """Translate ``algorithm=VREx,GroupDRO`` to ``algorithm=vrex,group_dro``.

    Other words, and unknown names, stay.

    All words stay where a user's own configuration files, which may have these names, are searched
    too.
    """
    if any(word.startswith(_SEARCHES) for word in words):
        return list(words)
    return [_in_our_names(word) for word in words]


def _in_our_names(word: str) -> str:
    key, equals, names = word.partition("=")
    if key not in _NAMED or not equals:
        return word
    group = key.removeprefix("grid.")
    ours = {letters_of(name): name for name in options(group)}
    ours |= ours_by_name() if group == "algorithm" else {"coloredmnist": "cmnist_domainbed"}
    return f"{key}={_NAME.sub(lambda name: ours.get(letters_of(name[0]), name[0]), names)}"


def _refuse_dashes(word: str) -> None:
    """Refuse a key with dashes that is no option of Hydra, as ``wandb agent`` writes them by
    default.

    Raises:
        ConfigError: it is one.
    """
    match = _DASHED_KEY.match(word)
    if match and match[1] not in _OPTIONS and match[1] not in _HYDRAS:
        raise ConfigError(
            f"{word}: keys are written without dashes, {match[1]}{match[2]}; {_AGENT_HINT}"
        )


def refuse_options(words: Sequence[str], command: str) -> None:
    """Refuse options of DomainBed's scripts, such as ``--algorithm``.

    Raises:
        ConfigError: there is one; says the command that is meant.
    """
    for word in words:
        _refuse_dashes(word)
    typed = _BETWEEN.join(words)
    meant = _OPTION.sub(lambda option: f"{_OPTIONS[option[1]]}=", typed)
    if meant == typed:
        return
    ours = in_our_names(meant.split(_BETWEEN))
    line = command_line([*command_words(command), *ours])
    hint = f"; {_AGENT_HINT}" if "WANDB_SWEEP_ID" in os.environ else ""
    raise ConfigError(f"keys are written without dashes; {line}{hint}")
