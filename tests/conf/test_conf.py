"""The real configuration tree: every choice composes, builds, refuses a mistyped key, and says what its keys mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from dgbench.cli.build import without
from dgbench.cli.entry import CONF
from dgbench.cli.identity import MACHINE_KEYS, digest, science, study_folder
from dgbench.cli.study import Study
from dgbench.data.environments import Environments
from dgbench.protocols.folds import LeaveOneOut

FILES = sorted(path for path in CONF.rglob("*.yaml") if "hydra" not in path.relative_to(CONF).parts)
CHOICES = [(path.parent.name, path.stem) for path in FILES if path.parent != CONF]
NAMES = [f"{group}={name}" for group, name in CHOICES]


def root_of(group: str) -> str:
    """The command whose defaults list names the group: ``train`` where several do."""
    roots = [path.stem for path in CONF.glob("*.yaml") if re.search(rf"^  - {group}:", path.read_text(), re.M)]
    assert roots, f"no command has conf/{group}"
    return "train" if "train" in roots else roots[0]


def composed(*words: str, name: str = "train") -> DictConfig:
    OmegaConf.register_new_resolver("study_folder", study_folder, replace=True)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(words))


@pytest.mark.parametrize("name", [path.stem for path in FILES if path.parent == CONF])
def test_defaults_compose_and_resolve(name: str) -> None:
    assert OmegaConf.to_container(composed(name=name), resolve=True, throw_on_missing=False)


@pytest.mark.parametrize(("group", "name"), CHOICES, ids=NAMES)
def test_every_choice_composes_and_resolves(group: str, name: str) -> None:
    config = composed(f"{group}={name}", name=root_of(group))
    assert isinstance(OmegaConf.to_container(config, resolve=True, throw_on_missing=False), dict)


@pytest.mark.parametrize(("group", "name"), CHOICES, ids=NAMES)
def test_every_choice_refuses_a_mistyped_key(group: str, name: str) -> None:
    key = "trainer.stepps" if group in ("experiment", "logger") and name != "wandb" else f"{group}.namme"
    with pytest.raises(ConfigCompositionException, match=f"Could not override '{re.escape(key)}'"):
        composed(f"{group}={name}", f"{key}=1", name=root_of(group))


BUILD: dict[str, Callable[[DictConfig], Any]] = {
    "protocol": lambda config: config.protocol,
    "selection": lambda config: config.selection,
    "report": lambda config: config.report,
    "averaging": lambda config: config.averaging.get("rule"),
    "logger": lambda config: config.logger,
    "tuning": lambda config: config.tuning,
}


@pytest.mark.parametrize(("group", "name"), [c for c in CHOICES if c[0] in BUILD], ids=str)
def test_what_stands_alone_is_built(group: str, name: str) -> None:
    words = ["selection.environments=[a]"] if name == "ood_val" else []
    node = BUILD[group](composed(f"{group}={name}", *words, name=root_of(group)))
    if not node:
        assert name == "none"
        return
    built = instantiate(node)
    assert f"{type(built).__module__}.{type(built).__qualname__}" == node._target_


STUDY = ("dataset.base=digits", "trainer.steps=2", "trainer.eval_every=1", "trainer.device=cpu")


@pytest.mark.parametrize(
    "words",
    [
        *((f"algorithm={path.stem}",) for path in sorted((CONF / "algorithm").glob("*.yaml"))),
        ("dataset=cmnist",),
        ("backbone=mlp",),
        ("backbone=mnist_cnn", "backbone.min_size=8"),
    ],
    ids=" ".join,
)
def test_a_study_is_built_from_every_choice(tmp_path: Path, words: tuple[str, ...]) -> None:
    study = Study(composed(*STUDY, "backbone.width=16", *words), tmp_path)
    assert isinstance(study.environments, Environments)
    module = study.module(study.folds[0])
    assert module.networks.params("featurizer")
    assert module.sizes.n_envs == len(study.environments.given) - 1
    assert not list(tmp_path.iterdir()), "building a study writes nothing"


@pytest.mark.parametrize("name", [name for group, name in CHOICES if group == "backbone"])
def test_every_backbone_is_built(name: str) -> None:
    """On the meta device, which has shapes and no memory."""
    config = composed(f"backbone={name}")
    with torch.device("meta"):
        featurizer = instantiate(without(config, "backbone", "name", "hparams").backbone, image=(3, 32, 32))
        assert featurizer(torch.zeros(2, 3, 32, 32)).shape == (2, featurizer.n_features)
    assert 1 <= len(featurizer.stages()) <= 4


def test_published_settings_insist_on_mnist() -> None:
    """``demo`` is the offline demonstration, not a published setting; other datasets than digits have one base only."""
    for path in sorted((CONF / "experiment").glob("*.yaml")):
        dataset = composed(f"experiment={path.stem}").dataset
        if dataset.name == "sr_cmnist":
            assert dataset.base == ("digits" if path.stem == "demo" else "mnist"), path.stem


def test_cmnist_has_the_three_environments() -> None:
    assert composed("dataset=cmnist").dataset.given == [0.9, 0.8, 0.1]


# ---- comments ---------------------------------------------------------------------------------------------------


def uncommented(path: Path) -> list[str]:
    """Keys with a value on their line and neither a comment there nor one on their parent's line.

    A key that opens a block, ``_target_``, ``name`` of an algorithm (its file says it), what stands below ``search``,
    ``defaults`` or ``hydra`` and what an experiment sets (said where the key belongs) need none.
    """
    missing, skipped_indent = [], None
    commented: dict[int, bool] = {}
    for line in path.read_text().splitlines():
        found = re.match(r"^(?P<indent> *)(?P<key>[\w-]+): *(?P<rest>.*)$", line)
        if not found:
            continue
        indent, key, rest = len(found["indent"]), found["key"], found["rest"]
        if skipped_indent is not None and indent > skipped_indent:
            continue
        skipped_indent = indent if key in ("search", "defaults", "hydra") else None
        has = "#" in rest
        parents = [commented[i] for i in commented if i < indent]
        commented = {i: c for i, c in commented.items() if i < indent} | {indent: has}
        opens = not rest.split("#")[0].strip()
        if not has and not opens and key != "_target_" and skipped_indent is None and not any(parents):
            missing.append(key)
    return missing


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CONF)) for path in FILES])
def test_every_key_has_a_comment(path: Path) -> None:
    text = path.read_text()
    if path.parent.name not in ("paths",):
        assert text.startswith("#"), "the first line says what the file is for"
    inherits = "defaults" in (yaml.safe_load(text) or {}) and path.parent != CONF
    allowed = {"name"} if path.parent.name == "algorithm" else set()
    if path.parent.name == "experiment" or inherits:  # keys that are explained in the file they override
        return
    assert set(uncommented(path)) <= allowed


# ---- identity ---------------------------------------------------------------------------------------------------


def test_study_folder_name() -> None:
    config = composed("algorithm=vrex", "backbone.width=8", "seed=3")
    assert study_folder(_root_=config) == f"sr_cmnist-vrex-mlp-8-s3-{digest(science(config))}"
    assert re.fullmatch(r"[0-9a-f]{12}", digest(science(config)))


def leaves(node: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        return [leaf for key, value in node.items() for leaf in leaves(value, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), node)]


def is_machine(key: str) -> bool:
    words = key.split(".")
    return any(".".join(words[: n + 1]) in MACHINE_KEYS for n in range(len(words)))


def test_the_hash_changes_with_every_scientific_key_and_with_no_other() -> None:
    """Every leaf of the composed configuration is changed, one at a time."""
    config = composed("algorithm=vrex")
    before = digest(science(config))
    seen = {True: 0, False: 0}
    for key, value in leaves(OmegaConf.to_container(config, resolve=True)):
        changed = config.copy()
        OmegaConf.set_struct(changed, False)
        OmegaConf.update(changed, key, f"{value}-changed")
        machine = is_machine(key)
        seen[machine] += 1
        assert (digest(science(changed)) == before) is machine, key
    assert seen[True] > 10
    assert seen[False] > 25


@pytest.mark.parametrize(
    "words",
    [
        ("protocol.folds=[0,full]",),
        ("paths.output_dir=elsewhere",),
        ("paths.data_dir=elsewhere",),
        ("logger=wandb",),
        ("selection=oracle",),
        ("trainer.device=cpu",),
        ("trainer.checkpoint_seconds=0",),
        ("execution=single",),
    ],
    ids=" ".join,
)
def test_where_and_how_it_runs_changes_no_hash(words: tuple[str, ...]) -> None:
    assert study_folder(_root_=composed(*words)) == study_folder(_root_=composed())


@pytest.mark.parametrize(
    "words",
    [
        ("seed=1",),
        ("dataset.data_seed=1",),
        ("trainer.steps=1",),
        ("algorithm=irm",),
        ("backbone.width=8",),
        ("hparams.draw=1",),
    ],
    ids=" ".join,
)
def test_what_is_computed_changes_it(words: tuple[str, ...]) -> None:
    assert digest(science(composed(*words))) != digest(science(composed()))


def test_a_part_of_the_folds_keeps_their_members(tmp_path: Path) -> None:
    """Hash, folder and data of a member are those of the whole study."""
    whole = Study(composed(*STUDY), tmp_path)
    part = Study(composed(*STUDY, "protocol.folds=[1,full]"), tmp_path)
    assert [member.fold.name for member in part.members] == ["1", "full"]
    assert [(m.identity, m.folder) for m in part.members] == [
        (m.identity, m.folder) for m in whole.members if m.fold.name in ("1", "full")
    ]
    assert len({member.identity.run for member in whole.members}) == 5
    assert isinstance(instantiate(composed().protocol), LeaveOneOut)


def test_the_base_that_was_used_is_part_of_the_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` that fell back to the digits makes the same members whenever it does, and others than MNIST would."""
    from dgbench.data import base_images

    monkeypatch.setattr(base_images, "_mnist_present", lambda folder: False)
    monkeypatch.setattr(base_images, "_mnist_fetched", lambda folder: False)
    one = Study(composed("dataset.base=auto", *STUDY[1:]), tmp_path).members[0].identity
    assert one.base == "digits"
    real = base_images._digits(tmp_path, 28)
    renamed = base_images.BaseImages("other", real.images, real.classes, real.peak)
    monkeypatch.setattr(base_images, "_digits", lambda folder, resolution: renamed)
    two = Study(composed("dataset.base=auto", *STUDY[1:]), tmp_path).members[0].identity
    assert two.base == "other"
    assert two.run != one.run
