"""The real configuration tree: every choice composes, builds, refuses a mistyped key, and says what
its keys mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.configuration import CONF
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError
from dgbench.plan.building import without
from dgbench.plan.compose import Composed
from dgbench.plan.folds import LeaveOneOut
from dgbench.plan.studies import Planner
from dgbench.training.study import ReadyStudy
from tests.studies import composed, make_plan, make_study, plain

#: folders whose files no command composes; ``test_measures.py`` reads those of measures
APART = {"hydra", "measure"}
FILES = sorted(path for path in CONF.rglob("*.yaml") if not APART & {*path.relative_to(CONF).parts})
CHOICES = [(path.parent.name, path.stem) for path in FILES if path.parent != CONF]


@cache
def root_of(group: str) -> str:
    """The command whose defaults list names the group: ``train`` where several do."""
    roots = [
        path.stem
        for path in CONF.glob("*.yaml")
        if re.search(rf"^  - {group}:", path.read_text(), re.M)
    ]
    assert roots, f"no command has conf/{group}"
    return "train" if "train" in roots else roots[0]


@pytest.mark.parametrize("name", [path.stem for path in FILES if path.parent == CONF])
def test_defaults_compose_and_resolve(name: str) -> None:
    config = composed(name=name)
    assert OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    # as --cfg job --resolve does, which puts values where references stood
    OmegaConf.resolve(config)


def compositions() -> list[list[str]]:
    """Choices that are composed together, so that each is composed once: the first of every group,
    the second, ...
    """
    alone = [
        choice for choice in CHOICES if choice[0] == "experiment" or root_of(choice[0]) != "train"
    ]
    groups: dict[str, list[str]] = {}
    for group, name in CHOICES:
        if (group, name) not in alone:
            groups.setdefault(group, []).append(f"{group}={name}")
    rows = [[choice for choice in row if choice] for row in zip_longest(*groups.values())]
    return [*rows, *([f"{group}={name}"] for group, name in alone)]


@pytest.mark.thorough
@pytest.mark.parametrize("choices", compositions(), ids=" ".join)
def test_every_choice_composes_and_resolves_and_refuses_a_mistyped_key(choices: list[str]) -> None:
    groups = [choice.partition("=")[0] for choice in choices]
    config = composed(*choices, name=root_of(groups[0]))
    assert isinstance(OmegaConf.to_container(config, resolve=True, throw_on_missing=False), dict)
    for group in {*groups} - {"hparams"}:
        with pytest.raises(OmegaConfBaseException):  # as Hydra sets the value of an override
            OmegaConf.update(
                config, "trainer.stepps" if group.endswith("experiment") else f"{group}.namme", 1
            )


@pytest.mark.parametrize("name", [name for group, name in CHOICES if group == "hparams"])
def test_a_mistyped_hyperparameter_is_refused(name: str) -> None:
    """Its keys stand in no file: those that exist are known once a study is planned."""
    with pytest.raises(ConfigError, match=r"hparams\.namme.*read.*nothing.*study"):
        make_plan(Path("outputs"), "dataset.base=digits", f"hparams={name}", "hparams.namme=1")


BUILD: dict[str, Callable[[DictConfig], Any]] = {
    "protocol": lambda config: config.protocol,
    "selection": lambda config: config.selection,
    "report": lambda config: config.report,
    "averaging": lambda config: config.averaging.get("rule"),
    "sharpness": lambda config: without(config, "sharpness", "name")["sharpness"],
    "logger": lambda config: config.logger,
    "tuning": lambda config: config.tuning,
}


@pytest.mark.thorough
@pytest.mark.parametrize(("group", "name"), [c for c in CHOICES if c[0] in BUILD], ids=str)
def test_what_stands_alone_is_built(group: str, name: str) -> None:
    words = ["selection.environments=[a]"] if name == "ood_val" else []
    node = BUILD[group](composed(f"{group}={name}", *words, name=root_of(group)))
    if not node or not node["_target_"]:
        assert name == "none"
        return
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    built = instantiate(node, _convert_="all")
    assert f"{type(built).__module__}.{type(built).__qualname__}" == node["_target_"]


STUDY = ("dataset.base=digits", "trainer.steps=2", "trainer.eval_every=1", "trainer.device=cpu")


@pytest.mark.thorough
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
    study = make_study(tmp_path, *STUDY, "backbone.width=16", *words)
    assert isinstance(study.environments, Environments)
    module = study.module(study.folds[0])
    assert module.networks.params("featurizer")
    assert module.algorithm.sizes.n_envs == len(study.environments.info.given) - 1
    assert not list(tmp_path.iterdir()), "building a study writes nothing"


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for group, name in CHOICES if group == "backbone"])
def test_every_backbone_is_built(name: str) -> None:
    """On the meta device, which has shapes and no memory."""
    config = composed(
        f"backbone={name}", *(["backbone.arch=convnext_atto"] if name == "timm" else [])
    )
    with torch.device("meta"):
        side = 28 if "14" in name else 32  # patches of 14 pixels
        image = (
            (3, side, side) if "pictures" in get_class(config.backbone._target_).takes else (32,)
        )
        featurizer = instantiate(
            without(config, "backbone", "name", "hparams")["backbone"], image=image
        )
        assert featurizer(torch.zeros(2, *image)).shape == (2, featurizer.n_features)
    assert 1 <= len(featurizer.stages()) <= 7


@pytest.mark.thorough
def test_published_settings_insist_on_mnist() -> None:
    """Two of our own train on the digits that are always there; other datasets than digits have one
    base only.
    """
    for path in sorted((CONF / "experiment").glob("*.yaml")):
        dataset = composed(f"experiment={path.stem}").dataset
        if dataset.name == "sr_cmnist":
            assert dataset.base == (
                "digits" if path.stem in ("demo", "noise_floor") else "mnist"
            ), path.stem


def test_cmnist_has_the_three_environments() -> None:
    assert composed("dataset=cmnist").dataset.given == [0.9, 0.8, 0.1]


# ---- comments


def uncommented(path: Path) -> list[str]:
    """Keys with a value on their line and neither a comment there nor one on their parent's line.

    A key that opens a block, ``_target_``, ``name`` and ``objective`` of an algorithm (its file
    says it), what stands below ``search``, ``defaults`` or ``hydra`` and what an experiment sets
    (said where the key belongs) need none.
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
        if (
            not has
            and not opens
            and key != "_target_"
            and skipped_indent is None
            and not any(parents)
        ):
            missing.append(key)
    return missing


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CONF)) for path in FILES])
def test_every_key_has_a_comment(path: Path) -> None:
    text = path.read_text()
    if path.parent.name not in ("paths",):
        assert text.startswith("#"), "the first line says what the file is for"
    inherits = "defaults" in (yaml.safe_load(text) or {}) and path.parent != CONF
    allowed = {"name", "objective"} if path.parent.name == "algorithm" else set()
    # those have a sentence
    allowed |= {
        "range",
        "help",
        *((yaml.safe_load(text) or {}).get("hparams") or {}),
    }
    if (
        path.parent.name.endswith("experiment") or inherits
    ):  # keys that are explained in the file they override
        return
    assert set(uncommented(path)) <= allowed


# ---- runs of a study


def test_study_folder_name(tmp_path: Path) -> None:
    planned = make_plan(
        tmp_path, "dataset.base=digits", "algorithm=vrex", "backbone.width=8", "seed=3"
    )
    assert planned.folder == tmp_path / f"sr_cmnist-vrex-mlp-8-s3-{planned.spec.digest}"
    assert re.fullmatch(r"[0-9a-f]{12}", planned.spec.digest)
    drawn = make_plan(
        tmp_path, "dataset.base=digits", "backbone.width=8", "hparams.draw=2", "hparams.trial=1"
    )
    assert drawn.folder == tmp_path / f"sr_cmnist-erm-mlp-8-s0-draw2-trial1-{drawn.spec.digest}"


def test_a_part_of_the_folds_keeps_their_runs(tmp_path: Path) -> None:
    """Hash, folder and data of a run are those of the whole study."""
    whole = make_study(tmp_path, *STUDY)
    part = make_study(tmp_path, *STUDY, "protocol.folds=[1,full]")

    def identities(study: ReadyStudy) -> list[Any]:
        return [(run.identity(study.module(run.fold)), run.folder) for run in study.runs]

    assert [run.fold.name for run in part.runs] == ["1", "full"]
    assert identities(part) == [
        found for found in identities(whole) if found[0].fold in ("1", "full")
    ]
    assert len({run.hash for run in whole.runs}) == 5
    assert isinstance(instantiate(composed().protocol), LeaveOneOut)


def test_the_base_that_was_used_is_part_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``auto`` that fell back to the digits makes the same runs whenever it does, and others than
    MNIST would.
    """
    from dgbench.data.datasets import base_images

    nothing = ("dataset.base=auto", f"paths.data_dir={tmp_path}", *STUDY[1:])
    monkeypatch.setattr(base_images, "base_name", lambda base, folder, download: "digits")
    one = make_study(tmp_path, *nothing)
    assert one.runs[0].identity(one.module(one.folds[0])).base == "digits"
    assert one.runs[0].hash == make_plan(tmp_path, *STUDY).run_spec(one.folds[0]).digest
    monkeypatch.setattr(base_images, "base_name", lambda base, folder, download: "mnist")
    other = Planner(None, tmp_path).study([], Composed.of_plain(plain(composed(*nothing)), ""))
    assert other.info.base == "mnist"
    assert other.run_spec(other.folds[0]).digest != one.runs[0].hash
