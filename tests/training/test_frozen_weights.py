"""Checkpoints that leave out frozen weights: what is in which file, and what if one is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench.errors import WeightsError
from dgbench.records.rows import ROW_FILE
from dgbench.trained import loading
from dgbench.trained.loading import load
from dgbench.training.checkpoints import Snapshot, own_file
from dgbench.training.fit import Fit
from dgbench.training.frozen_weights import KEY, complete, digest_of, frozen_file
from dgbench.training.groups import RunGroup
from dgbench.training.study import ReadyRun, ReadyStudy
from tests.studies import small_study, stopping_at, train_study

WORDS = (
    "protocol.folds=[0,1]", "trainer.steps=24", "trainer.eval_every=8", "hparams.lr=0.01",
    "trainer.checkpoint_seconds=0", "tuning.rank=2",
)  # fmt: skip


def _study(folder: Path, *words: str, **settings: Any) -> ReadyStudy:
    return small_study(folder, "tuning=lora", *WORDS, *words, **settings)


def _frozen(run: ReadyRun) -> Path:
    (file,) = (run.folder / "checkpoints").glob("frozen_*")
    return file


def _state(run: ReadyRun) -> dict[str, Any]:
    snapshot = Snapshot.load(own_file(run))
    assert snapshot is not None
    return snapshot.runs[run.hash]


def _best(run: ReadyRun) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(own_file(run).with_name("best.ckpt"), weights_only=True)
    return content


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ReadyStudy:
    study = _study(tmp_path_factory.mktemp("whole"), "execution=single")
    assert all(train_study(study).values())
    return study


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tuning", "mode", "averaging"),
    [
        ("lora", "single", "none"),
        ("lora", "single", "eoa"),
        ("lora", "stacked", "none"),
        ("bias", "stacked", "none"),
    ],
)
def test_what_is_in_which_file(tuning: str, mode: str, averaging: str, tmp_path: Path) -> None:
    """Each tensor once: the featurizer's weights in one file, linked by both folds."""
    words = [f"tuning={tuning}", f"execution={mode}", f"averaging={averaging}", *WORDS[:4]]
    if averaging == "eoa":
        words.append("averaging.rule.start=9")
    study = small_study(tmp_path, *words)
    assert all(train_study(study).values())
    first, second = map(_frozen, study.runs)
    assert os.path.samefile(first, second)
    for run in study.runs:
        module = study.module(run.fold)
        constants = {f"networks.{name}" for name in module.networks.constants()}
        assert len(constants) == (4 if tuning == "lora" else 2)
        for content in (_state(run), _best(run)):
            assert content["state_dict"].keys() == module.state_dict().keys() - constants
            module.load_state_dict(complete(content, first.parent))
        if averaging == "eoa":
            averaged = _state(run)["averaging"]["mean"]["mean"]
            assert averaged and not averaged.keys() & constants
        assert _state(run)[KEY] == digest_of(torch.load(first, weights_only=True)["state_dict"])


@pytest.mark.thorough
def test_fine_tuning_and_probing_keep_whole_checkpoints(tmp_path: Path) -> None:
    for tuning in ("ft", "lp"):
        study = small_study(tmp_path, f"tuning={tuning}", *WORDS[1:4], "protocol.folds=[0]")
        assert all(train_study(study).values())
        assert len(_state(study.runs[0])["state_dict"]) == len(
            study.module(study.runs[0].fold).state_dict()
        )
        assert not list(tmp_path.rglob("frozen_*"))


def test_a_folder_alone_is_a_model(finished: ReadyStudy, tmp_path: Path) -> None:
    """Packed and moved, it predicts bit for bit what it did."""
    run = finished.runs[0]
    archive = shutil.make_archive(str(tmp_path / "run"), "zip", run.folder)
    x = torch.randn(3, *load(run.folder).preprocessing.image)
    for step in ("last", "best"):
        assert torch.equal(load(archive, step)(x), load(run.folder, step)(x))


@pytest.mark.thorough
def test_without_links_each_folder_has_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("no links on this file system")

    monkeypatch.setattr(os, "link", refused)
    study = _study(tmp_path)
    assert all(train_study(study).values())
    first, second = map(_frozen, study.runs)
    assert not os.path.samefile(first, second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.thorough
def test_a_damaged_file_is_not_linked_to(tmp_path: Path) -> None:
    """The second fold writes one of its own; the first one's is refused."""
    first = _study(tmp_path, "protocol.folds=[0]")
    assert all(train_study(first).values())
    file = _frozen(first.runs[0])
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    both = _study(tmp_path, source=first.source)
    assert all(train_study(both).values())
    assert load(both.runs[1].folder)
    with pytest.raises(WeightsError, match=r"frozen_\w{12}.ckpt") as refusal:
        load(first.runs[0].folder)
    assert "\n" not in str(refusal.value)


def test_refused_in_one_line(
    finished: ReadyStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is gone, holds other weights, or is named by no digest."""
    folder = tmp_path / "run"
    shutil.copytree(finished.runs[0].folder, folder)
    (file,) = folder.glob("checkpoints/frozen_*")
    tensors = torch.load(file, weights_only=True)["state_dict"]
    file.unlink()
    with monkeypatch.context() as patch:  # as if the network were far larger than the checkpoint
        patch.setattr(loading, "SMALL", 0)
        patch.setattr(loading, "MOST_TIMES_FILE", 0)
        messages = [_refusal(folder)]
    assert "is gone" in messages[0]
    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    for content in ({"state_dict": changed}, {"state_dict": 3}, [1]):
        torch.save(content, file)
        messages.append(_refusal(folder))
        assert "holds other weights" in messages[-1]
    last = folder / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    for digest in ("../../" * 10 + "a", 3, "f" * 63):
        content["runs"][finished.runs[0].hash][KEY] = digest
        torch.save(content, last)
        messages.append(_refusal(folder))
        assert "no digest" in messages[-1]
    assert not any("\n" in message for message in messages)


def _refusal(folder: Path) -> str:
    with pytest.raises(WeightsError) as refusal:
        load(folder)
    return str(refusal.value)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["single", "stacked"])
def test_a_stopped_run_needs_its_file_only_if_initial_weights_changed(
    mode: str, finished: ReadyStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the file the initial weights are put back if their digest is the same."""
    stopped = _study(tmp_path, f"execution={mode}")
    with stopping_at(9):
        assert not any(train_study(stopped).values())
    run = stopped.runs[0]
    snapshot = _latest(run)
    module = Fit(RunGroup((run,)), snapshot.of([run])).module
    expected = module.weights(0)

    def other_weights(networks: torch.nn.Module) -> None:
        with torch.no_grad():
            for parameter in networks.parameters():
                parameter.add_(1)

    build = ReadyStudy.module

    def changed(study: ReadyStudy, fold: Any) -> Any:
        module = build(study, fold)
        other_weights(module.networks)
        return module

    with monkeypatch.context() as patch:
        patch.setattr(ReadyStudy, "module", changed)
        again = Fit(RunGroup((run,)), snapshot.of([run])).module.weights(0)
        assert all(torch.equal(tensor, again[name]) for name, tensor in expected.items())
        frozen_file(run.folder / "checkpoints", snapshot.runs[run.hash][KEY]).unlink()
        with pytest.raises(WeightsError, match="is gone"):
            Fit(RunGroup((run,)), snapshot.of([run]))
    again_study = _study(tmp_path, f"execution={mode}", source=stopped.source)
    assert all(train_study(again_study).values())
    for one, other in zip(finished.runs, again_study.runs, strict=True):
        if mode == "single":
            assert (one.folder / ROW_FILE).read_bytes() == (other.folder / ROW_FILE).read_bytes()
        assert load(other.folder)


def _latest(run: ReadyRun) -> Snapshot:
    files = [own_file(run), *run.folder.parent.glob(".stacks/*.ckpt")]
    (snapshot,) = filter(None, map(Snapshot.load, files))
    return snapshot
