"""``report=errors``: numbers worked by hand from small files of predictions, and those of a run
equal to its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgbench.analysis.selection import Last
from dgbench.errors import ConfigError, RecordError
from dgbench.records.predictions import PREDICTION_FILE, schema
from dgbench.reports.document import Document
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import write
from dgbench.reports.slices.errors.images import Counts, EnvImages, auroc, macro_f1
from dgbench.reports.slices.errors.report import ErrorsReport
from tests.studies import make_study, small_study, train_study

CLASSES = ("cat", "dog", "emu")


def images(
    label: Sequence[int], scores: Sequence[Sequence[float]], env: str = "a", **columns: Any
) -> EnvImages:
    probability = np.array(scores, float)
    frame = pd.DataFrame(
        {
            "image": [f"{env}/{i}.png" for i in range(len(label))], "label": label,
            "predicted": probability.argmax(1), "right": probability.argmax(1) == label,
            "confidence": probability.max(1), "weight": 1.0, **columns,
        }
    )  # fmt: skip
    return EnvImages(env, frame, probability)


def counts_of(tested: EnvImages, classes: Sequence[str] = CLASSES) -> Counts:
    counts = Counts(classes)
    counts.add(tested, "0")
    return counts


def test_measures_by_hand() -> None:
    """Four images, two of them right.

    F1: cat 2/3 (1 of 1 predicted, 1 of 2 found), dog 1/2 (1 of 2, 1 of 2), no emu.

    AUROC of the cats: their scores 0.6, 0.3 against 0.5, 0.2 win 3 of 4 pairs; of the dogs 0.4, 0.7
    against 0.3, 0.6 win 3 of 4, too; no image is an emu.
    """
    scores = [[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.5, 0.4, 0.1], [0.2, 0.7, 0.1]]
    four = images([0, 0, 1, 1], scores)
    counts = counts_of(four)
    assert counts.matrix().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    pairs = pd.DataFrame({"label": [0, 0, 1, 2], "predicted": [0, 1, 1, 1], "n": [1, 1, 1, 1]})
    assert macro_f1(pairs) == pytest.approx((2 / 3 + 2 / 4 + 0) / 3)
    guessed = pd.DataFrame({"label": [0, 0, 1], "predicted": [0, 2, 1], "n": [1, 1, 1]})
    assert macro_f1(guessed) == pytest.approx((2 / 3 + 1) / 2), (
        "no label is an emu, so emus are not averaged over"
    )
    assert auroc(four) == pytest.approx(3 / 4)
    (measured,) = counts.measures().to_dict("records")
    assert (measured["images"], measured["accuracy"], measured["macro_f1"]) == (4, 0.5, 0.5)
    # bins ]8/15, 9/15] holds 0.6 (right) and 0.6 (wrong), ]7/15, 8/15] 0.5 (wrong), ]10/15, 11/15]
    # 0.7 (right)
    assert measured["ece"] == pytest.approx((abs(1 - 1.2) + abs(0 - 0.5) + abs(1 - 0.7)) / 4)
    assert measured["excess"] == pytest.approx((0.6 + 0.6 + 0.5 + 0.7) / 4 - 0.5)


def test_weights_are_shares_of_an_image() -> None:
    """An exact error: the image with its own color counts 3/4 and is right, with the other color
    1/4 and is wrong.
    """
    counts = counts_of(images([0, 0], [[0.8, 0.2], [0.4, 0.6]], weight=[0.75, 0.25]), CLASSES[:2])
    (measured,) = counts.measures().to_dict("records")
    assert (measured["images"], measured["accuracy"]) == (1, 0.75)


def test_auroc_needs_all_probabilities_and_two_classes() -> None:
    assert np.isnan(auroc(replace(images([0, 1], [[0.8, 0.2], [0.4, 0.6]]), scores=None)))
    assert np.isnan(auroc(images([0, 0], [[0.8, 0.2], [0.4, 0.6]])))


def test_small_groups_are_named_and_not_called_the_worst() -> None:
    """Nine emus, all wrong, beside twelve cats of which nine are right: eight of ten by day, one of
    two at night.
    """
    cat, emu = [0.9, 0.05, 0.05], [0.05, 0.05, 0.9]
    light = ["day"] * 10 + ["night"] * 2 + ["day"] * 9
    scores = [cat] * 8 + [emu] * 2 + [cat, emu] + [cat] * 9
    counts = counts_of(images([0] * 12 + [2] * 9, scores, **{"attribute.light": light}))
    worst = counts.worst_group()
    assert worst and (worst["name"], worst["accuracy"], worst["n"]) == ("cat in a", 0.75, 12)
    groups = counts.groups().set_index("name")
    assert {name: (line["accuracy"], line["n"]) for name, line in groups.iterrows()} == {
        "emu in a": (0, 9), "emu in a, light day": (0, 9), "cat in a": (0.75, 12),
        "cat in a, light day": (0.8, 10), "cat in a, light night": (0.5, 2),
    }  # fmt: skip


def test_an_attribute_of_many_values_makes_no_groups() -> None:
    number = {"attribute.number": [str(i) for i in range(60)], "attribute.gone": None}
    counts = counts_of(images([0] * 60, [[0.9, 0.1]] * 60, **number), CLASSES[:2])
    assert counts.many == {"number"}
    assert counts.groups()["name"].tolist() == ["cat in a", "cat in a, gone None"]


def write_predictions(
    folder: Path, who: Any, right: Sequence[bool], root: str | None = None, k: int = 3
) -> None:
    """Ten images of the held-out environment, classes in turn; a wrong one is taken for the next
    class.
    """
    (env,) = who.held_out
    classes = [*CLASSES, *(f"class {i}" for i in range(3, k))]
    about = {
        "run": who.run, "dataset": who.dataset, "algorithm": who.algorithm, "seed": who.seed,
        "fold": who.fold, "training": [], "held_out": list(who.held_out), "classes": classes,
        "root": root, "step": 200, "evaluation": "last",
        "recipes": [{"env": env, "subset": "test", "mixture": {f"test/{env}": 1.0}}],
    }  # fmt: skip
    lines = []
    for i, fine in enumerate(right):
        label = i % 3
        predicted = label if fine else (label + 1) % 3
        rest = [c for c in range(min(k, 10)) if c != predicted]
        lines.append(
            {
                "image": f"{env}/{i}.png", "eval_set": f"test/{env}", "env": env, "subset": "test",
                "label": label, "predicted": predicted, "top": [predicted, *rest],
                "probability": [0.5 + 0.04 * i, *[(0.5 - 0.04 * i) / len(rest)] * len(rest)],
            }
        )  # fmt: skip
    kind = schema(about)
    columns = [
        pa.array([line[name] for line in lines]).cast(kind.field(name).type) for name in kind.names
    ]
    pq.write_table(pa.Table.from_arrays(columns, schema=kind), folder / PREDICTION_FILE)


@pytest.fixture
def study(make: SimpleNamespace, tmp_path: Path) -> Path:
    """erm gets images 0..5 right in seed 0 and 0..7 in seed 1, vrex 4..9;
    one held-out environment.
    """
    for algorithm, seed, fine in (
        ("erm", 0, range(6)),
        ("erm", 1, range(8)),
        ("vrex", 0, range(4, 10)),
    ):
        who = make.identity(algorithm, "0", seed)
        write_predictions(make.write_run(tmp_path, who), who, [i in fine for i in range(10)])
    return tmp_path


def document(folder: Path, **options: Any) -> Document:
    return ErrorsReport(**options)(collect([folder]), Last())


def tables(found: Document) -> dict[str, pd.DataFrame]:
    (section,) = found.sections
    return {table.name: table.frame for table in section.tables}


def test_the_tables(study: Path) -> None:
    """Wrong: erm's 6..9 are a cat, a dog, an emu and a cat; in seed 1 the emu and the cat."""
    found = document(study)
    own = tables(found)
    overall = own["errors"].set_index("algorithm")
    assert overall["accuracy"].to_dict() == pytest.approx({"erm": 0.7, "vrex": 0.6})
    assert overall["accuracy.std"]["erm"] == pytest.approx(0.2 / 2**0.5)
    assert overall[["images", "seeds"]].to_numpy().tolist() == [[10, 2], [10, 1]]
    pairs = own["confusions"].set_index(["algorithm", "class", "predicted"])["images"]
    assert pairs["erm"].to_dict() == {("cat", "dog"): 1.5, ("emu", "cat"): 1.0, ("dog", "emu"): 0.5}
    matrix = own["confusion_erm"].set_index("class")
    assert matrix[["as cat", "as dog", "as emu"]].to_numpy().tolist() == [
        [2.5, 1.5, 0],
        [0, 2.5, 0.5],
        [1, 0, 2],
    ]
    assert matrix["as dog.flag"]["cat"] == "38%"
    by_class = own["classes"].query("algorithm == 'vrex'").set_index("class")["in 0.90"]
    assert by_class.to_dict() == pytest.approx({"cat": 2 / 4, "dog": 2 / 3, "emu": 2 / 3})
    (section,) = found.sections
    assert section.answer[0].startswith("erm gets 70.0%") and "2 seeds" in section.answer[0]
    assert "taken for dog (38%" in section.answer[1]
    assert "no images are shown" in dict(section.facts)
    assert {figure.name.split("_")[0] for figure in section.figures} == {"confusion"}


def test_what_only_one_of_two_gets_right(
    study: Path, image_tree: Callable[..., Path], make: SimpleNamespace
) -> None:
    """Every run of erm is right on 0..3, where vrex is wrong; vrex is right on 8 and 9, where both
    seeds of erm err.
    """
    root = image_tree(**{"0.90": {"x": 10}})
    for path in (root / "0.90" / "x").iterdir():
        path.rename(root / "0.90" / f"{int(path.stem)}.png")
    for run in collect([study]).runs:
        who = make.identity(run.identity["algorithm"], "0", run.identity["seed"])
        fine = range(4, 10) if who.algorithm == "vrex" else range(6 + 2 * who.seed)
        write_predictions(Path(run.folder), who, [i in fine for i in range(10)], str(root))
    (root / "0.90" / "9.png").unlink()
    (section,) = document(study).sections
    sheets = {figure.name: figure for figure in section.figures}
    assert "4 test images" in sheets["only_sr_cmnist_digits_exact_erm"].caption
    assert "2 test images" in sheets["only_sr_cmnist_digits_exact_vrex"].caption
    assert "1 of 2 images" in sheets["only_sr_cmnist_digits_exact_vrex"].caption
    assert sheets["mistakes_sr_cmnist_digits_exact_erm"].svg.count("<image") == 3, (
        "6 to 9, of which one is gone"
    )
    assert not [name for name, _ in section.facts if name == "no images are shown"]


def test_many_classes(make: SimpleNamespace, tmp_path: Path) -> None:
    """The 10 most probable of 40 classes: no AUROC, and no matrix that nobody can read."""
    who = make.identity("erm", "0")
    write_predictions(make.write_run(tmp_path, who), who, [True] * 5 + [False] * 5, k=40)
    (section,) = document(tmp_path).sections
    found = {table.name: table for table in section.tables}
    assert "confusion_erm" not in found
    (why,) = found["errors"].frame["auroc.reason"]
    assert "AUROC" in why and why in " ".join(found["errors"].notes)


def test_runs_without_predictions_are_named(study: Path, make: SimpleNamespace) -> None:
    make.write_run(study, make.identity("irm", "0"))
    make.write_run(study, make.identity("irm", "full"))  # nothing is held out, nothing is missed
    broken = make.write_run(study, make.identity("mmd", "0"))
    (broken / PREDICTION_FILE).write_bytes(b"PAR1, cut short")
    problems = document(study).problems.frame.set_index("problem")
    assert "trainer.predictions=last" in problems["reason"]["no predictions"]
    assert PREDICTION_FILE in problems["reason"]["unreadable predictions"]


def test_nothing_to_show_is_one_line(make: SimpleNamespace, tmp_path: Path) -> None:
    make.write_run(tmp_path, make.identity("erm", "0"))
    with pytest.raises(RecordError, match=r"predictions\.parquet.*trainer\.predictions"):
        document(tmp_path)


def test_algorithms_to_compare_must_be_there(study: Path) -> None:
    assert document(study, compare=["vrex", "erm"]).sections
    with pytest.raises(ConfigError, match=r"report\.compare=erm is not two"):
        document(study, compare="erm")
    with pytest.raises(ConfigError, match=r"report\.compare=\[erm,irm\] .*two of erm, vrex"):
        document(study, compare=["erm", "irm"])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["exact", "images"])
def test_accuracy_is_that_of_the_rows(
    kind: str, image_tree: Callable[..., Path], tmp_path: Path
) -> None:
    """To the last image, of every held-out environment; painted digits by the expected number."""
    steps = ("trainer.steps=6", "trainer.eval_every=6", "trainer.predictions=last")
    if kind == "exact":
        trained = small_study(tmp_path, *steps)
    else:
        root = image_tree(**{env: {"cat": 14, "dog": 11} for env in "abc"})
        trained = make_study(
            tmp_path, "dataset=image_folder", f"dataset.root={root}", "dataset.image_size=16",
            "backbone=mnist_cnn", f"paths.cache_dir={tmp_path / 'cache'}", "trainer.device=cpu",
            "hparams.batch_size=4", *steps,
        )  # fmt: skip
    train_study(trained)
    found = document(trained.folder)
    collection = collect([trained.folder])
    rows = collection.rows[(collection.rows["subset"] == "test") & collection.rows["env_held_out"]]
    held_out = [run.identity["held_out"] for run in collection.runs]
    rows = rows[[row.env in held_out[row.run] for row in rows.itertuples()]]
    errors = {str(row.env): (row.seen, row.wrong) for row in rows.itertuples()}
    lines = tables(found)["environments"].set_index("env")
    assert set(lines.index) == set(errors) == set(trained.info.given)
    for env, (seen, wrong) in errors.items():
        assert lines["images"][env] == pytest.approx(seen, abs=1e-9)
        assert (1 - lines["accuracy"][env]) * seen == pytest.approx(wrong, abs=1e-9)
    paths = write(found, tmp_path / "report")
    page = next(path for path in paths if path.suffix == ".html").read_text()
    assert ("<image" in page) == (kind == "images") or kind == "exact"


@pytest.mark.thorough
def test_the_commands(train: Any, command: Any, tmp_path: Path) -> None:
    """As a user types them."""
    ended = train(
        "grid.algorithm=[erm,vrex]", "trainer.predictions=best", "protocol.folds=[3]", cwd=tmp_path
    )
    assert ended.code == 0, ended.err
    assert len(list(tmp_path.glob("outputs/*/*/predictions.parquet"))) == 2
    ended = command("report.py", "report=errors", "report.compare=[vrex,erm]", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "held-out test images" in ended.out and "lowest val error" in ended.out
    assert (tmp_path / "reports" / "errors" / "report.html").is_file()


def test_what_takes_long_is_counted(
    study: Path, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = len(collect([study]).runs)
    capsys.readouterr()
    document(study)
    said = capsys.readouterr().err
    assert f"looking for predictions: {runs} of {runs} runs" in said
    assert f"reading predictions: {runs} of {runs} runs" in said
