"""Weights between a run's initial ones and its own: the ends bit for bit, the line between them,
what chooses on it, and what cannot be mixed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

import dgbench
from dgbench.cli.main import main
from dgbench.errors import ConfigError, RecordError
from dgbench.records.files import read_yaml
from dgbench.records.rows import read_rows
from dgbench.trained import wise_ft
from dgbench.trained.predictor import LoadedModel
from dgbench.trained.wise_ft import Ends, interpolated, numbers_of, pairs
from tests.studies import make_study, train_study

WORDS = (
    "dataset.base=digits", "backbone.width=8", "trainer.steps=30", "trainer.eval_every=10",
    "trainer.device=cpu", "algorithm=erm", "protocol.folds=[0]",
)  # fmt: skip


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dgbench.train(WORDS, tmp_path_factory.mktemp("tuned")).folders[0]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dgbench.train([*WORDS, "tuning=lp"], tmp_path_factory.mktemp("probe")).folders[0]


@pytest.fixture(scope="module")
def of_zero(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose classifier began at zero."""
    return dgbench.train([*WORDS, "head=zero"], tmp_path_factory.mktemp("zero")).folders[0]


def rows(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder / "errors.jsonl")[0]


def loaded(folder: Path, step: str = "best") -> LoadedModel:
    model = dgbench.load(folder, step=step)
    assert isinstance(model, LoadedModel)
    return model


def tensors(model: LoadedModel) -> dict[str, torch.Tensor]:
    return dict(model.run.networks.state_dict())


def the_ends(folder: Path, initial: Path | None, step: str | None = None) -> Ends:
    (ends,) = pairs([folder], initial, step)
    return ends


def counts(content: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("env", "subset", "env_held_out", "seen", "wrong", "loss")
    return [tuple(row[key] for key in keys) for row in content]


def test_the_line_and_its_ends(tuned: Path, probe: Path) -> None:
    """Against (1 - alpha) w_0 + alpha w_1, tensor by tensor; alpha 0 and 1 bit for bit."""
    ends = the_ends(tuned, probe)
    first = tensors(loaded(probe))
    last = tensors(loaded(tuned))
    assert any(not torch.equal(first[name], last[name]) for name in first)
    for alpha in (0.0, 0.37, 1.0):
        for name, value in tensors(interpolated(ends, alpha, None).model).items():
            expected = (1 - alpha) * first[name].double() + alpha * last[name].double()
            torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
            if alpha in (0.0, 1.0):
                assert torch.equal(value, (first, last)[int(alpha)][name]), name


def test_rows_of_the_ends_are_those_of_the_models(tuned: Path, probe: Path, tmp_path: Path) -> None:
    result = dgbench.evaluate(
        tuned, averaging="wise_ft", initial=probe, alphas=[1, 0], output=tmp_path / "mixed"
    )
    for folder, end in zip(result.folders, (probe, tuned), strict=True):
        (alone,) = dgbench.evaluate(end, step="best", output=tmp_path / end.parent.name).folders
        assert counts(rows(folder)) == counts(rows(alone))


def test_the_beginning_is_built_again_bit_for_bit(of_zero: Path, tmp_path: Path) -> None:
    study = make_study(tmp_path, *WORDS, "head=zero")
    module = study.module(study.runs[0].fold)
    assert study.runs[0].hash == rows(of_zero)[0]["run"]
    ends = the_ends(of_zero, None)
    assert ends.initial_name == "head=zero"
    begun = module.networks.state_dict()
    for name, value in tensors(interpolated(ends, 0.0, None).model).items():
        assert torch.equal(value, begun[name]), name


def test_the_beginning_with_weights_of_a_file_and_statistics(
    image_tree: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ResNet whose BatchNorm learns: statistics are mixed, and the screen says so."""
    file = tmp_path / "resnet.pth"
    network = timm.create_model("test_resnet", pretrained=False, num_classes=10)
    torch.save(network.state_dict(), file)
    root = image_tree(a={"cat": 6, "dog": 6}, b={"cat": 6, "dog": 6})
    study = make_study(
        tmp_path / "out", "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=32",
        "backbone=resnet18", "backbone.arch=test_resnet", "backbone.norm=train", "init=file",
        f"init.path={file}", "head=zero", "hparams.batch_size=4", "trainer.steps=2",
        "trainer.device=cpu", "protocol.folds=[0]", "execution=single",
        f"paths.cache_dir={tmp_path / 'cache'}",
    )  # fmt: skip
    assert train_study(study) == {study.runs[0].hash: True}
    folder = study.runs[0].folder
    ends = the_ends(folder, None)
    begun = study.module(study.runs[0].fold).networks.state_dict()
    last = tensors(loaded(folder, "best"))
    middle = tensors(interpolated(ends, 0.5, None).model)
    for name, value in tensors(interpolated(ends, 0.0, None).model).items():
        if value.is_floating_point():
            assert torch.equal(value, begun[name]), name
            torch.testing.assert_close(middle[name], (begun[name] + last[name]) / 2)
    statistics = [name for name in begun if name.endswith("running_var")]
    assert any(not torch.equal(begun[name], last[name]) for name in statistics)
    main(["evaluate", f"model={folder}", "averaging=wise_ft", "alphas=[0.5]",
          f"output={tmp_path / 'mixed'}"])  # fmt: skip
    assert "mixed as the weights are, not renewed" in " ".join(capsys.readouterr().err.split())
    torch.save({**network.state_dict(), "conv1.0.weight": torch.ones(1)}, file)
    with pytest.raises((ConfigError, RecordError), match="began with file:"):
        pairs([folder], None, None)


def test_all_of_the_grid_as_draws_and_validation_chooses(
    tuned: Path, probe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"model={tuned}", "averaging=wise_ft", f"initial={probe}", f"output={tmp_path}"]
    main(["evaluate", *words])
    screen = capsys.readouterr()
    folders = sorted(file.parent for file in tmp_path.glob("*/*/errors.jsonl"))
    contents = sorted((rows(folder) for folder in folders), key=lambda each: each[0]["draw"])
    assert [each[0]["hparams"]["averaging.alpha"] for each in contents] == list(wise_ft.ALPHAS)
    assert [each[0]["draw"] for each in contents] == list(range(1, 102, 10))
    (plain, *_) = rows(tuned)
    for each in contents:
        assert each[0]["averaging"] == "wise_ft"
        assert each[0]["hparams"]["averaging.initial"] == "tuning=lp"
        assert each[0]["run"] != plain["run"]
        assert {key: each[0][key] for key in ("fold", "seed", "held_out", "trial", "tuning")} == {
            key: plain[key] for key in ("fold", "seed", "held_out", "trial", "tuning")
        }
    best = None
    for each in contents:  # by hand, the largest alpha on ties
        own = [row for row in each if row["subset"] == "val" and not row["env_held_out"]]
        accuracy = sum(1 - row["wrong"] / row["seen"] for row in own) / len(own)
        if best is None or accuracy >= best[0]:
            best = accuracy, each[0]["hparams"]["averaging.alpha"], each[0]["run"]
    assert best is not None
    lines = [line.split() for line in screen.out.splitlines()]
    for each in contents:  # a line for each alpha, with the errors of its rows
        (tested,) = [
            row for row in each if row["subset"] == "test" and row["env"] in row["held_out"]
        ]
        alpha = f"{each[0]['hparams']['averaging.alpha']:.2f}"
        (line,) = [words for words in lines if words[:1] == [alpha]]
        assert line[2] == f"{100 * tested['wrong'] / tested['seen']:.1f}"
    assert f"chooses alpha {best[1]:g}" in " ".join(screen.err.split())
    frame = dgbench.results([tmp_path, tuned], "train_val")
    chosen = frame[frame["averaging"] == "wise_ft"]
    assert set(chosen["run"]) == {best[2]}
    assert set(frame["averaging"]) == {"none", "wise_ft"}
    before = {folder: (folder / "errors.jsonl").read_bytes() for folder in folders}
    main(["evaluate", *words])
    assert {folder: (folder / "errors.jsonl").read_bytes() for folder in folders} == before
    about = json.loads((folders[0] / "identity.json").read_text())
    assert about["evaluated"]["averaged"] == [rows(probe)[0]["run"], plain["run"]]


def test_test_labels_do_not_choose(tuned: Path, probe: Path, tmp_path: Path) -> None:
    """Other errors where nothing was trained give the same choice."""
    result = dgbench.evaluate(tuned, averaging="wise_ft", initial=probe, output=tmp_path)
    chosen = wise_ft.chosen_alpha(result.folders)
    for folder in result.folders:
        content = rows(folder)
        for row in content:
            if row["env_held_out"] or row["subset"] == "test":
                row["wrong"] = row["seen"] - row["wrong"]
        lines = [json.dumps(row) + "\n" for row in content]
        (folder / "errors.jsonl").write_text("".join(lines))
    assert wise_ft.chosen_alpha(result.folders) == chosen


def test_a_run_is_loaded_once_for_each_alpha(
    tuned: Path, probe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_folders = []

    def load_kept(folder: Path, step: str | None, trust: bool) -> Any:
        loaded_folders.append(folder)
        return kept(folder, step, trust)

    kept = wise_ft.load_kept
    monkeypatch.setattr(wise_ft, "load_kept", load_kept)
    dgbench.evaluate(tuned, averaging="wise_ft", initial=probe, alphas=[0.5], output=tmp_path)
    assert loaded_folders.count(tuned) == 1


def test_draws_of_a_search_keep_draws_of_their_own(tuned: Path, probe: Path) -> None:
    ends = the_ends(tuned, probe)
    model = loaded(tuned)
    model.record.identity["draw"] = 3  # type: ignore[index]
    record = wise_ft._record(model, ends, 0.25)
    assert record.identity["draw"] == 3 * 101 + 26


@pytest.mark.thorough
def test_what_cannot_be_mixed(tuned: Path, probe: Path, of_zero: Path, tmp_path: Path) -> None:
    def refused(model: Any, words: str, **more: Any) -> None:
        options = {"averaging": "wise_ft", **more}
        with pytest.raises((ConfigError, RecordError), match=words) as caught:
            dgbench.evaluate(model, output=tmp_path / "none", **options)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "none").exists()

    refused(tuned, r"began with a random classifier \(head=random\).*initial=FOLDER")
    refused(tuned, "holds no finished run besides", initial=tuned)
    refused(tuned, "initial= holds 2 runs", initial=[probe, of_zero])
    refused(tuned, "initial=.*nowhere is no folder; name a linear probe", initial="nowhere")
    refused(tuned, "initial is empty; name one", initial="")
    refused(tuned, "holds no model.json", initial=tmp_path)
    refused(tuned, "alphas=.1.5. is no list of hundredths", initial=probe, alphas=[1.5])
    refused(tuned, "is no list of hundredths", initial=probe, alphas=[0.125])
    refused(tuned, "alphas is empty", initial=probe, alphas=[])
    refused(tuned, "ensemble=true; choose one", initial=probe, ensemble=True)
    refused(tuned, "weights=x has no effect here", initial=probe, weights="x")
    refused(tuned, "initial=.* has no effect without averaging=wise_ft", averaging=None,
            initial=probe)  # fmt: skip
    refused(tuned, "alphas=.* has no effect", averaging="diwa_uniform", alphas=[0])
    refused("resnet18", "averaging takes folders of runs")
    lost = tmp_path / "lost"
    shutil.copytree(of_zero, lost)
    (lost / "config.yaml").unlink()
    refused(lost, "has no config.yaml")
    (lost / "config.yaml").write_text(
        (of_zero / "config.yaml").read_text().replace("initial_heads.ZeroHead", "initial_heads.No")
    )
    refused(lost, "trust=true")
    (lost / "status").unlink()
    refused(lost, "none of those here is finished")
    other = dgbench.train([*WORDS, "tuning=lp", "seed=7"], tmp_path / "seed").folders
    refused(tuned, r"differ in seed \(0, 7\)", initial=other)
    wide = dgbench.train([*WORDS, "tuning=lp", "backbone.width=16"], tmp_path / "wide").folders
    refused(tuned, "cannot be mixed: they differ in backbone", initial=wide)
    with pytest.raises(ConfigError, match="different networks"):
        interpolated(Ends(tuned, loaded(wide[0]), "tuning=lp", "x"), 0.5, None)
    untrained = dgbench.train([*WORDS, "trainer.steps=0"], tmp_path / "untrained").folders
    refused(tuned, "is a random classifier of 0 steps", initial=untrained)


@pytest.mark.thorough
def test_a_run_of_zero_steps_is_its_beginning(of_zero: Path, tmp_path: Path) -> None:
    """The same mixture, whether the beginning is built again or was stored."""
    (stored,) = dgbench.train([*WORDS, "head=zero", "trainer.steps=0"], tmp_path / "zero").folders
    again = interpolated(the_ends(of_zero, None), 0.3, None).model
    mixed = interpolated(the_ends(of_zero, stored), 0.3, None).model
    assert the_ends(of_zero, stored).initial_name == "head=zero"
    for name, value in numbers_of(mixed, mixed.networks_that_predict).items():
        assert torch.equal(value, numbers_of(again, again.networks_that_predict)[name]), name


def test_config_holds_what_is_built_again(of_zero: Path) -> None:
    content = read_yaml(of_zero / "config.yaml")
    assert content["head"]["name"] == "zero" and "_target_" in content["init"]
