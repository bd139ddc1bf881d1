"""The fixed environments of OoD-Bench, from small trees in the official layouts."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dgbench.data.datasets import ood_bench
from dgbench.data.datasets.image_folders import ImageFolders
from dgbench.errors import ConfigError, DataError
from dgbench.plan.building import NOT_BUILT, without
from tests.data.layouts import contents, image, made
from tests.datasets import built
from tests.studies import composed, plain

# ---- Camelyon17


@pytest.fixture
def camelyon(tmp_path: Path) -> Path:
    """WILDS' layout: two patches of each class in each of five hospitals."""
    root = tmp_path / "camelyon17_v1.0"
    lines = [",patient,node,x_coord,y_coord,tumor,slide,center,split"]
    for hospital in range(5):
        for i in range(4):
            place, x = f"patient_{hospital:03d}_node_{i}", 32 * i
            image(root / "patches" / place / f"patch_{place}_x_{x}_y_7.png")
            lines.append(
                f"{len(lines) - 1},{hospital:03d},{i},{x},7,{i % 2},{hospital},{hospital},0"
            )
    (root / "metadata.csv").write_text("\n".join(lines) + "\n")
    return root


def test_camelyon17(camelyon: Path) -> None:
    environments = made("camelyon17", camelyon)
    assert list(environments.info.given) == [f"hospital_{i}" for i in range(5)]
    assert contents(environments) == {
        (f"hospital_{i}", label): 2 for i in range(5) for label in ("normal", "tumor")
    }
    catalog = environments.catalog
    position = list(catalog.names or ()).index(
        "patches/patient_003_node_1/patch_patient_003_node_1_x_32_y_7.png"
    )
    assert position in [
        *environments.table.subset("hospital_3", "train"),
        *environments.table.subset("hospital_3", "val"),
    ]
    assert catalog.classes[catalog.labels[position]] == "tumor"


def test_camelyon17_that_will_not_do(camelyon: Path) -> None:
    list_file = camelyon / "metadata.csv"
    text = list_file.read_text()
    list_file.write_text(text.replace("tumor", "label"))
    with pytest.raises(DataError, match=r"metadata\.csv.*column 'tumor'.*first line"):
        made("camelyon17", camelyon)
    list_file.write_text(text + "20,009,9,9,9,1,4,4,0\n")
    with pytest.raises(
        DataError, match=r"1 of 21 files cannot be read.*patient_009_node_9_x_9_y_9\.png"
    ):
        made("camelyon17", camelyon)
    list_file.unlink()
    with pytest.raises(DataError, match=r"metadata\.csv cannot be read"):
        made("camelyon17", camelyon)
    with pytest.raises(DataError, match=r"is no folder; .*dgbench fetch camelyon17"):
        made("camelyon17", camelyon / "nowhere")


# ---- NICO


def nico(root: Path, per_context: int, contexts: tuple[str, ...] = ood_bench.NICO_CONTEXTS) -> Path:
    """NICO's layout, two categories of each class."""
    for label, kinds in (("animal", ("dog", "cat")), ("vehicle", ("bus", "boat"))):
        for context in (*contexts, "at night"):
            for i in range(per_context):
                image(root / label / "images" / kinds[i % 2] / context / f"{i}.jpg")
    return root


def test_table_9_adds_up() -> None:
    """The totals that the paper's text gives: 4,080 examples."""
    assert sum(sum(n) for classes in ood_bench.NICO.values() for n in classes.values()) == 4080
    assert {env: sum(map(sum, classes.values())) for env, classes in ood_bench.NICO.items()} == {
        "train1": 1640,
        "train2": 1640,
        "val": 400,
        "test": 400,
    }


def test_table_10_adds_up() -> None:
    """All 1,748 blond men but one of CelebA: 462 + 924 of its training part, 362 of the others."""
    table = {
        env: {label: sum(n) for label, n in classes.items()}
        for env, classes in ood_bench.CELEBA.items()
    }
    assert table == {
        "train1": {"blond": 12_133, "not blond": 12_133},
        "train2": {"blond": 12_133, "not blond": 12_133},
        "test": {"blond": 724, "not blond": 724},
    }


COUNTS = {
    "train1": {"animal": (1, 3, 1, 3), "vehicle": (3, 1, 3, 1)},
    "test": {"animal": (2, 1, 2, 1), "vehicle": (1, 2, 1, 2)},
}


def groups(rows: list[ood_bench.Row]) -> dict[tuple[str, str, str], int]:
    return dict(Counter((env, label, Path(path).parent.name) for path, env, label, _ in rows))


def test_nico_is_drawn_in_the_wanted_numbers(tmp_path: Path) -> None:
    root = nico(tmp_path / "NICO", 5)
    rows = ood_bench.nico_mixed(root, "drawn", 0, COUNTS)
    assert groups(rows) == {
        (env, label, context): n
        for env, classes in COUNTS.items()
        for label, numbers in classes.items()
        for context, n in zip(ood_bench.NICO_CONTEXTS, numbers, strict=True)
    }
    assert len({path for path, *_ in rows}) == len(rows) == 28, "no image twice"
    assert all(
        (root / path).is_file() and path.startswith(f"{label}/images/")
        for path, _, label, _ in rows
    )


def test_the_draw_depends_on_the_data_seed_alone(tmp_path: Path) -> None:
    root = nico(tmp_path / "NICO", 5)
    first, again, other = (ood_bench.nico_mixed(root, "drawn", seed, COUNTS) for seed in (0, 0, 1))
    assert first == again
    assert sorted(first) != sorted(other)


def test_a_context_with_too_few_images(tmp_path: Path) -> None:
    root = nico(tmp_path / "NICO", 3)
    with pytest.raises(DataError, match=r"3 images.*animal.*forest.*few.*1.*environment test"):
        ood_bench.nico_mixed(root, "drawn", 0, COUNTS)


def test_nico_published_lists(tmp_path: Path) -> None:
    """OoD-Bench's lists: no heading, back slashes, four columns."""
    root = nico(tmp_path / "NICO", 4)
    (root / "mixed_split_corrected").mkdir()
    for i, env in enumerate(ood_bench.NICO):
        kinds = (
            (("dog", "animal"), ("bus", "vehicle"))
            if i % 2 == 0
            else (("cat", "animal"), ("boat", "vehicle"))
        )
        context, images = ("on snow", "on grass")[i // 2], (i % 2, i % 2 + 2)
        lines = [
            f"{kind}\\{context}\\{n}.jpg,{kind},{context},{label}"
            for kind, label in kinds
            for n in images
        ]
        (root / "mixed_split_corrected" / f"env_{env}.csv").write_text("\n".join(lines) + "\n")
    environments = made("nico_mixed", root)
    assert list(environments.info.given) == ["train1", "train2", "val", "test"]
    assert contents(environments) == {
        (env, label): 2 for env in environments.info.given for label in ("animal", "vehicle")
    }
    assert "animal/images/dog/on snow/0.jpg" in (environments.catalog.names or ())
    (root / "mixed_split_corrected" / "env_val.csv").write_text("dog/on grass/0.jpg,dog,on grass\n")
    with pytest.raises(
        DataError, match=r"env_val\.csv has a line 'dog/on grass/0\.jpg,dog,on grass', not path"
    ):
        made("nico_mixed", root)


# ---- CelebA

ATTRIBUTES = [f"Attribute_{i}" for i in range(40)]
ATTRIBUTES[9], ATTRIBUTES[20] = "Blond_Hair", "Male"


def celeba(root: Path, per_group: int) -> dict[str, tuple[bool, bool, int]]:
    """CelebA's layout: per_group images of each hair color, gender and part.

    Returns file -> blond, male, part.
    """
    people = {}
    for i in range(12 * per_group):
        people[f"{i + 1:06d}.jpg"] = (i % 2 == 0, i // 2 % 2 == 0, i // 4 % 3)
    lines = []
    for name, (blond, male, _) in people.items():
        image(root / "img_align_celeba" / name)
        values = ["-1"] * 40
        values[9], values[20] = ("1" if blond else "-1"), ("1" if male else "-1")
        lines.append(f"{name} {'  '.join(values)}")
    (root / "list_attr_celeba.txt").write_text(
        "\n".join([str(len(people)), " ".join(ATTRIBUTES), *lines]) + "\n"
    )
    (root / "list_eval_partition.txt").write_text(
        "".join(f"{name} {part}\n" for name, (_, _, part) in people.items())
    )
    return people


SMALL = {
    "train1": {"blond": (1, 3), "not blond": (3, 1)},
    "train2": {"blond": (2, 2), "not blond": (2, 2)},
    "test": {"blond": (4, 4), "not blond": (4, 4)},
}


def test_celeba_is_drawn_in_the_wanted_numbers(tmp_path: Path) -> None:
    """Training environments from CelebA's training part,
    the test environment from its two others.
    """
    people = celeba(tmp_path, 6)
    rows = ood_bench.celeba_blond(tmp_path, "drawn", 0, SMALL)
    found: Counter[tuple[str, str, str]] = Counter()
    for path, env, label, _ in rows:
        blond, male, part = people[Path(path).name]
        assert label == ("blond" if blond else "not blond")
        assert (part > 0) is (env == "test")
        found[env, label, "male" if male else "female"] += 1
    assert dict(found) == {
        (env, label, gender): n
        for env, classes in SMALL.items()
        for label, numbers in classes.items()
        for gender, n in zip(("male", "female"), numbers, strict=True)
    }
    assert len({path for path, *_ in rows}) == len(rows)


def test_celeba_published_lists(tmp_path: Path) -> None:
    """OoD-Bench's lists: an empty heading and 40 numbers; attribute 9 is the hair."""
    root = tmp_path / "celeba"
    people = celeba(root, 3)
    (root / "blond_split").mkdir()
    heading = "," + ",".join(map(str, range(40)))
    for i, file in enumerate(("tr_env1", "tr_env2", "te_env")):
        lines = [heading]
        for name, (blond, male, part) in people.items():
            if part == i:
                values = ["0"] * 40
                values[9], values[20] = str(int(blond)), str(int(male))
                lines.append(f"{name},{','.join(values)}")
        (root / "blond_split" / f"{file}.csv").write_text("\n".join(lines) + "\n")
    environments = made("celeba_blond", root)
    assert list(environments.info.given) == ["train1", "train2", "test"]
    assert contents(environments) == {
        (env, label): 6 for env in environments.info.given for label in ("blond", "not blond")
    }
    with pytest.raises(DataError, match=r"3 images.*blond, male.*few.*462.*environment train1"):
        made("celeba_blond", root, "dataset.reader.lists=drawn")
    with pytest.raises(
        ConfigError, match=r"dataset\.reader\.lists=both.*unknown.*published.*drawn"
    ):
        made("celeba_blond", root, "dataset.reader.lists=both")
    (root / "blond_split" / "te_env.csv").unlink()
    with pytest.raises(
        DataError, match=r"te_env\.csv cannot be read .*dataset\.reader\.lists=published\|drawn"
    ):
        made("celeba_blond", root)


def test_celeba_without_its_attributes(tmp_path: Path) -> None:
    celeba(tmp_path, 1)
    file = tmp_path / "list_attr_celeba.txt"
    file.write_text(file.read_text().replace("Blond_Hair", "Hair"))
    with pytest.raises(DataError, match=r"Blond_Hair.*Male.*second line"):
        ood_bench.celeba_blond(tmp_path, "drawn", 0, SMALL)


# ---- the split of protocol=fixed


@pytest.mark.parametrize("name", ["camelyon17", "nico_mixed", "celeba_blond", "cmnist_irm"])
def test_the_fixed_split_names_environments_that_exist(name: str) -> None:
    dataset = composed(f"dataset={name}").dataset
    known = (
        dataset.published.environments
        if "published" in dataset
        else [f"{e:.2f}" for e in dataset.given]
    )
    split: dict[str, Any] = dict(dataset.split)
    assert sorted(env for part in split.values() for env in part) == sorted(known)
    assert len(split["train"]) >= 2
    assert len(split["test"]) == 1


def test_any_reader_is_taken(tmp_path: Path) -> None:
    """A user's own layout is one function."""
    for i in range(8):
        image(tmp_path / f"{i}.png")

    def reader(root: Path) -> list[tuple[str, str, str, str | None]]:
        return [(f"{i}.png", f"env{i % 2}", f"class{i // 2 % 2}", None) for i in range(8)]

    config = composed("dataset=image_folder", f"dataset.root={tmp_path}", "dataset.image_size=4")
    keys = without(plain(config), "dataset", *NOT_BUILT, "_target_")["dataset"]
    given = {**keys, "reader": reader, "val_fraction": 0.5, "cache_dir": str(tmp_path / "cache")}
    assert ImageFolders(**given).build().info.given == ("env0", "env1")  # type: ignore[arg-type]


# ---- CMNIST of IRM


@pytest.mark.mnist
@pytest.mark.skipif(
    not (Path(os.environ.get("DGBENCH_DATA_DIR", "")) / "MNIST" / "raw").is_dir(),
    reason="no MNIST in DGBENCH_DATA_DIR",
)
def test_cmnist_irm_sizes() -> None:
    """60,000 digits: 25,000 (2,500 val) in 0.1 and in 0.2;
    for 0.9 a pool of 9,000 and 1,000 val.
    """
    environments = built(composed("dataset=cmnist_irm"))
    sizes = {
        env: [len(environments.table.subset(env, part)) for part in ("train", "val")]
        for env in environments.info.given
    }
    assert sizes == {"0.10": [22_500, 2500], "0.20": [22_500, 2500], "0.90": [0, 1000]}
    assert len(environments.table.pool) == 9000
    assert environments.store.image == (2, 14, 14)
    assert environments.info.identity()["base"] == "mnist_train"
