"""``report=features``: maps of what ``dgbench evaluate features=N`` kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import dgbench
from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import write
from dgbench.reports.slices.features import FeaturesReport, separability, two_dimensions

WORDS = (
    "backbone=mlp",
    "backbone.width=8",
    "hparams.batch_size=4",
    "trainer.steps=4",
    "trainer.eval_every=4",
)


@pytest.fixture(scope="module")
def kept(shared_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the evaluated rows of two runs, with features of up to 6 images an environment."""
    place = tmp_path_factory.mktemp("features")
    words = [
        "dataset=image_folder", f"dataset.root={shared_tree}", "dataset.image_size=16",
        "trainer.device=cpu", f"dataset.cache_dir={place / 'cache'}",
    ]  # fmt: skip
    trained = dgbench.train([*words, *WORDS, "protocol.folds=[0,2]"], place / "trained")
    found = dgbench.evaluate(trained.folders, features=6, output=place / "rows")
    assert len(found.folders) == 2
    return place / "rows"


def test_what_is_kept(kept: Path) -> None:
    file = sorted(kept.rglob("features.npz"))[0]
    with np.load(file, allow_pickle=False) as content:
        about = json.loads(str(content["about"]))
        assert about == {"environments": ["a", "b", "c"], "classes": ["cat", "dog", "emu"]}
        assert content["features"].shape == (4 + 4 + 6, 8), (
            "val images of b and c, test images of a"
        )
        assert content["features"].dtype == np.float16
        assert [bool(content["held_out"][content["env"] == n].all()) for n in range(3)] == [
            True,
            False,
            False,
        ]


def test_training_images_are_not_taken_where_there_are_others(kept: Path, tmp_path: Path) -> None:
    """In whichever order the subsets are listed."""
    words = ["trainer.eval_subsets=[val,test,train]"]
    dgbench.evaluate(kept.parent / "trained", words, features=6, output=tmp_path)
    before, after = features_by_environment(kept), features_by_environment(tmp_path)
    assert len(before) == 6 and before.keys() == after.keys()
    for key, features in before.items():
        np.testing.assert_array_equal(features, after[key])


def features_by_environment(folder: Path) -> dict[tuple[str, str], np.ndarray]:
    """Features in the files below a folder, by held-out environment and environment."""
    features = {}
    for file in folder.rglob("features.npz"):
        with np.load(file, allow_pickle=False) as content:
            environments = json.loads(str(content["about"]))["environments"]
            held_out = environments[content["env"][content["held_out"]][0]]
            for number, env in enumerate(environments):
                features[held_out, env] = content["features"][content["env"] == number]
    return features


def test_the_page_shows_every_run(kept: Path, tmp_path: Path) -> None:
    document = FeaturesReport()(collect([kept]), Last())
    assert [section.title for section in document.sections] == [
        "erm seed 0 fold 0 on image_folder",
        "erm seed 0 fold 2 on image_folder",
    ]
    paths = write(document, str(tmp_path / "out"))
    assert len([path for path in paths if str(path).endswith(".png")]) == 2
    assert "feature space share" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_they_are_found_beside_the_runs_that_were_trained(
    names: str, kept: Path, tmp_path: Path
) -> None:
    """The rows of an evaluation may be those of the training: one run, whichever folder comes
    first.
    """
    for name, folder in zip(names, (kept.parent / "trained", kept), strict=True):
        shutil.copytree(folder, tmp_path / name)
    collection = collect([tmp_path])
    assert {len(run.copies) for run in collection.runs} == {1}
    assert len(FeaturesReport()(collection, Last()).sections) == 2


def test_a_damaged_file_is_a_problem(kept: Path, tmp_path: Path) -> None:
    file = sorted(kept.rglob("features.npz"))[0]
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[:100])
        document = FeaturesReport()(collect([kept]), Last())
        assert len(document.sections) == 1
        assert "features" in document.problems.frame["problem"].tolist()
    finally:
        file.write_bytes(whole)


def test_principal_components_are_those_of_the_covariance() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 4)) * [5, 2, 1, 0.1]
    places, how = two_dimensions(features, "pca")
    variances = np.sort(np.linalg.eigvalsh(np.cov(features.T)))[::-1]
    assert np.allclose(places.var(0, ddof=1), variances[:2])
    assert how.startswith(f"principal components, {100 * variances[0] / variances.sum():.0f}%")
    assert two_dimensions(np.ones((3, 1)), "pca")[0].shape == (3, 2)


@pytest.mark.thorough
def test_tsne_keeps_neighbors_together_and_is_drawn_alike_again() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 20)
    features = rng.normal(size=(40, 5)) + 20 * group[:, None]
    places, how = two_dimensions(features, "tsne")
    assert places.shape == (40, 2)
    assert how.startswith("t-SNE of perplexity 13")
    assert separability(places.astype(np.float64), group, group)["class"] == 1.0
    assert np.array_equal(places, two_dimensions(features, "tsne")[0])
    same, _ = two_dimensions(np.ones((4, 1)), "tsne")
    assert np.isfinite(same).all()
    with pytest.raises(ConfigError, match=r"report\.map=tsne needs 4 images or more"):
        two_dimensions(features[:3], "tsne")


def test_neighbors_worked_out_by_hand() -> None:
    """On a line at 0, 1, 10, 11, 20: the neighbor of each is 1, 0, 11, 10, 11."""
    found = separability(
        np.array([[0.0], [1], [10], [11], [20]]),
        np.array([0, 0, 0, 0, 1]),
        np.array([0, 0, 1, 0, 1]),
    )
    assert found == {
        "class": 2 / 5,
        "environment": 4 / 5,
        "class by chance": (3 * 2 + 2 * 1) / 20,
        "environment by chance": 12 / 20,
    }


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"map": "mds"}, "report.map=mds is unknown; choose pca, tsne, umap"),
        ({"runs": 0}, "report.runs=0.*integer >= 1"),
    ],
)
def test_wrong_keys(keys: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        FeaturesReport(**keys)  # type: ignore[arg-type]


def test_without_features_it_says_how_to_keep_some(kept: Path) -> None:
    with pytest.raises(RecordError, match="dgbench evaluate model=RUN features=200"):
        FeaturesReport()(collect([kept.parent / "trained"]), Last())
