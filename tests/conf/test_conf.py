"""The real configuration tree: every file composes, rejects what is mistyped, and is explained key by key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf

from dgbench.cli.entry import CONF
from dgbench.cli.identity import study_folder
from dgbench.cli.study import Study

FILES = sorted(path for path in CONF.rglob("*.yaml") if path.relative_to(CONF).parts[0] != "hydra")
CHOICES = sorted((path.parent.name, path.stem) for path in FILES if path.parent != CONF)
GROUPS = sorted({group for group, _ in CHOICES})
ALGORITHMS = [name for group, name in CHOICES if group == "algorithm"]
TINY = ("dataset.base=digits", "backbone.width=8", "trainer.device=cpu")


@pytest.fixture(autouse=True, scope="module")
def tree() -> Iterator[None]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def defaults_of(job: str) -> set[str]:
    entries = OmegaConf.to_container(OmegaConf.load(CONF / f"{job}.yaml").defaults)
    return {str(next(iter(entry))) for entry in entries if isinstance(entry, dict)}  # type: ignore[union-attr]


JOBS = {job: defaults_of(job) for job in ("train", "report")}
USES = [(job, group, name) for group, name in CHOICES for job in JOBS if group in JOBS[job]]


def config_of(*changes: str) -> DictConfig:
    return compose("train", [*TINY, *changes])


# ---- composition ------------------------------------------------------------------------------------------------


def test_every_group_is_used_by_a_command() -> None:
    assert set(GROUPS) == {group for groups in JOBS.values() for group in groups if not group.startswith("override")}


@pytest.mark.parametrize(("job", "group", "name"), USES, ids=lambda word: word)
def test_every_choice_composes_and_resolves(job: str, group: str, name: str) -> None:
    config = compose(job, [f"{group}={name}"])
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    if group == "experiment":
        return
    assert group in config
    if job == "train" and group == "algorithm":
        assert config.algorithm.name == name  # what rows say is what was typed


@pytest.mark.parametrize("group", GROUPS)
def test_a_mistyped_key_or_choice_is_rejected(group: str) -> None:
    job = "train" if group in JOBS["train"] else "report"
    with pytest.raises(ConfigCompositionException):
        compose(job, [f"{group}.no_such_key=1"])
    with pytest.raises(HydraException, match="no_such_choice"):
        compose(job, [f"{group}=no_such_choice"])


@pytest.mark.parametrize("key", ["algorithm.hparams.lamda", "trainer.step", "dataset.ration", "sed", "paths.data"])
def test_a_nested_or_top_level_slip_is_rejected(key: str) -> None:
    with pytest.raises(ConfigCompositionException):
        compose("train", [f"{key}=1"])


# ---- comments ---------------------------------------------------------------------------------------------------

KEY = re.compile(r"^(?P<indent> *)(?P<key>[\w-]+):(?P<rest>.*)$")
UNEXPLAINED = {"_target_", "_partial_", "defaults", "search", "hydra"}


def leaves(path: Path) -> Iterator[tuple[str, bool]]:
    """Dotted key of each leaf written in a file, and whether a comment stands on its line or just above."""
    stack: list[tuple[int, str]] = []
    lines = path.read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        found = KEY.match(line)
        if not found:
            continue
        indent = len(found["indent"])
        stack = [(depth, key) for depth, key in stack if depth < indent] + [(indent, found["key"])]
        words = [key for _, key in stack]
        value, mark, _ = found["rest"].partition("#")
        if value.strip() and not UNEXPLAINED.intersection(words):
            yield ".".join(words), bool(mark) or before.lstrip().startswith("#")


def test_the_reader_of_comments(tmp_path: Path) -> None:
    """Blocks are no leaves, search spaces and Hydra's keys are left out."""
    file = tmp_path / "file.yaml"
    file.write_text("_target_: x\na:\n  b: 1  # one\n  c: 2\n# above\nd: 3\nsearch:\n  e: {f: 1}\nhydra: {g: 1}\n")
    assert list(leaves(file)) == [("a.b", True), ("a.c", False), ("d", True)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_every_key_is_explained(path: Path) -> None:
    """Here, or where it comes from: in the file this one builds upon, or in the group whose default it changes.

    `name` needs no words where it is the file's own name.
    """
    content = OmegaConf.to_container(OmegaConf.load(path)) or {}
    explained: set[str] = set()
    if "@package _global_" in path.read_text():
        for group in JOBS["train"] - {"experiment"}:
            for file in (CONF / group).glob("*.yaml"):
                explained |= {f"{group}.{key}" for key, known in leaves(file) if known}
    for base in content.get("defaults", []) if path.parent != CONF else []:  # type: ignore[union-attr]
        if isinstance(base, str) and base != "_self_":
            explained |= {key for key, known in leaves(path.with_name(f"{base}.yaml")) if known}
    if isinstance(content, dict) and content.get("name") == path.stem:
        explained.add("name")
    assert [key for key, known in leaves(path) if not known and key not in explained] == []


@pytest.mark.parametrize("path", [p for p in FILES if p.parent != CONF], ids=lambda path: str(path.relative_to(CONF)))
def test_every_file_says_what_it_is(path: Path) -> None:
    """A comment heads the file, unless its few keys say it all."""
    keys = list(leaves(path))
    assert path.read_text().startswith("#") or (keys and all(known for _, known in keys))


# ---- studies and their hashes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_study_of_every_algorithm_builds(algorithm: str, tmp_path: Path) -> None:
    """Four given environments: four folds and the full one, each with its own run; nothing is written."""
    study = Study(config_of(f"algorithm={algorithm}"), tmp_path)
    assert [member.fold.name for member in study.members] == ["0", "1", "2", "3", "full"]
    assert len({member.identity.run for member in study.members}) == 5
    assert {member.identity.algorithm for member in study.members} == {algorithm}
    assert study.module(study.folds[0]).networks["featurizer"].n_features == 8
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def runs(tree: None) -> dict[str, str]:
    """Fold -> run of the study that the others are compared with."""
    return runs_of()


def runs_of(*changes: str) -> dict[str, str]:
    study = Study(config_of("algorithm=vrex", *changes), Path("nowhere"))
    return {member.fold.name: member.identity.run for member in study.members}


@pytest.mark.parametrize(
    "change",
    [
        "paths.data_dir=elsewhere",
        "paths.output_dir=elsewhere",
        "dataset.data_dir=elsewhere",
        "logger=wandb",
        "trainer.device=auto",
        "trainer.checkpoint_seconds=7",
        "selection=train_val",
        "protocol.folds=[2,full]",
        "hydra.run.dir=elsewhere",
    ],
)
def test_keys_of_the_machine_change_no_run(change: str, runs: dict[str, str]) -> None:
    found = runs_of(change)
    assert found == {fold: runs[fold] for fold in found}
    assert len(found) == (2 if "folds" in change else 5)
    assert study_folder(_root_=config_of("algorithm=vrex", change)) == study_folder(_root_=config_of("algorithm=vrex"))


@pytest.mark.parametrize(
    "change",
    [
        "seed=1",
        "algorithm=erm",
        "algorithm.hparams.vrex_lambda=9",
        "++hparams.set.vrex_lambda=9",
        "hparams.draw=1",
        "averaging=eoa",
        "backbone.width=9",
        "trainer.steps=4999",
        "trainer.batch_size=63",
        "trainer.lr=2e-3",
        "trainer.weight_decay=0.1",
        "trainer.eval_every=499",
        "trainer.precision=64-true",
        "dataset.ratio=4",
        "dataset.scale=2",
        "dataset.given=[0.9,0.8,0.1]",
        "dataset.label_noise=0.2",
        "dataset.pool_fraction=0.2",
        "dataset.val_fraction=0.1",
        "dataset.evaluation=sampled",
        "dataset.data_seed=1",
        "dataset.split_seed=1",
    ],
)
def test_keys_of_science_change_every_run(change: str, runs: dict[str, str]) -> None:
    assert not set(runs_of(change).values()) & set(runs.values())
    assert study_folder(_root_=config_of("algorithm=vrex", change)) != study_folder(_root_=config_of("algorithm=vrex"))
