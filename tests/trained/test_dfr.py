"""A run's last layer fitted anew on groups of equal size (DFR)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import StandardScaler

import dgbench
from dgbench.errors import ConfigError
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.reports.labels import algorithm_labels
from dgbench.trained import dfr
from dgbench.trained.dfr import GroupedFeatures
from tests.trained.conftest import Trained

EACH = 800
WORDS = (
    "dataset=features", "trainer.steps=200", "trainer.eval_every=200", "trainer.device=cpu",
    "algorithm=erm", "execution=single",
)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cats and dogs on grass and sand: the background is seen clearly, and tells the class in 95,
    90 and 50 % of three environments; the animal is seen through noise.
    """
    rng = np.random.default_rng(0)
    agreement = np.repeat([0.95, 0.9, 0.5], EACH)
    label = rng.integers(2, size=len(agreement))
    background = np.where(rng.random(len(label)) < agreement, label, 1 - label)
    features = rng.normal(size=(len(label), 4)) * [1, 0.3, 1, 1]
    features[:, 0] += 2 * label
    features[:, 1] += 2 * background
    file = tmp_path_factory.mktemp("table") / "table.npz"
    np.savez(
        file,
        features=features,
        environment=np.repeat(["a", "b", "c"], EACH),
        label=np.array(["cat", "dog"])[label],
        background=np.array(["grass", "sand"])[background],
    )
    return file


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [*WORDS, f"dataset.path={table}", "protocol.folds=[2]"]
    return dgbench.train(words, tmp_path_factory.mktemp("run")).folders[0]


def rows(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder / ROW_FILE)[0]


def grouped(classes: int, seed: int = 0) -> GroupedFeatures:
    """240 images of two groups in each class, of unequal sizes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=240)
    value = (rng.random(240) < 0.25).astype(np.int64)
    features = rng.normal(size=(240, 5)) * 10 + 3
    features[:, 0] += 8 * labels
    features[:, 1] += 15 * value
    names = [f"{label}, {v}" for label in range(classes) for v in range(2)]
    return GroupedFeatures(features, labels, labels * 2 + value, names)


def authors_choice(images: GroupedFeatures, rng: np.random.Generator, seed: int) -> float:
    """Tune as ``dfr_on_validation_tune`` of the authors' code (commit 46666e6) does."""
    index = np.arange(len(images.labels))
    rng.shuffle(index)
    n_val = len(index) // 2
    x, y, g = (values[index[n_val:]] for values in (images.features, images.labels, images.groups))
    members = [np.where(g == group)[0] for group in range(g.max() + 1)]
    smallest = min(len(rows) for rows in members)
    for rows_of_group in members:
        rng.shuffle(rows_of_group)
    x, y = (np.concatenate([values[rows[:smallest]] for rows in members]) for values in (x, y))
    scaler = StandardScaler()
    x = scaler.fit_transform(x)
    held = index[:n_val]
    x_val = scaler.transform(images.features[held])
    worst = []
    for strength in (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01):
        model = liblinear(strength, seed).fit(x, y)
        right = model.predict(x_val) == images.labels[held]
        groups = images.groups[held]
        worst.append(min(right[groups == group].mean() for group in range(len(members))))
    return (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)[int(np.argmax(worst))]


def liblinear(strength: float, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    penalty = dfr._l1_penalty(LogisticRegression)
    model = LogisticRegression(C=strength, solver="liblinear", random_state=seed, **penalty)
    return OneVsRestClassifier(model)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_the_procedure_of_the_authors_code(classes: int) -> None:
    """Penalty, coefficients and intercepts, on the same permutations; for more than two classes
    with scikit-learn's one against the rest, which is what liblinear did by itself.
    """
    images = grouped(classes)
    training = grouped(classes, seed=1).features
    ours, theirs = np.random.default_rng(7), np.random.default_rng(7)
    strength = dfr.chosen_strength(images, ours, 3)
    assert strength == authors_choice(images, theirs, 3)
    scaler = StandardScaler().fit(training)
    result = dfr.averaged_classifier(images, strength, scaler, ours, 3)
    coefficients, intercepts = [], []
    for _ in range(20):
        members = [np.where(images.groups == group)[0] for group in range(2 * classes)]
        smallest = min(len(rows) for rows in members)
        for rows_of_group in members:
            theirs.shuffle(rows_of_group)
        drawn = np.concatenate([rows[:smallest] for rows in members])
        model = liblinear(strength, 3).fit(
            scaler.transform(images.features[drawn]), images.labels[drawn]
        )
        coefficients.append([one.coef_[0] for one in model.estimators_])
        intercepts.append([one.intercept_[0] for one in model.estimators_])
    np.testing.assert_allclose(result.coefficients, np.mean(coefficients, 0), rtol=1e-12)
    np.testing.assert_allclose(result.intercepts, np.mean(intercepts, 0), rtol=1e-12)


def test_draws_hold_equally_many_images_of_each_group() -> None:
    drawn = grouped(2).balanced(np.random.default_rng(0))
    counts = np.bincount(drawn.groups)
    assert len(set(counts)) == 1
    assert counts[0] == np.bincount(grouped(2).groups).min()


def worst_group(folder: Path) -> float:
    """Compute the lowest accuracy of a class at a background in the held-out environment."""
    frame = pd.read_parquet(folder / "predictions.parquet")
    frame = frame[(frame["env"] == "c") & (frame["subset"] == "test")]
    right = frame["label"] == frame["predicted"]
    groups = [frame["label"], frame["attribute.background"].astype(str)]
    return float(right.groupby(groups).mean().min())


def test_groups_of_an_attribute_free_the_last_layer_of_it(run: Path, tmp_path: Path) -> None:
    """The worst group of class and background gains in an environment that was never seen, more
    than by groups of class and environment; rows, labels and another evaluation say the same.
    """
    before = dgbench.evaluate(run, output=tmp_path / "before", predictions=True).folders[0]
    by_background, by_environment = (
        dgbench.evaluate(
            run, output=tmp_path / "dfr", averaging="dfr", groups=groups, predictions=True
        ).folders[0]
        for groups in ("background", None)
    )
    worst = [worst_group(folder) for folder in (before, by_environment, by_background)]
    assert worst[2] > worst[0] + 0.15
    assert worst[2] > worst[1] + 0.15
    (row, *_) = rows(by_background)
    assert row["averaging"] == "dfr" and row["hparams"]["averaging.groups"] == "background"
    assert rows(by_environment)[0]["hparams"]["averaging.groups"] == "environments"
    assert len({folder.name for folder in (before, by_background, by_environment)}) == 3
    assert algorithm_labels([row]) == ["erm+dfr"]
    again = dgbench.evaluate(run, output=tmp_path / "again", averaging="dfr", groups="background")
    assert (again.folders[0] / ROW_FILE).read_bytes() == (by_background / ROW_FILE).read_bytes()


def test_no_image_of_a_tested_environment_is_looked_at(
    run: Path, table: Path, tmp_path: Path
) -> None:
    """With other labels and backgrounds there the errors of training environments stay."""
    content = dict(np.load(table))
    held_out = content["environment"] == "c"
    content["background"] = np.where(held_out, "sand", content["background"])
    content["features"] = np.where(held_out[:, None], 0.0, content["features"])
    other = tmp_path / "other.npz"
    np.savez(other, **content)
    words = [*WORDS, f"dataset.path={other}", "protocol.folds=[2]"]
    twin = dgbench.train(words, tmp_path / "twin").folders[0]
    kept = []
    for folder in (run, twin):
        result = dgbench.evaluate(
            folder, output=tmp_path / folder.name, averaging="dfr", groups="background"
        )
        kept.append(
            [
                (row["env"], row["subset"], row["wrong"], row["loss"])
                for row in rows(result.folders[0])
                if row["env"] != "c"
            ]
        )
    assert kept[0] and kept[0] == kept[1]


def test_the_standardization_is_multiplied_into_the_layer(run: Path) -> None:
    """Logits of the new layer on plain features equal scores of the mean classifier."""
    model = dgbench.load(run)
    rng = np.random.default_rng(0)
    m = model.run.networks["classifier"].weight.shape[1]
    features = rng.normal(size=(50, m)) * 4 + 1
    scaler = StandardScaler().fit(features)
    for k in (1, 3):
        classifier = dfr.LinearClassifier(rng.normal(size=(k, m)), rng.normal(size=k))
        layer = dfr._layer(classifier, scaler, model)
        scores = scaler.transform(features) @ classifier.coefficients.T + classifier.intercepts
        with torch.no_grad():
            logits = layer.double()(torch.from_numpy(features)).numpy()
        if k == 1:
            logits = logits[:, 1:] - logits[:, :1]
        np.testing.assert_allclose(logits, scores, atol=1e-4)


def test_painted_images_have_groups_of_their_feature(trained: Trained, tmp_path: Path) -> None:
    folder = trained()
    result = dgbench.evaluate(folder, output=tmp_path, averaging="dfr", groups="feature")
    assert {row["averaging"] for row in rows(result.folders[0])} == {"dfr"}
    with pytest.raises(ConfigError, match="choose from environments, feature"):
        dgbench.evaluate(folder, output=tmp_path, averaging="dfr", groups="color")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"groups": "background"}, "groups=background has no effect without averaging=dfr"),
        ({"averaging": "dfr", "groups": "color"}, "groups=color is no attribute.*background"),
        ({"averaging": "dfr", "groups": ""}, "groups is empty"),
        ({"averaging": "dfr", "ensemble": True}, "ensemble=true; choose one"),
        ({"averaging": "dfr", "alphas": [0.5]}, r"alphas=\[0\.5\] has no effect without.*wise_ft"),
    ],
)
def test_wrong_words(words: dict[str, Any], line: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        dgbench.evaluate(run, output=tmp_path, **words)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_has_no_linear_classifier(trained: Trained, tmp_path: Path) -> None:
    for name in ("arm", "mtl"):
        with pytest.raises(ConfigError, match=f"and {name} does not predict with one"):
            dgbench.evaluate(trained(f"algorithm={name}"), output=tmp_path, averaging="dfr")
    assert not list(tmp_path.iterdir())


def test_groups_and_classes_that_are_too_small() -> None:
    images = grouped(2)
    few = images.at(np.flatnonzero((images.groups != 1) | (np.cumsum(images.groups == 1) == 1)))
    message = re.escape("group (0, 1) has too few val images")
    with pytest.raises(ConfigError, match=message):
        for seed in range(20):  # its one image is in the half that chooses now and then
            dfr.chosen_strength(few, np.random.default_rng(seed), 0)
