"""The command that makes a run again: it composes to the same hash, and gives the same rows."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from dgbench.cli.reproduce import Reproduce, _matters
from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.overrides import grammar, open_keys, shortest_words
from dgbench.plan.studies import planned_again
from tests import studies
from tests.studies import plain

ALGORITHMS = sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml"))


def composed(words: Sequence[str]) -> DictConfig:
    return studies.composed(*words)


def digest(config: DictConfig) -> str:
    """Hash of the study, less what trains another one: a search."""
    return planned_again(plain(config), Path("outputs")).spec.digest


def back(config: DictConfig) -> list[str]:
    """The words for a configuration as its run folder keeps it."""
    saved: Any = OmegaConf.to_container(OmegaConf.create(OmegaConf.to_yaml(config, resolve=True)))
    return shortest_words(saved, composed, _matters)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_random_configurations_compose_to_the_same_hash(seed: int) -> None:
    rng = random.Random(seed)
    pool = [
        f"seed={rng.randrange(5)}",
        f"algorithm={rng.choice(ALGORITHMS)}",
        f"dataset.scale={rng.randint(1, 4)}",
        f"dataset.label_noise={rng.random()}",
        f"dataset.split_seed={rng.randrange(3)}",
        f"hparams.lr={10 ** rng.uniform(-8, 0)!r}",
        f"trainer.steps={rng.choice([1500, 2000, 7000])}",
        f"trainer.eval_subsets={rng.choice(['[val,test]', '[train,val,test]'])}",
        f"backbone={rng.choice(['mlp', 'mnist_cnn'])}",
        f"hparams.draw={rng.randrange(20)}",
        f"hparams.space={rng.choice(['domainbed', 'yu2024'])}",
        f"hparams.batch_size={rng.choice([8, 16])}",
        f"averaging={rng.choice(['swad', 'eoa'])}",
        f"sharpness={rng.choice(['sam', 'gsam', 'sagm'])}",
        "dataset=cmnist",
        "trainer.precision=64-true",
        "logger=wandb",
        "selection=oracle",
    ]
    words = rng.sample(pool, 7)
    config = composed(words)
    found = back(config)
    assert digest(composed(found)) == digest(config), (words, found)
    science_words = [word for word in words if word not in ("logger=wandb", "selection=oracle")]
    assert len(found) <= len(science_words) + 1, f"{found} says more than {words}"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ([], []),
        (["backbone.width=8"], ["backbone.width=8"]),
        (["algorithm=vrex", "hparams.vrex_lambda=3"], ["algorithm=vrex", "hparams.vrex_lambda=3"]),
        (["hparams.lr=0.1"], ["hparams.lr=0.1"]),
        (["+backbone.hparams={dropout: resnet_dropout}"], ["+backbone.hparams.dropout=resnet_dropout"]),
        (["~backbone.width", "backbone.name=none"], ["backbone.name=none", "~backbone.width"]),
        (["experiment=sr_cmnist_14", "seed=1"], None),
        (["hparams=search_yu2024"], ["hparams.space=yu2024"]),
    ],
    ids=str,
)
def test_words_are_those_that_differ(typed: list[str], words: list[str] | None) -> None:
    config = composed(typed)
    found = back(config)
    assert words is None or found == words
    assert digest(composed(found)) == digest(config)


@pytest.mark.parametrize(
    "value",
    ["plain", "a b", "it's", "null", "1e-3", "", "x=1,y", "back\\slash", "end\\", "[a]", "${x}", None, True, 3, 1e-05,
     [1, [2.5, "a,b"]], {"a": 1, "b": {"c": None}}],
    ids=repr,
)  # fmt: skip
def test_values_survive_the_override_grammar(value: Any) -> None:
    config = composed([f"+trainer.extra={grammar(value)}"])
    assert OmegaConf.to_container(config.trainer)["extra"] == value
    assert type(OmegaConf.to_container(config.trainer)["extra"]) is type(value)


@pytest.mark.slow
def test_a_run_is_made_again_bit_for_bit(train: Any, command: Any, tmp_path: Path) -> None:
    """Drawn hyperparameters, fold 1 of a study: the printed command fills the same folder with the same bytes."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    words = ("algorithm=vrex", "hparams.draw=3", "hparams.batch_size=16", "protocol.folds=[1,full]", "seed=2")
    assert train(*words, cwd=first).code == 0
    (file,) = first.glob("outputs/*/fold-1-*/errors.jsonl")
    run = file.parent.name.split("-")[-1]
    ended = command("report.py", "report=reproduce", f"run={run[:6]}", cwd=first)
    assert ended.code == 0, ended.err
    line = ended.out.strip()
    assert line.startswith("python train.py ")
    assert "threads: 1" in ended.err
    assert "was made by" not in ended.err
    again = command(*shlex.split(line)[1:], cwd=second)
    assert again.code == 0, again.err
    remade = second / file.relative_to(first)
    assert remade.read_bytes() == file.read_bytes()
    assert len(list(second.rglob("errors.jsonl"))) == 1

    identity = json.loads((file.parent / "identity.json").read_text())
    assert identity["run"] == run
    spec = identity["spec"]
    seeds = {**spec, **spec["dataset"]}
    assert {key: seeds[key] for key in ("seed", "data_seed", "split_seed", "draw", "trial", "space")} == {
        "seed": 2, "data_seed": 0, "split_seed": 0, "draw": 3, "trial": 0, "space": "domainbed",
    }  # fmt: skip
    (session,) = identity["sessions"]
    assert set(open_keys(words)) <= set(session["command"])
    assert (session["threads"], session["resumed_from"], session["together"]) == (1, 0, 1)
    import torch

    assert session["packages"]["torch"] == torch.__version__.split("+")[0]
    assert identity["dataset"]["fingerprint"] == json.loads((remade.parent / "identity.json").read_text())["dataset"][
        "fingerprint"
    ]  # fmt: skip

    identity["sessions"][0]["code"] = "0.0.1+old"
    (file.parent / "identity.json").write_text(json.dumps(identity))
    assert "was made by 0.0.1+old" in command("report.py", "report=reproduce", f"run={run}", cwd=first).err


@pytest.mark.slow
def test_a_study_is_made_again_by_its_own_hash(train: Any, command: Any, tmp_path: Path) -> None:
    """Two of five folds were trained, so they are named; once all are there, the command needs none."""
    words = ("algorithm=vrex", "seed=3")
    assert train(*words, "protocol.folds=[1,full]", cwd=tmp_path).code == 0
    (study,) = (tmp_path / "outputs").glob("*-s3-*")
    asked = ("report=reproduce", f"run={study.name[-12:]}", "runs=outputs")
    line = command("report.py", *asked, cwd=tmp_path).out.strip()
    assert line.endswith((" protocol.folds=[1,full]", " 'protocol.folds=[1,full]'"))
    assert train(*words, cwd=tmp_path).code == 0
    line = command("report.py", *asked, cwd=tmp_path).out.strip()
    assert line.startswith("python train.py ") and "protocol.folds" not in line
    before = {path: path.read_bytes() for path in study.rglob("errors.jsonl")}
    ended = command(*shlex.split(line)[1:], cwd=tmp_path)
    assert (ended.code, {path: path.read_bytes() for path in study.rglob("errors.jsonl")}) == (0, before)
    assert len(before) == 5


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        ("nonsense", "run=nonsense is no hash"),
        ("abcdef012345", "run=abcdef012345: no run or"),
        ("aaaa", "run=aaaa: 2 runs or studies (aaaa00000001, aaaa00000002)"),
        ("bbbb00000001", "config.yaml cannot be read"),
    ],
)
def test_a_run_that_cannot_be_made_again(command: Any, tmp_path: Path, run: str, complaint: str) -> None:
    for name in ("aaaa00000001", "aaaa00000002", "bbbb00000001"):
        (tmp_path / "outputs" / "study" / f"fold-0-{name}").mkdir(parents=True)
    ended = command("report.py", "report=reproduce", f"run={run}", cwd=tmp_path)
    assert (ended.code, len(ended.complaints)) == (1, 1)
    assert complaint in ended.complaints[0]


@pytest.mark.parametrize("named", ["os.mkdir", "hydra.utils.get_method", "dgbench.training.modules.training_module"])
def test_code_outside_conf_needs_trust(named: str, train: Any, command: Any, tmp_path: Path) -> None:
    assert train("protocol.folds=[0]", cwd=tmp_path).code == 0
    (file,) = (tmp_path / "outputs").rglob("config.yaml")
    text = file.read_text()
    file.write_text(text.replace("_target_: dgbench.plan.folds.LeaveOneOut", f"_target_: {named}\n  path: made"))
    assert file.read_text() != text
    ended = command("report.py", "report=reproduce", f"run={file.parent.name[-12:]}", "runs=outputs", cwd=tmp_path)
    assert (ended.code, len(ended.complaints)) == (1, 1)
    assert named[:30] in ended.complaints[0] and not (tmp_path / "made").exists()


def test_a_folder_given_as_text_is_one_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"run=0123456789ab.*run.*study.*{tmp_path}"):
        Reproduce(run="0123456789ab", roots=str(tmp_path)).show()
