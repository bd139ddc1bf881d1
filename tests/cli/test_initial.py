"""Initial weights in a study: what they are called, what they decide, what is shared."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from dgbench.errors import ConfigError
from dgbench.networks.weights import PACKAGE
from dgbench.plan.building import filled_dataset, named_weights
from dgbench.training.study import ReadyStudy
from tests.studies import composed, make_study, plain

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet.pth"
    torch.save(
        timm.create_model("test_resnet", pretrained=False, num_classes=10).state_dict(), path
    )
    return path


def init_of(study: ReadyStudy) -> str:
    """What the rows of its first run say of the initial weights."""
    run = study.runs[0]
    return run.identity(study.module(run.fold)).init


@pytest.fixture
def small(image_tree: Callable[..., Path]) -> list[str]:
    """Two environments for a small ResNet."""
    root = image_tree(a={"cat": 6, "dog": 6}, b={"cat": 6, "dog": 6})
    return [
        "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=32",
        "backbone=resnet18", "backbone.arch=test_resnet", "hparams.batch_size=4", "trainer.steps=2",
        "trainer.device=cpu", f"paths.cache_dir={root.parent / 'cache'}",
    ]  # fmt: skip


def test_rows_say_which_weights(small: list[str], file: Path, tmp_path: Path) -> None:
    random = make_study(tmp_path, *small)
    given = make_study(tmp_path, *small, "init=file", f"init.path={file}")
    assert init_of(random) == "random"
    assert init_of(given) == given.planned.weights.identity
    assert given.planned.weights.identity.startswith("file:")
    assert given.runs[0].hash != random.runs[0].hash
    net = given.module(given.folds[0]).networks["featurizer"]
    assert torch.equal(net.body.layer1[0].conv1.weight, torch.load(file)["layer1.0.conv1.weight"])  # type: ignore[index,union-attr]


def test_runs_are_known_by_what_the_file_holds(
    small: list[str], file: Path, tmp_path: Path
) -> None:
    """The same file elsewhere makes the same runs;
    other weights under the same path make others.
    """
    copied = tmp_path / "copy.pth"
    copied.write_bytes(file.read_bytes())
    words = (*small, "init=file")
    one, other = (make_study(tmp_path, *words, f"init.path={path}") for path in (file, copied))
    assert one.folder == other.folder
    assert [run.identity(one.module(run.fold)) for run in one.runs] == [
        run.identity(other.module(run.fold)) for run in other.runs
    ]
    content = torch.load(file)
    content["conv1.0.weight"] += 1
    torch.save(content, copied)
    changed = make_study(tmp_path, *words, f"init.path={copied}")
    assert {run.folder for run in changed.runs}.isdisjoint({run.folder for run in one.runs})
    assert init_of(changed) != init_of(one)


def test_frozen_batchnorm_with_given_weights_unless_typed(small: list[str], file: Path) -> None:
    given = ("init=file", f"init.path={file}")
    assert composed(*small).backbone.norm == "train"
    assert composed(*small, *given).backbone.norm == "frozen"
    assert composed(*small, *given).backbone.name == "test_resnet-bn_frozen"
    assert composed(*small, *given, "backbone.norm=train").backbone.norm == "train"


def test_images_are_normalized_as_the_weights_want_them(
    small: list[str], file: Path, tmp_path: Path
) -> None:
    given = ("init=file", f"init.path={file}")
    half = ("init.mean=[0.5,0.5,0.5]", "init.std=[0.4,0.4,0.4]")
    for words, (mean, std) in (
        ((), IMAGENET),
        (given, IMAGENET),
        ((*given, *half), ([0.5] * 3, [0.4] * 3)),
        ((*given, *half, "dataset.normalize.std=[1,2,3]"), ([0.5] * 3, [1, 2, 3])),
    ):
        study: Any = make_study(tmp_path, *small, *words)
        assert study.environments.store.mean.flatten().tolist() == pytest.approx(mean)
        assert study.environments.store.std.flatten().tolist() == pytest.approx(std)
        assert study.config["dataset"]["normalize"] == {
            "mean": pytest.approx(mean),
            "std": pytest.approx(std),
        }


@pytest.mark.parametrize(
    ("init", "least"),
    [("supervised", 12), ("swag", 2), ("dinov2", 2), ("dinov3", 1), ("clip", 2), ("siglip", 1)],
)
def test_the_published_records_are_timms(init: str, least: int) -> None:
    """Address, mean, deviation and size of every entry; CLIP and SigLIP lie elsewhere, with their
    text encoders.
    """
    published = plain(composed(f"init={init}", "backbone=resnet50"))["init"]["published"]
    names = []
    for arch, versions in published.items():
        for version, entry in versions.items():
            # of no tag of timm's: its default says what images are
            in_package = entry["url"].startswith(PACKAGE)
            record = timm.get_pretrained_cfg(arch if in_package else f"{arch}.{version}")
            assert record is not None
            moved = record.url.replace("/rwightman/", "/huggingface/")
            known = {
                moved,
                f"https://huggingface.co/{record.hf_hub_id}/resolve/main/model.safetensors",
            }
            assert entry["url"] in known or "text" in entry or in_package
            # torch's habit: the beginning of the sha256
            stated = re.search(r"-([0-9a-f]{8})\.pth$", entry["url"])
            sha256 = entry.get("sha256")
            assert "text" in entry or (sha256[:8] if sha256 else None) == (
                stated[1] if stated else None
            )
            assert entry.get("mean", IMAGENET[0]) == list(record.mean)
            assert entry.get("std", IMAGENET[1]) == list(record.std)
            assert entry.get("input_size", 224) == record.input_size[1]
            names.append(f"{arch}.{version}")
    assert len(names) >= least


def test_image_size_of_the_weights(file: Path) -> None:
    config = plain(composed("dataset=pacs", "dataset.image_size=null", "backbone=resnet18"))
    assert filled_dataset(named_weights(config).images, config["dataset"])["image_size"] == 224
    assert config["dataset"]["image_size"] is None


@pytest.mark.parametrize("init", ["supervised", "moco", "simclr", "file"])
@pytest.mark.parametrize("backbone", ["mlp", "mnist_cnn", "wide_resnet"])
def test_small_networks_have_no_published_weights(init: str, backbone: str) -> None:
    with pytest.raises(ConfigError, match=rf"init={init}.*weights.*backbone.*init=random"):
        named_weights(plain(composed(f"init={init}", f"backbone={backbone}")))


def test_published_versions_of_each_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each, as the papers have it; what is not published says what is."""
    from dgbench.networks.weights import PretrainedWeights
    from dgbench.plan.building import build, without

    def version(*words: str) -> str | None:
        config = plain(composed(*words))
        made: PretrainedWeights = build(
            without(config, "init", "norm"), "init", arch=config["backbone"]["arch"]
        )
        return made.version

    assert version("init=moco", "backbone=resnet50") == "v2"
    assert version("init=moco", "backbone=resnet50", "init.version=v1") == "v1"
    assert version("init=moco", "backbone=vit_b16") == "v3"
    assert version("init=supervised", "backbone=resnet18") == "tv_in1k"
    assert version("init=simclr", "backbone=resnet50") == "vissl_800ep"
    with pytest.raises(ConfigError, match=r"init=moco.*weights.*resnet18.*resnet50, vit_base"):
        version("init=moco", "backbone=resnet18")
    with pytest.raises(
        ConfigError, match=r"init.version=v1 is unknown for vit_base_patch16_224; choose from v3"
    ):
        version("init=moco", "backbone=vit_b16", "init.version=v1")


@pytest.mark.thorough
@pytest.mark.parametrize("norm", ["train", "frozen"])
def test_a_stack_of_resnets_starts_and_steps_as_its_runs_do(
    small: list[str], tmp_path: Path, norm: str
) -> None:
    """Planning leaves no trace in the running statistics; then rows of stacked and single runs
    agree.
    """
    from dgbench.callbacks.progress import StudyProgress
    from dgbench.records.rows import read_rows
    from dgbench.training.groups import plan_groups
    from dgbench.training.modules.stacked import StackedRuns
    from dgbench.training.train_runs import train_runs

    rows = {}
    for mode in ("single", "stacked"):
        words = (*small, f"backbone.norm={norm}", f"execution={mode}", "trainer.precision=64-true")
        study = make_study(tmp_path / mode, *words, "trainer.eval_every=2")
        assert study.why_not_stacked() is None
        (*_, group) = plan_groups(study.runs, study.config["execution"])
        assert group.stacked is (mode == "stacked")
        stack = StackedRuns([run.study.module(run.fold) for run in group.runs])
        for i, run in enumerate(group.runs):
            fresh = study.module(run.fold).state_dict()
            assert all(torch.equal(fresh[key], value) for key, value in stack.weights(i).items())
        train_runs(
            [study], study.config["execution"], StudyProgress(len(study.runs), 2, "test"), None
        )
        rows[mode] = [
            row for run in study.runs for row in read_rows(run.folder / "errors.jsonl")[0]
        ]
    keys = ("fold", "step", "env", "subset", "wrong")
    assert [[r[k] for k in keys] for r in rows["single"]] == [
        [r[k] for k in keys] for r in rows["stacked"]
    ]
    assert [r["loss"] for r in rows["stacked"]] == pytest.approx(
        [r["loss"] for r in rows["single"]], rel=1e-9
    )
    assert len(rows["single"]) > 4


def test_networks_that_gain_nothing_are_built_one_by_one(small: list[str], tmp_path: Path) -> None:
    """On a CPU: the plan of ten folds or seeds of a ResNet holds no weights, and builds one
    network.
    """
    from dgbench.training.groups import plan_groups

    study = make_study(tmp_path, *small, "execution=auto")
    built = []
    whole = study.module
    study.module = lambda fold: built.append(fold) or whole(fold)  # type: ignore[method-assign,func-returns-value]
    groups = plan_groups(study.runs, study.config["execution"])
    assert [len(group.runs) for group in groups] == [1] * len(study.runs)
    assert not any(group.stacked for group in groups)
    assert len(study.runs) > 1
    assert len(built) == 1


def test_studies_that_differ_in_batchnorm_do_not_stack(small: list[str], tmp_path: Path) -> None:
    from dgbench.training.groups import plan_groups

    words = (*small, "execution=stacked", "protocol.folds=[0]")
    one = make_study(tmp_path, *words)
    both = [one, make_study(tmp_path, *words, "backbone.norm=frozen", source=one.source)]
    groups = plan_groups([run for study in both for run in study.runs], one.config["execution"])
    assert [len(group.runs) for group in groups] == [1, 1]


def test_how_much_of_a_file_arrived_stands_in_the_run(small: list[str], tmp_path: Path) -> None:
    import json

    import timm
    import torch

    from dgbench.callbacks.progress import StudyProgress
    from dgbench.training.train_runs import train_runs

    net = timm.create_model("test_resnet", num_classes=10)
    path = tmp_path / "last.ckpt"
    torch.save(
        {"state_dict": {f"net.{name}": value for name, value in net.state_dict().items()}}, path
    )
    words = (
        *small,
        "backbone.arch=test_resnet",
        "init=file",
        f"init.path={path}",
        "protocol.folds=[0]",
    )
    study = make_study(tmp_path / "out", *words)
    train_runs([study], study.config["execution"], StudyProgress(1, 2, "test"), None)
    (run,) = study.runs
    record = json.loads((run.folder / "identity.json").read_text())
    assert (
        record["weights"]["tensors"] == [90, 90]
        and record["weights"]["place"] == "state_dict, net.*"
    )
