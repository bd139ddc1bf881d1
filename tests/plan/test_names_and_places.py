"""Names of folders and places hold no separator, no line break and no other control character."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.settings import check_configuration
from dgbench.reports.slices.status import StatusReport
from dgbench.sweeps.slurm_keys import SlurmKeys
from dgbench.sweeps.sweeper import SweepFolder
from dgbench.validation import in_one_line
from tests.studies import composed, plain

#: groups whose name is part of a folder's name or of a row
NAMED = ("algorithm", "averaging", "backbone", "head", "init", "sharpness", "tuning")
LEADING_OUT = ("../../x", "a/b", "..", ".hidden", "a\\b", "/abs", "")
CONTROL = ("a\nb", "a\rb", "a\x1b[31mb", "a\x00b", "a\x85b", "a\u2028b")


def refused(call: Any, *words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and text.isprintable()
    assert all(word in text for word in words), text


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return plain(composed("dataset.base=digits"))


@pytest.mark.parametrize("name", [*LEADING_OUT, *CONTROL])
@pytest.mark.parametrize("group", NAMED)
def test_a_name_that_leads_out_of_its_folder(group: str, name: str, config: dict[str, Any]) -> None:
    changed = {**config, group: {**config[group], "name": name}}
    refused(lambda: check_configuration(changed), f"{group}.name")


@pytest.mark.parametrize("place", CONTROL)
@pytest.mark.parametrize("key", ["data_dir", "cache_dir", "output_dir"])
def test_a_place_of_several_lines(key: str, place: str, config: dict[str, Any]) -> None:
    changed = {**config, "paths": {**config["paths"], key: place}}
    refused(lambda: check_configuration(changed), f"paths.{key}", "control character")


@pytest.mark.parametrize("name", [*LEADING_OUT, *CONTROL])
def test_a_report_stays_in_its_folder(name: str) -> None:
    refused(lambda: StatusReport(roots="outputs", name=name), "report.name")


@pytest.mark.parametrize("place", CONTROL)
def test_a_sweeps_folder_is_one_line(place: str) -> None:
    refused(lambda: SweepFolder(dir=place), "hydra.sweep.dir", "control character")


@pytest.fixture
def launcher() -> dict[str, Any]:
    keys: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hydra" / "launcher" / "slurm.yaml"))
    return {**keys, "submitit_folder": "multirun/.submitit"}


@pytest.mark.parametrize("text", CONTROL)
@pytest.mark.parametrize(
    "key", ["name", "partition", "account", "qos", "constraint", "exclude", "submitit_folder"]
)
def test_a_line_of_the_batch_script_is_one_line(
    key: str, text: str, launcher: dict[str, Any]
) -> None:
    SlurmKeys(**launcher)
    refused(lambda: SlurmKeys(**{**launcher, key: text}), f"hydra.launcher.{key}")


@pytest.mark.parametrize(
    "changed",
    [
        {"setup": ["module load cuda\nrm -r x"]},
        {"setup": "module load cuda"},
        {"additional_parameters": {"mail-type": "END\n#SBATCH --wrap=x"}},
        {"additional_parameters": {"mail\ntype": "END"}},
    ],
)
def test_lists_of_the_batch_script_hold_lines(
    changed: dict[str, Any], launcher: dict[str, Any]
) -> None:
    SlurmKeys(
        **{
            **launcher,
            "setup": ["module load cuda"],
            "additional_parameters": {"mail-type": "END", "n": 3},
        }
    )
    refused(lambda: SlurmKeys(**{**launcher, **changed}), "hydra.launcher.")


def test_usual_names_pass(config: dict[str, Any]) -> None:
    for name in ("irm", "vrex (mine)", "größe", "a.b-c_d", "ERM++"):
        check_configuration({**config, "algorithm": {**config["algorithm"], "name": name}})
    assert in_one_line(Path("a b/ö")) == Path("a b/ö")
