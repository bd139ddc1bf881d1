"""Initial weights: every published layout round trips, and what does not fit, arrive or exist says
so in one line.
"""

from __future__ import annotations

import copy
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import tests.networks.tiny_timm  # noqa: F401  architectures tiny_*
from dgbench.errors import ConfigError, DgbenchError, WeightsError
from dgbench.networks.small import MLPFeaturizer
from dgbench.networks.timm_networks import ResNet, TimmFeaturizer, VisionTransformer
from dgbench.networks.weights import (
    ImageRecord,
    PretrainedWeights,
    RandomWeights,
    TimmWeights,
    noted_checksum,
)

RESNET, VIT = "test_resnet", "test_vit"  # timm's own code with few channels
SIDE = 64
OLD = ("*.num_batches_tracked",)


def images(channels: int = 3, side: int = SIDE) -> Tensor:
    return torch.randn(3, channels, side, side, generator=torch.Generator().manual_seed(0))


def source(arch: str, n_out: int = 10) -> Any:
    """A network as others train it: classifier, statistics that are not the initial ones."""
    size = {"img_size": SIDE} if "vit" in arch else {}
    net = timm.create_model(arch, pretrained=False, num_classes=n_out, **size)
    with torch.no_grad():
        for buffer in net.buffers():
            buffer += torch.rand_like(buffer, dtype=torch.float32).to(buffer.dtype) + 1
    return net.eval()


def featurizer(arch: str, channels: int = 3, side: int = SIDE) -> TimmFeaturizer:
    make: Any = VisionTransformer if "vit" in arch else ResNet
    net: TimmFeaturizer = make((channels, side, side), arch)
    return net.eval()


class _Holder(nn.Module):
    """DistributedDataParallel's name for what it wraps."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def _mlp(n_in: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_in, n_in), nn.ReLU(), nn.Linear(n_in, 10))


def moco(net: Any, version: int) -> dict[str, Any]:
    model = nn.Module()
    if version == 2:
        net.fc = _mlp(net.num_features)
    model.encoder_q, model.encoder_k = net, copy.deepcopy(net)
    with torch.no_grad():
        for parameter in model.encoder_k.parameters():
            parameter += 1
    model.register_buffer("queue", torch.randn(10, 16))
    model.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    return {
        "epoch": 200,
        "arch": "resnet50",
        "state_dict": _Holder(model).state_dict(),
        "optimizer": optimizer.state_dict(),
    }


def moco_v3(net: Any) -> dict[str, Any]:
    model = nn.Module()
    setattr(net, "head" if hasattr(net, "head") else "fc", _mlp(net.num_features))
    model.base_encoder, model.momentum_encoder, model.predictor = net, copy.deepcopy(net), _mlp(10)
    with torch.no_grad():
        for parameter in model.momentum_encoder.parameters():
            parameter += 1
    return {
        "epoch": 300,
        "arch": "vit_base",
        "state_dict": _Holder(model).state_dict(),
        "optimizer": {},
        "scaler": {},
    }


def vissl(net: Any) -> dict[str, Any]:
    trunk = {
        f"_feature_blocks.{name}": value
        for name, value in net.state_dict().items()
        if not name.startswith("fc.")
    }
    model = {"trunk": trunk, "heads": {"0.clf.0.weight": torch.zeros(2, 2)}}
    return {
        "phase_idx": 799,
        "iteration": 1,
        "classy_state_dict": {"base_model": {"model": model}, "loss": {}},
    }


def solo(net: Any) -> dict[str, Any]:
    own = {
        f"backbone.{name}": value
        for name, value in net.state_dict().items()
        if not name.startswith("fc.")
    }
    heads = {f"{head}.0.weight": torch.zeros(2, 2) for head in ("projector", "classifier")}
    return {"epoch": 1, "pytorch-lightning_version": "1.5.0", "state_dict": {**own, **heads}}


def before_counters(net: Any) -> dict[str, Any]:
    """torchvision's first files are older than ``num_batches_tracked``."""
    return {name: value for name, value in net.state_dict().items() if "num_batches" not in name}


FORMATS: dict[str, tuple[str, Callable[[Any], dict[str, Any]], str]] = {
    "MoCo v1, ResNet": (RESNET, lambda net: moco(net, 1), "v1.pth.tar"),
    "MoCo v2, ResNet": (RESNET, lambda net: moco(net, 2), "v2.pth.tar"),
    "MoCo v3, ResNet": (RESNET, moco_v3, "v3.pth.tar"),
    "MoCo v3, ViT": (VIT, moco_v3, "v3.pth.tar"),
    "SimCLR, VISSL": (RESNET, vissl, "phase799.torch"),
    "SimCLR, solo-learn": (RESNET, solo, "last.ckpt"),
    "SimCLR, from TensorFlow": (
        RESNET,
        lambda net: {"state_dict": before_counters(net)},
        "resnet50-1x.pth",
    ),
    "supervised, torchvision": (RESNET, lambda net: net.state_dict(), "resnet.pth"),
    "supervised, old torchvision": (RESNET, before_counters, "resnet.pth"),
    "supervised, timm, ResNet": (RESNET, lambda net: net.state_dict(), "model.safetensors"),
    "supervised, timm, ViT": (VIT, lambda net: net.state_dict(), "model.safetensors"),
}


def write(path: Path, content: dict[str, Any]) -> Path:
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in content.items()}, path)
    else:
        torch.save(content, path)
    return path


def weights(path: Path | None = None, arch: str = RESNET, **changed: Any) -> PretrainedWeights:
    given = None if path is None else str(path)
    return PretrainedWeights(
        **{"arch": arch, "name": "file", "path": given, "allow_missing": OLD, **changed}
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain file for the test ResNet."""
    return write(tmp_path_factory.mktemp("weights") / "resnet.pth", source(RESNET).state_dict())


# ---- round trips


@pytest.mark.parametrize("name", FORMATS)
def test_every_tensor_and_the_features_are_those_of_the_source(name: str, tmp_path: Path) -> None:
    arch, publish, file_name = FORMATS[name]
    net = source(arch)
    expected = {key: value.clone() for key, value in net.state_dict().items()}
    x = images()
    with torch.no_grad():
        features = net.forward_head(net.forward_features(x), pre_logits=True).clone()
    path = write(tmp_path / file_name, publish(net))
    ours = featurizer(arch)
    weights(path, arch).load(ours)
    loaded = ours.body.state_dict()
    counters = [key for key in loaded if "num_batches" in key]
    compared = [
        key
        for key in loaded
        if key not in counters or ("old" not in name and "TensorFlow" not in name)
    ]
    assert len(compared) > 50
    for key in compared:
        assert torch.equal(loaded[key], expected[key]), key
    with torch.no_grad():
        assert torch.equal(ours(x), features)


@pytest.mark.parametrize(
    ("arch", "make", "publish", "n_tensors"),
    [
        ("resnet50", ResNet, lambda net: moco(net, 2), 318),
        ("resnet50", ResNet, moco_v3, 318),
        ("resnet50", ResNet, vissl, 318),
        ("vit_base_patch16_224", VisionTransformer, moco_v3, 150),
    ],
)
def test_the_published_networks_have_all_their_tensors(
    arch: str, make: Any, publish: Callable[[Any], dict[str, Any]], n_tensors: int, tmp_path: Path
) -> None:
    """The whole key sets, without the memory."""
    with torch.device("meta"):
        content = publish(timm.create_model(arch, num_classes=10))
    path = tmp_path / "any"
    path.write_bytes(b"")
    ours = weights(path, arch, allow_missing=())
    ours.content = content  # type: ignore[misc]
    with torch.device("meta"):
        ours.check(make((3, 224, 224), arch))
    assert ours.arrival is not None and ours.arrival.tensors == ours.arrival.of_tensors == n_tensors


def test_names_are_torchvisions() -> None:
    import torchvision

    with torch.device("meta"):
        theirs = torchvision.models.resnet50().state_dict()
        network = ResNet((3, 64, 64), "resnet50")
    given, own = network.adapted(dict(theirs)), network.body.state_dict()
    assert {name: v.shape for name, v in given.items()} == {
        name: v.shape for name, v in own.items()
    }


def test_random_weights_are_those_of_the_seed() -> None:
    torch.manual_seed(0)
    net = featurizer(RESNET)
    before = copy.deepcopy(net.state_dict())
    random = RandomWeights(arch=None)
    random.load(net)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert random.identity == "random"


# ---- other channels and sizes


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
@pytest.mark.parametrize("arch", [RESNET, VIT])
def test_other_channels_repeat_the_three(arch: str, channels: int, tmp_path: Path) -> None:
    """w_new[:, i] = w[:, i mod 3], no rescaling."""
    net = source(arch)
    path = write(tmp_path / "net.pth", net.state_dict())
    ours = featurizer(arch, channels)
    weights(path, arch).load(ours)
    old = net.get_parameter(f"{ours.input_layer}.weight")
    new = ours.body.get_parameter(f"{ours.input_layer}.weight")
    assert new.shape[1] == channels
    for i in range(channels):
        assert torch.equal(new[:, i], old[:, i % 3])


def test_position_embeddings_are_resampled_to_other_sizes(tmp_path: Path) -> None:
    """A 4 x 4 grid that grows linearly to the right is, in the middle of an 8 x 8 grid, still
    linear.
    """
    net = source(VIT)
    grid = torch.arange(4.0).repeat(4)[None, :, None].expand(1, 16, net.embed_dim)
    net.pos_embed.data = torch.cat([torch.full((1, 1, net.embed_dim), 9.0), grid], 1)
    path = write(tmp_path / "net.pth", net.state_dict())
    for side in (SIDE, 128):
        ours = featurizer(VIT, side=side)
        weights(path, VIT).load(ours)
        new = ours.body.pos_embed.detach()
        n = side // 16
        assert new.shape == (1, 1 + n * n, net.embed_dim)
        assert torch.equal(new[:, 0], net.pos_embed.data[:, 0])
        if side == SIDE:
            assert torch.equal(new, net.pos_embed.data)
        else:
            rows = new[0, 1:, 0].view(n, n)
            assert torch.allclose(rows, rows[:1].expand(n, n), atol=1e-5)
            steps = rows[0, 2:-2].diff()
            assert torch.allclose(steps, steps.new_full(steps.shape, 0.5), atol=0.08)
        with torch.no_grad():
            assert ours(images(side=side)).shape == (3, ours.n_features)


def test_a_vit_of_another_shape_but_as_many_patches(tmp_path: Path) -> None:
    """4 x 4 patches and 2 x 8 patches are as many, and not the same."""
    net = source(VIT)
    path = write(tmp_path / "net.pth", net.state_dict())
    ours = VisionTransformer((3, 32, 128), VIT).eval()
    weights(path, VIT).load(ours)
    assert ours.body.pos_embed.shape == net.pos_embed.shape
    assert not torch.allclose(ours.body.pos_embed, net.pos_embed)


# ---- identity


def test_identity_holds_name_version_and_sha256(file: Path) -> None:
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    known = {RESNET: {"v2": {"url": file.as_uri()}, "v1": {"url": "http://nowhere"}}}
    assert weights(file).identity == f"file:{sha[:12]}"
    assert weights(file, name="moco", version="v2").identity == f"moco_v2:{sha[:12]}"
    assert weights(file, name="moco", published=known).identity == f"moco:{sha[:12]}", (
        "a file of no known version"
    )
    for prefix in (sha, sha[:8], sha[:12].upper()):
        assert weights(file, sha256=prefix).sha256 == sha


def test_images_are_those_of_the_weights_record() -> None:
    half = {"url": "http://nowhere", "mean": [0.5] * 3, "std": [0.4] * 3, "input_size": 160}
    published = {RESNET: {"a": half, "b": {"url": "http://nowhere"}}}
    assert weights(published=published).images.mean == (0.5, 0.5, 0.5)
    assert weights(published=published).images.input_size == 160
    assert weights(published=published, version="b").images.std == (0.229, 0.224, 0.225)
    assert weights(published=published, mean=[0, 0, 0], std=[1, 1, 1]).images.mean == (0, 0, 0)
    assert weights(Path("mine.pth"), published=published).images.std == (0.4, 0.4, 0.4)


# ---- what cannot work


def complaint(call: Callable[[], object], kind: type[DgbenchError] = WeightsError) -> str:
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


def broken(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = torch.load(path, weights_only=True)
    change(content)
    return write(path.with_name("broken.pth"), content)


def test_wrong_architecture(file: Path) -> None:
    says = complaint(lambda: weights(file, VIT).check(featurizer(VIT)))
    assert "test_vit: lacks " in says
    assert " too much" in says
    says = complaint(lambda: weights(file, "resnet18").load(ResNet((3, 32, 32), "resnet18")))
    assert "does not fit resnet18" in says
    assert len(says) < 600


def test_missing_and_unexpected_tensors_are_errors_unless_listed(file: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        del content["layer2.0.conv1.weight"], content["layer2.0.bn1.bias"]
        content["layer9.weight"] = torch.zeros(1)

    path, net = broken(file, change), featurizer(RESNET)
    before = copy.deepcopy(net.state_dict())
    says = complaint(lambda: weights(path).load(net))
    assert "lacks layer2.0.bn1.bias, layer2.0.conv1.weight; has layer9.weight" in says
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items()), (
        "nothing half loaded"
    )
    allowed = {"allow_missing": ["layer2.0.*"], "allow_unexpected": ["layer9.weight"]}
    weights(path, **allowed).load(net)
    assert torch.equal(net.body.layer2[0].conv1.weight, before["body.layer2.0.conv1.weight"])
    assert not torch.equal(net.body.layer1[0].conv1.weight, before["body.layer1.0.conv1.weight"])
    assert "layer9" in complaint(lambda: weights(path, allow_missing=["layer2.0.*"]).load(net))


def test_wrong_shape(file: Path) -> None:
    path = broken(file, lambda content: content.update({"layer1.0.bn1.bias": torch.zeros(7)}))
    says = complaint(lambda: weights(path).load(featurizer(RESNET)))
    assert "layer1.0.bn1.bias is (7,)" in says


def test_files_of_unmapped_names(tmp_path: Path) -> None:
    """No name in common: never silently random weights."""
    net = source(RESNET)
    path = write(
        tmp_path / "strange.pth", {f"net.features.my_{k}": v for k, v in net.state_dict().items()}
    )
    says = complaint(lambda: weights(path).load(featurizer(RESNET)))
    assert "lacks bn1.bias" in says
    assert "has net.features.my_" in says


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_corrupt_and_cut_files(suffix: str, tmp_path: Path) -> None:
    whole = write(tmp_path / f"whole{suffix}", source(RESNET).state_dict()).read_bytes()
    for content in (b"", b"not weights at all", whole[: len(whole) // 2]):
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(content)
        says = complaint(lambda path=path: weights(path).check(featurizer(RESNET)))  # type: ignore[misc]
        assert says.startswith(str(path))
        assert "download it again" in says


def test_files_without_weights(tmp_path: Path) -> None:
    for content in ({"epoch": 3}, {"state_dict": {}}, {}):
        path = write(tmp_path / "empty.pth", content)
        says = complaint(lambda path=path: weights(path).load(featurizer(RESNET)))  # type: ignore[misc]
        assert "no named tensors" in says


class _Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran-it"),)


def test_code_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "evil.pth", {"state_dict": {}, "args": _Evil()})
    assert "no named tensors" in complaint(lambda: weights(path).load(featurizer(RESNET)))
    assert not Path("ran-it").exists()


def test_missing_file_and_bad_keys(file: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone.pth"
    assert f"init.path={gone} is no file" in complaint(lambda: weights(gone).sha256)
    says = complaint(lambda: weights(file, sha256="0" * 12).sha256)
    assert "not 000000000000..." in says
    published = {RESNET: {"v1": {"url": "http://nowhere"}, "v2": {"url": "http://nowhere"}}}
    for changed, expected in (
        ({"arch": None}, "init=file has no weights"),
        ({"path": None}, "init=file names no file"),
        ({"path": None, "arch": VIT, "published": published}, "test_vit (but for: test_resnet)"),
        ({"path": None, "version": "v9", "published": published}, "init.version=v9 is unknown"),
        ({"url": "http://nowhere"}, "exclude each other"),
    ):  # fmt: skip
        says = complaint(lambda changed=changed: weights(**{"path": file, **changed}), ConfigError)  # type: ignore[misc]
        assert expected in says
    says = complaint(lambda: weights(file).load(MLPFeaturizer((3, 8, 8))), ConfigError)
    assert "fits no MLPFeaturizer" in says


# ---- the network


class _Server(ThreadingHTTPServer):
    content: bytes
    asked: int = 0

    def handle_error(self, *_: Any) -> None:
        """Clients that gave up are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked += 1
        if self.path == "/missing.pth":
            self.send_error(404)
            return
        if self.path == "/slow.pth":
            time.sleep(1.5)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        whole = self.server.content
        if self.path == "/stalls.pth":
            self.wfile.write(whole[:1000])
            self.wfile.flush()
            time.sleep(1.5)
        elif self.path == "/breaks.pth":
            self.wfile.write(whole[: len(whole) // 2])
        else:
            self.wfile.write(whole)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as running:
        running.content = file.read_bytes()
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        yield running
        running.shutdown()


def address(server: _Server, name: str) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/{name}"


def test_downloaded_once_checked_and_loaded(server: _Server, file: Path, tmp_path: Path) -> None:
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    asked = server.asked
    for _ in range(2):
        net = featurizer(RESNET)
        got = weights(url=address(server, "net.pth"), cache_dir=str(tmp_path / "cache"), sha256=sha)
        got.load(net)
        assert got.identity == f"file:{sha[:12]}"
        assert torch.equal(
            net.body.layer1[0].conv1.weight, torch.load(file)["layer1.0.conv1.weight"]
        )
    assert server.asked == asked + 2  # whether it answers, and for the file
    noted, downloaded = sorted(
        (tmp_path / "cache" / "weights").iterdir(), key=lambda path: path.suffix, reverse=True
    )
    assert (downloaded.read_bytes(), noted.read_text()) == (server.content, f"{sha}\n")
    other = weights(
        url=address(server, "net.pth"), cache_dir=str(tmp_path / "cache"), sha256="0" * 64
    )
    assert "download it again" in complaint(lambda: other.sha256)


def test_a_damaged_download_is_named_and_made_again(
    server: _Server, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Or refused, where its address gives nothing any more."""
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    keys = {"url": address(server, "net.pth"), "cache_dir": str(tmp_path)}
    downloaded = weights(**keys).file
    damaged = bytearray(server.content)
    damaged[len(damaged) // 2] ^= 1
    downloaded.write_bytes(damaged)
    again = weights(**keys)
    again.load(featurizer(RESNET))
    assert again.sha256 == sha and downloaded.read_bytes() == server.content
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"{downloaded} is damaged; it is downloaded again"]
    gone = weights(url=(tmp_path / "gone.pth").as_uri(), cache_dir=str(tmp_path))
    (tmp_path / "gone.pth").write_bytes(server.content)
    gone.file.write_bytes(damaged)
    (tmp_path / "gone.pth").unlink()
    assert "cannot be downloaded" in complaint(
        lambda: weights(url=gone._url, cache_dir=str(tmp_path)).sha256
    )


def test_the_cache_of_hugging_face_names_files_by_their_checksum(
    file: Path, tmp_path: Path
) -> None:
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    (tmp_path / sha).write_bytes(file.read_bytes())
    (tmp_path / "model.pth").symlink_to(tmp_path / sha)
    assert noted_checksum(tmp_path / "model.pth") == sha
    assert noted_checksum(file) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.pth", "(Not Found"),
        ("breaks.pth", "(broke off after"),
        ("stalls.pth", "0.3 s"),
        ("slow.pth", "0.3 s"),
    ],
)
def test_broken_downloads_leave_nothing(
    name: str, says: str, server: _Server, tmp_path: Path
) -> None:
    got = weights(url=address(server, name), cache_dir=str(tmp_path), timeout=0.3)
    text = complaint(lambda: got.sha256)
    assert says in text
    assert "init.path=" in text
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nobody_answers(tmp_path: Path) -> None:
    """A closed port, a port that accepts and stays silent, and a host that does not exist."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/net.pth"
        got = weights(url=url, cache_dir=str(tmp_path), timeout=0.3)
        assert "0.3 s" in complaint(lambda: got.sha256)
    for other in (url, "http://host.invalid/net.pth", "ftp:/net.pth", "nonsense"):
        got = weights(url=other, cache_dir=str(tmp_path), timeout=2)
        assert complaint(lambda got=got: got.sha256).startswith(other)  # type: ignore[misc]


def test_the_hub_is_asked_through_its_variable_and_its_cache_first(
    server: _Server, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = "https://huggingface.co/timm/resnet50.tv_in1k/resolve/main/net.pth"
    monkeypatch.setenv("HF_ENDPOINT", address(server, ""))
    got = weights(url=hub, cache_dir=str(tmp_path))
    assert got.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()

    import huggingface_hub

    monkeypatch.setattr(
        huggingface_hub,
        "try_to_load_from_cache",
        lambda repo, name: str(file) if name == "net.pth" else None,
    )
    got = weights(url=hub, cache_dir=str(tmp_path / "other"))
    assert got.file == file


def test_timm_says_where_its_weights_are_and_how_images_were_normalized() -> None:
    one = TimmWeights(arch="vit_base_patch16_siglip_224", name="timm", version="webli")
    assert one.images == ImageRecord((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 224)
    address = "https://huggingface.co/timm/vit_base_patch16_siglip_224.webli/resolve/main/model.safetensors"
    assert str(one.to_fetch()).endswith(address)
    default = TimmWeights(arch="vit_base_patch14_dinov2", name="timm")
    assert default.version == "lvd142m" and default.images.input_size == 518
    with pytest.raises(ConfigError, match=r"init.version=nope .*tv_in1k"):
        TimmWeights(arch="resnet18", name="timm", version="nope")
    with pytest.raises(ConfigError, match="no weights for tiny_clip"):
        TimmWeights(arch="tiny_clip", name="timm")


@pytest.mark.parametrize("right", [True, False])
def test_a_download_must_have_the_published_checksum(right: bool, tmp_path: Path) -> None:
    torch.save(source(RESNET).state_dict(), tmp_path / "published.pth")
    digest = hashlib.sha256((tmp_path / "published.pth").read_bytes()).hexdigest()
    entry = {
        "url": (tmp_path / "published.pth").as_uri(),
        "sha256": digest[:8] if right else "01234567",
    }
    ours = PretrainedWeights(
        arch=RESNET,
        name="supervised",
        published={RESNET: {"v": entry}},
        cache_dir=str(tmp_path / "cache"),
    )
    if right:
        assert ours.identity == f"supervised_v:{digest[:12]}"
    else:
        with pytest.raises(WeightsError, match=r"not 01234567\.\.\."):
            _ = ours.identity
