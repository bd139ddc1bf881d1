"""``dgbench.evaluate``: any model gets the rows that training writes, on the folds whose tests it
never saw.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import timm
import torch
from torch import Tensor, nn

import dgbench
from dgbench.cli.main import main
from dgbench.errors import ConfigError, DgbenchError, WeightsError
from dgbench.reports.frames import measures, results
from tests.complaints import refused

FIRST = (
    "backbone=mlp",
    "backbone.width=8",
    "hparams.batch_size=4",
    "trainer.steps=6",
    "trainer.eval_every=3",
)
CLASSES = ("cat", "dog", "emu")


def of_tree(tree: Path, cache: Path) -> list[str]:
    return [
        "dataset=image_folder", f"dataset.root={tree}", "dataset.image_size=32",
        f"dataset.cache_dir={cache}", "trainer.device=cpu",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def tree_words(shared_tree: Path, place: Path) -> list[str]:
    return of_tree(shared_tree, place / "cache")


@pytest.fixture(scope="module")
def trained(tree_words: list[str], place: Path) -> dgbench.TrainResult:
    """ERM on three environments, leave-one-out: three runs."""
    return dgbench.train([*tree_words, *FIRST, "algorithm=erm"], place / "trained")


def rows_at(folder: Path, step: int) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "errors.jsonl").read_text().splitlines()]
    return [row for row in rows if row["step"] == step]


def bright(x: Tensor) -> Tensor:
    """Logits of a model that nobody trained: cats are bright, dogs darker, emus darkest."""
    light = x.mean((1, 2, 3))
    return torch.stack([light, -(light - light.mean()).abs(), -light], 1)


def test_a_run_on_its_own_dataset_gets_its_own_rows(
    trained: dgbench.TrainResult, tmp_path: Path
) -> None:
    for folder in trained.folders:
        found = dgbench.evaluate(folder, output=tmp_path)
        (own,) = found.folders
        ours, theirs = rows_at(own, 6), rows_at(folder, 6)
        for after, before in zip(
            ours, theirs, strict=True
        ):  # three trained together, each is evaluated alone
            assert (before.pop("together"), after.pop("together")) == (3, 1)
            assert before.pop("loss") == pytest.approx(after.pop("loss"), rel=1e-5)
        assert ours == theirs
    assert len(results([*tmp_path.iterdir()])) == len(trained.frame)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("last", ["algorithm=arm"]),
        ("best", ["algorithm=mtl"]),
        ("last", ["averaging=eoa", "averaging.rule.start=2"]),
        ("best", ["averaging=eoa", "averaging.rule.start=2"]),
        ("last", ["averaging=swad", "averaging.rule.n_converge=2"]),
    ],
    ids=str,
)
def test_methods_that_predict_in_their_own_way(
    words: list[str], step: str, tree_words: list[str], tmp_path: Path
) -> None:
    """Groups, random inputs, and averaged weights, which are evaluated as they were."""
    trained = dgbench.train(
        [*tree_words, *FIRST, *words, "protocol.folds=[1]"], tmp_path / "trained"
    )
    (folder,) = trained.folders
    (own,) = dgbench.evaluate(folder, step=step, output=tmp_path / "again").folders
    again = rows_at(own, rows_of_step(own))
    assert again == rows_at(folder, again[0]["step"])


def rows_of_step(folder: Path) -> int:
    return int(json.loads((folder / "errors.jsonl").read_text().splitlines()[0])["step"])


def test_exact_errors_of_painted_images(tmp_path: Path) -> None:
    words = [
        "dataset.base=digits",
        "backbone.width=8",
        "trainer.steps=4",
        "trainer.eval_every=4",
        "trainer.device=cpu",
    ]
    trained = dgbench.train(
        [*words, "algorithm=vrex", "protocol.folds=[0,full]"], tmp_path / "trained"
    )
    again = dgbench.evaluate([str(folder) for folder in trained.folders], output=tmp_path / "again")
    for before, after in zip(trained.folders, again.folders, strict=True):
        ours, theirs = rows_at(before, 4), rows_at(after, 4)
        assert [row["wrong"] for row in ours] == pytest.approx(
            [row["wrong"] for row in theirs], abs=1e-9
        )
        assert len(ours) == len(theirs) > 3


def test_a_run_on_corrupted_forms_of_its_images(
    trained: dgbench.TrainResult, tree_words: list[str], place: Path
) -> None:
    """Each run tests the domain that it never saw; together they fill every fold."""
    words = [
        *tree_words,
        "corruptions=hendrycks",
        "dataset.corruptions=[fog,contrast]",
        "dataset.given=[a+fog,b,c]",
    ]
    found = dgbench.evaluate(trained.folders[0].parent, words, output=place / "corrupted")
    assert [
        json.loads((f / "errors.jsonl").read_text().splitlines()[0])["fold"] for f in found.folders
    ] == [
        "0",
        "1",
        "2",
    ]
    for folder, seen in zip(found.folders, ({"b", "c"}, {"a", "c"}, {"a", "b"}), strict=True):
        rows = rows_at(folder, 6)
        tested = [row for row in rows if row["subset"] == "test"]
        assert {row["env"].partition("+")[0] in seen for row in tested} <= {True, False}
        assert all(row["env_held_out"] != (row["env"].partition("+")[0] in seen) for row in rows)
        assert {row["algorithm"] for row in rows} == {"erm@image_folder"}
    whole = measures(results([str(place / "corrupted")]))
    assert len(whole) == 1 and 0 <= whole["average"].item() <= 1


def test_models_that_were_not_trained_here_stand_in_the_table_of_those_that_were(
    trained: dgbench.TrainResult, tree_words: list[str], place: Path, tmp_path: Path
) -> None:
    found = dgbench.evaluate(bright, tree_words, name="bright", output=tmp_path)
    assert len(found.folders) == 3, "one for every fold"
    table = measures(results([place / "trained", tmp_path]))
    assert sorted(table["label"]) == ["bright", "erm"]
    assert table["setting"].nunique() == 1 if "setting" in table else True
    errors = found.frame[found.frame["subset"] == "test"]
    assert errors["env_held_out"].all() and sorted(errors["env"]) == ["a", "b", "c"]


@pytest.mark.parametrize("gone", ["nowhere", "nowhere.pt2", "nowhere/last.ckpt"])
def test_all_models_are_looked_at_before_one_is_evaluated(
    tree_words: list[str], tmp_path: Path, gone: str
) -> None:
    with pytest.raises(ConfigError, match=f"model={gone}"):
        dgbench.evaluate([bright, gone], tree_words, name="x", output=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "option", [{"ensemble": "no"}, {"predictions": "true"}, {"features": "1"}, {"trust": 1}]
)
def test_text_is_no_truth_and_no_number(option: dict[str, Any]) -> None:
    (key,) = option
    with pytest.raises(ConfigError, match=f"^{key}="):
        dgbench.evaluate(bright, name="x", **option)


def test_classes_are_matched_by_name(tree_words: list[str], tmp_path: Path) -> None:
    """Outputs in another order, and more of them than the dataset has classes."""

    def more(x: Tensor) -> Tensor:
        cat, dog, emu = bright(x).unbind(1)
        return torch.stack([emu, cat + 1000, dog, cat], 1)

    plain = dgbench.evaluate(bright, tree_words, name="one", output=tmp_path)
    named = dgbench.evaluate(
        more, tree_words, name="two", classes=["emu", "cow", "dog", "cat"], output=tmp_path
    )
    assert list(plain.frame["wrong"]) == list(named.frame["wrong"])
    with pytest.raises(ConfigError, match=r"class dog.*classes="):
        dgbench.evaluate(
            bright, tree_words, name="three", classes=["cat", "cow", "hen"], output=tmp_path
        )
    with pytest.raises(ConfigError, match=r"\(\d+, 4\) .* 3 classes"):
        dgbench.evaluate(more, tree_words, name="four", output=tmp_path)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x.mean((2, 3)))
        return logits


def test_files_of_torch_and_timm(tree_words: list[str], tmp_path: Path) -> None:
    """The same network as a module, a torch.export file and a TorchScript file; a timm network from
    its tensors.
    """
    torch.manual_seed(0)
    small, example = Small().eval(), torch.zeros(2, 3, 32, 32)
    batch = torch.export.Dim("batch", min=1)
    torch.export.save(
        torch.export.export(small, (example,), dynamic_shapes=({0: batch},)), tmp_path / "small.pt2"
    )
    with warnings.catch_warnings():  # TorchScript is going away, its files are there
        warnings.simplefilter("ignore")
        torch.jit.trace(small, example).save(str(tmp_path / "small.pt"))  # type: ignore[no-untyped-call]
    torch.save(small.state_dict(), tmp_path / "state.pt")
    found = {
        name: dgbench.evaluate(model, tree_words, name=name, trust=True, output=tmp_path / "rows")
        .frame["wrong"]
        .tolist()
        for name, model in {
            "module": small,
            "pt2": str(tmp_path / "small.pt2"),
            "pt": str(tmp_path / "small.pt"),
        }.items()
    }
    assert found["module"] == found["pt2"] == found["pt"]
    with pytest.raises(WeightsError, match=r"model=\S*state.pt "):
        dgbench.evaluate(str(tmp_path / "state.pt"), tree_words, output=tmp_path / "rows")

    network = timm.create_model("resnet18", num_classes=3)
    torch.save(network.state_dict(), tmp_path / "timm.pth")
    known = dgbench.evaluate(
        "resnet18", tree_words, weights=tmp_path / "timm.pth", output=tmp_path / "rows"
    )
    again = dgbench.evaluate(network.eval(), tree_words, name="mine", output=tmp_path / "rows")
    assert known.frame["wrong"].tolist() == again.frame["wrong"].tolist()
    with pytest.raises(WeightsError, match="does not fit resnet34"):
        dgbench.evaluate(
            "resnet34", tree_words, weights=tmp_path / "timm.pth", output=tmp_path / "rows"
        )


def test_an_ensemble_is_one_model(
    trained: dgbench.TrainResult, tree_words: list[str], tmp_path: Path
) -> None:
    members = [dgbench.load(folder) for folder in trained.folders]

    def mean(x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in members]).mean(0)

    one = dgbench.evaluate(trained.folders, tree_words, ensemble=True, name="both", output=tmp_path)
    other = dgbench.evaluate(mean, tree_words, name="by hand", output=tmp_path)
    assert one.frame["wrong"].tolist() == other.frame["wrong"].tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trainer.steps=7", r"trainer\.steps=7 .*leave it out.*device, eval_batch_size"),
        ("+trainer.schedule=cosine", r"trainer\.schedule=cosine .*trains nothing"),
        ("trainer=ddp", "trainer=ddp .*leave it out"),
        ("trainer.predictions=last", r"trainer\.predictions=last .*write predictions=true"),
        ("paths.output_dir=x", r"paths\.output_dir=x .*write output=FOLDER"),
        ("+dataset.nope=1", r"dataset\.nope is no key of the run's dataset"),
        ("++dataset.nope=1", r"dataset\.nope is no key of the run's dataset"),
        ("protocol.folds=[9]", r"protocol\.folds=\[9\] .*dataset=.*leave it out"),
        ("protocol=single_source", r"protocol=single_source .*dataset=.*leave it out"),
    ],
)
def test_words_without_effect(
    words: str, said: str, trained: dgbench.TrainResult, tmp_path: Path
) -> None:
    with refused(said):
        dgbench.evaluate(trained.folders[0], words.split(), output=tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_options_without_effect(
    trained: dgbench.TrainResult, tree_words: list[str], tmp_path: Path
) -> None:
    (run, *_), rows = trained.folders, tmp_path / "rows"
    for model in (run, dgbench.load(run)):
        with refused(r"weights=x .*timm"):
            dgbench.evaluate(model, weights="x", output=rows)
        with refused(r"classes=\[dog,cat,emu\] .*leave it out"):
            dgbench.evaluate(model, tree_words, classes=["dog", "cat", "emu"], output=rows)
    for other in (
        dgbench.load(run),
        run / "checkpoints" / "best.ckpt",
        bright,
        "module:function",
        "resnet18",
    ):
        with refused(r"step=best .*run.*leave it out"):
            dgbench.evaluate(other, tree_words, step="best", name="mine", output=rows)
    with refused(r"weights=x .*timm"):
        dgbench.evaluate("module:function", tree_words, weights="x", output=rows)
    assert not rows.exists()
    assert dgbench.evaluate(
        [run, bright], tree_words, step="best", name="both", output=rows
    ).folders


def test_a_run_of_another_protocol_keeps_its_fold_where_its_dataset_is_typed(
    tree_words: list[str], tmp_path: Path
) -> None:
    words = [*tree_words, "protocol=single_source", "protocol.folds=[1]"]
    (run,) = dgbench.train([*words, *FIRST], tmp_path / "trained").folders
    found = dgbench.evaluate(run, tree_words, output=tmp_path / "rows")
    assert rows_at(found.folders[0], 6)[0]["protocol"] == "single_source"
    with refused("leave protocol= out"):
        dgbench.evaluate(run, [*tree_words, "protocol=loo"], output=tmp_path / "rows")


def test_a_run_is_given_the_predictions_that_it_lacks(
    trained: dgbench.TrainResult, tmp_path: Path
) -> None:
    (run, *_) = trained.folders
    (own,) = dgbench.evaluate(run, predictions=True, output=tmp_path).folders
    assert (run / "predictions.parquet").read_bytes() == (own / "predictions.parquet").read_bytes()


def test_predictions_are_those_of_training(tree_words: list[str], tmp_path: Path) -> None:
    words = [*tree_words, *FIRST, "protocol.folds=[1]", "trainer.predictions=last", "algorithm=arm"]
    (folder,) = dgbench.train(words, tmp_path / "trained").folders
    (own,) = dgbench.evaluate(folder, predictions=True, output=tmp_path / "rows").folders
    before, after = (pd.read_parquet(place / "predictions.parquet") for place in (folder, own))
    pd.testing.assert_frame_equal(before, after)
    foreign = dgbench.evaluate(
        bright, tree_words, name="bright", predictions=True, output=tmp_path / "rows"
    ).folders
    for place in foreign:
        rows, lines = rows_at(place, 0), pd.read_parquet(place / "predictions.parquet")
        for row in rows:
            here = lines[(lines["env"] == row["env"]) & (lines["subset"] == row["subset"])]
            assert (len(here), (here["label"] != here["predicted"]).sum()) == (
                row["seen"],
                row["wrong"],
            )


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_no_code_of_a_file_is_run(
    tree_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"layer.weight": Evil()}, "evil.pt")
    with pytest.raises(WeightsError, match="never run"):
        dgbench.evaluate("evil.pt", tree_words, output=tmp_path)
    assert not Path("evil").exists()


DIGITS = ("dataset=sr_cmnist", "dataset.base=digits", "trainer.device=cpu")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["dataset=sr_cmnist"], "model= is missing"),
        (["model=resnet18"], "dataset= is missing"),
        (["model=outputs/nowhere"], "model=outputs/nowhere"),
        (["model=nowhere"], "model=nowhere"),
        (["model=nowhere/last.ckpt"], "model=nowhere/last.ckpt"),
        (["model=."], "holds no model.json"),
        (["model=no_module:f", "dataset.base=digits"], "model=no_module:f"),
        (["model=x", "algorithm=vrex"], "algorithm"),
        (["model=x", "ensemble=maybe"], "ensemble=maybe"),
        (["model=x", "ensemble=[true]"], "ensemble=[true]"),
        (["model=x", "features=-1"], "features=-1 is not an integer >= 0"),
        (["model=x", "features=1.5"], "features=1.5 is not an integer >= 0"),
        (["model=x", f"features={10**20}"], f"features={10**20} is not an integer >= 0"),
        (["model=x", "features=2e3"], "features=2000.0 is not an integer >= 0"),
        (["model=x", "features=[1]"], "features=[1] is not an integer >= 0"),
        (["model=x", "predictions=5"], "predictions=5"),
        (["model=x", "name=[a]"], "name=[a] is no name"),
        (["model=x", "name="], "name is empty"),
        (["model=x", "name=a/b"], "name=a/b is no name"),
        (["model=x", "ensemble=yes"], "ensemble=yes is unknown"),
        (["model=x", "dataset==sr_cmnist"], "dataset==sr_cmnist has two equal signs"),
        (["model=x", "step=[a]"], "step=[a] is unknown; choose last or best"),
        (["model=x", "step="], "step is empty"),
        (["model=x", "averaging=mean"], "averaging=mean is unknown"),
        (["model=x", "output=[a]"], "output=[a] is no folder"),
        (["model=x", "output="], "output is empty"),
        (["model=x", "weights=[a]"], "weights=[a] is no file"),
        (["model=x", "classes=[[a]]"], "classes=[[a]] is no list"),
        (["model=x", "classes=[a"], "classes=[a is no list"),
        (["model="], "model= is missing"),
        (["model=builtins:len", *DIGITS], "int of"),
        (["model=builtins:print", *DIGITS], "NoneType of"),
        (["model=math:sqrt", *DIGITS], "(ValueError: only one element"),
        (["model=x", "--fast"], "no KEY=VALUE"),
        (["model=resnet18", "dataset=nowhere"], "dataset=nowhere is unknown"),
        (["model=missing.pt2", "dataset=sr_cmnist", "dataset.base=digits"], "model=missing.pt2"),
    ],
)
def test_wrong_words_get_one_line(
    words: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dgbench"])
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *words])
    told = [text for text in capsys.readouterr().err.splitlines() if text.startswith("dgbench:")]
    assert (ended.value.code, len(told)) == (1, 1)
    assert line in told[0]
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_saw_every_domain_is_refused(
    trained: dgbench.TrainResult, tree_words: list[str], tmp_path: Path
) -> None:
    words = [
        *tree_words,
        "corruptions=hendrycks",
        "dataset.corruptions=[fog]",
        "dataset.given=[b+fog,c+fog]",
    ]
    with pytest.raises(DgbenchError, match=r"trained.*b, c"):
        dgbench.evaluate(trained.folders[0], words, output=tmp_path)


def test_the_command_prints_a_table(
    trained: dgbench.TrainResult,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dgbench"])
    main(["evaluate", f"model={trained.folders[0]}"])
    out = capsys.readouterr().out
    assert "image_folder erm seed 0" in out
    assert out.splitlines()[-1].startswith("rows: outputs/image_folder-erm@image_folder-evaluated-")
