"""Initial weights in a study: what they are called, what they decide, what is shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from dgbench.cli.entry import CONF
from dgbench.cli.identity import study_folder
from dgbench.cli.initial import for_images_of, initial_weights
from dgbench.cli.study import Study
from dgbench.errors import ConfigError

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet.pth"
    torch.save(timm.create_model("test_resnet", pretrained=False, num_classes=10).state_dict(), path)
    return path


def composed(*words: str) -> DictConfig:
    OmegaConf.register_new_resolver("study_folder", study_folder, replace=True)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", list(words))


@pytest.fixture
def small(image_tree: Callable[..., Path]) -> list[str]:
    """Two environments for a small ResNet."""
    root = image_tree(a={"cat": 6, "dog": 6}, b={"cat": 6, "dog": 6})
    return [
        "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=32", "backbone=resnet18",
        "backbone.arch=test_resnet", "trainer.batch_size=4", "trainer.steps=2", "trainer.device=cpu",
        f"paths.cache_dir={root.parent / 'cache'}",
    ]  # fmt: skip


def test_rows_say_which_weights(small: list[str], file: Path, tmp_path: Path) -> None:
    random = Study(composed(*small), tmp_path)
    given = Study(composed(*small, "init=file", f"init.path={file}"), tmp_path)
    assert random.members[0].identity.init == "random"
    assert given.members[0].identity.init == given.weights.identity
    assert given.weights.identity.startswith("file:")
    assert given.members[0].identity.run != random.members[0].identity.run
    net = given.module(given.folds[0]).networks["featurizer"]
    assert torch.equal(net.body.layer1[0].conv1.weight, torch.load(file)["layer1.0.conv1.weight"])  # type: ignore[index,union-attr]


def test_members_are_known_by_what_the_file_holds(small: list[str], file: Path, tmp_path: Path) -> None:
    """The same file elsewhere makes the same members; other weights under the same path make others."""
    copied = tmp_path / "copy.pth"
    copied.write_bytes(file.read_bytes())
    words = (*small, "init=file")
    configs = [composed(*words, f"init.path={path}") for path in (file, copied)]
    assert study_folder(_root_=configs[0]) == study_folder(_root_=configs[1])
    one, other = (Study(config, tmp_path) for config in configs)
    assert [m.identity for m in one.members] == [m.identity for m in other.members]
    content = torch.load(file)
    content["conv1.0.weight"] += 1
    torch.save(content, copied)
    changed = Study(configs[1], tmp_path)
    assert {m.folder for m in changed.members}.isdisjoint({m.folder for m in one.members})
    assert {m.identity.init for m in changed.members}.isdisjoint({m.identity.init for m in one.members})


def test_frozen_batchnorm_with_given_weights_unless_typed(small: list[str], file: Path) -> None:
    given = ("init=file", f"init.path={file}")
    assert composed(*small).backbone.norm == "train"
    assert composed(*small, *given).backbone.norm == "frozen"
    assert composed(*small, *given).backbone.name == "test_resnet-bn_frozen"
    assert composed(*small, *given, "backbone.norm=train").backbone.norm == "train"


def test_images_are_normalized_as_the_weights_want_them(small: list[str], file: Path, tmp_path: Path) -> None:
    given = ("init=file", f"init.path={file}")
    half = ("init.mean=[0.5,0.5,0.5]", "init.std=[0.4,0.4,0.4]")
    for words, (mean, std) in (
        ((), IMAGENET),
        (given, IMAGENET),
        ((*given, *half), ([0.5] * 3, [0.4] * 3)),
        ((*given, *half, "dataset.normalize.std=[1,2,3]"), ([0.5] * 3, [1, 2, 3])),
    ):
        study: Any = Study(composed(*small, *words), tmp_path)
        assert study.environments.mean.flatten().tolist() == pytest.approx(mean)
        assert study.environments.std.flatten().tolist() == pytest.approx(std)
        assert study.config.dataset.normalize == {"mean": pytest.approx(mean), "std": pytest.approx(std)}


def test_the_published_records_are_timms(tmp_path: Path) -> None:
    """Mean, deviation and size of every supervised entry."""
    published: Any = OmegaConf.to_container(composed("init=supervised", "backbone=resnet50").init.published)
    names = []
    for arch, versions in published.items():
        for version, entry in versions.items():
            record = timm.get_pretrained_cfg(f"{arch}.{version}")
            assert record is not None
            assert entry["url"] == f"https://huggingface.co/{record.hf_hub_id}/resolve/main/model.safetensors"
            assert entry.get("mean", IMAGENET[0]) == list(record.mean)
            assert entry.get("std", IMAGENET[1]) == list(record.std)
            assert entry.get("input_size", 224) == record.input_size[1]
            names.append(f"{arch}.{version}")
    assert len(names) >= 6


def test_image_size_of_the_weights(file: Path) -> None:
    config = composed("dataset=pacs", "dataset.image_size=null", "backbone=resnet18")
    assert for_images_of(initial_weights(config), config).dataset.image_size == 224
    assert config.dataset.image_size is None


@pytest.mark.parametrize("init", ["supervised", "moco", "simclr", "file"])
@pytest.mark.parametrize("backbone", ["mlp", "mnist_cnn", "wide_resnet"])
def test_small_networks_have_no_published_weights(init: str, backbone: str) -> None:
    with pytest.raises(ConfigError, match=f"init={init} has no weights for this backbone; use init=random"):
        initial_weights(composed(f"init={init}", f"backbone={backbone}"))


def test_published_versions_of_each_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each, as the papers have it; what is not published says what is."""
    from dgbench.backbones.weights import PretrainedWeights
    from dgbench.cli.build import build, without

    def version(*words: str) -> str | None:
        config = composed(*words)
        made: PretrainedWeights = build(without(config, "init", "norm"), "init", arch=config.backbone.arch)
        return made.version

    assert version("init=moco", "backbone=resnet50") == "v2"
    assert version("init=moco", "backbone=resnet50", "init.version=v1") == "v1"
    assert version("init=moco", "backbone=vit_b16") == "v3"
    assert version("init=supervised", "backbone=resnet18") == "tv_in1k"
    assert version("init=simclr", "backbone=resnet50") == "vissl_800ep"
    with pytest.raises(ConfigError, match=r"init=moco has no weights for resnet18 \(but for: resnet50, vit_base"):
        version("init=moco", "backbone=resnet18")
    with pytest.raises(ConfigError, match=r"init.version=v1 is unknown for vit_base_patch16_224; choose from v3"):
        version("init=moco", "backbone=vit_b16", "init.version=v1")


@pytest.mark.parametrize("norm", ["train", "frozen"])
def test_a_stack_of_resnets_starts_and_steps_as_its_members_do(small: list[str], tmp_path: Path, norm: str) -> None:
    """Planning leaves no trace in the running statistics; then rows of stacked and single runs agree."""
    from dgbench.callbacks.progress import StudyProgress
    from dgbench.cli.run import train_all
    from dgbench.cli.stacking import plan_groups
    from dgbench.records import read_rows

    rows = {}
    for mode in ("single", "stacked"):
        words = (*small, f"backbone.norm={norm}", f"execution={mode}", "trainer.precision=64-true")
        study = Study(composed(*words, "trainer.eval_every=2"), tmp_path / mode)
        assert study.why_not_stacked() is None
        (*_, group) = plan_groups([(study, member) for member in study.members], study.config.execution)
        assert group.stacked is (mode == "stacked")
        for (own, member), module in zip(group.members, group.modules, strict=False):
            fresh = own.module(member.fold).state_dict()
            assert all(torch.equal(fresh[key], value) for key, value in module.state_dict().items())
        train_all([study], study.config.execution, StudyProgress(len(study.members), 2, "test"), None)
        rows[mode] = [row for m in study.members for row in read_rows(m.folder / "errors.jsonl")[0]]
    keys = ("fold", "step", "env", "subset", "wrong")
    assert [[r[k] for k in keys] for r in rows["single"]] == [[r[k] for k in keys] for r in rows["stacked"]]
    assert [r["loss"] for r in rows["stacked"]] == pytest.approx([r["loss"] for r in rows["single"]], rel=1e-9)
    assert len(rows["single"]) > 4


def test_networks_that_gain_nothing_are_built_one_by_one(small: list[str], tmp_path: Path) -> None:
    """On a CPU: the plan of ten folds or seeds of a ResNet holds no weights, and builds one network."""
    from dgbench.cli.stacking import plan_groups

    study = Study(composed(*small, "execution=auto"), tmp_path)
    built = []
    whole = study.module
    study.module = lambda fold: built.append(fold) or whole(fold)  # type: ignore[method-assign,func-returns-value]
    groups = plan_groups([(study, member) for member in study.members], study.config.execution)
    assert [len(group.members) for group in groups] == [1] * len(study.members)
    assert len(study.members) > 1
    assert not any(group.modules for group in groups)
    assert len(built) == 1


def test_studies_that_differ_in_batchnorm_do_not_stack(small: list[str], tmp_path: Path) -> None:
    from dgbench.cli.stacking import plan_groups

    words = (*small, "execution=stacked", "protocol.folds=[0]")
    one = Study(composed(*words), tmp_path)
    both = [one, Study(composed(*words, "backbone.norm=frozen"), tmp_path, one.environments)]
    groups = plan_groups([(study, member) for study in both for member in study.members], one.config.execution)
    assert [len(group.members) for group in groups] == [1, 1]
