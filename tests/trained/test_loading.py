"""``dgbench.load``: from whatever holds a run to a model that says of pictures what the run's rows
say.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import dgbench
from dgbench.data.description import Preprocessing
from dgbench.errors import ConfigError, DataError, DgbenchError, RecordError, WeightsError
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.trained.predictor import Ensemble, LoadedModel, Predictor, as_input, batches
from dgbench.training.run_folder import ModelRecord
from tests.studies import small_study
from tests.trained.conftest import Trained

EOA = ("averaging=eoa", "averaging.rule.start=2")
SWAD = (
    "averaging=swad",
    "averaging.rule.n_converge=1",
    "averaging.rule.n_tolerance=1",
    "trainer.steps=8",
)
BETA = ("averaging=beta",)
#: averages, groups of images, chance, memory of images, further featurizers, networks kept in the
#: state
METHODS = ("arm", "mtl", "ada_clust", "adrmx", "miro", "ddg")
VARIANTS = [
    (),
    EOA,
    SWAD,
    BETA,
    ("trainer.precision=64-true",),
    ("tuning=lora", "hparams.lr=0.1"),
    ("tuning=lora", "hparams.lr=0.1", *SWAD),
    *((f"algorithm={name}",) for name in METHODS),
]


def loaded(place: Any, step: str = "last") -> LoadedModel:
    found = dgbench.load(place, step)
    assert isinstance(found, LoadedModel)
    return found


def logits(model: Predictor, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(x)
    return found


def random_images(model: Predictor, n: int) -> Tensor:
    return torch.randn(n, *model.preprocessing.image, generator=torch.Generator().manual_seed(0))


def rows_at(folder: Path, step: int) -> list[dict[str, Any]]:
    return [row for row in read_rows(folder / ROW_FILE)[0] if row["step"] == step]


# ---- where a model may lie
# ------------------------------------------------------------------------------------------


def test_every_place_of_a_run_is_the_same_model(trained: Trained, tmp_path: Path) -> None:
    """Folder, text, archives, and a checkpoint in its folder."""
    run = trained()
    own = loaded(run)
    x = random_images(own, 6)
    places: list[Any] = [str(run), run / "checkpoints" / "last.ckpt"]
    for kind in ("zip", "tar", "gztar", "xztar"):
        places.append(shutil.make_archive(str(tmp_path / "packed"), kind, run.parent, run.name))
    for place in places:
        found = loaded(place)
        assert torch.equal(logits(found, x), logits(own, x)), place
        assert (found.step, found.classes) == (4, ("0", "1"))
        assert not found.training
    assert len({Path(place).suffix for place in places}) >= 5


def test_a_model_needs_neither_configuration_nor_data(
    pictures_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine: the folder alone, its dataset is nowhere."""
    folder = Path(
        shutil.copytree(
            pictures_run, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("*.yaml")
        )
    )
    content = json.loads((folder / "model.json").read_text())
    content["dataset"]["root"] = str(tmp_path / "nothing")
    (folder / "model.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    own = loaded(pictures_run)
    x = random_images(own, 2)
    assert torch.equal(logits(loaded(folder), x), logits(own, x))


def test_a_run_of_a_version_whose_files_stood_elsewhere(
    copied: Path, trained: Trained, tmp_path: Path
) -> None:
    """Every import path of dgbench in its record is one of former days."""
    text = (copied / "model.json").read_text()
    moved = re.sub(r'"dgbench(?:\.\w+)+\.(\w+)"', r'"dgbench.formerly.\1"', text)
    assert moved.count("dgbench.formerly.") > 2
    (copied / "model.json").write_text(moved)
    x = random_images(loaded(trained()), 2)
    assert torch.equal(logits(loaded(copied), x), logits(loaded(trained()), x))
    assert len(dgbench.evaluate(copied, output=tmp_path / "rows").folders) == 1


def test_a_list_is_an_ensemble(trained: Trained) -> None:
    """The mean of the members' logits, as text, paths or one alone."""
    runs = [trained(), trained(*EOA)]
    members = [loaded(run) for run in runs]
    ensemble = dgbench.load(runs)
    assert isinstance(ensemble, Ensemble)
    x = random_images(ensemble, 4)
    expected = (logits(members[0], x) + logits(members[1], x)) / 2
    assert torch.allclose(logits(ensemble, x), expected, rtol=0, atol=1e-7)
    assert torch.equal(
        ensemble.predict(torch.zeros_like(x)).logits[0],
        ensemble.predict(torch.zeros_like(x[0])).logits[0],
    )
    alone = dgbench.load(runs[:1])
    assert torch.equal(logits(alone, x), logits(members[0], x))


def test_the_best_step(trained: Trained) -> None:
    """Where the validation error of the training environments was lowest, as the rows say."""
    run = trained("hparams.lr=0.05", "trainer.steps=6")
    errors: dict[int, list[float]] = {}
    for row in read_rows(run / ROW_FILE)[0]:
        if row["subset"] == "val" and not row["env_held_out"]:
            errors.setdefault(row["step"], []).append(row["wrong"] / row["seen"])
    best = min(errors, key=lambda step: (sum(errors[step]), step))
    assert loaded(run, "best").step == best
    assert loaded(run).step == 6


# ---- it is what was evaluated
# ---------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("words", VARIANTS, ids=lambda words: words[0] if words else "erm")
def test_every_eval_set_has_the_errors_of_the_rows(
    words: tuple[str, ...], trained: Trained, tmp_path: Path
) -> None:
    """Averages as they were scored (the live weights say something else), ARM in its groups, MTL
    with its noise.
    """
    run = trained(*words)
    model = loaded(run)
    result = dgbench.evaluate(model, ["trainer.device=cpu"], output=tmp_path)
    (folder,) = result.folders
    keys = ("env", "subset", "seen", "wrong")
    found = {
        tuple(row[key] for key in keys): row["loss"] for row in read_rows(folder / ROW_FILE)[0]
    }
    expected = {tuple(row[key] for key in keys): row["loss"] for row in rows_at(run, model.step)}
    assert found.keys() == expected.keys()
    assert len(found) > 3
    assert all(found[key] == pytest.approx(loss, rel=1e-6) for key, loss in expected.items())


@pytest.mark.parametrize("words", [EOA, SWAD, BETA], ids=["eoa", "swad", "beta"])
def test_averages_are_not_the_live_weights(words: tuple[str, ...], trained: Trained) -> None:
    run = trained(*words)
    (state,) = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["runs"].values()
    own = loaded(run).run.state_dict()
    assert any(
        not torch.equal(own[key], value) for key, value in state["state_dict"].items() if key in own
    )
    if words != EOA:  # the average is all that was evaluated
        best = loaded(run, "best").run.state_dict()
        assert all(torch.equal(own[key], value) for key, value in best.items())


@pytest.mark.parametrize("step", ["last", "best"])
def test_picture_files_have_the_errors_of_the_rows(
    step: str, pictures_run: Path, pictures: Path
) -> None:
    """To the last image: all files of the held-out environment, and of no split but the one that
    rows name.
    """
    model = loaded(pictures_run, step)
    (row,) = [r for r in rows_at(pictures_run, model.step) if r["subset"] == "test"]
    (held,) = [
        r for r in rows_at(pictures_run, model.step) if r["subset"] == "val" and r["env_held_out"]
    ]
    files = sorted((pictures / row["env"]).glob("*/*.png"))
    found = model.predict(files)
    wrong = sum(name != file.parent.name for name, file in zip(found.names, files, strict=True))
    assert len(files) == row["seen"] + held["seen"] == 17
    assert wrong == row["wrong"] + held["wrong"]
    probabilities = found.probabilities.double()
    labels = torch.tensor([model.classes.index(file.parent.name) for file in files])
    loss = -probabilities[torch.arange(len(files)), labels].log().sum()
    assert float(loss) == pytest.approx(
        row["loss"] * row["seen"] + held["loss"] * held["seen"], rel=1e-4
    )


def test_groups_are_kept_together(trained: Trained) -> None:
    """ARM sees 8 images at a time; what it says of an image depends on the others of its group
    alone.
    """
    model = loaded(trained("algorithm=arm"))
    assert model.group_size == 8
    pixels = torch.rand(16, *model.preprocessing.image, generator=torch.Generator().manual_seed(1))
    both, first = model.predict(pixels).logits, model.predict(pixels[:8]).logits
    assert torch.allclose(both[:8], first, rtol=0, atol=1e-6)
    other = model.predict(torch.cat([pixels[:4], pixels[8:12]])).logits
    assert not torch.allclose(other[:4], first[:4], rtol=0, atol=1e-6)
    with pytest.raises(RecordError, match=r"more.*image"):
        model.features(pixels)


def test_features_are_in_front_of_the_classifier(trained: Trained) -> None:
    model = loaded(trained())
    x = random_images(model, 3)
    with torch.no_grad():
        assert torch.equal(model.run.networks.classifier(model.features(x)), model(x))


# ---- kinds of pictures
# ----------------------------------------------------------------------------------------------


def test_a_picture_may_be_anything(pictures_run: Path, pictures: Path) -> None:
    """Files, PIL images, uint8 arrays and tensors, floating-point arrays and tensors: the same
    input, bit for bit.
    """
    model = loaded(pictures_run)
    file = next(iter(sorted(pictures.glob("photo/dog/*.png"))))
    expected = model.predict(file).logits
    opened = Image.open(file).convert("RGB")
    pixels = np.array(opened)
    kinds: list[Any] = [
        str(file),
        [file],
        opened,
        opened.convert("RGBA"),
        pixels,
        pixels[None],
        torch.from_numpy(pixels).permute(2, 0, 1),
        torch.from_numpy(pixels).permute(2, 0, 1)[None],
    ]
    for kind in kinds:
        assert torch.equal(model.predict(kind).logits, expected), type(kind)
    small = np.array(opened.resize((32, 32), Image.Resampling.BILINEAR))
    scaled = torch.from_numpy(small).permute(2, 0, 1).float() / 255
    for kind in (
        scaled,
        scaled[None],
        scaled.double(),
        scaled.permute(1, 2, 0).numpy(),
        scaled.numpy()[None].transpose(0, 2, 3, 1),
    ):
        found = model.predict(kind).logits
        assert torch.allclose(found, expected, rtol=0, atol=1e-6), type(kind)
    larger = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
    assert torch.allclose(
        model.predict(larger).logits, expected, rtol=0, atol=0.05
    )  # antialiased by torch, not by PIL
    assert torch.equal(scaled, torch.from_numpy(small).permute(2, 0, 1).float() / 255), (
        "what is given stays"
    )


def test_gray_pictures_have_three_channels(pictures_run: Path) -> None:
    model = loaded(pictures_run)
    gray = np.random.default_rng(0).integers(0, 256, (40, 30), dtype=np.uint8)
    expected = model.predict(np.stack([gray] * 3, -1)).logits
    for kind in (gray, gray[..., None], torch.from_numpy(gray)[None], Image.fromarray(gray)):
        assert torch.equal(model.predict(kind).logits, expected)


def test_input_is_normalized_by_channel() -> None:
    """(0.5 - 0.1) / 0.2 = 2, (0.5 - 0.2) / 0.3 = 1, (0.5 - 0.5) / 0.4 = 0."""
    to = Preprocessing((3, 2, 2), (0.1, 0.2, 0.5), (0.2, 0.3, 0.4))
    found = as_input(torch.full((3, 2, 2), 0.5), to)
    assert torch.allclose(found, torch.tensor([2.0, 1.0, 0.0]).view(3, 1, 1).expand(3, 2, 2))
    sizes = [len(batch) for batch in batches(torch.zeros(5, 3, 2, 2), to, 2)]
    assert sizes == [2, 2, 1]


def test_wrong_pictures_are_one_line(pictures_run: Path, trained: Trained, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    rgb, digits = loaded(pictures_run), loaded(trained())
    file = tmp_path / "fine.png"
    Image.new("RGB", (9, 9)).save(file)
    wrong: list[tuple[Predictor, Any, str]] = [
        (rgb, torch.rand(2, 32, 32), "C = 3"),
        (rgb, torch.rand(2, 4, 32, 32), "C = 3"),
        (rgb, torch.rand(3, 32, 32) * 255, "[0, 1]"),
        (rgb, torch.randn(3, 32, 32), "[0, 1]"),
        (rgb, torch.full((3, 32, 32), float("nan")), "[0, 1]"),
        (rgb, torch.zeros(3, 32, 32, dtype=torch.int64), "give uint8"),
        (rgb, np.zeros((32, 32, 5), dtype=np.uint8), "channels"),
        (rgb, np.zeros((0, 32, 3), dtype=np.uint8), "is empty"),
        (rgb, broken, "is no picture"),
        (rgb, tmp_path / "absent.png", "FileNotFoundError"),
        (rgb, [], "holds no pictures"),
        (rgb, torch.zeros(0, 3, 32, 32), "holds no pictures"),
        (rgb, 7, "holds no pictures"),
        (rgb, [7], "no picture"),
        (digits, file, "no picture file holds"),
        (digits, np.zeros((8, 8, 3), dtype=np.uint8), "no picture file holds"),
        (digits, torch.rand(3, 8, 8), "C = 2"),
    ]
    for model, picture, message in wrong:
        with pytest.raises(DataError, match=re.escape(message)) as raised:
            model.predict(picture)
        assert "\n" not in str(raised.value)


# ---- what is no model
# -----------------------------------------------------------------------------------------------


class Bomb:
    """Unpickled, it would make a folder."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("mkdir pwned",)


@pytest.fixture
def copied(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that may be spoilt; the process stands beside it."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(trained(), tmp_path / "run"))


def refused(
    place: Any, message: str, kind: type[DgbenchError] = RecordError, step: str = "last"
) -> None:
    with pytest.raises(kind, match=re.escape(message)) as raised:
        dgbench.load(place, step)
    assert "\n" not in str(raised.value)


def test_a_pickle_with_code_is_not_run(copied: Path) -> None:
    for content in (Bomb(), {"step": 4, "state_dict": {"x": Bomb()}}):
        torch.save(content, copied / "checkpoints" / "last.ckpt")
        refused(copied, "never run", WeightsError)
    assert not Path("pwned").exists()


def test_a_checkpoint_of_another_network(
    copied: Path, trained: Trained, pictures_run: Path
) -> None:
    last, wider = copied / "checkpoints" / "last.ckpt", trained("backbone.width=16")
    shutil.copy(wider / "checkpoints" / "last.ckpt", last)
    refused(copied, "checkpoint", WeightsError)
    shutil.copy(wider / "checkpoints" / "best.ckpt", copied / "checkpoints" / "best.ckpt")
    refused(copied, "model.json", WeightsError, "best")
    shutil.copy(pictures_run / "checkpoints" / "best.ckpt", copied / "checkpoints" / "best.ckpt")
    refused(copied, "networks.classifier.weight is (2, 512)", WeightsError, "best")
    state = torch.load(last, weights_only=True)
    torch.save(state["runs"], last)
    refused(copied, "last.ckpt is no checkpoint", WeightsError)


def test_damaged_files(copied: Path) -> None:
    last = copied / "checkpoints" / "last.ckpt"
    whole = last.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"hello"):
        last.write_bytes(content)
        with pytest.raises(WeightsError) as raised:
            dgbench.load(copied)
        assert "\n" not in str(raised.value)
    (copied / "checkpoints" / "last.ckpt").unlink()
    refused(copied, "checkpoints/last.ckpt (DONE ")
    for text in ("{", "[]", '{"format": 2}', '{"format": 1}', ""):
        (copied / "model.json").write_text(text)
        refused(copied, "no record")
    content = json.loads((copied / "errors.jsonl").read_text().splitlines()[0])
    assert content["algorithm"] == "erm"


def test_wrong_places(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "study").mkdir()
    for name in ("fold-0", "fold-1"):
        shutil.copytree(copied, tmp_path / "study" / name)
    two = shutil.make_archive(str(tmp_path / "two"), "zip", tmp_path / "study")
    none = shutil.make_archive(str(tmp_path / "none"), "gztar", tmp_path / "empty")
    packed = Path(shutil.make_archive(str(tmp_path / "cut"), "gztar", copied))
    packed.write_bytes(packed.read_bytes()[:2000])
    (tmp_path / "junk.zip").write_text("junk")
    refused(tmp_path / "nowhere", "nowhere does not exist")
    refused(tmp_path / "nowhere.zip", "nowhere.zip does not exist")
    refused(tmp_path / "empty", "holds no model.json")
    refused(tmp_path / "study", "2 models (fold-0, fold-1)")
    refused(two, "holds 2 models")
    refused(none, "holds 0 models")
    refused(packed, "unpacked (")
    refused(tmp_path / "junk.zip", "unpacked (")
    refused([], "no run")
    refused(copied, "step=final is unknown", ConfigError, "final")


def test_an_archive_cannot_leave_its_folder(copied: Path, tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as opened:
        opened.add(copied / "model.json", "../../escaped.json")
    refused(archive, "unpacked (")
    assert not list(tmp_path.parent.rglob("escaped.json"))


def test_members_that_do_not_fit_together(trained: Trained, pictures_run: Path) -> None:
    refused([trained(), pictures_run], "the same classes")


def test_a_run_that_is_not_finished_says_so(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    (copied / "status").write_text("RUNNING\n")
    assert loaded(copied).step == 4
    assert "not finished (RUNNING)" in caplog.text


def test_a_run_that_was_never_started_has_no_record(tmp_path: Path) -> None:
    study = small_study(tmp_path, "protocol.folds=[0]")
    study.runs[0].folder.mkdir(parents=True)
    with pytest.raises(RecordError, match=r"holds no model\.json"):
        dgbench.load(study.runs[0].folder)
    with pytest.raises(RecordError, match=r"has no model\.json"):
        ModelRecord.load(study.runs[0].folder)
