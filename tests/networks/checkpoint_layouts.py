"""Checkpoints as tools and papers write them, of a small network: what ``init.path`` is given by
people.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import pickle
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch import Tensor, nn

RESNET, VIT = "test_resnet", "test_vit"  # timm's own code with few channels
SIDE = 64
Tensors = dict[str, Tensor]


def network(arch: str, n_out: int = 10, seed: int = 1) -> Any:
    """A network as others train it: a classifier, and no tensor as it was drawn."""
    size = {"img_size": SIDE} if arch == VIT else {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = timm.create_model(arch, pretrained=False, num_classes=n_out, **size)
        with torch.no_grad():
            for value in net.state_dict().values():
                value += (torch.rand_like(value, dtype=torch.float32) + 1).to(value.dtype)
    return net.eval()


def other(net: Any) -> Any:
    """The same network with other numbers, as an average or a momentum copy of it is."""
    copied = copy.deepcopy(net)
    with torch.no_grad():
        for value in copied.parameters():
            value += 1
    return copied


def named(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    return {prefix + name: value for name, value in tensors.items()}


def encoder(net: Any) -> Tensors:
    """Its tensors without the classifier."""
    return {
        name: value
        for name, value in net.state_dict().items()
        if not name.startswith(("fc.", "head."))
    }


def numbered(net: Any) -> Tensors:
    """``nn.Sequential(*list(net.children())[:-1])``: names of children become numbers."""
    numbers = {name: str(i) for i, (name, _) in enumerate(net.named_children())}
    renamed = {}
    for name, value in encoder(net).items():
        first, _, rest = name.partition(".")
        renamed[f"{numbers[first]}.{rest}"] = value
    return renamed


def head(prefix: str, n_in: int = 4) -> Tensors:
    return {f"{prefix}0.weight": torch.ones(3, n_in), f"{prefix}0.bias": torch.ones(3)}


def adam(net: Any) -> dict[str, Any]:
    parameters = list(net.parameters())
    optimizer = torch.optim.Adam(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer.state_dict()


class _Lit(nn.Module):
    """Stands for a module of a user's own, which the reader cannot import."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("steps", torch.zeros(1))


def legacy(content: Any, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def dino(net: Any, **more: Any) -> dict[str, Any]:
    args = argparse.Namespace(arch="vit_small", lr=0.0005, output_dir=Path("out"))
    student = {**named("module.backbone.", encoder(other(net))), **head("module.head.mlp.")}
    teacher = {**named("backbone.", encoder(net)), **head("head.mlp.")}
    return {
        "student": student,
        "teacher": teacher,
        "optimizer": {"state": {}, "param_groups": []},
        "epoch": 800,
        "args": args,
        "dino_loss": {"center": torch.zeros(1, 8)},
        **more,
    }


def dinov2(net: Any) -> dict[str, Any]:
    tensors = {
        **named("backbone.", encoder(net)),
        **head("dino_head.mlp."),
        **head("ibot_head.mlp."),
    }
    return {"teacher": tensors}


def lightning(tensors: Tensors, **hyper: Any) -> dict[str, Any]:
    return {
        "epoch": 3,
        "global_step": 100,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": OrderedDict(tensors),
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {
            "ModelCheckpoint{}": {
                "best_model_score": torch.tensor(0.5),
                "best_model_path": "x.ckpt",
            }
        },
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []}],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": hyper,
    }


def timm_training(net: Any, **more: Any) -> dict[str, Any]:
    args = argparse.Namespace(model="resnet50", workers=8, checkpoint_hist=10)
    return {
        "epoch": 9,
        "arch": "resnet50",
        "state_dict": net.state_dict(),
        "optimizer": adam(copy.deepcopy(net)),
        "version": 2,
        "args": args,
        "metric": 79.2,
        **more,
    }


def domainbed(net: Any) -> dict[str, Any]:
    """``save_checkpoint`` of DomainBed's train.py; a random search draws hyperparameters as numbers
    of NumPy.
    """
    featurizer, classifier = (
        named("network.", encoder(net)),
        {"weight": torch.ones(7, 8), "bias": torch.ones(7)},
    )
    return {
        "args": {
            "dataset": "PACS",
            "algorithm": "ERM",
            "test_envs": [0],
            "hparams_seed": 3,
            "steps": 5001,
        },
        "model_input_shape": (3, 224, 224),
        "model_num_classes": 7,
        "model_num_domains": 3,
        "model_hparams": {
            "lr": 3e-5,
            "resnet_dropout": np.float64(0.1),
            "resnet18": np.bool_(False),
        },
        "model_dict": {
            **named("featurizer.", featurizer),
            **named("classifier.", classifier),
            **named("network.0.", featurizer),
            **named("network.1.", classifier),
        },
    }


def transformers_vit(net: Any) -> Tensors:
    """Names that transformers gives a vision transformer: queries, keys and values apart."""
    tensors = {
        "vit.embeddings.cls_token": net.cls_token.data,
        "vit.layernorm.weight": net.norm.weight.data,
    }
    for i in range(len(net.blocks)):
        layer = f"vit.encoder.layer.{i}.attention.attention."
        for part in ("query", "key", "value"):
            tensors[f"{layer}{part}.weight"] = torch.zeros(net.embed_dim, net.embed_dim)
    return tensors


def moco(net: Any) -> dict[str, Any]:
    queries = {**named("module.encoder_q.", encoder(net)), **head("module.encoder_q.fc.")}
    keys = {**named("module.encoder_k.", encoder(other(net))), **head("module.encoder_k.fc.")}
    queue = {"module.queue": torch.zeros(8, 4), "module.queue_ptr": torch.zeros(1)}
    return {
        "epoch": 200,
        "arch": "resnet50",
        "state_dict": {**queries, **keys, **queue},
        "optimizer": {},
    }


def moco_v3(net: Any) -> dict[str, Any]:
    base = {**named("module.base_encoder.", encoder(net)), **head("module.base_encoder.head.")}
    momentum = {
        **named("module.momentum_encoder.", encoder(other(net))),
        **head("module.momentum_encoder.head."),
    }
    return {
        "epoch": 300,
        "state_dict": {**base, **momentum, **head("module.predictor.")},
        "optimizer": {},
    }


def byol_lucidrains(net: Any) -> Tensors:
    return {
        **named("net.", net.state_dict()),
        **named("online_encoder.net.", net.state_dict()),
        **head("online_encoder.projector."),
        **named("target_encoder.net.", other(net).state_dict()),
        **head("target_encoder.projector."),
        **head("online_predictor."),
    }


def lucidrains_like_sthalles(net: Any) -> dict[str, Any]:
    return {
        "online_network_state_dict": {**named("encoder.", numbered(net)), **head("projetion.net.")},
        "target_network_state_dict": {
            **named("encoder.", numbered(other(net))),
            **head("projetion.net."),
        },
        "optimizer_state_dict": {"state": {}, "param_groups": []},
    }


def mae(net: Any) -> dict[str, Any]:
    decoder = {
        "mask_token": torch.zeros(1, 1, 8),
        "decoder_pos_embed": torch.zeros(1, 17, 8),
        **head("decoder_embed."),
        **head("decoder_blocks."),
        **head("decoder_norm."),
        **head("decoder_pred."),
    }
    args = argparse.Namespace(mask_ratio=0.75)
    return {
        "model": {**encoder(net), **decoder},
        "optimizer": {},
        "epoch": 799,
        "scaler": {},
        "args": args,
    }


def swav(net: Any) -> Tensors:
    heads = {**head("projection_head."), "prototypes.weight": torch.ones(30, 3)}
    return named("module.", {**encoder(net), **heads})


def twice(net: Any) -> dict[str, Any]:
    return timm_training(net, state_dict_ema=other(net).state_dict())


def detectron(net: Any, path: Path) -> None:
    arrays = {name: value.numpy() for name, value in encoder(net).items()}
    path.write_bytes(
        pickle.dumps({"model": arrays, "__author__": "MOCO", "matching_heuristics": True})
    )


def lfs_pointer(path: Path) -> None:
    path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 97800000\n"
    )


def web_page(path: Path) -> None:
    path.write_text(
        "<!DOCTYPE html>\n<html><title>Google Drive - Virus scan warning</title></html>\n"
    )


def shards(path: Path) -> None:
    path.write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a": "model-00001-of-00002.bin"}})
    )


def tar_of(content: Any, path: Path) -> None:
    packed = io.BytesIO()
    torch.save(content, packed)
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("net/model.pth")
        member.size = len(packed.getvalue())
        archive.addfile(member, io.BytesIO(packed.getvalue()))


def zip_of(content: Any, path: Path) -> None:
    packed = io.BytesIO()
    torch.save(content, packed)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/model.pth", packed.getvalue())


def hdf5(path: Path) -> None:
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))


def with_nan(net: Any) -> Tensors:
    tensors = {name: value.clone() for name, value in net.state_dict().items()}
    tensors["layer1.0.conv1.weight"][0] = float("nan")
    return tensors


def cut(content: Any, path: Path) -> None:
    torch.save(content, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def safetensors(tensors: Tensors, path: Path) -> None:
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)


@dataclass(frozen=True)
class Layout:
    """How a file is made of a network, and what must become of it."""

    write: Callable[[Any, Path], object]
    arch: str = RESNET
    file: str = "checkpoint.pth"
    says: tuple[str, ...] = ()  #: words of its refusal; none where it arrives whole
    keys: Mapping[str, Any] = field(default_factory=dict)


def of(
    make: Callable[[Any], Any], arch: str = RESNET, file: str = "checkpoint.pth", **more: Any
) -> Layout:
    """A layout whose content ``torch.save`` writes."""
    return Layout(lambda net, path: torch.save(make(net), path), arch, file, **more)


CHOOSE = "init.key="
#: every one as its authors' code writes it, made small
LAYOUTS: dict[str, Layout] = {
    # arrives whole
    "DINO, full checkpoint": of(dino, VIT),
    "DINO, backbone only": of(encoder, VIT, "dino_deitsmall16_pretrain.pth"),
    "DINO, student by key": of(
        lambda net: dino(other(net), student=named("module.backbone.", encoder(net))),
        VIT,
        keys={"key": "student"},
    ),
    "DINOv2, teacher_checkpoint": of(dinov2, VIT, "teacher_checkpoint.pth"),
    "MoCo v1 and v2": of(moco, file="moco_v2_800ep_pretrain.pth.tar"),
    "MoCo v3, ViT": of(moco_v3, VIT, "vit-b-300ep.pth.tar"),
    "MoCo v2, detectron2 pickle": Layout(detectron, file="moco.pkl"),
    "SimSiam": of(
        lambda net: {
            "epoch": 100,
            "arch": "resnet50",
            "state_dict": {
                **named("module.encoder.", encoder(net)),
                **head("module.encoder.fc."),
                **head("module.predictor."),
            },
            "optimizer": {},
        },
        file="checkpoint_0099.pth.tar",
    ),
    "lightly, Lightning": of(
        lambda net: lightning(
            {**named("backbone.", numbered(net)), **head("projection_head.layers.")}
        ),
        file="epoch=99.ckpt",
    ),
    "lightly, momentum": of(
        lambda net: lightning(
            {
                **named("backbone.", numbered(net)),
                **named("backbone_momentum.", numbered(other(net))),
                **head("projection_head."),
                **head("projection_head_momentum."),
                **head("prediction_head."),
            }
        ),
        file="e.ckpt",
    ),
    "BYOL, byol-pytorch": of(byol_lucidrains),
    "BYOL, PyTorch-BYOL": of(lucidrains_like_sthalles, file="model.pth"),
    "SimCLR, sthalles": of(
        lambda net: {
            "epoch": 1,
            "arch": "resnet18",
            "state_dict": {**named("backbone.", encoder(net)), **head("backbone.fc.")},
            "optimizer": {},
        },
        file="checkpoint_0100.pth.tar",
    ),
    "SimCLR, Spijkervet": of(
        lambda net: {**named("encoder.", encoder(net)), **head("projector.")},
        file="checkpoint_100.tar",
    ),
    "MAE, with decoder and args": of(mae, VIT, "mae_visualize_vit_base.pth"),
    "SwAV": of(swav, file="swav_800ep_pretrain.pth.tar"),
    "Lightning, net.": of(
        lambda net: lightning(named("net.", net.state_dict()), lr=0.1), file="last.ckpt"
    ),
    "Lightning, model., OmegaConf": of(
        lambda net: lightning(
            {**named("model.", net.state_dict()), "criterion.weight": torch.ones(10)},
            cfg=OmegaConf.create({"optimizer": {"lr": 0.1}}),
        ),
        file="last.ckpt",
    ),
    "Lightning, compiled": of(
        lambda net: lightning(named("net._orig_mod.", net.state_dict())), file="last.ckpt"
    ),
    "torch.compile, _orig_mod.": of(lambda net: named("_orig_mod.", net.state_dict())),
    "DDP, module.": of(
        lambda net: {
            "state_dict": named("module.", net.state_dict()),
            "best_acc1": torch.tensor(76.1),
        },
        file="model_best.pth.tar",
    ),
    "timm, training checkpoint": of(timm_training, file="model_best.pth.tar"),
    "timm, EMA by key": of(
        lambda net: timm_training(other(net), state_dict_ema=net.state_dict()),
        keys={"key": "state_dict_ema"},
    ),
    "AveragedModel of torch": of(
        lambda net: {"n_averaged": torch.tensor(5), **named("module.", net.state_dict())}
    ),
    "DomainBed, model.pkl": of(domainbed, file="model.pkl"),
    "safetensors under .pth": Layout(
        lambda net, path: safetensors(net.state_dict(), path), file="model.pth"
    ),
    "safetensors under .bin": Layout(
        lambda net, path: safetensors(net.state_dict(), path), file="pytorch_model.bin"
    ),
    "timm on the hub, .bin": of(lambda net: net.state_dict(), file="pytorch_model.bin"),
    "torchvision": of(lambda net: net.state_dict(), file="resnet50-0676ba61.pth"),
    "torch.save of the module": of(lambda net: net, file="model_whole.pt"),
    "torch.save of a wrapped module": of(lambda net: {"model": _Lit(net), "epoch": 3}),
    "torch before 1.6": Layout(
        lambda net, path: legacy(
            {"state_dict": net.state_dict(), "args": argparse.Namespace(lr=1)}, path
        ),
        file="old.pth.tar",
    ),
    "half precision": of(
        lambda net: {
            k: v.half() if v.is_floating_point() else v for k, v in net.state_dict().items()
        }
    ),
    "a wrapper of two levels": of(lambda net: named("net.features.", net.state_dict())),
    "one of two networks, by prefix": of(
        lambda net: {**named("a.", encoder(other(net))), **named("b.", encoder(net))},
        keys={"prefix": "b."},
    ),
    # one line that is true
    "timm, with and without EMA": of(twice, says=(CHOOSE, "state_dict_ema")),
    "two networks": of(
        lambda net: {**named("a.", encoder(net)), **named("b.", encoder(other(net)))},
        says=("init.prefix=", "a.", "b."),
    ),
    "student and teacher, no DINO": of(
        lambda net: {"student": net.state_dict(), "teacher": other(net).state_dict()},
        says=(CHOOSE, "student", "teacher"),
    ),
    "optimizer only": of(lambda net: adam(net), file="optimizer.pt", says=("optimizer",)),
    "transformers' names": Layout(
        lambda net, path: safetensors(transformers_vit(net), path),
        VIT,
        "model.safetensors",
        says=("transformers",),
    ),
    "sharded, index only": Layout(
        lambda net, path: shards(path), file="pytorch_model.bin.index.json", says=("shards",)
    ),
    "Git LFS pointer": Layout(lambda net, path: lfs_pointer(path), says=("Git LFS",)),
    "a web page": Layout(lambda net, path: web_page(path), says=("web page",)),
    "archive of a file, .tar.gz": Layout(
        lambda net, path: tar_of(net.state_dict(), path), file="net.tar.gz", says=("unpack",)
    ),
    "archive of a file, .zip": Layout(
        lambda net, path: zip_of(net.state_dict(), path), file="net.zip", says=("unpack",)
    ),
    "Keras, HDF5": Layout(lambda net, path: hdf5(path), file="weights.h5", says=("HDF5",)),
    "NaN": of(with_nan, says=("not finite", "layer1.0.conv1.weight")),
    "cut short": Layout(lambda net, path: cut(net.state_dict(), path), says=("download it again",)),
    "another network": of(lambda net: network(VIT).state_dict(), says=("does not fit", RESNET)),
    "another network, all allowed": of(
        lambda net: network(VIT).state_dict(),
        says=("none of",),
        keys={"allow_missing": ["*"], "allow_unexpected": ["*"]},
    ),
    "under half, all allowed": of(
        lambda net: {k: v for k, v in net.state_dict().items() if k.startswith("conv1")},
        says=("half",),
        keys={"allow_missing": ["*"], "allow_unexpected": ["*"]},
    ),
    "a key that is not there": of(dino, VIT, keys={"key": "ema"}, says=("init.key=ema", "teacher")),
    "a prefix that is not there": of(
        lambda net: net.state_dict(), keys={"prefix": "net."}, says=("init.prefix=net.", "conv1")
    ),
}
