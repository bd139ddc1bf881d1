"""A folder of hostile models: none runs anything, reaches for the network, waits or fills memory;
each is one line.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import dgbench
from dgbench.cli.main import main
from dgbench.errors import DgbenchError
from tests.trained.conftest import Trained

CANARY = "canary"
EVIL = f"import os\nos.mkdir({CANARY!r})\nimport torch\nclass Thing(torch.nn.Module): pass\n"
PLAIN = (
    "import torch\nfrom dgbench.networks.small import MLPFeaturizer\nclass Mine(MLPFeaturizer): "
    "pass\n"
)
GIB = 2**30

Spoil = Callable[[Path], None]
SPOILT: dict[str, Spoil] = {}


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (CANARY,)


def case(spoil: Spoil) -> Spoil:
    SPOILT[spoil.__name__] = spoil
    return spoil


def record(name: str, *places: Any) -> None:
    """A case whose ``model.json`` has other values: (key, key, ..., value)."""

    def spoil(folder: Path) -> None:
        content = json.loads((folder / "model.json").read_text())
        for *parents, key, value in places:
            node = content
            for parent in parents:
                node = node[parent]
            node[key] = value
        (folder / "model.json").write_text(json.dumps(content))

    SPOILT[name] = spoil


def features(path: str) -> dict[str, Any]:
    """Keys of a dataset of vectors, as ``conf/dataset/features.yaml`` has them."""
    return {
        "_target_": "dgbench.data.datasets.features.FeatureOptions", "name": "features",
        "path": path, "columns": None, "environments": None, "classes": "same", "val_fraction": 0.2,
        "split_seed": 0,
    }  # fmt: skip


MLP = "dgbench.networks.small.MLPFeaturizer"
MKDIR = {"_target_": "os.mkdir", "path": CANARY}

# ---- names of code

for number, path in enumerate(
    [
        "os.system", "evil.Thing", "sitecustomize_of_evil.Thing", "torch.hub.load",
        "dgbench.cli.main.main", "evil", "dgbench.plan.building.importlib.os.system",
        f"{MLP}.__init__.__globals__", "dgbench.evil.Thing", "", "a b",
    ]
):  # fmt: skip
    record(f"featurizer_{number}", ("featurizer", {"_target_": path, "args": [CANARY]}))
record("objective_in_the_current_folder", ("objective", "evil.Thing"))
record("objective_is_no_text", ("objective", ["evil.Thing"]))
record("averaging_in_the_current_folder", ("averaging", {"_target_": "evil.Thing"}))
record("averaging_without_class", ("averaging", {"start": 1}))
record(
    "dataset_unpickles",
    ("dataset", {"_target_": "pandas.read_pickle", "filepath_or_buffer": "run/bomb.pkl"}),
)
record("dataset_in_the_current_folder", ("dataset", "_target_", "evil.Thing"))
record("dataset_argument", ("dataset", "name", MKDIR))
record(
    "dataset_nested_argument",
    ("dataset", "given", [{"deep": [{"_args_": [CANARY], "_target_": "os.mkdir"}]}]),
)
record("dataset_reader", ("dataset", "reader", {**MKDIR, "_partial_": True}))
record("dataset_environment", ("dataset", "name", "${oc.env:HOME}"))
record("dataset_decode", ("dataset", "given", "${oc.decode:'[1, 2]'}"))
record("dataset_create", ("dataset", "given", "${oc.create:${oc.env:EVIL}}"))
record("dataset_address", ("dataset", "url", "https://evil.example/x"))
record("dataset_of_an_address", ("dataset", features("https://evil.example/x.csv")))
record("dataset_of_pickled_arrays", ("dataset", features("run/objects.npz")))
record(
    "hub_name",
    (
        "featurizer",
        {"_target_": "dgbench.networks.timm_networks.TimmFeaturizer", "arch": "hf-hub:evil/x"},
    ),
)
record(
    "local_name",
    ("featurizer", {"_target_": "dgbench.networks.timm_networks.ResNet", "arch": "local-dir:run"}),
)
record("type_is_a_function", ("dtype", "load"))
record("type_is_a_module", ("dtype", "hub"))


@case
def duplicate_keys(folder: Path) -> None:
    text = (folder / "model.json").read_text().rstrip()
    (folder / "model.json").write_text(f'{text[:-1]}, "objective": "evil.Thing"}}')


# ---- numbers and sizes

record("wide", ("featurizer", "width", 10**9))
record(
    "deep_network",
    ("featurizer", {"_target_": "dgbench.networks.small.FeatureMLP", "depth": 10**9}),
    ("preprocessing", {"image": [8], "mean": [], "std": [], "pictures": False}),
)
record("deep_head", ("objective", "dgbench.algorithms.dann.DANN"), ("hparams", {
    "lambda": 1, "d_steps_per_g": 1, "grad_penalty": 0, "mlp_width": 8, "mlp_depth": 10**9,
    "mlp_dropout": 0, "lr": 1, "lr_d": 1, "weight_decay_d": 0, "beta1": 0, "batch_size": 2,
    "weight_decay": 0,
}))  # fmt: skip
record("large_image", ("preprocessing", "image", [2, 10**6, 10**6]))
record("negative_image", ("preprocessing", "image", [-2, -1, 5]))
record("image_of_no_side", ("preprocessing", "image", []))
record("many_images", ("n_images", 10**15))
record("infinite_mean", ("preprocessing", "mean", [1e400, 0]))
record("infinite_width", ("featurizer", "width", 1e400))
record("infinite_steps", ("trainer", "steps", 1e400))
record("not_a_number", ("hparams", "lr", float("nan")))
record("no_classes", ("classes", []))
record("classes_are_numbers", ("classes", [0, 1]))
record("identity_is_a_list", ("identity", []))
record("run_leads_out", ("identity", "run", "../../../../outside"))
record("fold_leads_out", ("identity", "fold", "../../../../outside"))
record("dataset_leads_out", ("dataset", "name", "../../../../outside"))
record("trainer_is_text", ("trainer", "os.system"))
record("protocol_is_code", ("protocol", MKDIR))
record("protocol_argument", ("protocol", "deeper", [MKDIR]))
record("protocol_of_other_keys", ("protocol", {"name": "x"}))


@case
def gigantic_record(folder: Path) -> None:
    with open(folder / "model.json", "r+b") as file:
        file.truncate(40 * GIB)  # sparse


@case
def deeply_nested_record(folder: Path) -> None:
    (folder / "model.json").write_text("[" * 10**6)


@case
def nested_dataset(folder: Path) -> None:
    content = json.loads((folder / "model.json").read_text())
    content["dataset"]["given"] = "DEEP"
    text = json.dumps(content).replace('"DEEP"', "[" * 250 + "]" * 250)
    (folder / "model.json").write_text(text)


# ---- files


def last(folder: Path) -> Path:
    return folder / "checkpoints" / "last.ckpt"


@case
def pickled_code(folder: Path) -> None:
    torch.save({"runs": Bomb()}, last(folder))


@case
def pickled_code_behind_a_link_out_of_the_folder(folder: Path) -> None:
    torch.save(Bomb(), folder.parent / "outside.ckpt")
    last(folder).unlink()
    last(folder).symlink_to("../../outside.ckpt")


@case
def link_to_itself(folder: Path) -> None:
    last(folder).unlink()
    last(folder).symlink_to("last.ckpt")


@case
def endless_device(folder: Path) -> None:
    last(folder).unlink()
    last(folder).symlink_to("/dev/zero")


@case
def pipe_for_weights(folder: Path) -> None:
    last(folder).unlink()
    os.mkfifo(last(folder))


@case
def pipe_for_the_record(folder: Path) -> None:
    (folder / "model.json").unlink()
    os.mkfifo(folder / "model.json")


@case
def arrays_of_objects(folder: Path) -> None:
    with open(last(folder), "wb") as file:
        np.savez(file, a=np.array([Bomb()], dtype=object))


class Script(torch.nn.Module):
    """Writes a file as it is unpickled by ``torch.jit.load``."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @torch.jit.export
    def __getstate__(self):  # type: ignore[no-untyped-def]
        return self.w

    @torch.jit.export
    def __setstate__(self, state: torch.Tensor):  # type: ignore[no-untyped-def]
        torch.save(state, "canary")
        self.w = state
        self.training = True


def scripted(file: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Script()).save(str(file))
    return file


@case
def script_for_weights(folder: Path) -> None:
    scripted(last(folder))


@case
def packed_weights(folder: Path) -> None:
    """A gigabyte in a megabyte."""
    last(folder).unlink()
    with zipfile.ZipFile(last(folder), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/version", "3")
        with archive.open("archive/data/0", "w") as record_file:
            for _ in range(64):
                record_file.write(bytes(2**24))


@case
def checkpoint_of_other_types(folder: Path) -> None:
    state = torch.load(last(folder), weights_only=True)
    torch.save(
        {"step": [], "runs": {run: {"state_dict": {"x": 5}} for run in state["runs"]}}, last(folder)
    )


@case
def tensors_of_no_memory(folder: Path) -> None:
    state = torch.load(last(folder), weights_only=True)
    for run in state["runs"].values():
        run["state_dict"] = {key: torch.zeros(()).expand(10**6, 10**6) for key in run["state_dict"]}
    torch.save(state, last(folder))


@case
def more_numbers_than_bytes(folder: Path) -> None:
    """The pickle says that a storage is longer than its record."""
    file = last(folder)
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    file.unlink()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data[: len(data) // 2] if "/data/" in name else data)


def as_safetensors(folder: Path, header: bytes) -> None:
    last(folder).write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))


@case
def safetensors_past_their_end(folder: Path) -> None:
    as_safetensors(
        folder,
        json.dumps(
            {"x": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}}
        ).encode(),
    )


@case
def safetensors_that_overlap(folder: Path) -> None:
    one = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    as_safetensors(folder, json.dumps({"x": one, "y": one}).encode())


@case
def safetensors_of_a_large_header(folder: Path) -> None:
    last(folder).write_bytes((2**60).to_bytes(8, "little") + b"{")


@case
def safetensors_of_another_network(folder: Path) -> None:
    save_file({"x": torch.zeros(3)}, last(folder))


@case
def pipe_for_safetensors(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    os.mkfifo(last(folder))


# ---- tests


@pytest.fixture
def place(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run to be spoilt in the current folder, beside modules of the same author; no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("EVIL", f"{{_target_: os.mkdir, path: {CANARY}}}")
    for name in ("evil", "sitecustomize_of_evil"):
        (tmp_path / f"{name}.py").write_text(EVIL)
        monkeypatch.delitem(sys.modules, name, raising=False)

    def connect(*_: object) -> None:
        Path(CANARY).touch()
        raise OSError("no network")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    folder = Path(shutil.copytree(trained(), tmp_path / "run"))
    torch.save(Bomb(), folder / "bomb.pkl")
    np.savez(folder / "objects.npz", features=np.array([Bomb()], dtype=object))
    return folder


def one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """What the command says as it ends with 1, within seconds and little memory."""
    monkeypatch.setattr(sys, "argv", ["dgbench"])
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SystemExit) as ended:
        main(words)
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("dgbench:")]
    assert ended.value.code == 1, line
    assert not Path(CANARY).exists(), line
    assert time.monotonic() - began < 20, line
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20, (
        line
    )  # a GiB, in KiB
    return line


@pytest.mark.thorough
@pytest.mark.parametrize("name", SPOILT)
def test_a_hostile_model_is_one_line(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    SPOILT[name](place)
    line = one_line(
        ["evaluate", f"model={place}", "trainer.device=cpu", "output=rows"], capsys, monkeypatch
    )
    assert len(line) < 1000
    assert not list(place.parent.parent.glob("outside*")) and not any(
        Path("rows").rglob("errors.jsonl")
    )


def test_names_are_looked_at_before_any_import(place: Path) -> None:
    """By ``dgbench.load`` of one run and of several."""
    SPOILT["featurizer_1"](place)
    for call in (dgbench.load, lambda folder: dgbench.load([folder, folder])):
        with pytest.raises(DgbenchError, match=r"evil\.Thing.*trust=true"):
            call(place)
    assert "evil" not in sys.modules and not Path(CANARY).exists()


def test_nothing_is_waited_for(
    pictures_run: Path,
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe among the pictures, or in place of the configuration, which a card quotes."""
    run, root = tmp_path / "study" / "run", tmp_path / "pictures"
    shutil.copytree(pictures_run, run)
    shutil.copytree(pictures, root)
    (root / "photo" / "dog" / "00.png").unlink()
    os.mkfifo(root / "photo" / "dog" / "00.png")
    monkeypatch.chdir(tmp_path)
    line = one_line(
        ["evaluate", f"model={run}", f"dataset.root={root}", "paths.cache_dir=cache"],
        capsys,
        monkeypatch,
    )
    assert "00.png" in line


def test_a_mean_looks_at_the_dataset_of_its_runs_where_it_is_needed(
    place: Path, trained: Trained
) -> None:
    """``dataset=`` is enough for the mean of all;
    which runs help is judged on their own dataset.
    """
    shutil.copytree(trained("hparams.lr=0.05"), place.parent / "other")
    for run in (place, place.parent / "other"):
        SPOILT["dataset_unpickles"](run)
    runs, words = (
        [place, place.parent / "other"],
        ["dataset=sr_cmnist", "dataset.base=digits", "trainer.device=cpu"],
    )
    for kind, typed in (("diwa_greedy", words), ("diwa_greedy", []), ("diwa_uniform", [])):
        with pytest.raises(DgbenchError, match=r"pandas\.read_pickle.*trust=true"):
            dgbench.evaluate(runs, typed, averaging=kind, output="rows")
    assert dgbench.evaluate(runs, words, averaging="diwa_uniform", output="rows").folders
    assert not Path(CANARY).exists()


def test_no_folder_is_made_that_a_record_names(pictures_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(pictures_run, tmp_path / "run"))
    content = json.loads((run / "model.json").read_text())
    content["dataset"]["cache_dir"] = str(tmp_path / "made")
    (run / "model.json").write_text(json.dumps(content))
    assert dgbench.evaluate(
        run, [f"paths.cache_dir={tmp_path / 'cache'}"], output=tmp_path / "rows"
    ).folders
    assert not (tmp_path / "made").exists() and (tmp_path / "cache").is_dir()


def test_programs_need_trust(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a .pt2 file evaluates expressions in it as Python, loading TorchScript runs its
    ``__setstate__``.
    """
    program = torch.export.export(
        torch.nn.Flatten(), (torch.zeros(2, 2),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    torch.export.save(program, "plain.pt2")
    reader, writer = torch._C.PyTorchFileReader("plain.pt2"), torch._C.PyTorchFileWriter("evil.pt2")
    for name in reader.get_all_records():
        content = reader.get_record(name)
        if name.endswith("model.json"):
            content = content.replace(
                b'"expr_str": "', f'"expr_str": "__import__(\'os\').mkdir({CANARY!r}) or '.encode()
            )
        if name not in ("version", "byteorder", ".data/serialization_id"):
            writer.write_record(name, content, len(content))
    writer.write_end_of_file()
    for file in ("evil.pt2", str(scripted(Path("evil.pt")))):
        line = one_line(
            ["evaluate", f"model={file}", "dataset=sr_cmnist", "dataset.base=digits"],
            capsys,
            monkeypatch,
        )
        assert file in line and "trust=true" in line


def test_trust_runs_classes_of_a_users_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("of_a_user.py").write_text(PLAIN)
    content = json.loads((place / "model.json").read_text())
    content["featurizer"]["_target_"] = "of_a_user.Mine"
    (place / "model.json").write_text(json.dumps(content))
    monkeypatch.delitem(sys.modules, "of_a_user", raising=False)
    with pytest.raises(DgbenchError, match=r"of_a_user\.Mine.*trust=true"):
        dgbench.evaluate(place, output="rows")
    (own,) = dgbench.evaluate(place, trust=True, output="rows").folders
    assert (own / "errors.jsonl").exists()
    assert type(dgbench.load(place, trust=True).run.networks.featurizer).__name__ == "Mine"  # type: ignore[attr-defined,union-attr]
