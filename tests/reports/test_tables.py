"""``dgbench.reports.ranking.report(frame)`` and its like: the tables of a report, from a frame of
results.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dgbench
from dgbench import reports
from dgbench.analysis.selection import Last, OodVal
from dgbench.errors import MeasureError, RecordError
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect

PACKAGE = Path(reports.__file__).parent
ARCHIVE = (
    Path(__file__).resolve().parents[2] / "results" / "hwang2024_table1_scale1" / "rows.jsonl.xz"
)


@pytest.mark.parametrize("name", reports.__all__)
def test_no_module_hides_a_public_name(name: str) -> None:
    """Importing ``dgbench.reports.leaderboard``, were it a module, would replace the function of
    that name.
    """
    assert not (PACKAGE / f"{name}.py").exists()
    assert not (PACKAGE / name).exists()
    assert name in dir(reports)
    assert callable(getattr(reports, name))


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="attribute 'leaderbord'"):
        reports.leaderbord  # type: ignore[attr-defined]  # noqa: B018


def test_leaderboard_by_hand(small_study: Path) -> None:
    """Accuracies of vrex: .7 .7 .7 .6, average .675; .02 less in seed 1: mean .665, population std
    .01, / sqrt(2).
    """
    board = reports.leaderboard(dgbench.results(small_study))
    assert board["algorithm"].tolist() == ["vrex", "erm"]
    assert board["sr_cmnist"].tolist() == pytest.approx([0.665, 0.64])
    assert board["sr_cmnist.std"].tolist() == pytest.approx([0.01 / math.sqrt(2)] * 2)
    assert board["rank"].tolist() == [1, 2]
    assert board.attrs["problems"] == []
    deviation = reports.leaderboard(dgbench.results(small_study), spread="standard_deviation")
    assert deviation["sr_cmnist.std"].tolist() == pytest.approx([0.01 * math.sqrt(2)] * 2)


def test_tables_are_those_of_the_reports(small_study: Path) -> None:
    frame, collection = dgbench.results(small_study), collect([small_study])
    tables = {t.name: t for t in MeasuresReport()(collection, Last()).sections[0].tables}
    tables |= {t.name: t for t in LeaderboardReport()(collection, Last()).sections[0].tables}
    assert set(reports.__all__) <= tables.keys()
    for name in reports.__all__:
        made = getattr(reports, name)(frame)
        results = tables[name].frame
        if "reference" in results:  # frames hold algorithms alone
            results = results[~results["reference"]].drop(columns=["reference", "algorithm.flag"])
        pd.testing.assert_frame_equal(made, results, check_dtype=False)
        notes = [note for note in tables[name].notes if not note.startswith("Blind guess: ")]
        assert made.attrs["notes"] == notes
        assert made.attrs["title"] == f"{tables[name].title} (selection: last step)"


def test_several_settings_come_first(make: Any, small_study: Path) -> None:
    """Two boards of two networks, told apart by a column; what is said of one alone names it."""
    for fold in "01":
        make.write_run(
            small_study,
            make.identity("erm", fold, run=f"wide-{fold}", backbone="wide"),
            folder=f"wide{fold}",
        )
    frame = dgbench.results(small_study)
    board = reports.leaderboard(frame)
    assert board.columns[0] == "setting"
    assert board["setting"].str.contains("wide").tolist() == [False, False, True]
    (wide,) = board[board["setting"].str.contains("wide")].to_dict("records")
    assert "holds out 0.80. To fill: python train.py" in wide["sr_cmnist.reason"]
    assert [why for why in board.attrs["problems"] if why.startswith("missing cells: ")]
    notes = board.attrs["notes"]
    assert any(note.startswith("wide, ") and "Without a place" in note for note in notes)
    assert sum(note.startswith("Higher is better") for note in notes) == 1
    assert reports.measures(frame)["setting"].nunique() == 2


def test_environments_that_chose_are_not_reported(make: Any, tmp_path: Path) -> None:
    """0.90 chooses the step, so only 0.10 has an accuracy: .4."""
    who = make.identity(held_out=["0.90", "0.10"], protocol="multi_test")
    make.write_run(tmp_path, who, lambda env, step: 0.6 if env == "0.10" else 0.1)
    frame = dgbench.results(tmp_path, OodVal(["0.90"]))
    assert frame.attrs["validation_environments"] == ("0.90",)
    assert reports.leaderboard(frame)["sr_cmnist"].tolist() == pytest.approx([0.4])


def test_what_cannot_be_made_is_refused(small_study: Path) -> None:
    frame = dgbench.results(small_study)
    with pytest.raises(RecordError, match=r"run.*frame.*tested"):
        reports.leaderboard(frame[frame["fold"] == "none"])
    with pytest.raises(MeasureError, match="error bar"):
        reports.leaderboard(frame, spread="sem")


def test_the_published_archive_against_plain_means() -> None:
    """Accuracy of a model in the environment it held out, then means over environments, seeds and
    datasets.
    """
    frame = dgbench.results(ARCHIVE)
    held_out = frame[
        (frame["subset"] == "test") & (frame["held_out"] == frame["env"].map(lambda env: (env,)))
    ]
    by_seed = 1 - held_out.groupby(["variant.ratio", "label", "seed"])["error"].mean()
    means = by_seed.groupby(["variant.ratio", "label"]).mean().unstack(0)
    board = reports.leaderboard(frame).set_index("algorithm")
    assert len(board) == 14
    for ratio in (3, 4, 5):
        assert board[f"sr_cmnist ratio={ratio}"].to_dict() == pytest.approx(
            means[ratio].to_dict(), abs=1e-12
        )
    assert board["average"].to_dict() == pytest.approx(means.mean(axis=1).to_dict(), abs=1e-12)
    assert board["average"].rank(ascending=False).to_dict() == board["rank"].to_dict()
    assert board.index[0] == "arm"
