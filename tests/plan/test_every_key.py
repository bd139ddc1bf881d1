"""Every key of the configuration with values that cannot be meant: typed, through ``grid`` and in a
search.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dgbench.configuration import CONF
from dgbench.errors import DgbenchError
from dgbench.plan.compose import Composer
from dgbench.plan.keys import keys_of_file, package_of
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import Planner

GROUPS = (
    "algorithm", "averaging", "backbone", "corruptions", "dataset", "execution", "head", "hparams",
    "init", "logger", "paths", "protocol", "selection", "sharpness", "trainer", "tuning",
)  # fmt: skip
SEARCH = ["hparams=search", "hparams.scheme.draws=2", "hparams.scheme.trials=1"]
WRONG = ("''", "null", "-1.5", "[[1]]", "wrong value")
#: beginnings of keys that are not tried -> why
NOT_TRIED = {
    "algorithm.hparams": "set by hparams.NAME",
    "algorithm.search": "written in files",
    "hparams.shared": "written in files",
    "init.published": "written in files",
    "dataset.fetch": "written in files, read by dgbench.data.fetch",
    "dataset.published": "written in files, compared for a warning",
    "dataset.augmentations": "written in files",
    "dataset.given_sets": "written in files",
}
#: keys, or beginnings of them, whose values are refused once the class that reads them is built,
#: before any training
BUILT = (
    "dataset.", "algorithm._target_", "averaging._target_", "averaging.rule._target_",
    "backbone._target_", "backbone.depth", "backbone.normalize", "backbone.width",
    "backbone.min_size", "backbone.dropout", "head._target_", "sharpness._target_",
    "tuning._target_", "selection.",
)  # fmt: skip


#: what is chosen before a choice of the group
BEGINNINGS = {
    "corruptions": ["dataset=pacs"],
    "dataset": ["dataset=pacs"],
    "protocol": ["dataset=domain_net"],
    "init": ["dataset=pacs", "backbone=resnet18", "init=supervised"],
}


def keys_of(group: str) -> dict[str, str]:
    """Each leaf that files of a group have -> the first choice that has it."""
    keys: dict[str, str] = {}
    for file in sorted((CONF / group).glob("*.yaml")):
        names = {f"{package_of(file)}.{key}" for key in keys_of_file(file)}
        for key in sorted(names):
            if not any(other.startswith(f"{key}.") for other in names) and not key.startswith(
                tuple(NOT_TRIED)
            ):
                keys.setdefault(key, f"{group}={file.stem}")
    return keys


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composer = Composer(
            GlobalHydra.instance().config_loader(), lambda words: compose("train", words)
        )
        yield Planner(composer, Path("nowhere"), fetch_weights=False)


def refusal(planner: Planner, *words: str) -> str:
    """The line that refuses a command; empty where it is planned."""
    try:
        for _ in planner.studies(open_keys(words)):
            pass
    except (DgbenchError, HydraException, OmegaConfBaseException) as error:
        return str(error).splitlines()[0]
    return ""


def is_refused(planner: Planner, choice: list[str], key: str) -> bool:
    """Try the values; what is refused when typed must be refused everywhere."""
    lines = {value: refusal(planner, *choice, f"{key}={value}") for value in WRONG}
    refused = [value for value, line in lines.items() if line]
    for value in refused[-1:]:  # each value costs a composition for hundreds of keys
        assert refusal(planner, *choice, f"grid.{key}=[{value}]"), (key, value, lines[value])
    if refused and not key.startswith("hparams."):
        assert refusal(planner, *choice, *SEARCH, f"{key}={refused[0]}"), (
            key,
            refused[0],
            lines[refused[0]],
        )
    return bool(refused)


@pytest.mark.thorough
@pytest.mark.parametrize("group", GROUPS)
def test_what_is_refused_when_typed_is_refused_everywhere(group: str, planner: Planner) -> None:
    taken = []
    for key, choice in keys_of(group).items():
        words = BEGINNINGS.get(group, ["dataset.base=digits"]) + (
            [] if group == "init" else [choice]
        )
        # one environment is for tests alone
        words += ["protocol=fixed"] if choice == "dataset=cmnist_irm" else []
        if line := refusal(planner, *words):
            assert "is not set" in line  # a folder or a file of the user's
            continue
        if not is_refused(planner, words, key) and not key.startswith(BUILT):
            taken.append(key)
    assert not taken


@pytest.mark.parametrize(
    "key", sorted(yaml.safe_load((CONF / "train.yaml").read_text()).keys() - {"defaults", "hydra"})
)
def test_keys_of_the_command(key: str, planner: Planner) -> None:
    assert is_refused(planner, ["dataset.base=digits"], key)
