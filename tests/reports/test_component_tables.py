"""``report=components``: rows of crossed studies, against sums of their measures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import dgbench
from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.document import Document
from dgbench.reports.reading.collect import collect
from dgbench.reports.slices.components import ComponentsReport
from tests.studies import SMALL

WORDS = (*SMALL, "trainer.steps=4", "trainer.eval_every=4", "protocol.folds=[0,1,2,3]")
ALGORITHMS = ("erm", "group_dro")
WIDTHS = (8, 16)
SEEDS = (0, 1)


def train(folder: Path, *words: str) -> None:
    dgbench.train([*WORDS, *words], folder)


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two algorithms, two networks, two seeds."""
    folder = tmp_path_factory.mktemp("crossed")
    for algorithm, width, seed in itertools.product(ALGORITHMS, WIDTHS, SEEDS):
        words = [f"algorithm={algorithm}", f"backbone.width={width}", f"seed={seed}"]
        train(folder, *words)
    return folder


def document(folders: Sequence[Path], **options: object) -> Document:
    report = ComponentsReport(name="components", measures=["average"], compared=["average"])
    return report.model_copy(update=options)(collect(folders), Last())


def averages(folder: Path) -> np.ndarray:
    """Return the average errors of the studies, algorithm x width x seed."""
    table = np.full((2, 2, 2), math.nan)
    frame = dgbench.results([folder])
    held_out = frame[(frame["subset"] == "test") & frame["env_held_out"]]
    for place in itertools.product(range(2), repeat=3):
        algorithm, width, seed = ALGORITHMS[place[0]], WIDTHS[place[1]], SEEDS[place[2]]
        is_study = (held_out["algorithm"] == algorithm) & (held_out["seed"] == seed)
        is_study &= held_out["backbone"].str.contains(f"-{width}")
        table[place] = held_out[is_study]["error"].mean()
    return table


def test_components_of_the_rows(crossed: Path) -> None:
    (section,) = document([crossed]).sections
    components, levels = section.tables
    assert components.frame["component"].tolist() == [
        "backbone",
        "algorithm",
        "combinations",
        "seed",
    ]
    table = averages(crossed)
    assert not np.isnan(table).any()
    means = table.mean(axis=2)
    network = 4 * ((table.mean(axis=(0, 2)) - table.mean()) ** 2).sum()
    of_seeds = 4 * ((table.mean(axis=(0, 1)) - table.mean()) ** 2).sum()
    noise = (((table - means[..., None]) ** 2).sum() - of_seeds) / 3
    expected = math.sqrt(max(network - noise, 0) / 8)
    moves = components.frame.set_index("component")["moves"]
    assert moves["backbone"] == pytest.approx(expected)
    seed = math.sqrt(noise + max(of_seeds - noise, 0) / 4)
    assert moves["seed"] == pytest.approx(seed)
    assert components.frame["most"].sum() == pytest.approx(1)
    of_erm = levels.frame.set_index("level").loc["erm"]
    assert of_erm["average"] == pytest.approx(table[0].mean())
    assert of_erm["studies"] == 4
    assert "average is moved most by " in section.answer[0]
    (figure,) = section.figures
    assert "combinations" in figure.svg


def test_what_leads_is_named_with_its_certainty(crossed: Path) -> None:
    (section,) = document([crossed]).sections
    frame = section.tables[0].frame
    leader = frame.sort_values("moves", ascending=False).iloc[0]
    is_sure = leader["most"] >= 0.95
    assert any("not sure" in sentence for sentence in section.answer) is not is_sure
    unclear = frame[frame["moves.low"] == 0]["component"].tolist()
    said = [text for text in section.answer if text.startswith("May have no effect")]
    assert len(said) == bool(unclear)
    for name in unclear:
        assert name in said[0]


def test_a_lacking_study_is_said_and_the_rest_is_type_ii(crossed: Path) -> None:
    studies = sorted(path for path in crossed.iterdir() if any(path.glob("fold-*")))
    (section,) = document(studies[1:]).sections
    notes = " ".join(section.tables[1].notes)
    assert "unequal combinations" in notes
    assert dict(section.facts)["studies"] == "7"


def test_seeds_alone_are_refused(crossed: Path, tmp_path: Path) -> None:
    studies = [path for path in crossed.iterdir() if any(path.glob("fold-*"))]
    with pytest.raises(RecordError, match="cross levels of a factor") as fault:
        document(studies[:1])
    assert "\n" not in str(fault.value)


def test_studies_without_the_measure_are_why_there_is_nothing(tmp_path: Path) -> None:
    for seed, algorithm in itertools.product(SEEDS, ALGORITHMS):
        train(tmp_path, f"algorithm={algorithm}", f"seed={seed}", "protocol.folds=[0]")
    with pytest.raises(RecordError, match="4 studies lack the measure") as fault:
        document([tmp_path])
    assert "\n" not in str(fault.value)


def test_studies_that_differ_in_something_else_are_refused(crossed: Path, tmp_path: Path) -> None:
    train(tmp_path, "algorithm=erm", "backbone.width=8", "seed=0", "hparams.lr=0.01")
    with pytest.raises(RecordError, match="of one seed have the same levels") as fault:
        document([crossed, tmp_path])
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("name", ["seed", "no_key"])
def test_a_factor_that_is_none_is_refused(crossed: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"report.factors names {name}"):
        document([crossed], factors=[name])


def test_what_is_split_by_is_kept_apart(crossed: Path) -> None:
    report = ComponentsReport(name="components", measures=["average"], compared=["average"])
    sections = report(collect([crossed]), Last(), "backbone").sections
    assert len(sections) == 2
    for section in sections:
        network = int("mlp-16" in section.title)
        frame = section.tables[0].frame.set_index("component")
        assert list(frame.index) == ["algorithm", "seed"]
        means = averages(crossed)[:, network].mean(axis=1)
        levels = section.tables[1].frame.set_index("level")["average"]
        assert levels.tolist() == pytest.approx(means.tolist())
    compared = report.model_copy(update={"factors": ["backbone", "algorithm"]})
    with pytest.raises(ConfigError, match=r"split_by=backbone keeps apart.*leave it out") as fault:
        compared(collect([crossed]), Last(), "backbone")
    assert "\n" not in str(fault.value)


def test_models_that_adapt_are_compared_within(crossed: Path, tmp_path: Path) -> None:
    folders = [str(path) for path in crossed.iterdir() if any(path.glob("fold-*"))]
    dgbench.evaluate(folders, ["adaptation=t3a"], output=tmp_path)
    (section,) = document([crossed, tmp_path]).sections
    names = section.tables[0].frame["component"].tolist()
    assert names == [
        "backbone",
        "algorithm",
        "combinations",
        "seed",
        "adaptation",
        "adaptation x combinations",
    ]
    assert dict(section.facts)["studies"] == "16"
    assert "Adaptation is compared within models" in " ".join(section.tables[0].notes)


def test_a_key_that_follows_from_another_is_a_part_of_it(crossed: Path) -> None:
    (section,) = document([crossed], factors=["backbone", "n_parameters", "algorithm"]).sections
    assert "n_parameters" not in section.tables[0].frame["component"].tolist()
    assert dict(section.facts)["not separable"] == "n_parameters with backbone"
