"""Means, intervals and verdicts of estimated shift, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dgbench.analysis.shift_verdicts import MeanEstimate, verdict_kind
from dgbench.errors import ConfigError
from dgbench.records.shift_rows import ShiftRow
from dgbench.reports.reading.shift_settings import (
    ALL_PAIRS,
    DIAGNOSTIC,
    ShiftSetting,
    shift_settings,
)
from dgbench.shift.verdicts import verdicts
from tests.shift.synthetic import estimates, shift_identity, shift_row

T7, T2 = 2.3646242510, 4.3026527299  # Student's t, 97.5%, 7 and 2 degrees of freedom
HALVES = [0.02, -0.02] * 4  # standard deviation 0.02 sqrt(8/7)


def only(rows: list[ShiftRow]) -> ShiftSetting:
    (setting,), problems = shift_settings(rows)
    assert problems == []
    return setting


def value(setting: ShiftSetting, name: str, **where: Any) -> MeanEstimate:
    estimate = setting.lines[0].value(name, **where)
    assert estimate is not None
    return estimate


def test_half_sampling_by_hand() -> None:
    """Trials .49 .5 .51 have mean .5; the halves' deviation is the standard error, without a root
    of 8.
    """
    own = value(
        only(estimates(shift_identity(), {"0": {"div": 0.5}}, halves=HALVES)), "div", pair="0"
    )
    assert own.value == pytest.approx(0.5)
    reach = T7 * 0.02 * math.sqrt(8 / 7)
    assert (own.low, own.high) == (pytest.approx(0.5 - reach), pytest.approx(0.5 + reach))
    assert (own.trials, own.interval) == (3, "half-sampling")


def test_without_halves_it_is_the_spread_of_trials() -> None:
    """.49 .5 .51: standard error .01 / sqrt(3)."""
    own = value(only(estimates(shift_identity(), {"0": {"div": 0.5}})), "div")
    assert own.high - own.value == pytest.approx(T2 * 0.01 / math.sqrt(3))
    assert own.interval == "spread of trials"
    alone = value(only([shift_row(shift_identity(), values={"div": 0.5})]), "div")
    assert alone.interval == "none"
    assert alone.low is None


def test_a_dataset_is_the_mean_of_its_folds_and_its_halves_are_averaged_first() -> None:
    """Folds .2 and .6. Their halves go up and down against one another, so that every mean of a
    half is .4.
    """
    who = shift_identity()
    rows = estimates(who, {"0": {"div": 0.2}}, halves=HALVES)
    rows += estimates(who, {"1": {"div": 0.6}}, halves=[-offset for offset in HALVES])
    own = value(only(rows), "div")
    assert own.value == pytest.approx(0.4)
    assert own.high - own.low == pytest.approx(0, abs=1e-12)
    together = only(estimates(who, {"0": {"div": 0.2}, "1": {"div": 0.6}}, halves=HALVES))
    assert value(together, "div").high == pytest.approx(0.4 + T7 * 0.02 * math.sqrt(8 / 7))
    assert value(together, "div").pairs == 2


def test_halves_that_one_fold_lacks_do_not_count() -> None:
    who = shift_identity()
    rows = estimates(who, {"0": {"div": 0.2}}, halves=HALVES) + estimates(
        who, {"1": {"div": 0.6}}, halves=HALVES[:4]
    )
    own = value(only(rows), "div")
    assert own.high == pytest.approx(
        0.4 + 3.1824463053 * 0.02 * math.sqrt(4 / 3)
    )  # t with 3 degrees of freedom


def test_nulls_exact_values_and_diagnostics_stand_apart() -> None:
    rows = estimates(
        shift_identity(), {"0": {"cor": 0.5}, "1": {"cor": 0.3}}, null={"cor": 0.02},
        labels={"cor": 0.04}, exact={"cor": 0.45},
    )  # fmt: skip
    setting = only(rows)
    assert value(setting, "cor").value == pytest.approx(0.4)
    assert value(setting, "cor").exact == pytest.approx(0.45)
    assert value(setting, "cor", null="halves").value == pytest.approx(0.02)
    assert value(setting, "cor", null="halves").exact is None
    assert value(setting, "cor", null="labels").value == pytest.approx(0.04)
    assert value(setting, "accuracy", part=DIAGNOSTIC).value == pytest.approx(0.8)


def test_a_true_value_is_unknown_where_one_fold_does_not_tell_it() -> None:
    who = shift_identity()
    rows = [
        shift_row(who, "0", {"div": 0.5}, exact={"div": 0.4}),
        shift_row(who, "1", {"div": 0.3}),
    ]
    assert value(only(rows), "div").exact is None
    assert value(only(rows), "div", pair="0").exact == 0.4


def test_pairs_carry_counts_flags_and_refusals() -> None:
    who = shift_identity()
    rows = [
        shift_row(
            who,
            "0",
            {"div": 0.5},
            n=[90, 80],
            classes=["x"],
            dropped={"y": [3, 40]},
            flags=["few images"],
        ),
        shift_row(
            who, "0", {"div": 0.5}, number=1, n=[90, 80], classes=["x"], dropped={"y": [3, 40]}
        ),
        shift_row(who, "1", refused="no common classes; give other environments"),
    ]
    setting = only(rows)
    zero, one = setting.lines[0].pairs.to_dict("records")
    assert (zero["n_p"], zero["n_q"], zero["classes"], zero["of"]) == (90, 80, 1, 2)
    assert (zero["dropped"], zero["flags"], zero["refused"]) == (
        "y (3/40)",
        "few images (1 of 2 trials)",
        "",
    )
    assert one["refused"] == "no common classes; give other environments"
    assert value(setting, "div", pair=ALL_PAIRS).pairs == 1


def test_estimators_features_networks_and_settings_are_never_mixed() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"settings": {"delta": 0.01, "steps": 600}}, {"features": "trained"},
        {"backbone": "resnet50"},
        {"init": "random"}, {"images": "train"},
        {"estimator": "ood_bench", "settings": {"formula": "hellinger"}},
    ]  # fmt: skip
    rows = [shift_row(shift_identity(**own), values={"div": 0.1, "cor": 0.1}) for own in changes]
    settings, _ = shift_settings([*rows, shift_row(shift_identity("vlcs"), values={"div": 0.2})])
    assert len(settings) == 7
    titles = [setting.title for setting in settings]
    assert len(set(titles)) == 7
    assert (
        titles[-1] == "OoD-Bench estimator, resnet18/supervised, frozen features, formula=hellinger"
    )
    assert [len(setting.lines) for setting in settings].count(2) == 1
    assert sum("delta=0.01" in title for title in titles) == 1


def test_forms_of_a_dataset_are_lines_of_their_own() -> None:
    """Other seeds, and other ways to pair environments."""
    rows = [shift_row(shift_identity(seed=seed), values={"div": 0.1}) for seed in (0, 1)]
    assert [each.title for each in only(rows).lines] == ["pacs seed=0", "pacs seed=1"]
    both = [shift_row(shift_identity(), pair, {"div": 0.1}) for pair in ("0", "a|b")]
    assert [each.title for each in only(both).lines] == ["pacs pairs=each", "pacs pairs=folds"]


def test_code_versions_in_one_line_are_named_or_split() -> None:
    rows = [
        shift_row(shift_identity(code=code), values={"div": 0.1}, number=at)
        for at, code in enumerate(("0.1", "0.2"))
    ]
    _, (problem,) = shift_settings(rows)
    assert problem.reason == "rows of code 0.1 and 0.2 in one line; split_by=code keeps them apart"
    settings, problems = shift_settings(rows, split_by="code")
    assert (len(settings), problems) == (2, [])
    with pytest.raises(ConfigError, match="split_by=algorithm "):
        shift_settings(rows, split_by="algorithm")


def test_the_formula_says_which_pair_counts() -> None:
    values = {"div": 0.6, "cor": 0.1, "div_plus": 0.5, "cor_plus": 0.05}
    for formula, names in (("ye2022", ("div", "cor")), ("hellinger", ("div_plus", "cor_plus"))):
        who = shift_identity(estimator="ood_bench", settings={"formula": formula})
        assert only([shift_row(who, values=values)]).axes == names
    assert only([shift_row(shift_identity(), values=values)]).axes == ("div", "cor")
    assert (
        only([shift_row(shift_identity(estimator="distances"), values={"emd": 1.0})]).axes is None
    )


NONE = MeanEstimate(0.02, 0.01, 0.03)


@pytest.mark.parametrize(
    ("div", "cor", "kind"),
    [
        ((0.50, 0.45, 0.55), (0.02, 0.00, 0.04), "diversity"),
        ((0.02, 0.00, 0.04), (0.50, 0.45, 0.55), "correlation"),
        (
            (0.50, 0.45, 0.55),
            (0.10, 0.05, 0.15),
            "diversity",
        ),  # both are there, the excesses are far apart
        ((0.30, 0.20, 0.40), (0.25, 0.15, 0.35), "both"),
        ((0.03, 0.02, 0.04), (0.03, 0.02, 0.04), "neither"),
        ((0.04, 0.03, 0.05), (0.02, 0.00, 0.04), "neither"),  # its end touches that of the null
        (
            (0.05, 0.04, 0.06),
            (0.02, 0.00, 0.025),
            "undecided",
        ),  # excesses [.01, .05] and [-.03, .015] overlap
        ((0.06, 0.05, 0.07), (0.02, 0.00, 0.025), "diversity"),  # [.02, .06]
        ((0.10, 0.08, 0.12), (0.30, -0.20, 0.80), "undecided"),  # the other may be anything
        ((0.00, -0.01, 0.005), (0.00, -0.01, 0.005), "neither"),
    ],
)
def test_verdicts_at_their_boundaries(
    div: tuple[float, float, float], cor: tuple[float, float, float], kind: str
) -> None:
    """Nulls are .02 [.01, .03] each."""
    assert verdict_kind(MeanEstimate(*div), MeanEstimate(*cor), NONE, NONE) == kind


def test_bias_of_one_estimate_is_its_own_nulls() -> None:
    """Correlation .12 is no more than its null of .12, though far above diversity's interval."""
    null_cor = MeanEstimate(0.12, 0.10, 0.14)
    cor = MeanEstimate(0.12, 0.11, 0.13)
    assert (
        verdict_kind(MeanEstimate(0.1, 0.09, 0.11), cor, MeanEstimate(0.0, 0.0, 0.0), null_cor)
        == "diversity"
    )


def test_sentences_and_why_there_is_none() -> None:
    who = shift_identity()
    rows = estimates(
        who, {"0": {"div": 0.5, "cor": 0.02}}, null={"div": 0.02, "cor": 0.02}, halves=HALVES
    )
    verdict = verdicts(only(rows))["pacs"]
    assert verdict.sentence == (
        "pacs: dominated by diversity shift (diversity 0.50 [0.45, 0.55] against 0.02 [0.02, "
        "0.02] without shift, correlation 0.02 [-0.03, 0.07] against 0.02 [0.02, 0.02]; 95% "
        "intervals)."
    )
    without = verdicts(only(estimates(who, {"0": {"div": 0.5, "cor": 0.02}}, halves=HALVES)))[
        "pacs"
    ]
    assert (without.kind, "null=true" in without.reason) == ("", True)
    single = verdicts(
        only(
            estimates(
                who, {"0": {"div": 0.5, "cor": 0.0}}, null={"div": 0.0, "cor": 0.0}, trials=[0]
            )
        )
    )
    assert "trials=5" in single["pacs"].reason
    partly = verdicts(only([*rows, shift_row(who, "1", refused="failed fit")]))["pacs"]
    assert (partly.kind, partly.reason) == ("", "only 1 of 2 pairs have a value")
    refused = verdicts(only([*rows, shift_row(shift_identity("vlcs"), refused="failed fit")]))[
        "vlcs"
    ]
    assert refused.sentence == "vlcs: no verdict, not estimated: failed fit."
