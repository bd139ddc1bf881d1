"""The public data frames: one line per run, environment and subset, and the measures of every
study.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf

from dgbench.analysis.selection import Last, OodVal, TrainVal
from dgbench.cli.outcome import print_sweep_end
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.measures import choose
from dgbench.reports.evaluation import evaluate
from dgbench.reports.frames import EVALUATION, measures, results
from dgbench.reports.measuring.tables import seed_table
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs

MEASURES = [measure.name for measure in choose().of_runs]
ARCHIVE = (
    Path(__file__).resolve().parents[2] / "results" / "hwang2024_table1_scale1" / "rows.jsonl.xz"
)


def test_one_line_per_run_environment_and_subset(small_study: Path) -> None:
    """16 runs of folds with val and test in 4 environments, 4 of fold full with test in the 21 of
    the grid.
    """
    frame = results(small_study)
    assert len(frame) == 16 * (4 + 4) + 4 * (4 + 21)
    assert not frame.duplicated(["run", "env", "subset"]).any()
    assert set(frame["step"]) == {200}
    assert tuple(frame.columns[-len(EVALUATION) :]) == EVALUATION
    line = frame[
        (frame.label == "erm") & (frame.fold == "3") & (frame.seed == 1) & (frame.subset == "test")
    ]
    line = line.set_index("env").loc["0.10"]
    assert line["error"] == pytest.approx(0.82)
    assert line["wrong"] == pytest.approx(820)
    assert (line["seen"], line["env_held_out"], line["held_out"]) == (1000, True, ("0.10",))
    assert (line["hparams.lr"], line["variant.ratio"], line["code"]) == (0.001, 3, "0.1.0")
    assert frame.attrs == {
        "selection": "selection: last step",
        "problems": [],
        "validation_environments": (),
    }


def test_how_many_runs_trained_together(make: Any, tmp_path: Path) -> None:
    """Of a run with rows that are older than the key it is not known."""
    for fold, together in (("0", 12), ("1", None)):
        make.write_run(tmp_path, make.identity(fold=fold), together=together)
    frame = results(tmp_path).drop_duplicates("fold").set_index("fold")
    assert frame["together"].dropna().to_dict() == {"0": 12}


def test_measures_by_hand(small_study: Path) -> None:
    """erm: errors .2 .2 .2 .8, so average .35, worst .8, gap .6, worst+gap .8 + .6 / 2; ideal 0.9
    (1 - 0.00).
    """
    found = measures(results(small_study)).set_index(["label", "seed"])
    line = found.loc[("erm", 0)]
    assert [line[name] for name in MEASURES] == pytest.approx([0.35, 0.8, 0.6, 1.1, 0.9])
    assert (line["ideal_env"], line["missing"], line["trained_on_tested"]) == ("0.00", "", False)
    assert len(found) == 4


def test_the_published_archive_gives_the_numbers_of_its_report() -> None:
    """All 126 studies, exactly, as the report's table of every seed has them."""
    frame = results(ARCHIVE)
    assert frame["run"].nunique() == 756
    found = measures(frame).set_index(["variant.ratio", "given", "label", "seed"])
    collection = collect([ARCHIVE])
    evaluation = evaluate(select_runs(collection, Last()))
    seen = 0
    for setting in evaluation.settings:
        variant, given = setting.identity["variant"]["ratio"], tuple(setting.given)
        for row in seed_table(evaluation.of(setting.title)).frame.to_dict("records"):
            line = found.loc[(variant, given, row["algorithm"], row["seed"])]
            assert [line[name] for name in MEASURES] == [row[name] for name in MEASURES]
            seen += 1
    assert seen == len(found) == 126


@pytest.mark.parametrize("selection", ["train_val", TrainVal()])
def test_a_selection_by_name_or_as_an_object(small_study: Path, selection: str | TrainVal) -> None:
    """val errors are equal at both steps, and the first wins a tie."""
    frame = results(small_study, selection)
    assert set(frame["step"]) == {100}
    assert frame.attrs["selection"] == "selection: training-domain validation"


def test_a_selection_that_looks_at_test_environments_says_so(small_study: Path) -> None:
    assert results(small_study, "oracle").attrs["selection"].startswith("ORACLE SELECTION")


def test_a_selection_with_settings(small_study: Path) -> None:
    """Runs that train on the validation environment do not count, and are named."""
    frame = results(small_study, OodVal(["0.10"]))
    assert set(frame["fold"]) == {"3"}
    assert len(frame.attrs["problems"]) == 16


def test_unusable_runs_are_left_out_and_named(tmp_path: Path, make: SimpleNamespace) -> None:
    make.write_run(tmp_path, make.identity())
    make.write_run(tmp_path, make.identity(fold="1"), status="FAILED out of memory")
    frame = results([tmp_path])
    assert set(frame["fold"]) == {"0"}
    assert any("out of memory" in problem for problem in frame.attrs["problems"])
    (line,) = measures(frame).to_dict("records")
    assert pd.isna(line["average"])
    assert line["missing"] == "folds 1-3, full: no rows"


def test_hyperparameters_that_a_run_lacks_are_missing(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    make.write_run(tmp_path, make.identity())
    make.write_run(tmp_path, make.identity("vrex", hparams={"lr": 0.001, "vrex_lambda": 10.0}))
    frame = results(tmp_path)
    assert frame.groupby("label")["hparams.vrex_lambda"].first().isna().to_dict() == {
        "erm": True,
        "vrex": False,
    }


def test_several_places_and_no_run_twice(small_study: Path) -> None:
    """The same folders named twice are read once."""
    assert results([small_study, small_study]).equals(results(small_study))


def test_code_versions_do_not_share_a_line_unless_declared_the_same(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    for algorithm, code in (("erm", "0.1.0"), ("vrex", "0.2.0")):
        make.write_run(tmp_path, make.identity(algorithm, code=code))
    frame = results(tmp_path)
    with pytest.raises(RecordError, match=r"2 code versions.*share.*table: 0\.1\.0.*, 0\.2\.0"):
        measures(frame)
    assert measures(frame, split_by="code")["code"].tolist() == ["0.1.0", "0.2.0"]
    assert len(measures(frame.assign(code="0.1.0"))) == 2


def test_two_runs_of_one_fold_are_refused(small_study: Path) -> None:
    frame = results(small_study)
    again = frame[frame["fold"] == "0"].assign(run="other")
    with pytest.raises(RecordError, match="fold 0 of erm seed 0 is there twice"):
        measures(pd.concat([frame, again]))


def test_a_part_of_a_frame_is_not_taken_for_the_whole(small_study: Path) -> None:
    frame = results(small_study)
    line = measures(frame[frame["fold"] != "2"]).iloc[0]
    assert pd.isna(line["worst"])
    assert line["ideal"] == pytest.approx(0.9)
    assert line["missing"] == "fold 2: no rows"


def test_what_is_unknown_is_refused(small_study: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"selection=best.*unknown.*last"):
        results(small_study, "best")
    with pytest.raises(ConfigError, match="split_by=colour is no identity key"):
        results(small_study, split_by="colour")
    with pytest.raises(ConfigError, match=r"split_by=colour.*identity"):
        measures(results(small_study), split_by="colour")
    with pytest.raises(RecordError, match="no runs under"):
        results(tmp_path / "nothing")


def test_the_end_of_a_sweep_keeps_networks_apart(
    make: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        make.write_run(
            tmp_path,
            make.identity(fold=fold, backbone=network, run=f"{network}{fold}"),
            folder=network + fold,
        )
        for network in ("mlp", "mnist_cnn")
        for fold in "0123"
    ]
    selection = {"_target_": "dgbench.analysis.selection.Last"}
    config = OmegaConf.create(
        {
            "selection": selection,
            "logger": {"_target_": None},
            "hydra": {"sweep": {"dir": "multirun"}},
        }
    )
    print_sweep_end(2, 2, folders, config)
    first, *table, last = capsys.readouterr().out.splitlines()
    assert first == "2 of 2 jobs done: 8 of their 8 models"
    assert [line.split()[:3] for line in table[2:4]] == [
        ["mlp", "erm", "1"],
        ["mnist_cnn", "erm", "1"],
    ]
    assert table[4].split()[:2] == ["blind", "guess"]
    assert last.endswith("'runs=[multirun]'")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="seed"), "no column seed"),
        (lambda frame: frame.drop(columns="wrong"), "no column wrong"),
        (lambda frame: frame.assign(error=2.0), "change wrong"),
        (lambda frame: frame.assign(wrong=1e9), "wrong of"),
        (lambda frame: frame.assign(wrong=-1.0), "wrong of"),
        (lambda frame: frame.assign(seen=0), "of 0 seen"),
    ],
)
def test_a_frame_that_no_runs_can_give(change: Any, said: str, small_study: Path) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        measures(change(results(small_study)))
    assert "\n" not in str(refused.value)
