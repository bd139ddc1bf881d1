"""Files of an attacker at every door that SECURITY.md lists: each is one line, and nothing of them
runs.

What a file would run makes a folder named ``canary`` in the current folder. Random parts come from
:data:`SEEDS`.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.datasets.base_images import _cifar_batches
from dgbench.data.datasets.features import columns_of
from dgbench.data.fetch.archives import extract
from dgbench.errors import DgbenchError
from dgbench.networks.timm_networks import ResNet
from dgbench.networks.weights import PretrainedWeights
from dgbench.plan.settings import check_configuration
from dgbench.records.files import read_arrays, read_yaml
from dgbench.reports.reading.collect import collect
from dgbench.sweeps.slurm_keys import SlurmKeys
from dgbench.sweeps.submissions import Submissions
from dgbench.trained.foreign import foreign
from dgbench.trained.loading import load
from dgbench.training.checkpoints import Snapshot
from tests.networks.checkpoint_layouts import legacy
from tests.rows import ROW
from tests.studies import composed, plain

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary"
SEEDS = range(20)
#: doors behind which code runs by design: a person names it, and nothing that is received does
OPEN = {"configurations", "functions", "hub"}
#: doors that are tried elsewhere, by more files than here
ELSEWHERE = {
    "models": "tests/trained/test_hostile_models.py",
    "pages": "tests/tools/archive/test_checking.py",
}

Try = Callable[[Path], object]
CASES: dict[str, tuple[str, Try]] = {}


class Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, (CANARY,)


class Chain:
    """Reaches for code through ``getattr``, as what hides from a list of forbidden names does."""

    def __reduce__(self) -> Any:
        return getattr, (Path, "touch")


def at(door: str) -> Callable[[Try], Try]:
    def keep(attempt: Try) -> Try:
        CASES[attempt.__name__] = (door, attempt)
        return attempt

    return keep


# ---- weights


def weights(path: Path, **keys: Any) -> None:
    net = ResNet((3, 32, 32), "test_resnet")
    PretrainedWeights(arch="test_resnet", name="file", path=str(path), **keys).load(net)


def of_weights(name: str, write: Callable[[Path], object]) -> None:
    def attempt(folder: Path) -> None:
        path = folder / "net.pth"
        write(path)
        weights(path)

    CASES[name] = ("weights", attempt)


def raw(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def archive_of(
    pickled: bytes, storages: dict[str, bytes] | None = None, extra: str = ""
) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net/data.pkl", pickled)
            if extra:
                archive.writestr(f"net/{extra}", pickled)
            for key, content in (storages or {}).items():
                archive.writestr(f"net/data/{key}", content)

    return write


def tensor_of(offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A pickle of ``{"conv1.weight": tensor}`` whose tensor reaches where its storage does not."""

    class Place:
        pass

    class Rebuilt:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (Place(), offset, size, stride, False, {})

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: Any) -> Any:
            return (
                ("storage", torch.FloatStorage, "0", "cpu", 4) if isinstance(thing, Place) else None
            )

    packed = io.BytesIO()
    Pickler(packed, 2).dump({"conv1.weight": Rebuilt(), "args": Chain()})
    return packed.getvalue()


def cyclic() -> dict[str, Any]:
    content: dict[str, Any] = {"args": Bomb()}
    content["model"] = content
    return content


of_weights("weights_bomb", lambda path: torch.save({"state_dict": {"conv1.weight": Bomb()}}, path))
of_weights("weights_whole_file_is_a_bomb", lambda path: torch.save(Bomb(), path))
of_weights("weights_bomb_as_a_key", lambda path: torch.save({(1, Bomb()): torch.ones(2)}, path))
of_weights("weights_getattr", lambda path: torch.save({"a": Chain()}, path))
of_weights(
    "weights_bomb_before_torch_1_6", lambda path: legacy({"a": Bomb(), "b": torch.ones(3)}, path)
)
of_weights("weights_plain_pickle", raw(pickle.dumps({"conv1.weight": Bomb()})))
of_weights("weights_eval", raw(b'c__builtin__\neval\n(S\'__import__("os").mkdir("canary")\'\ntR.'))
of_weights("weights_inst", raw(b"(S'canary'\nios\nmkdir\n."))
of_weights(
    "weights_build_changes_a_function",
    raw(b"ctorch._utils\n_rebuild_tensor_v2\n(N}S'__code__'\ncos\nmkdir\nstb."),
)
of_weights("weights_numpy_of_objects", raw(pickle.dumps({"a": np.array([Bomb()], dtype=object)})))
of_weights("weights_program", archive_of(pickle.dumps(Bomb()), extra="constants.pkl"))
of_weights(
    "weights_storage_behind_its_end", archive_of(tensor_of(0, (10**6,), (1,)), {"0": bytes(16)})
)
of_weights("weights_negative_offset", archive_of(tensor_of(-8, (2,), (1,)), {"0": bytes(16)}))
of_weights("weights_huge_stride", archive_of(tensor_of(0, (2,), (2**60,)), {"0": bytes(16)}))
of_weights("weights_without_its_storage", archive_of(tensor_of(0, (2,), (1,))))
of_weights("weights_cycle", lambda path: torch.save(cyclic(), path))
of_weights("weights_deep", raw(b"(d" * 100_000 + b"." * 2))
of_weights("weights_memo_of_nothing", raw(b"h\xff."))
of_weights("weights_claims_2_to_the_60_bytes", raw(b"\x80\x04\x8e" + struct.pack("<Q", 2**60)))
of_weights("weights_header_of_safetensors", raw(struct.pack("<Q", 2**26) + b"{" + b" " * 100))
of_weights(
    "weights_safetensors_that_lie",
    raw(struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,9999999]}}'),
)
of_weights("weights_pipe", lambda path: os.mkfifo(path))
of_weights("weights_folder", lambda path: path.mkdir())
of_weights("weights_link_in_a_circle", lambda path: path.symlink_to(path))
of_weights(
    "weights_names_that_move_the_cursor",
    lambda path: torch.save(
        {"\x1b[2J\nconv1": torch.ones(2), "e\x00vil\r": {"\n": torch.ones(2)}}, path
    ),
)


@at("weights")
def weights_packed_a_thousandfold(folder: Path) -> None:
    path = folder / "net.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}))
        archive.writestr("net/data/0", bytes(2**28))
    weights(path)


# ---- checkpoints and models


@at("checkpoints")
def a_checkpoint_to_continue(folder: Path) -> None:
    torch.save({"format": 1, "runs": Bomb()}, folder / "last.ckpt")
    assert Snapshot.load(folder / "last.ckpt") is None
    raise DgbenchError("left out with a warning")


@at("checkpoints")
def a_checkpoint_alone(folder: Path) -> None:
    torch.save({"state_dict": Bomb()}, folder / "last.ckpt")
    load(folder / "last.ckpt")


@at("model.pkl")
def hyperparameters_of_a_model_pkl(folder: Path) -> None:
    torch.save(
        {"args": Bomb(), "model_dict": {}, "model_hparams": {"lr": Chain()},
            "model_input_shape": (3, 28, 28),
         "model_num_classes": 3}, folder / "model.pkl"
    )  # fmt: skip
    foreign(str(folder / "model.pkl"))(None)  # type: ignore[arg-type]


@at("model.pkl")
def a_model_pkl_that_is_a_bomb(folder: Path) -> None:
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb()))
    foreign(str(folder / "model.pkl"))(None)  # type: ignore[arg-type]


@at("programs")
def a_program_of_torch_export(folder: Path) -> None:
    with zipfile.ZipFile(folder / "net.pt2", "w") as archive:
        archive.writestr("net/models/model.json", "{}")
    foreign(str(folder / "net.pt2"))(None)  # type: ignore[arg-type]


@at("programs")
def a_torchscript_program(folder: Path) -> None:
    archive_of(pickle.dumps(Bomb()), extra="constants.pkl")(folder / "net.pt")
    foreign(str(folder / "net.pt"))(None)  # type: ignore[arg-type]


# ---- folders of runs and sweeps


def of_config(name: str, text: str) -> None:
    def attempt(folder: Path) -> None:
        (folder / "config.yaml").write_text(text)
        try:
            read_yaml(folder / "config.yaml")
        except ValueError as error:
            raise DgbenchError(str(error)) from error

    CASES[name] = ("run folders", attempt)


of_config("config_python_tag", "a: !!python/object/apply:os.mkdir [canary]")
of_config("config_repeats", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]")
of_config("config_large", "a: " + "x" * 1_100_000)
of_config("config_deep", "[" * 10_000)


def of_submission(name: str, write: Callable[[Path], object]) -> None:
    def attempt(folder: Path) -> None:
        write(folder)
        submissions = Submissions(folder)
        submissions.held({"7": "RUNNING"}, ["a"])
        said = submissions.result("7")
        raise DgbenchError(said if isinstance(said, str) else f"result {said}")

    CASES[name] = ("sweep folders", attempt)


of_submission(
    "sweep_pickle",
    lambda folder: (folder / "7_0_result.pkl").write_bytes(pickle.dumps(("success", Bomb()))),
)
of_submission("sweep_job_list_is_a_pipe", lambda folder: os.mkfifo(folder / "7_jobs.json"))
of_submission(
    "sweep_result_of_two_lines",
    lambda folder: (folder / "7_result.json").write_text('{"error": "a\\n\\u001b[2J"}'),
)
of_submission(
    "sweep_result_is_no_mapping", lambda folder: (folder / "7_result.json").write_text("[1]")
)
of_submission(
    "sweep_deep_result", lambda folder: (folder / "7_result.json").write_text("[" * 100_000)
)


# ---- rows, arrays, entries, pages


def of_rows(name: str, line: str) -> None:
    def attempt(folder: Path) -> None:
        (folder / "study" / "fold-1-abc").mkdir(parents=True)
        (folder / "study" / "fold-1-abc" / "errors.jsonl").write_text(line)
        collected = collect([folder])
        assert not collected.runs or all(problem.reason for problem in collected.problems)
        raise DgbenchError("named and left out")

    CASES[name] = ("rows", attempt)


LINE = json.loads(ROW.to_json().splitlines()[0])
of_rows("rows_of_two_lines_in_a_name", json.dumps({**LINE, "algorithm": "erm\n\x1b[2J"}) + "\n")
of_rows("rows_nested", "[" * 50_000 + "\n")
of_rows("rows_of_code", json.dumps({**LINE, "hparams": {"_target_": "os.mkdir"}}) + "\n")
of_rows("rows_pickle", pickle.dumps(Bomb(), 0).decode("latin1"))


def in_one_line(call: Callable[[], object]) -> None:
    """Run a reader whose own errors its callers name in one line."""
    try:
        call()
    except (OSError, ValueError) as error:
        raise DgbenchError(" ".join(str(error).split())) from error


@at("arrays")
def arrays_of_objects(folder: Path) -> None:
    np.savez(folder / "a.npz", features=np.array([Bomb()], dtype=object))
    in_one_line(lambda: read_arrays(folder / "a.npz"))


@at("arrays")
def features_of_objects(folder: Path) -> None:
    np.savez(
        folder / "a.npz",
        features=np.array([[Bomb()]], dtype=object),
        environment=["a"],
        label=["b"],
    )
    in_one_line(lambda: columns_of(folder / "a.npz", None))


@at("packed files")
def arrays_that_expand(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", bytes(2**27))
    in_one_line(lambda: read_arrays(folder / "a.npz"))


@at("entries")
def an_entry_with_a_python_tag(folder: Path) -> None:
    (folder / "entry.yaml").write_text("title: !!python/object/apply:os.mkdir [canary]\n")
    in_one_line(lambda: read_yaml(folder / "entry.yaml"))


@at("entries")
def an_entry_that_is_a_link_to_a_device(folder: Path) -> None:
    (folder / "entry.yaml").symlink_to("/dev/zero")
    in_one_line(lambda: read_yaml(folder / "entry.yaml"))


# ---- datasets


@at("CIFAR-10")
def cifar_of_code(folder: Path) -> None:
    for name in (
        "data_batch_1",
        "data_batch_2",
        "data_batch_3",
        "data_batch_4",
        "data_batch_5",
        "test_batch",
    ):
        (folder / name).write_bytes(pickle.dumps({b"data": Bomb(), b"labels": []}))
    list(_cifar_batches(folder))


def of_archive(name: str, member: tarfile.TarInfo) -> None:
    def attempt(folder: Path) -> None:
        with tarfile.open(folder / "a.tar", "w") as archive:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
        (folder / "in").mkdir()
        extract(folder / "a.tar", folder / "in")

    CASES[name] = ("archives", attempt)


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
    return info


of_archive("archive_leads_out", member(f"../{CANARY}"))
of_archive("archive_absolute", member(f"/tmp/{CANARY}-of-hostile-files"))
of_archive("archive_link", member("link", tarfile.SYMTYPE, "/etc"))
of_archive("archive_device", member("device", tarfile.CHRTYPE))


# ---- names


@at("names")
def a_job_name_that_ends_its_line(folder: Path) -> None:
    keys: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hydra" / "launcher" / "slurm.yaml"))
    SlurmKeys(**{**keys, "submitit_folder": "x", "name": "x\n#SBATCH --wrap=mkdir canary"})


def of_name(group: str, name: str) -> None:
    def attempt(folder: Path) -> None:
        config = plain(composed("dataset.base=digits"))
        check_configuration({**config, group: {**config[group], "name": name}})

    CASES[f"name_{group}_{len(CASES)}"] = ("names", attempt)


of_name("algorithm", f"../../{CANARY}")
of_name("algorithm", "erm\nevil")
of_name("backbone", "/etc/x")


# ---- the tests


def doors() -> dict[str, str]:
    """Door -> what SECURITY.md says of code behind it."""
    text = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| ([^|]+?) \| .+ \| ([^|]+?) \|$", text, re.M)
    return {door: answer for door, answer in rows if door not in ("door", "---")}


def test_every_door_of_the_list_is_tried_and_every_door_that_is_tried_is_listed() -> None:
    tried = {door for door, _ in CASES.values()}
    assert doors().keys() == tried | OPEN | ELSEWHERE.keys()
    assert not tried & OPEN and len(CASES) >= 40
    for door, answer in doors().items():
        runs = door in OPEN - {"hub"} or door == "programs"
        assert answer.startswith("**yes**" if runs else ("no", "downloaded")), door
    assert all((ROOT / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_line_and_nothing_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "received"
    folder.mkdir()
    _, attempt = CASES[name]
    with pytest.raises(DgbenchError) as refused:
        attempt(folder)
    text = str(refused.value)
    assert text and len(text.splitlines()) == 1 and text.isprintable(), text
    assert len(text) < 2000
    assert not (tmp_path / CANARY).exists() and not (folder / CANARY).exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["received"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_pickles_of_weights(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random bytes of a file change: it is read, or refused in one line;
    a bomb in it never runs.
    """
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    path = tmp_path / "net.pth"
    content = {
        "state_dict": {"conv1.weight": torch.ones(3, 3)},
        "args": Bomb(),
        "b": [Chain(), {"c": Bomb()}],
    }
    (torch.save if seed % 2 else legacy)(content, path)
    whole = path.read_bytes()
    for _ in range(20):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(1, len(damaged))])])
        with pytest.raises(DgbenchError) as refused:
            weights(path)
        assert str(refused.value).isprintable()
    assert not (tmp_path / CANARY).exists()


def test_the_canary_sings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the files hold does run where it is unpickled."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / CANARY).is_dir()
