"""C-Cats&Dogs and L-CIFAR10: which environments there are, how the feature is tied to the label,
how it looks.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dgbench.cli import contact_sheet
from dgbench.data.environments import Environments
from dgbench.data.minibatches import EvalSetLoader
from dgbench.data.transforms.paint import LINE_COLORS, colored_line, tint
from dgbench.errors import ConfigError
from tests.complaints import refused
from tests.datasets import built
from tests.studies import composed

CACHE = tempfile.TemporaryDirectory()
CLASSES = {"c_cats_dogs": 2, "l_cifar10": 10}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """2 classes of 400 and 10 classes of 60 pictures, 8 x 8 noise."""
    rng = np.random.default_rng(0)
    roots = {}
    for name, n_classes in CLASSES.items():
        roots[name] = tmp_path_factory.mktemp(name)
        for k in range(n_classes):
            (roots[name] / f"class{k}").mkdir()
            for i in range(800 // n_classes if n_classes == 2 else 60):
                pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(roots[name] / f"class{k}" / f"{i}.png")
    return roots


def made(name: str, root: Path | str, **changes: Any) -> Environments:
    """The dataset as its YAML has it, on 8 x 8 pictures."""
    config = composed(f"dataset={name}")
    here = {"root": str(root), "image_size": 8, "cache_dir": str(CACHE.name), "workers": 1}
    config.dataset = {**config.dataset, **here, **changes}
    return built(config)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "ratio", "given"),
    [
        ("c_cats_dogs", "4:1", "0.05 0.10 0.15 0.20 0.50"),  # printed in the paper, section 4.2.1
        ("c_cats_dogs", "3:2", "0.05 0.10 0.15 0.50 0.55"),
        ("c_cats_dogs", "5:0", "0.05 0.10 0.15 0.20 0.25"),
        ("l_cifar10", "4:1", "0.80 0.85 0.90 0.95 0.50"),  # printed in the paper, section 4.2.2
        ("l_cifar10", "3:2", "0.85 0.90 0.95 0.45 0.50"),
        ("l_cifar10", "5:0", "0.75 0.80 0.85 0.90 0.95"),
    ],
)
def test_given_sets(trees: dict[str, Path], name: str, ratio: str, given: str) -> None:
    """All environments are 0.00, 0.01, ..., 1.00, the given ones among them."""
    environments = made(name, trees[name], ratio=ratio)
    assert list(environments.info.given) == given.split()
    assert list(environments.info.everywhere) == [f"{i / 100:.2f}" for i in range(101)]
    assert environments.info.identity()["variant"]["ratio"] == ratio
    assert environments.info.n_classes == CLASSES[name]


def test_given_overrides_the_ratio(trees: dict[str, Path]) -> None:
    environments = made("l_cifar10", trees["l_cifar10"], given=[0.9, 0.3])
    assert list(environments.info.given) == ["0.90", "0.30"]
    assert "ratio" not in environments.info.identity()["variant"]


@pytest.mark.parametrize(
    ("name", "e_means", "share"),
    [
        ("c_cats_dogs", "disagree", 0.8),
        ("c_cats_dogs", "agree", 0.2),
        ("l_cifar10", "agree", 0.2),
        ("l_cifar10", "disagree", 0.8),
    ],
)
def test_what_e_means(trees: dict[str, Path], name: str, e_means: str, share: float) -> None:
    """In e = 0.2 the feature equals the label in 80 % (disagree) or 20 % (agree) of the images, sd
    sqrt(.16 / n).
    """
    environments = made(name, trees[name], given=[0.2, 0.21], e_means=e_means)
    own = torch.from_numpy(
        np.concatenate([environments.table.subset("0.20", part) for part in ("train", "val")])
    )
    equal = (
        (environments.store.feature[own] == environments.store.labels[own]).double().mean().item()
    )
    assert abs(equal - share) < 4 * (0.16 / len(own)) ** 0.5
    assert environments.info.identity()["variant"]["e_means"] == e_means
    mixture = {
        score.env: score.mixture for score in environments.table.error_recipes(True, ("test",))
    }["0.20"]
    assert mixture["test+0"] == pytest.approx(share, abs=1e-12)


def test_the_two_readings_are_one_with_two_classes(trees: dict[str, Path]) -> None:
    """Agreeing with probability e and disagreeing with probability 1 - e are the same data."""
    first = made("c_cats_dogs", trees["c_cats_dogs"], given=[0.2, 0.6], e_means="agree")
    second = made("c_cats_dogs", trees["c_cats_dogs"], given=[0.2, 0.6], e_means="disagree")
    shares = [
        [first.table.disagreement[name] for name in first.info.given],
        [1 - second.table.disagreement[name] for name in second.info.given],
    ]
    assert shares[0] == pytest.approx(shares[1])


def test_ten_lines_exactly(trees: dict[str, Path]) -> None:
    """The exact error is the mean over all ten colors: weight e for the own one, (1 - e) / 9 for
    each other.
    """
    environments = made("l_cifar10", trees["l_cifar10"])
    weight = torch.randn(10, 3 * 64, generator=torch.Generator().manual_seed(0))

    def predict(x: Tensor) -> Tensor:
        return (x.flatten(1) @ weight.T).argmax(1)

    scores = [
        score
        for score in environments.table.error_recipes(True, ("test",))
        if score.env in ("0.00", "0.37", "1.00")
    ]
    names = list(dict.fromkeys(name for score in scores for name in score.mixture))
    assert len(names) == 10
    wrong = {
        name: sum(
            int((predict(b.x) != b.y).sum())
            for b in EvalSetLoader(environments.store, name, scored, 64)
        )
        / len(environments.table.pool)
        for name, scored in environments.eval_sets(names).items()
    }
    assert len(set(wrong.values())) > 2, "the predictor looks at the line"
    for score in scores:
        e, expected = float(score.env), 0.0
        for color in range(10):
            x, y = environments.store.gather(
                torch.from_numpy(environments.table.pool),
                torch.full((len(environments.table.pool),), color),
            )
            own, other = ((predict(x) != y) & (same == (y == color)) for same in (True, False))
            expected += (e * int(own.sum()) + (1 - e) / 9 * int(other.sum())) / len(
                environments.table.pool
            )
        assert sum(w * wrong[n] for n, w in score.mixture.items()) == pytest.approx(
            expected, abs=1e-12
        )


def test_label_noise_over_ten_classes(trees: dict[str, Path]) -> None:
    """A quarter of 600 labels is another class (sd 0.0177),
    each of the nine others about as often.
    """
    noisy, clean = (
        made("l_cifar10", trees["l_cifar10"], label_noise=noise).store.labels
        for noise in (0.25, 0.0)
    )
    changed = noisy != clean
    assert abs(changed.double().mean().item() - 0.25) < 4 * 0.0177
    shift = (noisy - clean)[changed] % 10
    assert set(shift.tolist()) == set(range(1, 10))


def test_tint() -> None:
    """Green keeps channel 1, blue channel 2; the others are halved."""
    images = torch.tensor([0.2, 0.4, 0.8]).view(1, 3, 1, 1).expand(2, 3, 1, 2)
    painted = tint(images, torch.tensor([0, 1]))
    assert torch.allclose(painted[0, :, 0, 0], torch.tensor([0.1, 0.4, 0.4]))
    assert torch.allclose(painted[1, :, 0, 1], torch.tensor([0.1, 0.2, 0.8]))


@pytest.mark.parametrize(("width", "columns"), [(32, [15, 16]), (8, [3]), (64, [30, 31, 32, 33])])
def test_colored_line(width: int, columns: list[int]) -> None:
    """A sixteenth of the width in the middle, the rest untouched."""
    images = torch.rand(10, 3, 4, width, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
    painted = colored_line(images, torch.arange(10))
    assert ((painted != images).any(1).any(1).any(0)).nonzero().flatten().tolist() == columns
    for k, color in enumerate(LINE_COLORS):
        assert torch.equal(painted[k, :, 0, columns[0]], torch.tensor(color))
    assert len(set(LINE_COLORS)) == 10


def test_a_tree_with_too_many_classes_is_refused(trees: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"10 classes, more.*dataset's painter.*features"):
        made("c_cats_dogs", trees["l_cifar10"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ratio": "2:3"}, r"dataset\.ratio=2:3.*given.*3:2, 4:1, 5:0"),
        ({"ratio": None}, r"dataset\.ratio=null.*given"),
        ({"e_means": "both"}, r"dataset\.e_means=both.*unknown.*agree.*disagree"),
        ({"given": [0.5, 2]}, r"dataset\.given.*2.*number.*\[0, 1\]"),
    ],
)
def test_bad_values_are_named(trees: dict[str, Path], changes: dict[str, Any], said: str) -> None:
    with refused(said):
        made("c_cats_dogs", trees["c_cats_dogs"], **changes)


def test_contact_sheet(
    trees: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows show the same pictures; in e = 1 of L-CIFAR10 label k has line k."""
    environments = made("l_cifar10", trees["l_cifar10"], evaluation="sampled")
    labels, images = contact_sheet.sheet(environments, ["0.50", "1.00"])
    assert labels == [f"label {k}" for k in range(10)]
    assert images.shape == (2, 10, 3, 8, 8)
    assert torch.equal(images[1, :, :, 0, 3], torch.tensor(LINE_COLORS))
    assert torch.equal(images[0, :, :, :, 4:], images[1, :, :, :, 4:])
    cache = f"cache_dir={CACHE.name}"
    words = [f"{name},root={tree},image_size=8,{cache}" for name, tree in trees.items()]
    assert (
        contact_sheet.main(
            ["--to", str(tmp_path / "sheet.png"), "--environments", "0.10,1.00", *words]
        )
        == 0
    )
    with Image.open(tmp_path / "sheet.png") as written:
        assert written.width > 600
    capsys.readouterr()
    assert (
        contact_sheet.main(["--to", str(tmp_path / "no.png"), "--environments", "7", words[1]]) == 1
    )
    assert capsys.readouterr().err.startswith("dgbench: there is no environment 7")


REAL = Path(os.environ.get("DGBENCH_DATA_DIR", ""))


@pytest.mark.skipif(
    not (REAL / "CIFAR10_subset").is_dir(), reason="no CIFAR10_subset in DGBENCH_DATA_DIR"
)
def test_real_cifar10() -> None:
    environments = made("l_cifar10", REAL / "CIFAR10_subset" / "test", image_size=32)
    assert environments.store.values.shape == (2000, 3, 32, 32)
    assert len(environments.table.pool) == 333
    assert environments.store.image == (3, 32, 32)
    x, _ = environments.store.gather(torch.arange(200))
    assert 0.3 < float(x.mean()) < 0.6
