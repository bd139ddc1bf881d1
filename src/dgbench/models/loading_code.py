"""The code that a model card shows: how to load the folder with dgbench, timm, torch and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.models.loaded import LoadedModel


def loading_code(model: LoadedModel, *, timm: bool, programs: Sequence[str] = (), repository: str = "") -> str:
    """Sections of Markdown whose Python runs in the exported folder.

    Args:
        model: as it is exported.
        timm: the folder is one for ``timm.create_model``.
        programs: formats besides safetensors.
        repository: of the hub, ``ORG/NAME``; empty where it lies on no hub.
    """
    own = model.preprocessing
    shape = f"2, {', '.join(map(str, own.image))}"
    kind = str(model.run.networks.dtype)
    zeros = f"torch.zeros({shape}{'' if kind == 'torch.float32' else f', dtype={kind}'})"
    images = f"images = {zeros}  # yours{'' if own.vectors else ', normalized by mean and standard deviation'}"
    pictures = own.pictures and own.image[0] == 3
    predicted = 'model.predict(["picture.png"]).names' if pictures else f"model.predict(torch.rand({shape})).names"
    download = f"After `hf download {repository} --local-dir .`, in" if repository else "In"
    given = "on vectors of features, as they are" if own.vectors else "which does to pictures what it did in training"
    parts = [
        f"{download} this folder, with dgbench, {given}"
        + (":" if pictures or own.vectors else "; here, to tensors with values in [0, 1]:"),
        _python(
            "import dgbench\n" + ("" if pictures else "import torch\n") + f'\nmodel = dgbench.load(".")\n{predicted}'
        ),
    ]
    if timm:
        parts += ["With timm alone, 1.0.12 or newer" + _from_hub(repository) + ":", _python(_timm(pictures, images))]
    if "pt2" in programs:
        load = 'model = torch.export.load("model.pt2").module()'
        parts += ["With torch alone:", _python(f"import torch\n\n{load}\n{images}\nlogits = model(images)")]
    if "onnx" in programs:
        session = 'session = onnxruntime.InferenceSession("model.onnx")'
        run = '(logits,) = session.run(["logits"], {"images": images.numpy()})'
        parts += ["With ONNX Runtime:", _python(f"import onnxruntime\nimport torch\n\n{session}\n{images}\n{run}")]
    return "\n\n".join(parts)


def _from_hub(repository: str) -> str:
    return f" (`hf-hub:{repository}` instead of `local-dir:.` downloads it)" if repository else ""


def _timm(pictures: bool, images: str) -> str:
    model = 'model = timm.create_model("local-dir:.", pretrained=True).eval()'
    if not pictures:
        return f"import timm\nimport torch\n\n{model}\n{images}\nlogits = model(images)"
    return (
        f"import timm\nfrom PIL import Image\n\n{model}\n"
        "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))\n"
        'picture = Image.open("picture.png").convert("RGB")\n'
        "logits = model(transform(picture)[None])\n"
        'model.pretrained_cfg["label_names"][logits.argmax()]'
    )


def _python(code: str) -> str:
    return f"```python\n{code}\n```"
