"""Every dataset of conf/dataset describes itself as it is built, and decodes nothing for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import sklearn.datasets
import torchvision.datasets.mnist
from omegaconf import DictConfig, OmegaConf

from dgbench.configuration import CONF
from dgbench.data.datasets import base_images as base_files
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments
from dgbench.data.transforms.corruptions import CORRUPTIONS
from dgbench.data.transforms.values import CORRUPTION_NAMES
from dgbench.errors import ConfigError, DataError
from tests.complaints import refused
from tests.datasets import built, described, options_of
from tests.studies import composed
from tests.vectors import save

Tree = Callable[..., Path]
DATASETS = sorted(path.stem for path in (CONF / "dataset").glob("*.yaml"))
REAL = Path(os.environ.get("DGBENCH_DATA_DIR", "nowhere"))
CLASSES = {"cat": 22, "dog": 20}


@pytest.fixture
def make(image_tree: Tree, tmp_path: Path) -> Callable[..., DictConfig]:
    """``make("pacs", "dataset.val_fraction=0.5")``: that dataset on a few images or the digits,
    with changes.
    """

    def config_of(name: str, *words: str) -> DictConfig:
        config = composed(f"dataset={name}", f"paths.cache_dir={tmp_path}/cache", *words)
        dataset = config.dataset
        OmegaConf.set_struct(config, False)
        places: dict[str, Any] = {
            "base": "digits",
            "workers": 1,
            "image_size": 32 if "corruptions" in dataset else 8,
            "reader": None,  # readers: test_ood_bench.py, test_wilds.py, ...
        }
        where = tmp_path / "tree"
        keys = dataset.keys()  # those without a value, too
        if "path" in keys:
            places["path"] = str(save(tmp_path / "features.npz"))
        if "root" in keys:
            places["root"] = str(where)
            listed = (
                dataset.get("environments")
                or (dataset.get("published") or {}).get("environments")
                or "abc"
            )
            if not where.exists():
                image_tree(**dict.fromkeys(map(str, listed), CLASSES))
            if dataset.get("published"):
                dataset.published.classes = None  # the trees made here have two
            if name == "iwildcam":
                places["layout"] = "environment/class"  # its environments are called as splits are
        dataset.update({key: value for key, value in places.items() if key in keys})
        if name == "manifest":
            files = sorted(where.glob("*/*/*.png"))
            lines = []
            for file in files:
                subset = "test" if "1" in file.stem else ""
                env, label = file.parts[-3:-1]
                lines.append(f"{file.relative_to(where)},{env},{label},{subset}")
            (tmp_path / "list.csv").write_text("\n".join(["path,environment,class,subset", *lines]))
            dataset.manifest = str(tmp_path / "list.csv")
        return config

    return config_of


Make = Callable[..., DictConfig]


@contextmanager
def no_decoding() -> Iterator[None]:
    """Whatever would decode an image fails."""

    def refuse(*args: object, **kwargs: object) -> Any:
        raise AssertionError("an image was decoded")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PIL.Image, "open", refuse)
        patch.setattr(PIL.Image.Image, "convert", refuse)
        patch.setattr(PIL.Image, "fromarray", refuse)
        patch.setattr(sklearn.datasets, "load_digits", refuse)
        patch.setattr(torchvision.datasets.mnist, "read_sn3_pascalvincent_tensor", refuse)
        yield


def agree(config: DictConfig) -> Environments:
    """The description and the environments say the same, field by field."""
    info, environments = described(config), built(config)
    assert environments.info == info
    assert info.facts() == {**environments.info.identity(), "content": info.content}
    assert environments.store.image == info.image
    for env in info.given:
        assert len(environments.table.subset(env, "train")) == info.counts[env]["train"]
        assert len(environments.table.subset(env, "val")) == info.counts[env]["val"]
        assert len(environments.table.subset(env, "test")) == info.counts[env]["test"]
    if info.beyond:
        recipes = environments.table.error_recipes(True, ["test"])
        assert tuple(dict.fromkeys(recipe.env for recipe in recipes)) == info.everywhere
    assert info.smallest_training == min(
        len(environments.table.subset(env, "train")) for env in info.given
    )
    assert len(info.content) >= 12
    return environments


@pytest.mark.thorough
@pytest.mark.parametrize("name", DATASETS)
def test_a_description_agrees_with_what_is_built(make: Make, name: str) -> None:
    agree(make(name))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DATASETS)
def test_describing_decodes_nothing(make: Make, name: str) -> None:
    config = make(name)
    with no_decoding():
        described(config)
        if not {"base", "image_size"} & config.dataset.keys():  # nothing to decode
            return
        with pytest.raises((AssertionError, ConfigError, DataError), match="decode"):
            built(config)


def test_describing_imports_no_torch(make: Make, tmp_path: Path) -> None:
    """In a fresh process, one dataset of every kind, with its readers and painters: a plan must not
    wait for torch.
    """
    there = ["pacs_corrupted", "sr_cmnist", "c_cats_dogs", "l_cifar10", "image_folder", "features",
             "rotated_mnist"]  # fmt: skip
    absent = ["nico_pp", "camelyon17", "cmnist_domainbed", "waterbirds", "spawrious_m2m_easy"]
    configs = [make(name) for name in there]
    configs += [composed(f"dataset={name}", "paths.data_dir=nowhere") for name in absent]
    file = tmp_path / "datasets.json"
    file.write_text(
        json.dumps([OmegaConf.to_container(config.dataset, resolve=True) for config in configs])
    )
    program = (
        "import json, sys\n"
        "from dgbench.plan.building import dataset_options, described\n"
        "names = []\n"
        f"for dataset in json.load(open({str(file)!r})):\n"
        "    names.append(described(dataset_options(dataset), absent_ok=True).name)\n"
        "print(len(names), sorted({'torch', 'torchvision', 'PIL.Image'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout.strip(), ended.returncode) == (f"{len(configs)} []", 0), ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("MNIST", ["dataset=sr_cmnist", "dataset.base=mnist"]),
        ("MNIST", ["dataset=cmnist_irm"]),
        ("MNIST", ["dataset=cmnist_domainbed"]),
        ("PACS_64", ["dataset=pacs_corrupted", "dataset.image_size=32"]),
        ("CIFAR10_subset", ["dataset=l_cifar10", "dataset.image_size=32"]),
        ("CatsDogs_32", ["dataset=c_cats_dogs", "dataset.image_size=32"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
@pytest.mark.mnist
def test_real_files(folder: str, words: list[str], tmp_path: Path) -> None:
    if not (REAL / folder).is_dir():
        pytest.skip(f"no {folder} in DGBENCH_DATA_DIR")
    root = [] if folder == "MNIST" else [f"dataset.root={REAL / folder}"]
    agree(composed(*words, *root, f"paths.data_dir={REAL}", f"paths.cache_dir={tmp_path}"))


# ---- content


@pytest.mark.parametrize("name", ["image_folder", "manifest", "c_cats_dogs", "pacs_corrupted"])
def test_content_follows_the_bytes_and_not_the_times(make: Make, tmp_path: Path, name: str) -> None:
    config = make(name)
    before = described(config).content
    image = min((tmp_path / "tree").rglob("*.png"))
    os.utime(image, (1, 1))
    assert described(config).content == before
    data = bytearray(image.read_bytes())
    data[-1] ^= 1  # as many bytes as before
    image.write_bytes(data)
    changed = described(config).content
    assert changed != before
    if name != "manifest":  # which names its images
        image.unlink()
        assert described(config).content not in (before, changed)


def test_content_does_not_depend_on_the_place(make: Make, tmp_path: Path) -> None:
    config = make("image_folder")
    before = described(config)
    shutil.copytree(tmp_path / "tree", tmp_path / "copy")
    config.dataset.root = str(tmp_path / "copy")
    assert described(config) == before


def test_content_of_cifar_batches(tmp_path: Path) -> None:
    from tests.data.test_pictures import cifar

    config = composed(
        "dataset=l_cifar10", f"dataset.root={tmp_path}", f"paths.cache_dir={tmp_path}/cache"
    )
    config.dataset.given = [0.9, 0.1]
    cifar(tmp_path / "cifar-10-batches-py", per_batch=20)
    info = agree(config).info
    batch = tmp_path / "cifar-10-batches-py" / "test_batch"
    content = batch.read_bytes()
    place = content.index(b"data") + 200
    batch.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    changed = described(config)
    assert (changed.base, changed.counts) == (info.base, info.counts)
    assert changed.content != info.content


# ---- images that cannot be decoded


@pytest.mark.parametrize("name", ["image_folder", "pacs_corrupted", "c_cats_dogs"])
def test_broken_images_are_known_once_they_were_decoded(
    make: Make, tmp_path: Path, name: str
) -> None:
    """Before, all are counted; afterwards, what the cache says is broken is left out, as in what
    was built.
    """
    config = make(name, "dataset.on_bad_image=skip")
    min((tmp_path / "tree").rglob("*.png")).write_bytes(b"no image")
    before = described(config)
    environments = built(config)
    assert environments.info != before
    assert described(config) == environments.info
    config.dataset.on_bad_image = "fail"
    with pytest.raises(DataError, match="cannot be decoded"):
        described(config)
    for file in (tmp_path / "tree").rglob("*.png"):
        file.write_bytes(b"no image")
    config.dataset.on_bad_image = "skip"
    with pytest.raises(DataError, match=r"images.*image.*left"):
        built(config)


# ---- base images


def test_auto_asks_the_disk_and_tries_a_download_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan downloads nothing; after a download that failed or not, descriptions and environments
    agree.
    """
    tried: list[Path] = []
    monkeypatch.setattr(base_files, "_mnist_fetched", lambda folder: tried.append(folder) or False)
    options = options_of(composed("dataset=sr_cmnist", f"paths.data_dir={tmp_path}"))
    assert options.describe().base == "digits" and not tried
    assert (
        options.build().info.base
        == options.describe().base
        == options.describe(download=True).base
        == "digits"
    )
    assert len(tried) == 1


def test_auto_after_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(folder: Path) -> bool:
        for part in base_files.MNIST_PARTS:
            for kind in base_files.MNIST_KINDS:
                path = base_files.mnist_folder(folder) / f"{part}-{kind}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
        return True

    monkeypatch.setattr(base_files, "_mnist_fetched", fetched)
    options = options_of(composed("dataset=sr_cmnist", f"paths.data_dir={tmp_path}"))
    assert options.describe().base == "digits"
    assert options.describe(download=True).base == options.describe().base == "mnist"
    assert options.describe().image == (2, 28, 28)


def test_mnist_that_is_absent(tmp_path: Path) -> None:
    config = composed("dataset=sr_cmnist", "dataset.base=mnist", f"paths.data_dir={tmp_path}")
    with pytest.raises(
        DataError, match=r"MNIST is not in \S+; .*dgbench fetch sr_cmnist.* set paths\.data_dir"
    ):
        described(config)
    assert described(config, absent_ok=True).given == ("0.80", "0.85", "0.90", "0.10")


# ---- corrupted environments


def test_sixty_four_environments(make: Make) -> None:
    config = make("pacs_corrupted")
    with no_decoding():
        info = described(config)
    assert len(info.everywhere) == 64 and len(info.given) == 4
    assert info.everywhere[:2] == ("art_painting", "art_painting+gaussian_noise")
    environments = built(config)
    assert environments.info.everywhere == info.everywhere


def test_names_of_corruptions() -> None:
    assert list(CORRUPTIONS) == list(CORRUPTION_NAMES)


# ---- values


@pytest.mark.parametrize("name", ["sr_cmnist", "l_cifar10", "pacs", "pacs_corrupted"])
@pytest.mark.parametrize(
    "bad", ["../evil", "a/b", "a\\b", "", ".hidden", "_private", "two\nlines", None, 3]
)
def test_a_name_that_cannot_be_a_folder(make: Make, name: str, bad: object) -> None:
    config = make(name)
    config.dataset.name = bad
    with refused(r"^dataset\.name(=.*folder|.*empty).*letters"):
        described(config)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("sr_cmnist", {"data_seed": "x"}, r"dataset\.data_seed=x.*integer"),
        ("sr_cmnist", {"split_seed": 0.5}, r"dataset\.split_seed=0\.5.*integer"),
        ("sr_cmnist", {"label_noise": "x"}, r"dataset\.label_noise=x is not in \[0, 1\)"),
        ("sr_cmnist", {"val_fraction": "x"}, r"dataset\.val_fraction=x is not in \(0, 1\)"),
        ("sr_cmnist", {"colour": "red"}, r"dataset\.colour.*dataset"),
        ("image_folder", {"split_seed": None}, r"dataset\.split_seed=null.*integer"),
        ("image_folder", {"val_fraction": "x"}, r"dataset\.val_fraction=x is not in \(0, 1\)"),
        ("image_folder", {"augment": "auto"}, "dataset.augment=auto is unknown"),
        ("image_folder", {"store": "disk"}, "dataset.store=disk is unknown"),
        ("image_folder", {"image_size": 0}, r"dataset\.image_size=0.*positive number.*pixels"),
        ("pacs_corrupted", {"corruption_seed": 1.5}, r"dataset\.corruption_seed=1\.5.*integer"),
        ("pacs_corrupted", {"severity": 6}, "dataset.severity=6 is unknown"),
        ("pacs_corrupted", {"image_size": 28}, r"dataset\.image_size=28.*small.*corrupt"),
        ("c_cats_dogs", {"on_bad_image": "shrug"}, "dataset.on_bad_image=shrug is unknown"),
        (
            "image_folder",
            {"reader": {"_target_": "no.such.reader"}},
            r"dataset\.reader=\{_target_:no\.such\.reader\}.*list.*images",
        ),
    ],
)
def test_values_are_refused_without_an_image(
    make: Make, name: str, changes: dict[str, Any], said: str
) -> None:
    config = make(name)
    config.dataset.update(changes)
    with no_decoding(), refused(said):
        described(config)


def test_an_image_size_that_the_weights_decide(make: Make) -> None:
    config = make("image_folder")
    config.dataset.image_size = None
    assert described(config).image == (3, 0, 0)
    with pytest.raises(ConfigError, match=r"dataset\.image_size=null.*positive number"):
        built(config)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "A", "b"), "'a' and 'A'.*case"),
        (("new york", "newyork"), "'new york' and 'newyork'.*blanks"),
        (("caf\u00e9", "cafe\u0301"), r"'caf\\xe9' and 'cafe\\u0301'.*Unicode"),
        (("b", "a\x07"), "cannot be printed.*rename"),
        (("b", "a" * 1001), "1001 characters long.*rename"),
        (("b", " "), "' ', which is blank.*rename"),
    ],
)
def test_names_of_environments_that_no_row_carries_or_nobody_tells_apart(
    names: tuple[str, ...], said: str
) -> None:
    """Of any dataset, one of a user's own too, before anything is trained."""
    with refused(said, DataError):
        DatasetInfo(
            name="own",
            variant={},
            base="",
            split_seed=0,
            given=names,
            everywhere=names,
            n_classes=2,
            image=(3,),
        )
