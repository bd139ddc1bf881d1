"""``report=claims report.of=rows`` on a small sweep whose every number is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_rel

from dgbench.analysis import seeds_needed
from dgbench.analysis.comparison import holm
from dgbench.analysis.selection import Last
from dgbench.reports.document import Section
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.slices.claims import ClaimsReport

TITLE = "training-domain validation"
#: accuracy in each environment where it is held out: ERM is better on average, not at worst
LEVELS = {"ERM": (0.9, 0.9, 0.3), "IRM": (0.6, 0.6, 0.6), "CORAL": (0.5, 0.5, 0.5)}
TRIALS = np.array([0.0, 0.04, -0.04, 0.02])  # shared by all algorithms
#: of each algorithm in each trial
OWN = {
    "ERM": np.array([0.001, -0.001, 0.002, -0.002]),
    "IRM": np.array([-0.002, 0.001, 0.001, 0.0]),
    "CORAL": np.array([0.09, -0.05, 0.08, -0.06]),
}
DRAWS = (-0.02, 0.01, 0.0)  # what a draw adds; validation sees it without noise


def result(algorithm: str, trial: int, env: int, draw: int) -> float:
    """Compute the accuracy in an environment that is held out."""
    own = TRIALS[trial] + OWN[algorithm][trial]
    return float(LEVELS[algorithm][env] + own + DRAWS[draw])


def record(algorithm: str, trial: int, env: int, draw: int) -> str:
    accuracies = {}
    for other in range(3):
        value = result(algorithm, trial, env, draw) if other == env else 0.95 + DRAWS[draw]
        accuracies |= {f"env{other}_{part}_acc": value for part in ("in", "out")}
    args = {
        "algorithm": algorithm,
        "dataset": "Toy",
        "hparams_seed": draw,
        "test_envs": [env],
        "trial_seed": trial,
    }
    return json.dumps({"args": args, "hparams": {}, "step": 300, **accuracies}, sort_keys=True)


def sweep(root: Path, trials: int = 4, draws: int = 3) -> Path:
    places = itertools.product(LEVELS, range(trials), range(3), range(draws))
    file = root / "sweep.jsonl"
    file.write_text("".join(record(*place) + "\n" for place in places))
    return file


def section_of(file: Path, **keys: Any) -> Section:
    collection = read_domainbed(file, require_done=False)
    report = ClaimsReport(of="rows", **keys)
    (section,) = report(collection, Last()).sections
    return section


def lines_of(section: Section, name: str, **where: Any) -> pd.DataFrame:
    (frame,) = (table.frame for table in section.tables if table.name == name)
    for column, value in {"selection": TITLE, **where}.items():
        frame = frame[frame[column] == value]
    return frame.reset_index(drop=True)


def averages() -> dict[str, np.ndarray[Any, Any]]:
    """Compute average errors of each algorithm by trial, of the best draw."""
    return {
        name.lower(): 1 - (np.mean(levels) + TRIALS + OWN[name] + max(DRAWS))
        for name, levels in LEVELS.items()
    }


def test_orders_are_those_of_paired_tests(tmp_path: Path) -> None:
    """ERM is 10 points better than IRM; IRM and CORAL, which varies, are not separated."""
    section = section_of(sweep(tmp_path))
    errors = averages()
    pairs = list(itertools.combinations(errors, 2))
    paired = {pair: ttest_rel(*(errors[name] for name in pair)).pvalue for pair in pairs}
    jointly = dict(zip(pairs, holm(list(paired.values())), strict=True))
    welch = [ttest_ind(errors[a], errors[b], equal_var=False).pvalue for a, b in pairs]
    orders = lines_of(section, "orders", measure="average").iloc[0]
    assert (orders["leader"], orders["pairs"], orders["trials"]) == ("erm", 3, 4)
    assert orders["alone"] == sum(p < 0.05 for p in paired.values())
    assert orders["together"] == sum(p < 0.05 for p in jointly.values())
    assert orders["unpaired"] == sum(p < 0.05 for p in welch)
    lines = lines_of(section, "pairs")
    assert len(lines) == 3
    for line in lines.to_dict("records"):
        better, worse = line["better"], line["worse"]
        pair = (better, worse) if (better, worse) in paired else (worse, better)
        difference = errors[worse] - errors[better]
        assert line["difference"] == pytest.approx(difference.mean())
        assert line["deviation"] == pytest.approx(difference.std(ddof=1))
        assert line["p"] == pytest.approx(paired[pair], rel=1e-6)
        assert line["joint"] == pytest.approx(jointly[pair], rel=1e-6)


def test_an_undecided_order_says_how_many_trials_it_needs(tmp_path: Path) -> None:
    lines = lines_of(section_of(sweep(tmp_path)), "pairs").set_index(["better", "worse"])
    errors = averages()
    difference = errors["coral"] - errors["irm"]
    needed = seeds_needed(float(difference.std(ddof=1)), float(difference.mean()), power=0.8)
    assert lines.loc[("irm", "coral"), "needed"] == needed > 4
    decided = lines.loc[("erm", "irm")]
    assert np.isnan(decided["needed"]) and decided["needed.reason"] == "decided"


def test_what_worst_gap_would_have_selected(tmp_path: Path) -> None:
    section = section_of(sweep(tmp_path))
    chosen = lines_of(section, "chosen").iloc[0]
    assert (chosen["by average"], chosen["by worst+gap"]) == ("erm", "irm")
    errors = averages()
    assert chosen["lost"] == pytest.approx(np.mean(errors["irm"] - errors["erm"]))
    assert chosen["gained"] > 0.3  # ERM's worst error alone is 30 points above IRM's


def test_draws_gain_what_their_subsets_do(tmp_path: Path) -> None:
    """Validation orders draws rightly, so that of each subset the best draw is chosen."""
    file = sweep(tmp_path)
    section = section_of(file, draws=[1, 2])
    lines = lines_of(section, "draws")
    level = np.mean([1 - error for error in averages().values()]) - max(DRAWS)
    expected = []
    for size in (1, 2, 3):
        best = [max(chosen) for chosen in itertools.combinations(DRAWS, size)]
        expected.append(level + np.mean(best))
    assert lines["draws"].tolist() == [1, 2, 3]
    assert lines["chosen"].tolist() == pytest.approx(expected)
    assert lines["best"].tolist() == pytest.approx(expected)
    assert lines["gain"].tolist() == pytest.approx([value - expected[0] for value in expected])
    searches = 3 * 3 * 4
    assert lines["models"].tolist() == [searches, 2 * searches, 3 * searches]
    assert lines["leader"].tolist() == [1, 1, 1]
    assert [figure.name for figure in section.figures] == ["draws"]
    assert "3 draws against one gain 1.3 points" in " ".join(section.answer)


def test_one_trial_and_one_draw_decide_nothing(tmp_path: Path) -> None:
    section = section_of(sweep(tmp_path, trials=1, draws=1))
    orders = lines_of(section, "orders", measure="average").iloc[0]
    assert orders["pairs"] == 3 and pd.isna(orders["alone"])
    assert "1 trial" in orders["alone.reason"]
    assert all(table.frame.empty for table in section.tables if table.name == "pairs")
    assert "draws" not in [table.name for table in section.tables]  # nothing was drawn
    assert not section.figures
