"""``report=theory``: theorems of Hwang et al. (2024) and Zhang et al. (2023) on models with known
errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError
from dgbench.reports.document import Document
from dgbench.reports.importers.table import read_table
from dgbench.reports.reading.collect import collect
from dgbench.reports.slices.theory import TheoryReport
from dgbench.reports.tables import Cell, show
from tests.shift.synthetic import estimates, shift_identity, write_shifts
from tests.tables import line, table


def report(root: Path, **keys: Any) -> Document:
    return TheoryReport(**keys)(collect([root]), Last())


def statement(document: Document, name: str) -> dict[str, Cell]:
    return line(table(document, "statements"), name)


def values(cells: dict[str, Cell]) -> list[object]:
    """Share that holds, cases, median and smallest slack."""
    return [cells["holds"].value, cells["holds"].n, cells["median"].value, cells["smallest"].value]


def test_equation_39_with_and_without_its_gap(small_study: Path) -> None:
    """N = 4. erm of seed 0: worst .8, gap .6, worst+gap 1.1, ideal .9; vrex: .4, .1, .45, .4; seed
    1 has .02 more.
    """
    document = report(small_study)
    assert values(statement(document, "eq. 39")) == pytest.approx([1, 4, (0.07 + 0.2) / 2, 0.05])
    assert values(statement(document, "eq. 39 without the gap")) == pytest.approx(
        [0.5, 4, -0.04, -0.1]
    )
    assert "in 2 of 4 the bound is 100% or more" in document.sections[0].answer[1]


def test_theorem_3_4_of_one_model(small_study: Path) -> None:
    """erm: errors .9 (1 - e), so b = .9, a = 0, M = .81, m = .09: b - M = .09 <= .9 / 4, b <= .81 +
    .72 / 2.
    """
    document = report(small_study)
    assert values(statement(document, "Theorem 3.4, assumption")) == pytest.approx(
        [1, 4, 0.0975, 0.06]
    )
    assert values(statement(document, "Theorem 3.4, eq. 30")) == pytest.approx([1, 4, 0.195, 0.12])


def test_errors_that_are_no_line_are_not_continued(small_study: Path) -> None:
    """A model without an environment errs there alone, which says nothing of the environments
    between.
    """
    document = report(small_study)
    found = statement(document, "section 3.3.3, assumption")["holds"]
    assert (found.value, "were not tested in all environments" in found.reason) == (None, True)
    assert sum("section 3.3.3" in sentence for sentence in document.sections[0].answer) == 1


@pytest.fixture
def lines(make: Any, tmp_path: Path) -> Path:
    """Straight lines: .8 e where 0.10 is held out, .3 + .2 e elsewhere, .5 e of the model of all
    environments.
    """
    for fold in ("0", "1", "2", "3", "full"):
        slope, least = {"3": (0.8, 0.0), "full": (0.5, 0.0)}.get(fold, (0.2, 0.25))
        make.write_run(
            tmp_path, make.identity(fold=fold), lambda e, s, a=slope, b=least: b + a * float(e)
        )
    return tmp_path


def test_adding_an_environment(lines: Path) -> None:
    """Largest errors: .8 without 0.10, .45 without another, .5 with all."""
    document = report(lines)
    assert values(statement(document, "section 3.3.3, assumption")) == pytest.approx(
        [0.25, 4, -0.05, -0.05]
    )
    found = table(document, "added_environment")
    assert [show(line(found, env)["holds"], "percent") for env in ("0.10", "0.80")] == [
        "100.0 (1 of 1)",
        "0.0 (0 of 1)",
    ]
    assert "in 1 of 4 models: 1 of 1 where 0.10 was held out, 0 of 3 elsewhere" in " ".join(
        document.sections[0].answer
    )


def test_given_environments_alone_tell_nothing_of_others(make: Any, tmp_path: Path) -> None:
    for fold in ("0", "full"):
        make.write_run(tmp_path, make.identity(fold=fold), lambda e, s: 0.5 * float(e), grid=[])
    assert statement(report(tmp_path), "Theorem 3.4, eq. 30")["holds"].value is None


@pytest.mark.parametrize("changes", [{"evaluation": "sampled"}, {"grouped": True}])
def test_sampled_errors_are_not_continued(
    make: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    for fold in ("0", "full"):
        make.write_run(tmp_path, make.identity(fold=fold, **changes), lambda e, s: 0.5 * float(e))
    assert statement(report(tmp_path), "section 3.3.3, assumption")["holds"].value is None


def write_concept(root: Path, **who: Any) -> None:
    """M_cov .2 and M_cpt min .1 of the pair whose q is 0.10."""
    keys = {
        "variant": {"ratio": 3, "scale": 1},
        "base": "digits",
        "evaluation": "exact",
        "estimator": "concept",
    }
    identity = shift_identity(
        "sr_cmnist", **{**keys, "given": ["0.90", "0.85", "0.80", "0.10"], "settings": {}, **who}
    )
    rows = estimates(
        identity, {"3": {"tv": 0.2, "min": 0.1, "max": 0.3}}, p=["0.90", "0.85", "0.80"], q=["0.10"]
    )
    write_shifts(root, rows, f"{len(who)}")


def test_bound_by_covariate_and_concept_shift(lines: Path) -> None:
    """0.10 held out: error .08; training .8 x .85 = .68, and .3 of shift."""
    write_concept(lines / "shift")
    document = report(lines, shifts_from=str(lines / "shift"))
    bounds = table(document, "shift_bound")
    found = line(bounds, bounds.frame["setting"][0], "0.10")
    names = ("training", "covariate", "concept", "right", "left")
    assert [found[name].value for name in names] == pytest.approx([0.68, 0.2, 0.1, 0.98, 0.08])
    assert values(statement(document, "Zhang et al., Theorem 4.2")) == pytest.approx(
        [1, 1, 0.9, 0.9]
    )


def test_estimates_that_are_not_of_one_setting(lines: Path) -> None:
    write_concept(lines / "shift")
    write_concept(lines / "shift", backbone="other")
    with pytest.raises(
        ConfigError, match=r"report\.shifts_from.* 2 settings of estimator=concept, one is needed"
    ) as error:
        report(lines, shifts_from=str(lines / "shift"))
    assert "\n" not in str(error.value)


def test_a_table_of_others(tmp_path: Path) -> None:
    """Without a model of all environments one sentence says what is missing; with one, eq. 39 is
    told.
    """
    head, held_out = (
        "algorithm,seed,environment,role,error",
        "erm,0,a,held out,.2\nerm,0,b,held out,.3\nerm,0,c,held out,.4",
    )
    alone, whole = tmp_path / "alone.csv", tmp_path / "whole.csv"
    alone.write_text(f"{head}\n{held_out}\n")
    whole.write_text(
        f"{head}\n{held_out}\n"
        + "\n".join(f"erm,0,{e},everywhere,.{n}" for n, e in enumerate("abcd", 1))
    )
    (answer,) = TheoryReport()(read_table(str(alone)), Last()).sections[0].answer
    assert "\n" not in answer
    assert "no model of all environments" in answer
    document = TheoryReport()(read_table(str(whole)), Last())
    assert values(statement(document, "eq. 39")) == pytest.approx([1, 1, 0.2, 0.2])
    assert values(statement(document, "eq. 39 without the gap")) == pytest.approx([1, 1, 0, 0])
