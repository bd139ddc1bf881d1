"""Two algorithms named beforehand: one uncorrected paired test of these two alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from dgbench.analysis import Statistics
from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError
from dgbench.plan.measures import choose
from dgbench.reports.document import Section
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.importers.table import read_table
from dgbench.reports.labels import label_meant
from dgbench.reports.measuring.certainty import certainty_table, difference_table
from dgbench.reports.measuring.pair import pair_section
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.tables import percent
from tests.conftest import ROOT, Command

PROGRAM = ROOT / "src/dgbench/cli/main.py"
ENVIRONMENTS = ("art", "cartoon", "photo", "sketch")


def frame_of(
    levels: dict[str, float], seeds: int = 3, spread: float = 0.01, **more: Any
) -> pd.DataFrame:
    """Errors of algorithms whose level is given, with chance by seed and environment."""
    dice = np.random.default_rng(4)
    lines = []
    for name, level in levels.items():
        for seed in range(seeds):
            for place, env in enumerate(ENVIRONMENTS):
                error = level + 0.05 * place + spread * dice.standard_normal()
                line = {"algorithm": name, "seed": seed, "environment": env, "error": error}
                lines.append({**line, **more})
    return pd.DataFrame(lines)


def evaluation_of(frame: pd.DataFrame, compared: list[str] | None = None) -> Evaluation:
    return evaluate(select_runs(read_table(frame), Last()), None, choose(None, compared))


def section_of(frame: pd.DataFrame, *pair: str, compared: list[str] | None = None) -> Section:
    return pair_section(evaluation_of(frame, compared), pair, Statistics())


FOUR = {"A": 0.30, "B": 0.20, "C": 0.25, "D": 0.27}


def test_the_sentence_is_scipys_paired_test() -> None:
    frame = frame_of(FOUR, spread=0.04)
    section = section_of(frame, "A", "B")
    means = frame.pivot_table(index="algorithm", columns="seed", values="error")
    test = ttest_rel(means.loc["A"], means.loc["B"])
    low, high = test.confidence_interval()
    numbers = f"[{percent(low)}, {percent(high)}], p = {test.pvalue:.3f}, 3 seeds"
    distance = percent(float((means.loc["A"] - means.loc["B"]).mean()))
    assert f"B beats A by {distance} points of average error {numbers}." in section.answer
    assert "not corrected" in section.answer[-1]
    (table,) = section.tables
    line = table.frame.set_index("measure").loc["average"]
    assert line["p"] == pytest.approx(test.pvalue, rel=1e-6)
    assert line["lower in"] == "0 of 3"


def test_difference_is_that_of_the_tables_before_correction() -> None:
    """Of a file of two, nothing is to be corrected: the table of verdicts has the same interval."""
    frame = frame_of(FOUR)
    (table,) = section_of(frame, "A", "B").tables
    line = table.frame.set_index("measure").loc["worst+gap"]
    pairs = difference_table(evaluation_of(frame), Statistics()).frame
    (pair,) = pairs[(pairs["algorithm"] == "A") & (pairs["less"] == "B")].to_dict("records")
    assert line["difference"] == pytest.approx(pair["worst+gap"])
    resampled = "seeds and environments resampled"
    for end in ("", ".low", ".high"):
        assert line[f"{resampled}{end}"] == pytest.approx(pair[f"worst+gap{end}"])

    alone = frame[frame["algorithm"].isin(["A", "B"])]
    verdicts = certainty_table(evaluation_of(alone)).frame.set_index("algorithm")
    for end in ("", ".low", ".high"):
        assert line[f"difference{end}"] == pytest.approx(
            verdicts.loc["A", f"worst+gap: to the leader{end}"]
        )
    corrected = certainty_table(evaluation_of(frame)).frame.set_index("algorithm")
    assert corrected.loc["A", "worst+gap: to the leader.low"] < line["difference.low"]


def test_undecided_is_said() -> None:
    section = section_of(frame_of({"A": 0.20, "B": 0.201}, spread=0.03), "A", "B")
    assert all(text.startswith("Undecided by ") for text in section.answer[:-1])
    assert "p = 0." in section.answer[0]


def test_one_seed_judges_nothing() -> None:
    section = section_of(frame_of(FOUR, seeds=1), "A", "B")
    assert section.answer[0].startswith("Undecided by worst+gap: B is ")
    assert section.answer[0].endswith("1 seed cannot tell that from luck.")
    assert "p =" not in " ".join(section.answer)


def test_no_common_seed() -> None:
    frame = frame_of(FOUR)
    apart = frame[(frame["algorithm"] == "A") == (frame["seed"] == 0)]
    answer = section_of(apart, "A", "B").answer
    assert "no seed is complete for both, A seed 0 and B seeds 1, 2;" in answer[0]


def test_seeds_that_one_lacks_are_left_out() -> None:
    frame = frame_of(FOUR, seeds=5)
    fewer = frame[(frame["algorithm"] != "A") | (frame["seed"] > 1)]
    assert "3 seeds" in section_of(fewer, "A", "B").answer[0]


def test_equal_everywhere() -> None:
    frame = frame_of({"A": 0.2})
    twice = pd.concat([frame, frame.assign(algorithm="B")])
    assert section_of(twice, "A", "B").answer[1].startswith("A and B are equal in average error")


def test_different_settings_are_not_compared() -> None:
    frame = frame_of(FOUR, backbone="resnet18")
    apart = pd.concat([frame, frame_of({"E": 0.1}, backbone="vit")])
    section = section_of(apart, "A", "E")
    assert "Not compared: A and E were run in different settings, A in " in section.answer[0]
    assert "resnet18" in section.answer[0]
    assert not section.tables


def test_several_settings_are_told_apart() -> None:
    both = [frame_of(FOUR, backbone=name) for name in ("resnet18", "vit")]
    section = section_of(pd.concat(both), "A", "B")
    assert sum("resnet18" in text for text in section.answer) == 2
    assert "These are 4 tests" in section.answer[-1]
    assert len(section.tables[0]) == 4


def test_compared_measures_are_those_of_the_key() -> None:
    answer = section_of(frame_of(FOUR), "A", "B", compared=["worst"]).answer
    assert [text for text in answer if " of worst " in text]
    assert not [text for text in answer if "worst+gap" in text]


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (("CORALL", "erm"), "names CORALL, which is no algorithm with rows here; did you mean"),
        (("erm", "ERM"), "twice"),
    ],
)
def test_names_that_are_not_there(pair: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        section_of(frame_of({"ERM": 0.1, "CORAL": 0.2}), *pair)


def test_names_are_found_as_papers_write_them() -> None:
    labels = ["group_dro", "erm (lr=0.1)", "erm (lr=0.2)", "ERM†", "mine"]
    assert label_meant("GroupDRO", labels) == "group_dro"
    assert label_meant("erm (lr=0.1)", labels) == "erm (lr=0.1)"
    assert label_meant("Mine", labels) == "mine"
    assert label_meant("erm", ["ERM", "ERM†"]) is None  # either may be meant
    assert label_meant("vrex", labels) is None


def test_section_leads_the_report() -> None:
    collection = read_table(frame_of(FOUR))
    named, unnamed = [
        MeasuresReport(pair=pair)(collection, Last()).sections for pair in (["A", "B"], None)
    ]
    assert named[0].name == "pair"
    assert [section.name for section in unnamed] == [section.name for section in named[1:]]


def test_runs_of_a_folder(command: Command, small_study: Path, tmp_path: Path) -> None:
    ended = command(PROGRAM, "compare", str(small_study), "vrex", "ERM", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "vrex beats erm by " in ended.out
    assert "'report.pair=[vrex,ERM]'" in ended.out.splitlines()[-1]
