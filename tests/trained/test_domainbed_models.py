"""A ``model.pkl`` as DomainBed's ``train.py`` saves it: the same logits here, in the folds whose
tests it never saw.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import dgbench
from dgbench.errors import WeightsError
from dgbench.networks.weight_files import read_tensors
from dgbench.trained.domainbed import domainbed_model
from tests.complaints import refused

K = 3
PACS = ("art_painting", "cartoon", "photo", "sketch")


class MNISTCNN(nn.Module):
    """DomainBed's network for 28 x 28 images, names and order as there."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(128, 128, 3, 1, padding=1)
        self.conv4 = nn.Conv2d(128, 128, 3, 1, padding=1)
        self.bn0 = nn.GroupNorm(8, 64)
        self.bn1, self.bn2, self.bn3 = (nn.GroupNorm(8, 128) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn0(F.relu(self.conv1(x)))
        x = self.bn1(F.relu(self.conv2(x)))
        x = self.bn2(F.relu(self.conv3(x)))
        return self.bn3(F.relu(self.conv4(x))).mean((2, 3))


class Block(nn.Module):
    """A block of DomainBed's wide residual network."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(n_in), nn.BatchNorm2d(n_out)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=True)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, stride=stride, padding=1, bias=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=True))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.bn1(x)))
        return self.conv2(F.relu(self.bn2(out))) + self.shortcut(x)


class WideResNet(nn.Module):
    """DomainBed's ``Wide_ResNet(input_shape, 16, 2, 0.)``."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 128)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        for number in (1, 2, 3):
            n_in, n_out = widths[number - 1], widths[number]
            blocks = (Block(n_in, n_out, 1 if number == 1 else 2), Block(n_out, n_out, 1))
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.bn1 = nn.BatchNorm2d(128, momentum=0.9)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer3(self.layer2(self.layer1(self.conv1(x))))  # type: ignore[operator]
        return F.relu(self.bn1(out)).mean((2, 3))


class ResNet(nn.Module):
    """DomainBed's ``ResNet`` with ``resnet18``: torchvision's, without its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.network = torchvision.models.resnet18()
        self.network.fc = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network(x)
        return features


def classifier(m: int, nonlinear: bool) -> nn.Module:
    if not nonlinear:
        return nn.Linear(m, K)
    layers = (
        nn.Linear(m, m // 2),
        nn.ReLU(),
        nn.Linear(m // 2, m // 4),
        nn.ReLU(),
        nn.Linear(m // 4, K),
    )
    return nn.Sequential(*layers)


def shaken(net: nn.Module) -> nn.Module:
    with torch.no_grad():
        for value in net.state_dict().values():
            if value.is_floating_point():
                value += 0.05 * torch.rand_like(value)
    return net.eval()


def erm(featurizer: nn.Module, head: nn.Module) -> tuple[dict[str, Tensor], nn.Module]:
    """The state of DomainBed's ERM, and what it predicts with."""
    algorithm = nn.Module()
    algorithm.featurizer, algorithm.classifier = featurizer, head
    algorithm.network = nn.Sequential(featurizer, head)
    shaken(algorithm)
    return algorithm.state_dict(), algorithm.network


def saved(path: Path, state: Any, shape: tuple[int, ...], **changed: Any) -> Path:
    args = {
        "dataset": "PACS",
        "algorithm": "ERM",
        "test_envs": [0],
        "data_dir": "x",
        "steps": 5001,
        "seed": 0,
    }
    hparams = {
        "lr": 3e-5,
        "nonlinear_classifier": np.bool_(False),
        "resnet_dropout": np.float64(0.5),
        "vit": False,
    }
    content = {
        "args": {**args, **changed.pop("args", {})},
        "model_input_shape": shape,
        "model_num_classes": K,
        "model_num_domains": 3,
        "model_hparams": {**hparams, **changed.pop("hparams", {})},
        "model_dict": state,
        **changed,
    }
    torch.save(content, path)
    return path


def rebuilt(path: Path, trust: bool = False) -> Any:
    return domainbed_model(path, read_tensors(path), trust)


NETWORKS = {
    "MNIST_CNN": (lambda: MNISTCNN(2), (2, 28, 28), 128, {}),
    "Wide_ResNet": (WideResNet, (3, 32, 32), 128, {}),
    "ResNet-18": (ResNet, (3, 224, 224), 512, {"resnet18": True}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("nonlinear", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_logits_are_those_of_domainbeds_networks(
    name: str, nonlinear: bool, tmp_path: Path
) -> None:
    make, shape, m, hparams = NETWORKS[name]
    state, network = erm(make(), classifier(m, nonlinear))
    path = saved(
        tmp_path / "model.pkl", state, shape, hparams={**hparams, "nonlinear_classifier": nonlinear}
    )
    model = rebuilt(path)
    x = torch.rand(2, *shape)
    with torch.no_grad():
        torch.testing.assert_close(model(x), network(x), rtol=1e-5, atol=1e-5)
    assert model.title == "erm@pacs" and model.preprocessing.image == shape
    assert (model.preprocessing.mean[0] == 0.485) is (shape[1] == 224)


@pytest.mark.parametrize(
    ("algorithm", "featurizer", "head"),
    [
        ("SagNet", "network_f.", "network_c."),
        ("Fish", "network.net.0.", "network.net.1."),
        ("ERMPlusPlus", "network_sma.0.", "network_sma.1."),
        ("TRM", "featurizer.", "classifier."),
    ],
)
def test_algorithms_with_other_names(
    algorithm: str, featurizer: str, head: str, tmp_path: Path
) -> None:
    body, last = shaken(MNISTCNN(2)), shaken(classifier(128, False))
    state = {featurizer + name: value for name, value in body.state_dict().items()}
    state |= {head + name: value for name, value in last.state_dict().items()}
    if algorithm == "ERMPlusPlus":  # which also has what it trains, and does not predict with
        state |= {"network.0." + name: value + 1 for name, value in body.state_dict().items()}
        state |= {"network.1." + name: value + 1 for name, value in last.state_dict().items()}
    model = rebuilt(
        saved(tmp_path / "model.pkl", state, (2, 28, 28), args={"algorithm": algorithm})
    )
    x = torch.rand(2, 2, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(model(x), last(body(x)), rtol=1e-5, atol=1e-5)


class Opaque:
    """A value whose class the reader does not know."""


class Marks:
    """Would write a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.write_text, (self.file, "ran")


@pytest.fixture
def small(tmp_path: Path) -> tuple[dict[str, Tensor], Path]:
    state, _ = erm(MNISTCNN(2), classifier(128, False))
    return state, tmp_path / "model.pkl"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"args": {"algorithm": "ARM"}}, ("ARM", "groups of images")),
        ({"args": {"algorithm": "MTL"}}, ("MTL", "embedding")),
        ({"args": {"algorithm": "ERM\nCopyright"}}, ("no model.pkl", "printed")),
        ({"args": {"test_envs": "all"}}, ("no model.pkl",)),
        ({"model_input_shape": (3, 96, 96)}, ("(3, 96, 96)", "MODULE:FUNCTION")),
        ({"model_input_shape": (3, 10**9, 10**9)}, ("no model.pkl",)),
        ({"model_num_classes": 10**9}, ("no model.pkl",)),
        ({"model_input_shape": (3, 28, 28)}, ("do not fit", "convs.0.weight")),
        ({"hparams": {"vit": True}, "model_input_shape": (3, 224, 224)}, ("vision transformer",)),
        ({"model_dict": {}}, ("no featurizer and classifier",)),
        ({"hparams": {"made": Opaque()}}, ("Opaque", "trust=true")),
    ],
)
def test_what_is_not_rebuilt_says_why_in_one_line(
    changed: dict[str, Any], words: tuple[str, ...], small: tuple[dict[str, Tensor], Path]
) -> None:
    state, path = small
    saved(path, state, changed.pop("model_input_shape", (2, 28, 28)), **changed)
    with pytest.raises(WeightsError) as caught:
        rebuilt(path)
    text = str(caught.value)
    assert "\n" not in text and all(word in text for word in words), text


def test_no_code_runs_without_trust(small: tuple[dict[str, Tensor], Path], tmp_path: Path) -> None:
    state, path = small
    mark = tmp_path / "mark"
    saved(path, state, (2, 28, 28), hparams={"made": Marks(mark)})
    with pytest.raises(WeightsError, match="trust=true"):
        rebuilt(path)
    saved(tmp_path / "more.pkl", state, (2, 28, 28), optimizer=Marks(mark))
    rebuilt(tmp_path / "more.pkl")
    assert not mark.exists()
    assert rebuilt(path, trust=True).title == "erm@pacs" and mark.exists()


def test_weights_that_are_not_finite(small: tuple[dict[str, Tensor], Path]) -> None:
    state, path = small
    state["network.0.conv1.weight"] = torch.full_like(state["network.0.conv1.weight"], float("nan"))
    saved(path, OrderedDict(state), (2, 28, 28))
    with pytest.raises(WeightsError, match=r"not finite.*conv"):
        rebuilt(path)


def pictures(root: Path) -> list[str]:
    """Small pictures of the domains of PACS, in three classes."""
    rng = np.random.default_rng(0)
    for env in PACS:
        for label in ("dog", "horse", "house"):
            folder = root / env / label
            folder.mkdir(parents=True)
            for number in range(4):
                Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8)).save(
                    folder / f"{number}.png"
                )
    return ["dataset=image_folder", f"dataset.root={root}", "dataset.name=pacs",
        "dataset.image_size=28",
            "dataset.normalize.mean=[0,0,0]", "dataset.normalize.std=[1,1,1]",
            "trainer.device=cpu"]  # fmt: skip


def test_it_is_evaluated_where_it_never_saw_images(tmp_path: Path) -> None:
    words = [*pictures(tmp_path / "PACS"), f"paths.cache_dir={tmp_path / 'cache'}"]
    state, network = erm(MNISTCNN(3), classifier(128, False))
    path = saved(tmp_path / "model.pkl", state, (3, 28, 28), args={"test_envs": [2]})
    result = dgbench.evaluate(path, words, output=tmp_path / "rows")
    (folder,) = result.folders
    rows = [json.loads(line) for line in (folder / "errors.jsonl").read_text().splitlines()]
    assert {row["algorithm"] for row in rows} == {"erm@pacs"}
    assert {tuple(row["held_out"]) for row in rows} == {("photo",)}
    tested = [row for row in rows if row["env"] == "photo"]
    files = [(label, file) for label, name in enumerate(("dog", "horse", "house"))
             for file in sorted((tmp_path / "PACS" / "photo" / name).iterdir())]  # fmt: skip
    x = torch.stack(
        [torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1) / 255 for _, file in files]
    )
    with torch.no_grad():
        wrong = int((network(x).argmax(1) != torch.tensor([label for label, _ in files])).sum())
    assert sum(row["wrong"] for row in tested) == wrong
    assert sum(row["seen"] for row in tested) == len(files) == 12
    saved(path, state, (3, 28, 28), args={"test_envs": []})
    other = [word for word in words if "name" not in word]
    for typed in (
        words,
        other,
    ):  # known by the name of the dataset, or by those of its environments
        with refused("was trained on art_painting"):
            dgbench.evaluate(path, typed, output=tmp_path / "rows")
