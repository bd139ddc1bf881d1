"""What the hash of a run holds: every value that changes a result, and no other, however it was
typed.
"""

from __future__ import annotations

import copy
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.datasets.base_images import MNIST_KINDS, MNIST_PARTS
from dgbench.errors import DgbenchError
from dgbench.plan.compose import Composed
from dgbench.plan.identity import NO_RESULT
from dgbench.plan.studies import PlannedStudy, Planner
from tests.conftest import draw_tree
from tests.studies import composed, make_plan, plain
from tests.vectors import save

#: Keys of NO_RESULT whose value reaches a run by another way: changing one may change the hash. For
#: the others it must not. The tests below say of each which changes do.
FEEDS = (
    "algorithm.hparams", "algorithm.search", "algorithm.shared", "hparams.shared", "hparams.rng",
    "init", "protocol", "dataset.image_kind", "dataset.data_dir", "dataset.root",
    "dataset.manifest", "dataset.reader", "dataset.environments", "dataset.classes",
    "dataset.bad_files", "dataset.ratio", "dataset.scale", "dataset.given_sets",
    "dataset.augmentations", "dataset._target_", "backbone._target_",
    # code of a user's own counts, dgbench's does not
    "algorithm._target_", "tuning._target_", "averaging._target_",
)  # fmt: skip

HERE = "tests.plan.test_identity"


def __getattr__(name: str) -> Any:
    """``CopiedX``: the class X that a file of conf/ names, under the import path of a user."""
    files = (
        path
        for group in ("dataset", "corruptions", "init", "protocol")
        for path in (CONF / group).glob("*.yaml")
    )
    targets = [
        target
        for file in files
        for target in re.findall(r"^_target_: (\S+)", file.read_text(), re.M)
    ]
    found = [target for target in targets if f"Copied{target.rpartition('.')[2]}" == name]
    if not found:
        raise AttributeError(name)
    return get_class(found[0])


#: key -> another value that the key can take, where adding one to a number or a letter to a text
#: makes none
VALID: dict[str, Any] = {
    "algorithm._target_": "a.module.of.mine",
    "init._target_": lambda old: f"{HERE}.Copied{old.rpartition('.')[2]}",
    "protocol._target_": lambda old: f"{HERE}.Copied{old.rpartition('.')[2]}",
    "algorithm.shared": ["lr", "batch_size"],
    "algorithm.search": {"domainbed": {}},
    "dataset._target_": lambda old: f"{HERE}.Copied{old.rpartition('.')[2]}",
    "dataset.image_kind": lambda old: "large" if old == "small" else "small",
    "dataset.base": lambda old: "mnist_train" if old == "mnist" else "mnist",
    "dataset.resolution": lambda old: 14 if old == 28 else 28,
    "dataset.ratio": lambda old: "3:2" if old == "4:1" else 4,
    "dataset.scale": 2,
    "dataset.evaluation": "sampled",
    "dataset.e_means": lambda old: "agree" if old == "disagree" else "disagree",
    "dataset.given": lambda old: [0.15, *old[1:]] if old else [0.9, 0.2],
    "dataset.shares": [3, 2, 1],
    "dataset.val_only": [],
    "dataset.image_size": lambda old: 64 if old != 64 else 96,
    "dataset.environments": ["a", "b"],
    "dataset.plain_environments": [],
    "dataset.classes": "union",
    "dataset.bad_files": ["a/cat/00.png"],
    "dataset.subset_column": "none",
    "dataset.split_pattern": "[^/]*/[^/]*/[^/]",
    "dataset.min_images": 3,
    "trainer.environments_per_step": 1,
    "trainer.small_environments": "repeat",
    "trainer.sampling": "class_balanced",
    "dataset.on_bad_image": lambda old: "skip" if old == "fail" else "fail",
    "dataset.augment": lambda old: "nico" if old != "nico" else "domainbed",
    "dataset.store": "file",
    "dataset.workers": 3,
    "dataset.corruptions": ["fog", "snow", "frost"],
    "dataset.severity": 4,
    "dataset.normalize.mean": [0.5, 0.4, 0.3],
    "dataset.normalize.std": [0.5, 0.4, 0.3],
    "dataset.published": {"images": 3},
    "dataset.layout": "environment/class",
    "dataset.duplicates": "fail",
    "dataset.test_groups": [["a"], ["b"]],
    "grid": {"seed": [0, 1]},
    "hparams.space": lambda old: "ood_bench" if old == "domainbed" else "domainbed",
    "hparams.rng": "single_stream",
    "hparams.scheme": {"draws": 3},
    "init.version": "v7",
    "init.allow_unexpected": ["*.more"],
    "init.mean": [0.1, 0.2, 0.3],
    "init.std": [0.1, 0.2, 0.3],
    "init.published": {"another": {}},
    "protocol.name": "mine",
    "protocol.folds": ["0"],
    "protocol.groups": [["a"], ["b"]],
    "protocol.k": 1,
    "protocol.train": ["a"],
    "protocol.val": ["b"],
    "protocol.test": lambda old: ["c"] if isinstance(old, list) else 1,
    "protocol.seed": 1,
    "protocol.default_groups": [["a"]],
    "protocol.setting": "compositional",
    "plan": True,
    "retry": "failed",
    "sweep.runs_per_job": 3,
    "execution.mode": lambda old: "single" if old != "single" else "auto",
    "init.norm": "fixed",
    "backbone.norm": "fixed",
    "tuning.layer_decay": 0.5,
    "tuning.head_lr": 0.1,
    "backbone.projection": 8,
    "head.class_names": {"x": "y"},
    "head.scale": 2.0,
    "logger.mode": "offline",
    "execution.max_runs": 2,
    "execution.memory_gb": 1.5,
    "averaging.rule.flavor": "parameters",
    "tuning.freeze_stages": 2,
    "tuning.cache_dir": "somewhere",
    "trainer.device": lambda old: "cpu" if old != "cpu" else "auto",
    "trainer.schedule": "cosine",
    "trainer.gradient_clip": 1.0,
    "trainer.accumulate": 2,
    "trainer.eval_subsets": ["train", "val", "test"],
    "trainer.eval_test": "best",
    "trainer.predictions": "last",
    "trainer.devices": lambda old: 2 if old == 1 else 4,
    "trainer.precision": "64-true",
    "trainer.matmul": "high",
}  # fmt: skip


def mutated(key: str, old: Any) -> Any:
    """Another plausible value of a key."""
    if key.endswith((".crop_area", ".crop_aspect")):
        return [0.5, 0.75]
    if key.endswith(".crop_in"):
        return "file"
    if key.endswith(".range"):
        return ""
    if key in VALID:
        return VALID[key](old) if callable(VALID[key]) else VALID[key]
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return old + 1
    if isinstance(old, float):
        return old * 0.9 if old else 0.1
    if isinstance(old, str):
        return f"{old}x"
    if isinstance(old, list):
        return old[:-1] if len(old) > 1 else [*old, *old]
    return "x" if old is None else {"x": 1}


def other_option(config: dict[str, Any], path: str, old: Any) -> str | None:
    """Another option of a hyperparameter that is a switch; None for any other leaf."""
    parts = path.split("\0")
    if (
        not isinstance(old, str)
        or parts[:2] != ["algorithm", "hparams"]
        or parts[3:] != ["default"]
    ):
        return None
    options = [
        word.strip() for word in config["algorithm"]["hparams"][parts[2]]["range"].split("|")
    ]
    return next((option for option in options if option != old), None)


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}{key}\0")
    else:
        yield prefix.removesuffix("\0"), node


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(config)
    node = other
    *parents, last = path.split("\0")
    for part in parents:
        node = node[part]
    assert last in node
    node[last] = value
    return other


def reason(key: str, known: Any) -> str | None:
    """The entry that covers a key: the key itself or the beginning of it."""
    words = key.split(".")
    return next(
        (head for n in range(len(words)) if (head := ".".join(words[: n + 1])) in known), None
    )


class Runs:
    """Hashes of the first run of a configuration and of its variants."""

    def __init__(self, folder: Path) -> None:
        self.planner = Planner(None, folder)

    def plan(self, config: dict[str, Any]) -> PlannedStudy:
        return self.planner.study([], Composed.of_plain(config, "outputs"))

    def hash(self, config: dict[str, Any]) -> str:
        planned = self.plan(config)
        return planned.run_spec(planned.folds[0]).digest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests of this file only read lies here."""
    return tmp_path_factory.mktemp("read")


@pytest.fixture(scope="module")
def fake_mnist(folder: Path) -> Path:
    """Files where MNIST's would be; planning reads none of their images."""
    raw = folder / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in MNIST_PARTS:
        for kind in MNIST_KINDS:
            (raw / f"{part}-{kind}").write_text(f"{part} {kind}")
    return folder / "data"


@pytest.fixture(scope="module")
def tree(folder: Path) -> Path:
    return draw_tree(folder / "tree", {env: {"cat": 12, "dog": 12, "emu": 12} for env in "abcd"})


def listed(tree: Path) -> Path:
    """A list of the images of a tree, beside it."""
    rows = [
        f"{path.relative_to(tree)},{path.parts[-3]},{path.parts[-2]}"
        for path in sorted(tree.rglob("*.png"))
    ]
    file = tree.parent / "list.csv"
    file.write_text("\n".join(["path,environment,class", *rows]))
    return file


@pytest.fixture(scope="module")
def weights(folder: Path) -> Path:
    """A file of weights as planning sees it: bytes."""
    (folder / "weights.pth").write_bytes(b"weights")
    return folder / "weights.pth"


def check_every_leaf(
    config: dict[str, Any], folder: Path, special: dict[str, Any], top: str = ""
) -> set[str]:
    """Change every leaf below ``top``, one at a time.

    Args:
        special: key -> another valid value in this configuration; its own value where it can have
            no other.

    Returns:
        entries of NO_RESULT that were met.
    """
    runs = Runs(folder)
    for group in ("algorithm", "tuning"):
        # a name of dgbench's stands for one class, and for one kind of tuning
        config[group]["name"] = "mine"
    before = runs.hash(config)
    special = {"selection.environments": [runs.plan(config).info.given[0]], **special}
    if (
        "split_by" in config["dataset"]
    ):  # needs a list with a column; tests/data/test_split_units.py
        special["dataset.split_by"] = None
    wrong, met = [], set()
    for path, old in leaves(config):
        key = path.replace("\0", ".")
        if not f"{key}.".startswith(top):
            continue
        value = (
            special[key] if key in special else other_option(config, path, old) or mutated(key, old)
        )
        if key in special and value == old:  # refused beside other keys; another test changes it
            continue
        try:
            after = runs.hash(changed(config, path, value))
        except DgbenchError as error:
            wrong.append(f"{key}: {old} -> {value} is refused, name a valid value: {error}")
            continue
        entry = reason(key, NO_RESULT)
        met |= {entry} if entry else set()
        if entry is None and after == before:
            wrong.append(f"{key}: {old} -> {value} changes no hash, and NO_RESULT does not say why")
        if entry is not None and after != before and reason(key, FEEDS) is None:
            wrong.append(
                f"{key}: {old} -> {value} changes the hash, though NO_RESULT holds {entry}"
            )
    assert not wrong, "\n".join(wrong)
    return met


TREE = (
    "dataset=image_folder", "dataset.image_size=32", "hparams.batch_size=4",
    "dataset.cache_dir=nowhere", "backbone=mlp",
)  # fmt: skip


@pytest.mark.parametrize("number", [0, 3])
def test_every_leaf_of_a_small_configuration(fake_mnist: Path, tmp_path: Path, number: int) -> None:
    """The default set of hyperparameters, and a draw."""
    words = (
        "algorithm=vrex",
        f"paths.data_dir={fake_mnist}",
        f"hparams.draw={number}",
        "hparams.batch_size=16",
    )
    config = plain(composed(*words, "dataset.base=mnist"))
    copied = tmp_path / "copy"
    shutil.copytree(fake_mnist, copied)
    check_every_leaf(config, tmp_path, {"dataset.data_dir": str(copied)})


def test_every_leaf_of_a_corrupted_folder(tree: Path, weights: Path, tmp_path: Path) -> None:
    """Corruptions, weights from a file, partial freezing, SWAD, a search, W&B and several test
    environments.
    """
    words = (
        *TREE, "corruptions=hendrycks", f"dataset.root={tree}", "dataset.given=1-1-1-1",
        "backbone=resnet18", "init=file", f"init.path={weights}", "tuning=freeze", "averaging=swad",
        "hparams=search", "logger=wandb", "protocol=multi_test", "selection=ood_val",
        "execution=stacked", "algorithm=dann",
    )  # fmt: skip
    copied, also = tmp_path / "copy", tmp_path / "also.pth"
    shutil.copytree(tree, copied)
    shutil.copy(weights, also)
    special = {
        "dataset.root": str(copied), "init.path": str(also), "protocol.k": 1,
        "init.sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "dataset.given": ["a", "b+fog", "c", "d"], "dataset.environments": ["d", "c", "b", "a"],
        "dataset.reader": None, "init.url": None, "dataset.manifest": str(listed(tree)),
        "protocol.groups": [["a+fog"], ["b+glass_blur"]], "protocol.default_groups": [["a+fog"]],
    }  # fmt: skip
    check_every_leaf(plain(composed(*words)), tmp_path, special)


def test_every_leaf_of_a_folder_of_images(tree: Path, tmp_path: Path) -> None:
    """Clean images by a list, linear probing, EoA and other environments for every class."""
    words = (
        *TREE, f"dataset.root={tree}", f"dataset.manifest={listed(tree)}", "backbone=resnet50",
        "tuning=lp", "averaging=eoa", "protocol=flexible", "protocol.dominant=1",
        "protocol.minor=1", "protocol.test=1", "protocol.exclusive=2", "algorithm=mixstyle",
        "hparams.draw=2", "hparams.space=ood_bench",
    )  # fmt: skip
    copied = tmp_path / "copy"
    shutil.copytree(tree, copied)
    again = tmp_path / "again.csv"
    shutil.copy(listed(tree), again)
    special = {
        "dataset.root": str(copied), "dataset.manifest": str(again), "dataset.reader": None,
        "dataset.environments": ["d", "c", "b", "a"],
    }  # fmt: skip
    check_every_leaf(plain(composed(*words)), tmp_path, special)


FILES = [
    (path.parent.name, path.stem)
    for path in sorted(CONF.glob("*/*.yaml"))
    if path.parent.name
    not in (
        "adaptation",  # of stored models, not of training
        "experiment",
        "measure",
        "shift_experiment",
        "hydra",
        "import",
        "report",
        "estimator",
        "corruptions",
        "paths",
    )
]
OF_TODAY = ("resnet50_pretrained", "convnext_b", "deit_s16", "efficientnet_b0",
    "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2",
            "regnety_16gf", "vit_b16_clip", "vit_b16_siglip", "vit_b14_dinov2",
            "vit_b16_dinov3")  # fmt: skip
#: what a file needs beside it
BESIDE: dict[str, list[str]] = {
    **{f"backbone={name}": ["init=random"] for name in OF_TODAY},
    "backbone=timm": ["init=random", "backbone.arch=test_convnext"],
    # nothing is trained where it only judges models
    "dataset=cmnist_irm": ["protocol=fixed", "protocol.train=['0.20']", "protocol.test=['0.90']"],
    "protocol=fixed": ["protocol.test=[d]"],
    "protocol=flexible": [
        "protocol.dominant=1",
        "protocol.minor=1",
        "protocol.test=1",
        "protocol.exclusive=2",
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize(("group", "name"), FILES, ids=str)
def test_every_leaf_of_every_file(
    group: str, name: str, tree: Path, weights: Path, fake_mnist: Path, tmp_path: Path
) -> None:
    """What one choice of a group adds.

    Datasets are absent: their configuration tells of their environments.
    """
    on_tree = [*TREE, f"dataset.root={tree}"]
    words = {
        "protocol": on_tree,
        "init": [
            *on_tree,
            "backbone=resnet50",
            *([f"init.path={weights}"] if name != "random" else []),
        ],
        "dataset": [f"paths.data_dir={fake_mnist}", "hparams.batch_size=4", "init=random"],
    }.get(group, [])
    special: dict[str, Any] = {"init.path": str(weights), "init.url": None}
    special["init.sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    if name == "ddp":  # several processes refuse the others
        special |= {"trainer.eval_test": "always", "trainer.predictions": "none"}
        special["trainer.class_errors"] = False
    if group == "dataset":
        words += ["dataset.base=mnist"] if name == "sr_cmnist" or name == "cmnist" else []
        words += [f"dataset.root={tree}"] if name in ("image_folder", "manifest") else []
        words += [f"dataset.manifest={listed(tree)}"] if name == "manifest" else []
        words += [f"dataset.path={save(tmp_path / 'x.npz')}"] if name == "features" else []
    config = plain(composed(f"{group}={name}", *words, *BESIDE.get(f"{group}={name}", [])))
    if group == "dataset":
        environments = (config["dataset"].get("published") or {}).get("environments") or [
            "d",
            "c",
            "b",
            "a",
        ]
        special["dataset.published.environments"] = environments  # stands for those of absent files
        special["dataset.environments"] = environments[::-1]
        special["dataset.root"] = config["dataset"].get("root")
        special["dataset.manifest"] = config["dataset"].get("manifest")
        special["dataset.reader"] = None
        if name == "features":
            special |= {"dataset.path": str(save(tmp_path / "also.npz")), "dataset.columns": None}
            special["dataset.environments"] = ["c", "b"]
        if isinstance(config["dataset"].get("given"), str):
            special["dataset.given"] = [environments[0], f"{environments[1]}+fog"]
    check_every_leaf(config, tmp_path, special, top=f"{group}.")


@pytest.mark.thorough
def test_no_reason_is_stale(tree: Path) -> None:
    """Every entry of NO_RESULT stands in a configuration that some choice of files composes."""
    configs: list[Any] = [
        composed(*TREE, f"dataset.root={tree}", "corruptions=hendrycks", "experiment=ye2022_table1")
    ]
    groups = ("dataset", "tuning", "init", "algorithm")
    choices = zip_longest(
        *([f"{group}={name}" for other, name in FILES if other == group] for group in groups)
    )
    configs += [composed(*filter(None, row)) for row in choices]
    configs += [composed("averaging=swad"), composed("backbone=resnet18")]
    configs.append(composed(hydra=True))
    known = {
        path.replace("\0", ".")
        for config in configs
        for path, _ in leaves(OmegaConf.to_container(config))
    }
    heads = {head for key in known if (head := reason(key, NO_RESULT))}
    assert set(NO_RESULT) - heads == set()
    assert all(len(why) > 10 for why in NO_RESULT.values())


# ---- other science, other hash

TINY = ("dataset.base=digits",)
VREX = ("algorithm=vrex", *TINY)


def of(*words: str) -> str:
    """Hash of the first run of a command."""
    planned = make_plan(Path("outputs"), *words)
    return planned.run_spec(planned.folds[0]).digest


def test_a_distribution_that_changes_a_draw_makes_another_run() -> None:
    words = (*VREX, "hparams.space=domainbed", "hparams.draw=3")
    narrowed = "algorithm.search.domainbed.vrex_lambda.log10_uniform=[0,1]"
    assert of(*words) != of(*words, narrowed)
    assert of(*VREX) == of(*VREX, narrowed), "the default set draws nothing"


@pytest.mark.parametrize(
    "word",
    [
        "hparams.lr=0.01", "hparams.batch_size=32", "hparams.weight_decay=0.1",
        "hparams.vrex_lambda=1", "hparams.draw=1", "hparams.trial=1", "hparams.space=yu2024",
        "seed=1", "protocol=single_source", "protocol.folds=[1]", "protocol.name=mine",
        "init.name=mine", f"dataset._target_={HERE}.CopiedSRCMNIST", "dataset.ratio=4",
        "dataset.scale=2", "dataset.given=[0.9,0.1]", "backbone._target_=my.Featurizer",
        "backbone=mnist_cnn", "averaging=eoa", "tuning=lp", "sharpness=sam",
        "hparams.shared.hparams.lr.default.small=0.1",
    ],
)  # fmt: skip
def test_what_is_computed_changes_the_hash(word: str) -> None:
    assert of(*VREX, word) != of(*VREX)


def test_an_objective_changes_the_hash_under_one_name() -> None:
    words = (*VREX, "algorithm.name=mine")
    assert of(*words, "algorithm.objective=dgbench.algorithms.irm.IRM") != of(*words)


def test_a_listed_environment_counts_to_the_last_digit() -> None:
    """Its name has two digits, the probability that it stands for has more."""
    one, other = (
        make_plan(Path("outputs"), *VREX, f"dataset.given=[{e},0.1]") for e in (0.8, 0.80003)
    )
    assert one.info.given == other.info.given
    assert one.spec.digest != other.spec.digest


@pytest.mark.parametrize(
    "word",
    ["protocol.minor_images=3", "protocol.test_images=3", "protocol.minor=2", "protocol.seed=1"],
)
def test_what_a_class_trains_on_changes_the_hash(tree: Path, word: str) -> None:
    words = (
        *TREE,
        f"dataset.root={tree}",
        "protocol=flexible",
        "protocol.name=one",
        *BESIDE["protocol=flexible"],
    )
    assert of(*words, word) != of(*words)


def test_what_a_network_reads_changes_the_hash() -> None:
    """The same value, handed to another argument of the network's class."""
    one, other = (f"+backbone.hparams={{{key}: lr}}" for key in ("dropout", "depth"))
    assert len({of(*VREX), of(*VREX, one), of(*VREX, other)}) == 3


# ---- same science, same hash


@pytest.mark.parametrize(
    "words",
    [
        ("hparams.lr=0.001",), ("hparams.lr=1e-3",), ("hparams.lr=1.0E-3",), ("hparams.lr=null",),
        ("hparams.vrex_lambda=10",), ("hparams.vrex_lambda=10.0",), ("hparams.vrex_lambda=1e1",),
        ("hparams.weight_decay=0",), ("hparams.batch_size=64",), ("seed=0",), ("hparams.draw=0",),
        ("trainer.steps=5000",), ("trainer.steps=5_000",), ("trainer.gradient_clip=null",),
        ("dataset.ratio=3",), ("dataset=sr_cmnist", "dataset.label_noise=.25"),
        ("dataset.data_dir=elsewhere",),
        ("init=random",), ("tuning=ft",), ("averaging=none",), ("sharpness=none",),
        ("backbone=mlp", "backbone.width=390"),
        ("protocol=loo", "protocol.folds=[0,full]"), ("hparams=default",), ("hparams=search",),
        ("execution=single",), ("logger=wandb",), ("selection=oracle",), ("trainer.device=cpu",),
        ("trainer.checkpoint_seconds=0",), ("paths.output_dir=elsewhere",),
        ("dataset.resolution=14",),
        ("hparams.shared.hparams.lr.default.small=0.1", "hparams.lr=0.001"),
        ("hparams.shared.hparams.lr=0.001",),
        ("hparams.shared.hparams.lr.default.large=0.1",),
        ("dataset.image_kind=large", "hparams.lr=0.001", "hparams.batch_size=64"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_computes_the_same_has_one_hash(words: tuple[str, ...]) -> None:
    assert of(*VREX, *words) == of(*VREX)


def test_environments_that_are_listed_hide_the_ratio() -> None:
    given = (*VREX, "dataset.given=[0.9,0.8,0.1]")
    assert (
        of(*given)
        == of(*given, "dataset.ratio=4")
        == of(*given, "dataset.ratio=null", "dataset.scale=null")
    )


def test_weights_count_by_what_the_file_holds(tree: Path, weights: Path) -> None:
    copied, other = weights.with_name("copied.pth"), weights.with_name("other.pth")
    shutil.copy(weights, copied)
    other.write_bytes(b"others")
    words = (*TREE, f"dataset.root={tree}", "backbone=resnet18", "init=file")
    first = of(*words, f"init.path={weights}")
    cache = f"init.cache_dir={weights.parent}"
    assert (
        first
        == of(*words, f"init.path={copied}")
        == of(*words, f"init.url={copied.as_uri()}", cache)
    )
    assert first != of(*words, f"init.path={other}")


# ---- images


def folder_of(tree: Path, *words: str) -> Path:
    return make_plan(Path("outputs"), *TREE, f"dataset.root={tree}", *words).folder


def test_equal_images_at_two_places_share_a_folder(tree: Path, tmp_path: Path) -> None:
    """Times of the files do not count, nor how the same images were named."""
    tree = shutil.copytree(tree, tmp_path / "tree")
    copied = tmp_path / "elsewhere" / "copied"
    shutil.copytree(tree, copied, copy_function=shutil.copyfile)
    first = folder_of(tree)
    assert folder_of(copied) == first
    for words in (
        ("dataset.environments=[a,b,c,d]",), ("dataset.classes=union",),
        ("dataset.on_bad_image=skip",),
        ("dataset.image_size=32",), ("dataset.normalize.mean=[0.485,0.456,0.406]",),
        ("dataset.store=file",),
        (f"dataset.manifest={listed(tree)}",),
    ):  # fmt: skip
        assert folder_of(tree, *words) == first, words
    shutil.copyfile(tree / "a" / "cat" / "00.png", tree / "a" / "cat" / "bad.png")
    assert folder_of(tree) != first
    assert folder_of(tree, "dataset.bad_files=[a/cat/bad.png]") == first


def test_other_images_never_share_a_folder(tree: Path, tmp_path: Path) -> None:
    """A pixel, a name, a class, an image more or fewer, the order of the environments."""

    def repaint(copied: Path) -> None:
        content = bytearray((copied / "a" / "cat" / "00.png").read_bytes())
        content[-20] ^= 1
        (copied / "a" / "cat" / "00.png").write_bytes(content)

    changes: list[Callable[[Path], object]] = [
        repaint,
        lambda copied: (copied / "a" / "cat" / "00.png").rename(copied / "a" / "cat" / "99.png"),
        lambda copied: (copied / "a" / "cat" / "00.png").rename(copied / "a" / "dog" / "99.png"),
        lambda copied: (copied / "a" / "cat" / "00.png").unlink(),
        lambda copied: (copied / "d").rename(copied / "e"),
    ]
    folders = [folder_of(tree), folder_of(tree, "dataset.environments=[b,a,c,d]")]
    for number, change in enumerate(changes):
        copied = tmp_path / "changed" / str(number)
        shutil.copytree(tree, copied)
        change(copied)
        folders.append(folder_of(copied))
    assert len({folder.name for folder in folders}) == len(changes) + 2


def test_other_digits_never_share_a_folder(fake_mnist: Path, tmp_path: Path) -> None:
    fake_mnist = shutil.copytree(fake_mnist, tmp_path / "data")
    words = ("dataset.base=mnist", f"paths.data_dir={fake_mnist}")
    first = make_plan(Path("outputs"), *words).folder
    (file, *_) = fake_mnist.rglob("train-labels*")
    file.write_text("other labels")
    assert make_plan(Path("outputs"), *words).folder != first
