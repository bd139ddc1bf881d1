"""What the estimates of one setting show, in a sentence or two; made of frames, never of rendered text."""

from __future__ import annotations

from dgbench.analysis import spearman
from dgbench.errors import MeasureError
from dgbench.records.shift_rows import HALVES
from dgbench.reports.published import published
from dgbench.reports.shift.shift_columns import pairs_of
from dgbench.reports.shift.shift_estimates import ShiftSetting
from dgbench.reports.shift.shift_published import PRETRAINING, short_source
from dgbench.reports.shift.verdicts import estimate_of, is_above, value_line, verdicts


def plane_answer(setting: ShiftSetting) -> list[str]:
    """The verdict of every dataset."""
    return [verdict.sentence for verdict in verdicts(setting).values()]


def distance_answer(setting: ShiftSetting) -> list[str]:
    """Which datasets the earth mover's distance tells from no shift."""
    return _told(setting, "emd", "EMD")


def concept_answer(setting: ShiftSetting) -> list[str]:
    """Where classifiers of two sides disagree more than those of two halves of one distribution."""
    sentences = []
    for line in setting.lines:
        low, noise = (estimate_of(setting, line.title, name) for name in ("min", "noise"))
        if low is None or noise is None:
            continue
        if not low.ends or not noise.ends:
            said = "which has no interval, so concept shift cannot be told from estimation error"
        elif is_above(low, noise):
            said = "so there is concept shift besides estimation error"
        else:
            said = "so concept shift cannot be told from estimation error"
        sentences.append(f"{line.title}: M_cpt min is {low}, without shift {noise} (95% intervals), {said}.")
    return sentences


def frechet_answer(setting: ShiftSetting) -> list[str]:
    """The environments nearest to and farthest from the pretraining images, and their order in a paper's table."""
    theirs, sentences = published(PRETRAINING), []
    for line in setting.lines:
        own = setting.pairs[setting.pairs["dataset"] == line.title].set_index("pair")["q"]
        found = {str(own[pair]): value for pair in pairs_of(setting, line.title)
                 if (value := _distance(setting, line.title, pair)) is not None}  # fmt: skip
        if not found:
            continue
        order = sorted(found, key=lambda env: found[env])
        text = f"{line.title}: nearest to the pretraining images is {order[0]} ({found[order[0]]:.1f})"
        text += f", farthest {order[-1]} ({found[order[-1]]:.1f})" if len(order) > 1 else ""
        dataset = line.identity["dataset"]
        gaps = {env: theirs.values[row]["gap"].mean for env in found
                if (row := f"{dataset}/{env}".replace(" ", "_")) in theirs.values}  # fmt: skip
        if len(gaps) > 2:
            try:
                rho = spearman({env: found[env] for env in gaps}, gaps)
                text += f"; rank correlation with the gap printed in {short_source(theirs)}: {rho:.2f} (n={len(gaps)})"
            except MeasureError:  # all distances are equal
                pass
        sentences.append(f"{text}.")
    return sentences


def _distance(setting: ShiftSetting, dataset: str, pair: str) -> float | None:
    line = value_line(setting, dataset, "d2_inf", pair=pair) or value_line(setting, dataset, "d2", pair=pair)
    return float(line["value"]) if line else None


def _told(setting: ShiftSetting, name: str, title: str) -> list[str]:
    told: dict[bool, list[str]] = {True: [], False: []}
    for line in setting.lines:
        own, null = estimate_of(setting, line.title, name), estimate_of(setting, line.title, name, HALVES)
        if own and null and own.ends and null.ends:
            told[is_above(own, null)].append(line.title)
    sentences = []
    if told[True]:
        sentences.append(f"{title} tells from no shift: {', '.join(told[True])} (95% intervals apart).")
    if told[False]:
        sentences.append(f"{title} does not tell from no shift: {', '.join(told[False])}.")
    return sentences or [f"{title} has no null or no interval here: estimate with null=true and trials=5."]
