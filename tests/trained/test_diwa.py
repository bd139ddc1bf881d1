"""The mean of the runs of a search: who belongs together, what is averaged, what is looked at, what
its rows say.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgbench
from dgbench.batches import ErrorRecipe
from dgbench.cli.main import main
from dgbench.errors import ConfigError, RecordError
from dgbench.records.rows import read_rows
from dgbench.trained import diwa, evaluation
from dgbench.trained.predictor import LoadedModel
from dgbench.training.run_folder import ModelRecord

WORDS = (
    "dataset.base=digits", "backbone.width=8", "trainer.steps=30", "trainer.eval_every=10",
    "trainer.device=cpu", "algorithm=erm", "protocol.folds=[0,2]",
)  # fmt: skip
SEARCH = ("hparams=search", "hparams.scheme.draws=4", "hparams.scheme.trials=1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Four draws of one trial, in two folds:
    the folders of each fold, in the order of their draws.
    """
    folders = dgbench.train([*WORDS, *SEARCH], tmp_path_factory.mktemp("search")).folders
    folds: dict[str, list[Path]] = {}
    for folder in sorted(folders, key=lambda each: rows(each)[0]["draw"]):
        folds.setdefault(rows(folder)[0]["fold"], []).append(folder)
    assert {fold: len(own) for fold, own in folds.items()} == {"0": 4, "2": 4}
    return folds


def rows(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder / "errors.jsonl")[0]


def place(trained: dict[str, list[Path]]) -> Path:
    return trained["0"][0].parent.parent


def best(folder: Path) -> LoadedModel:
    model = dgbench.load(folder, step="best")
    assert isinstance(model, LoadedModel)
    return model


def mean_of(folders: list[Path]) -> LoadedModel:
    """The mean of the best weights, the plain way."""
    first, *others = [best(folder) for folder in folders]
    for key, parameter in first.run.networks.named_parameters():
        values = [
            parameter,
            *(dict(other.run.networks.named_parameters())[key] for other in others),
        ]
        parameter.data = torch.stack([value.detach() for value in values]).mean(0)
    return first


def validation(folder: Path, step: int) -> list[tuple[float, int]]:
    """Wrong and seen on the validation images of the training environments."""
    own = [
        row
        for row in rows(folder)
        if row["step"] == step and row["subset"] == "val" and not row["env_held_out"]
    ]
    return [(row["wrong"], row["seen"]) for row in own]


def plain_rows(model: LoadedModel, output: Path, name: str) -> list[dict[str, Any]]:
    """Rows of a model that is evaluated by itself, in the fold of its run."""
    (folder,) = dgbench.evaluate(model, output=output / name).folders
    return rows(folder)


def counts(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row["env"], row["subset"], row["env_held_out"], row["seen"], pytest.approx(row["wrong"]))
        for row in found
    ]


@pytest.mark.thorough
def test_uniform_is_the_mean_of_the_draws_of_a_fold(
    trained: dict[str, list[Path]], tmp_path: Path
) -> None:
    found = dgbench.evaluate(place(trained), averaging="diwa_uniform", output=tmp_path / "all")
    assert len(found.folders) == 2
    assert len({folder.parent for folder in found.folders}) == 1, "one study"
    for folder in found.folders:
        own = rows(folder)
        fold = own[0]["fold"]
        assert counts(own) == counts(plain_rows(mean_of(trained[fold]), tmp_path, fold))
        (first, *_) = rows(trained[fold][0])
        same = (
            "dataset",
            "content",
            "fold",
            "held_out",
            "seed",
            "trial",
            "algorithm",
            "backbone",
            "n_parameters",
        )
        assert {key: own[0][key] for key in same} == {key: first[key] for key in same}
        assert (own[0]["averaging"], own[0]["draw"], own[0]["step"]) == ("diwa_uniform", 0, 30)
        assert "lr" in first["hparams"] and "lr" not in own[0]["hparams"]
        assert own[0]["run"] not in {rows(each)[0]["run"] for each in trained[fold]}
        about = json.loads((folder / "identity.json").read_text())
        assert about["evaluated"]["averaged"] == [rows(each)[0]["run"] for each in trained[fold]]
    again = dgbench.evaluate(place(trained), averaging="diwa_uniform", output=tmp_path / "all")
    assert again.folders == found.folders


@pytest.mark.thorough
def test_greedy_keeps_what_does_not_hurt(trained: dict[str, list[Path]], tmp_path: Path) -> None:
    """Against a plain loop over evaluated models."""
    found = dgbench.evaluate(trained["2"], averaging="diwa_greedy", output=tmp_path / "all")
    scores = [
        np.mean([1 - wrong / seen for wrong, seen in validation(f, best(f).step)])
        for f in trained["2"]
    ]
    kept: list[Path] = []
    highest = -1.0
    for i in sorted(range(4), key=lambda i: -scores[i]):
        tried = [*kept, trained["2"][i]]
        own = plain_rows(mean_of(tried), tmp_path, f"try{i}")
        (folder,) = (tmp_path / f"try{i}").glob("*/*")
        pairs = validation(folder, own[0]["step"])
        accuracy = 1 - sum(wrong for wrong, _ in pairs) / sum(seen for _, seen in pairs)
        if accuracy >= highest:
            kept, highest = tried, accuracy
    (folder,) = found.folders
    about = json.loads((folder / "identity.json").read_text())
    assert about["evaluated"]["averaged"] == [rows(each)[0]["run"] for each in kept]
    assert counts(rows(folder)) == counts(plain_rows(mean_of(kept), tmp_path, "kept"))
    assert rows(folder)[0]["averaging"] == "diwa_greedy"


def test_order_ties_and_the_mean_so_far(trained: dict[str, list[Path]]) -> None:
    """Draw 2 is best alone, then 0, 3 and 1; with 0 the mean is worse, with 3 as good, with 1
    better.
    """
    (group,) = diwa.siblings([str(folder) for folder in trained["0"]])
    alone = {0: 0.7, 1: 0.5, 2: 0.9, 3: 0.6}
    pooled = iter([0.8, 0.79, 0.8, 0.85])
    asked: list[int] = []

    def judge(model: LoadedModel) -> diwa.Accuracy:
        asked.append(1)
        if len(asked) <= 4:
            return diwa.Accuracy(alone[len(asked) - 1], 0.0)
        return diwa.Accuracy(0.0, next(pooled))

    found = diwa.averaged(group, "diwa_greedy", None, judge, torch.device("cpu"))
    assert found.averaged == tuple(rows(trained["0"][i])[0]["run"] for i in (2, 3, 1))
    expected = mean_of([trained["0"][i] for i in (2, 3, 1)])
    for (key, own), other in zip(
        found.run.networks.named_parameters(), expected.run.networks.parameters(), strict=True
    ):
        torch.testing.assert_close(own, other, msg=key)


def test_choosing_looks_at_validation_images_of_training_environments_alone(
    trained: dict[str, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[ErrorRecipe]] = []
    counted = evaluation.counted

    def watched(*args: Any, **more: Any) -> Any:
        asked.append(args[2])
        return counted(*args, **more)

    monkeypatch.setattr(evaluation, "counted", watched)
    dgbench.evaluate(trained["0"], averaging="diwa_greedy", output=tmp_path)
    *choosing, last = asked
    assert len(choosing) == 8, "each run, and each mean"
    held_out = set(rows(trained["0"][0])[0]["held_out"])
    for recipes in choosing:
        assert {recipe.subset for recipe in recipes} == {"val"}
        assert not held_out & {recipe.env for recipe in recipes}
    assert held_out & {recipe.env for recipe in last}


def test_command_line_and_report(
    trained: dict[str, list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        [
            "evaluate",
            f"model=[{','.join(map(str, trained['0']))}]",
            "averaging=diwa_uniform",
            f"output={tmp_path}",
        ]
    )
    assert "erm+diwa_uniform seed 0" in capsys.readouterr().out
    frame = dgbench.results([place(trained), tmp_path], "train_val")
    assert set(frame["averaging"]) == {"none", "diwa_uniform"}
    assert set(frame.loc[frame["averaging"] == "diwa_uniform", "algorithm"]) == {"erm"}


def test_the_last_weights_where_no_best_ones_were_kept(
    trained: dict[str, list[Path]], tmp_path: Path
) -> None:
    for i in (0, 1):
        shutil.copytree(trained["0"][i], tmp_path / str(i))
        (tmp_path / str(i) / "checkpoints" / "best.ckpt").unlink()
    (group,) = diwa.siblings([tmp_path])
    found = diwa.averaged(
        group, "diwa_uniform", None, lambda _: pytest.fail("nothing to choose"), torch.device("cpu")
    )
    members = [dgbench.load(tmp_path / str(i)) for i in (0, 1)]
    for key, own in found.run.networks.named_parameters():
        values = [dict(each.run.networks.named_parameters())[key] for each in members]  # type: ignore[union-attr]
        torch.testing.assert_close(own, torch.stack(values).mean(0))


def test_unfinished_runs_are_left_out(
    trained: dict[str, list[Path]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(3):
        shutil.copytree(trained["0"][i], tmp_path / str(i))
    (tmp_path / "1" / "status").unlink()
    (group,) = diwa.siblings([tmp_path])
    assert [folder.name for folder, _ in group] == ["0", "2"]
    assert "is left out" in caplog.text


def test_what_cannot_be_averaged(trained: dict[str, list[Path]], tmp_path: Path) -> None:
    def refused(model: Any, words: str, **more: Any) -> None:
        options = {"averaging": "diwa_uniform", **more}
        with pytest.raises((ConfigError, RecordError), match=words) as caught:
            dgbench.evaluate(model, output=tmp_path / "none", **options)
        assert "\n" not in str(caught.value)

    first, second = trained["0"][0], trained["2"][0]
    refused(first, "the only one")
    refused([first, second], "differ in fold .0, 2.")
    refused([first, first], "the only one")
    refused(trained["0"], "averaging=diwa is unknown", averaging="diwa")
    refused(trained["0"], "ensemble=true; choose one", ensemble=True)
    refused(lambda x: x, "which function is not; name those of a search")
    refused("resnet18", "which resnet18 is not")
    refused(tmp_path, "holds no model.json")
    other = dgbench.train([*WORDS, "seed=7", "protocol.folds=[0]"], tmp_path / "other").folders
    refused([first, *other], r"differ in seed \(0, 7\)")
    wide = dgbench.train(
        [*WORDS, "backbone.width=16", "protocol.folds=[0]"], tmp_path / "wide"
    ).folders
    refused([first, *wide], "differ in backbone")
    group = [(run, ModelRecord.load(run)) for run in (first, wide[0])]
    with pytest.raises(ConfigError, match="different networks"):
        diwa.averaged(
            group, diwa.UNIFORM, None, lambda model: diwa.Accuracy(1, 1), torch.device("cpu")
        )
