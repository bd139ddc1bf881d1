"""The pictures of error against e: which algorithms stand out, one panel per setting of a
benchmark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.measuring.benchmarks import benchmarks
from dgbench.reports.measuring.curves import benchmark_curves, error_curves, highlighted
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs


def evaluated(root: Path) -> Evaluation:
    collection = collect([root])
    return evaluate(select_runs(collection, Last()))


@pytest.fixture
def many(make: Any, tmp_path: Path) -> Evaluation:
    """8 algorithms in ratio 3 and 4; m0 to m7 have held-out error .1 to .45 in every environment
    but the last.

    Of the models trained on all environments, m6 is best in ratio 3 and m7 in ratio 4.
    """
    for ratio in (3, 4):
        for at in range(8):
            for fold in ("0", "1", "2", "3", "full"):
                who = make.identity(
                    f"m{at}", fold, variant={"ratio": ratio, "scale": 1}, run=f"{ratio}{at}{fold}"
                )
                error = 0.1 + 0.05 * at if fold != "full" else 0.5 - 0.3 * (at == ratio + 3)
                make.write_run(tmp_path, who, lambda e, s, error=error: error, folder=who.run)
    return evaluated(tmp_path)


def test_the_baseline_and_the_leaders_of_every_setting_are_in_color(many: Evaluation) -> None:
    """The baseline m5, the truly best m6 and m7, m0 (lowest worst+gap and average), then the next
    by worst+gap: m1.
    """
    assert list(highlighted(many.studies, "m5", many.measures)) == ["m5", "m6", "m7", "m0", "m1"]
    assert list(highlighted(many.studies, "absent", many.measures))[:3] == ["m6", "m7", "m0"]


def test_a_benchmark_is_drawn_in_one_figure_with_shared_colors(many: Evaluation) -> None:
    [benchmark] = benchmarks(many)
    [figure] = benchmark_curves(benchmark, highlighted(benchmark.studies, "m5", benchmark.measures))
    assert "ratio=3" in figure.svg
    assert "ratio=4" in figure.svg
    for name in ("m5", "m6", "m7", "m0", "m1"):
        assert figure.svg.count(f">{name}<") == 1, "labeled once, in the last panel"
    assert figure.caption.endswith("In gray: m2, m3, m4.")
    assert ">m2<" not in figure.svg


def test_no_picture_without_a_model_of_all_environments(make: Any, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity("erm", "0"))
    found = evaluated(tmp_path)
    assert error_curves(found, highlighted(found.studies, "erm", found.measures)) is None
