"""Tables of the other estimators: distances of features, covariate and concept shift, Frechet distance."""

from __future__ import annotations

from typing import Any

from dgbench.reports.published import published
from dgbench.reports.reading.shifts import ShiftLine, ShiftSetting
from dgbench.reports.tables import Column, Table, entry, table
from dgbench.shift.tables import (
    COVARIATE_AND_CONCEPT,
    DATASET,
    FLAGS,
    PRETRAINING,
    filled,
    interval_words,
    null_columns,
    other_features,
    over_pairs,
    pair_text,
    printed,
    value_cell,
    with_null,
)

DISTANCE_TITLES = {"emd": "EMD", "mmd2": "MMD²", "ni": "NI"}
CONCEPT_TITLES = {
    "tv": "M_cov, total variation",
    "disc": "M_cov, discrepancy",
    "min": "M_cpt min",
    "max": "M_cpt max",
    "noise": "disagreement without shift",
}
_PRINTED = {"tv": "cov", "min": "cpt_min", "max": "cpt_max"}


def distance_table(setting: ShiftSetting) -> Table:
    """EMD, MMD² and NI of every dataset with their nulls (Ye et al. 2022, Table 3)."""
    lines = []
    for line in setting.lines:
        cells: dict[str, Any] = {"dataset": line.title, "pairs": pair_text(line)}
        for name in DISTANCE_TITLES:
            cells |= with_null(line, name)
        tests = [test.value for pair in line.pairs.index if (test := line.value("mmd2_p", pair=pair))]
        cells |= entry("mmd2_p", max(tests, default=None))
        lines.append(cells | with_null(line, "ni_pooled"))
    columns = [
        DATASET,
        Column("pairs"),
        *null_columns("emd", "EMD", "earth mover's distance, Euclidean"),
        *null_columns("mmd2", "MMD²", "unbiased, so it may be negative; Gaussian kernel of the median distance"),
        Column("mmd2_p", "p of MMD², largest", "distance", "permutation test within classes, of the pair least apart"),
        *null_columns("ni", "NI", "difference of means over deviations, per class, weighted (He et al. 2020, Def. 1)"),
        *null_columns("ni_pooled", "NI, classes pooled"),
    ]
    notes = [
        "Of standardized features, equally many of either side. EMD and NI are above 0 even without shift and grow "
        "with the number of features: read each beside its null.",
    ]
    title = f"Distances of features, mean over pairs [{interval_words(setting, [*DISTANCE_TITLES])}]"
    return table(lines, "distances", title, filled(columns, lines), notes)


def class_distance_table(setting: ShiftSetting) -> Table | None:
    """The distances of each class, mean over pairs; None where no row has them."""
    classes = dict.fromkeys(name.split(":", 1)[1] for name in setting.names() if ":" in name)
    lines = []
    for line in setting.lines:
        for label in classes:
            cells: dict[str, Any] = {"dataset": line.title, "class": label}
            for name in DISTANCE_TITLES:
                cells |= value_cell(line, name, f"{name}:{label}")
            if any(cells[name] is not None for name in DISTANCE_TITLES):
                lines.append(cells)
    if not lines:
        return None
    columns = [DATASET, Column("class", key=True), *(Column(n, t, "distance") for n, t in DISTANCE_TITLES.items())]
    return table(lines, "distances_by_class", "Distances within each class", filled(columns, lines), detail=True)


def concept_table(setting: ShiftSetting) -> Table:
    """Covariate and concept shift of every dataset, published ones beside (Zhang et al. 2023, Table 1)."""
    source, lines = published(COVARIATE_AND_CONCEPT), []
    for line in setting.lines:
        cells: dict[str, Any] = {"dataset": line.title, "pairs": pair_text(line)}
        for name in CONCEPT_TITLES:
            cells |= over_pairs(line, name)
        for name, column in _PRINTED.items():
            row = str(line.identity["dataset"])
            cells |= printed(source, row, column, f"{name} published", other_features(setting))
        lines.append(cells)
    meaning = {
        "tv": "2 accuracy - 1 of telling p from q, at least 0: a lower bound of the total variation",
        "disc": "largest difference of two classifiers' disagreement on p and on q, over those trained here",
        "min": "share of images on which classifiers of p and of q differ, on the side where they differ less",
        "max": "the same where they differ more",
        "noise": "the same share between classifiers of two halves of p and q together",
    }
    columns = [DATASET, Column("pairs")]
    columns += [Column(name, title, "distance", meaning[name]) for name, title in CONCEPT_TITLES.items()]
    columns += [
        Column(f"{name} published", f"{CONCEPT_TITLES[name].split(',')[0]}, published", "distance", source.source)
        for name in _PRINTED
    ]
    notes = ["Mean ± standard deviation (divisor n-1) over pairs; of one pair, its interval."]
    if any(cells[f"{name} published"] is not None for cells in lines for name in _PRINTED):
        notes.append(
            f"Published: {source.source}; {source.note}. Their M_cov is taken over another class of hypotheses: 0.325 "
            "for PACS as a total variation would mean that photographs and sketches can be told apart in only 66% of "
            "cases, and a network tells them apart nearly always. Compare orders, not sizes."
        )
    if low := [line.title for line in setting.lines if _underestimated(line)]:
        notes.append(
            f"{', '.join(low)}: M_cpt max - min exceeds the interval of the total variation, which it cannot: "
            "the total variation is underestimated there."
        )
    title = "Covariate shift M_cov and concept shift M_cpt"
    return table(lines, "concept", title, filled(columns, lines), notes)


def _underestimated(line: ShiftLine) -> bool:
    """Whether concept shifts differ by more than M_cov, which cannot be: M_cpt max - min <= M_cov."""
    low, high, tv = (line.value(name) for name in ("min", "max", "tv"))
    return bool(low and high and tv and high.value - low.value > (tv.value if tv.high is None else tv.high))


def frechet_table(setting: ShiftSetting) -> Table:
    """Distance of the pretraining images to every environment (Yu et al. 2024, Table 2)."""
    source, lines = published(PRETRAINING), []
    for line in setting.lines:
        for name, facts in line.pairs.iterrows():
            pair, env = str(name), str(facts["q"])
            row = f"{line.identity['dataset']}/{env}"
            cells: dict[str, Any] = {"dataset": line.title, "environment": env, "n": facts["n_q"]}
            cells |= value_cell(line, "d2_inf", "d2_inf", pair=pair)
            cells |= with_null(line, "d2", pair)
            cells |= printed(source, row, "gap", "gap published")
            cells |= printed(source, row, "fid", "distance published", other_features(setting))
            lines.append(cells | {"flags": facts["flags"]})
    columns = [
        DATASET,
        Column("environment", key=True),
        Column("n", "images", "count"),
        Column("d2_inf", "distance, n to infinity", "distance", "intercept of least squares of the distance on 1/n"),
        Column("d2", "distance at a common n", "distance", "squared, of Gaussians; biased by about c/n"),
        Column("d2 null", "two halves of one environment", "distance", "the same estimate where the truth is 0"),
        Column("gap published", "gap, published", "distance", "(linear probing - fine-tuning) / fine-tuning"),
        Column("distance published", "distance, published", "distance", source.source),
        FLAGS,
    ]
    notes = [
        "Between features of the pretraining images and of an environment, by the network that is named above. This is "
        "no FID, which is of 2,048 features of one certain Inception network; the published distances are called so.",
        "The scale is that of the features: distances of other networks are not comparable.",
    ]
    if len({cells["n"] for cells in lines}) > 1:
        notes.append("Environments have different numbers of images: rank the distances for n to infinity alone.")
    title = f"Frechet distance, {setting.identity['backbone']}/{setting.identity['init']}"
    return table(lines, "frechet", title, filled(columns, lines), notes)
