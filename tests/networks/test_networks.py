"""ResNets, vision transformers and the wide ResNet as featurizers: stages, norm, dropout, sizes,
channels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tests.networks.tiny_timm  # noqa: F401  architectures tiny_*
from dgbench.errors import ConfigError
from dgbench.network_specs import StyleMix
from dgbench.networks.featurizer import Featurizer, mix_styles
from dgbench.networks.small import MNISTCNN, MLPFeaturizer, WideResNet
from dgbench.networks.timm_networks import ResNet, TimmFeaturizer, VisionTransformer

IMAGE = (3, 32, 32)
MAKERS: dict[
    str, Callable[[], Featurizer]
] = {  # timm's test architectures are the same code with few channels
    "resnet": lambda: ResNet(IMAGE, "test_resnet"),
    "vit": lambda: VisionTransformer(IMAGE, "test_vit"),
    "convnext": lambda: TimmFeaturizer(IMAGE, "test_convnext"),
    "efficientnet": lambda: TimmFeaturizer(IMAGE, "test_efficientnet"),
    "pooled by attention": lambda: TimmFeaturizer(IMAGE, "test_vit3"),
    "projected": lambda: TimmFeaturizer(IMAGE, "tiny_clip", projection=5, unit_length=True),
    "rotary": lambda: TimmFeaturizer(IMAGE, "tiny_dinov3"),
    "any of timm": lambda: TimmFeaturizer(IMAGE, "test_byobnet"),
    "wide_resnet": lambda: WideResNet(IMAGE),
    "mlp": lambda: MLPFeaturizer(IMAGE, 12),
    "mnist_cnn": lambda: MNISTCNN(IMAGE, 8),
}


def images(n: int = 4, shape: tuple[int, ...] = IMAGE, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


def style(n: int, seed: int, active: bool = True) -> StyleMix:
    rng = torch.Generator().manual_seed(seed)
    return StyleMix(
        torch.tensor(active), torch.rand(n, generator=rng), torch.randperm(n, generator=rng)
    )


# ---- stages


@pytest.mark.parametrize("name", MAKERS)
def test_any_split_gives_the_whole(name: str) -> None:
    net = MAKERS[name]().eval()
    x = images()
    with torch.no_grad():
        whole = net(x)
        assert whole.shape == (4, net.n_features)
        for k in range(len(net.stages()) + 1):
            assert torch.equal(net.forward_from(net.forward_until(x, k), k), whole), k
        assert torch.equal(net.forward_until(x, 0), x)


@pytest.mark.parametrize("name", MAKERS)
def test_stages_hold_every_parameter_and_buffer_once(name: str) -> None:
    net = MAKERS[name]()
    held = [p for stage in net.stages() for p in stage.parameters()]
    assert sorted(map(id, held)) == sorted(id(p) for p in net.parameters())
    modules = {id(m) for stage in net.stages() for top in stage.modules for m in top.modules()}
    with_buffers = {id(m) for m in net.modules() if list(m.buffers(recurse=False))}
    assert with_buffers <= modules


@pytest.mark.parametrize("name", MAKERS)
def test_a_frozen_half_gets_no_gradient_and_the_other_does(name: str) -> None:
    net = MAKERS[name]()
    n_stages = len(net.stages())
    for stage in net.stages()[: n_stages // 2]:
        for parameter in stage.parameters():
            parameter.requires_grad_(False)
    net(images()).square().sum().backward()
    for number, stage in enumerate(net.stages()):
        reached = {parameter.grad is not None for parameter in stage.parameters()}
        assert reached == {number >= n_stages // 2}


def test_four_stages_of_the_published_networks() -> None:
    """Blocks per stage 2, 2, 2, 2 of ResNet-18; the stem belongs to the first."""
    net = ResNet(IMAGE, "resnet18")
    assert net.n_features == 512
    assert [sum(p.numel() for p in stage.parameters()) for stage in net.stages()] == [
        9_536 + 147_968, 525_568, 2_099_712, 8_393_728,
    ]  # fmt: skip
    assert (
        sum(p.numel() for p in net.parameters()) == 11_176_512
    )  # torchvision's 11,689,512 less 512 * 1000 + 1000
    assert net.style_stages == (1, 2, 3)


def test_equals_timms_own_forward() -> None:
    for net in (MAKERS["resnet"](), MAKERS["vit"]()):
        x = images()
        with torch.no_grad():
            assert torch.equal(net.eval()(x), net.body(x))  # type: ignore[operator]


# ---- BatchNorm


@pytest.mark.parametrize(
    "make",
    [lambda norm: ResNet(IMAGE, "test_resnet", norm=norm), lambda norm: WideResNet(IMAGE, norm)],
)
def test_frozen_statistics_do_not_move_and_scales_do(make: Callable[[str], Featurizer]) -> None:
    frozen, free = make("frozen"), make("train")
    for net, moves in ((frozen, False), (free, True)):
        before = {key: value.clone() for key, value in net.named_buffers()}
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for mode in (net.train, net.eval, net.train):
            mode()
        scales = {n: p.detach().clone() for n, p in net.named_parameters()}
        net(images()).square().sum().backward()
        optimizer.step()
        assert moves is any(
            not torch.equal(before[key], value) for key, value in net.named_buffers()
        )
        norms = [n for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)]
        assert norms
        changed = [
            not torch.equal(scales[f"{n}.bias"], net.get_parameter(f"{n}.bias")) for n in norms
        ]
        assert all(changed)
        assert {m.training for m in net.modules() if isinstance(m, nn.BatchNorm2d)} == {moves}
    with torch.no_grad():
        assert torch.equal(frozen.train()(images()), frozen.eval()(images()))


# ---- dropout, channels, sizes


def test_dropout_is_on_the_features_in_training_only() -> None:
    net, plain = (
        ResNet(IMAGE, "test_resnet", norm="frozen", dropout=0.5),
        ResNet(IMAGE, "test_resnet", norm="frozen"),
    )
    plain.load_state_dict(net.state_dict())
    x = images(64)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        dropped, kept = net.train()(x), plain.train()(x)
        assert torch.allclose(dropped[dropped != 0], 2 * kept[dropped != 0])
        assert 0.4 < float((dropped[kept != 0] == 0).float().mean()) < 0.6
        assert torch.equal(net.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_other_numbers_of_channels(channels: int) -> None:
    for net in (
        ResNet((channels, 32, 32), "test_resnet"),
        VisionTransformer((channels, 32, 32), "test_vit"),
    ):
        assert net.get_parameter(f"body.{net.input_layer}.weight").shape[1] == channels
        assert net(images(shape=(channels, 32, 32))).shape == (4, net.n_features)


def test_other_image_sizes() -> None:
    assert ResNet((3, 48, 40), "test_resnet")(images(shape=(3, 48, 40))).shape == (4, 96)
    vit = VisionTransformer((3, 48, 32), "test_vit")
    assert vit.get_parameter("body.pos_embed").shape[1] == 1 + 3 * 2
    assert vit(images(shape=(3, 48, 32))).shape == (4, vit.n_features)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ResNet((3, 28, 28), "resnet18"), "resnet18 .*32 x 32.*28 x 28.*backbone=mlp"),
        (lambda: ResNet((3, 8, 8), "resnet18"), "8 x 8.* where the dataset has it.*backbone=mlp"),
        (lambda: VisionTransformer((3, 40, 40), "test_vit"), "16 x 16.* 40 x 40"),
        (lambda: WideResNet((3, 64, 64)), "64 x 64; set dataset.image_size=32"),
        (lambda: ResNet(IMAGE, "resnet17"), "backbone.arch=resnet17 is unknown"),
        (lambda: ResNet(IMAGE, "test_vit"), "backbone.arch=test_vit is no ResNet"),
        (lambda: VisionTransformer(IMAGE, "test_resnet"), "backbone.arch=test_resnet"),
        (lambda: ResNet(IMAGE, "test_resnet", dropout=1.0), "dropout=1.0"),
    ],
)
def test_what_cannot_work_says_so(make: Callable[[], Featurizer], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


# ---- wide ResNet


def _block(x: Tensor, w: dict[str, Tensor], p: str, stride: int) -> Tensor:
    def norm(h: Tensor, i: int) -> Tensor:
        return F.batch_norm(
            h,
            w[f"{p}bn{i}.running_mean"],
            w[f"{p}bn{i}.running_var"],
            w[f"{p}bn{i}.weight"],
            w[f"{p}bn{i}.bias"],
        )

    h = F.conv2d(F.relu(norm(x, 1)), w[f"{p}conv1.weight"], w[f"{p}conv1.bias"], padding=1)
    h = F.conv2d(
        F.relu(norm(h, 2)), w[f"{p}conv2.weight"], w[f"{p}conv2.bias"], stride=stride, padding=1
    )
    short = x
    if f"{p}shortcut.weight" in w:
        short = F.conv2d(x, w[f"{p}shortcut.weight"], w[f"{p}shortcut.bias"], stride=stride)
    return h + short


def test_wide_resnet_by_hand() -> None:
    """Layer by layer, spec of DomainBed's network; six blocks, three with a 1 x 1 shortcut."""
    net = WideResNet(IMAGE).double().eval()
    w = net.state_dict()
    h = F.conv2d(x := images().double(), w["conv.weight"], w["conv.bias"], padding=1)
    for group, stride in enumerate((1, 2, 2)):
        h = _block(h, w, f"groups.{group}.0.", stride)
        h = _block(h, w, f"groups.{group}.1.", 1)
    h = F.relu(
        F.batch_norm(h, w["bn.running_mean"], w["bn.running_var"], w["bn.weight"], w["bn.bias"])
    )
    assert h.shape == (4, 128, 8, 8)
    torch.testing.assert_close(net(x), F.avg_pool2d(h, 8).flatten(1), rtol=1e-12, atol=1e-12)
    assert net.bn.momentum == 0.9
    assert {
        m.momentum for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d) and n != "bn"
    } == {0.1}
    assert sum(key.endswith("shortcut.weight") for key in w) == 3


# ---- MixStyle


def test_styles_are_mixed_after_their_stages() -> None:
    net = ResNet(IMAGE, "test_resnet").eval()
    x, mixes = images(6), {1: style(6, 1), 2: style(6, 2, active=False), 3: style(6, 3)}
    with torch.no_grad():
        h = mix_styles(net.forward_until(x, 1), mixes[1])
        h = net.stages()[1].run(h)
        h = mix_styles(net.stages()[2].run(h), mixes[3])
        expected = net.stages()[3].run(h)
        assert torch.equal(net(x, styles=mixes), expected)
        assert not torch.allclose(net(x, styles=mixes), net(x))
        off = {
            stage: StyleMix(torch.tensor(False), m.weight, m.partner) for stage, m in mixes.items()
        }
        assert torch.equal(net(x, styles=off), net(x))


# ---- stacked


@pytest.mark.parametrize("name", ["resnet", "wide_resnet"])
def test_networks_can_be_mapped_over_runs(name: str) -> None:
    """Outputs, gradients and running statistics of three runs together are those of each alone."""
    runs = [MAKERS[name]().double().train() for _ in range(3)]
    x = torch.stack([images(seed=i).double() for i in range(3)])
    template = copy.deepcopy(runs[0])
    params, buffers = torch.func.stack_module_state(runs)  # type: ignore[arg-type]

    def loss(p: dict[str, Tensor], b: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(template, {**p, **b}, (x,))
        return out.square().sum()

    losses = torch.vmap(loss, randomness="different")(params, buffers, x)
    losses.sum().backward()
    for i, run in enumerate(runs):
        alone = run(x[i]).square().sum()
        alone.backward()
        torch.testing.assert_close(losses[i], alone)
        for key, parameter in run.named_parameters():
            torch.testing.assert_close(params[key].grad[i], parameter.grad)  # type: ignore[index]
        for key, buffer in run.named_buffers():
            torch.testing.assert_close(buffers[key][i], buffer)
