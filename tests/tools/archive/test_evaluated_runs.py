"""Trained runs that were adapted at test time, in an entry beside themselves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import dgbench
from dgbench.reports.reading.collect import collect
from tests.studies import small_study, train_study
from tests.tools.conftest import Archive, fill_in
from tools.archive.evaluated_runs import evaluation_faults
from tools.archive.listing import write_index
from tools.archive.packed_runs import PackedRun, packed_runs, read_packed
from tools.archive.packing import pack

#: what the code of a test is called, which may be in no commit
DIRTY = "its code"
STREAMS = ["adaptation=t3a", "adaptation.stream_seed=[3,4]"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run, adapted once in the order of its seed and in two orders as repetitions."""
    root = tmp_path_factory.mktemp("adapted")
    study = small_study(
        root / "runs",
        "protocol.folds=[0]",
        "execution=single",
        "trainer.steps=4",
        "trainer.eval_every=4",
    )
    assert train_study(study) == {study.runs[0].hash: True}
    run = study.runs[0].folder
    dgbench.evaluate(run, ["adaptation=t3a"], output=root / "once")
    dgbench.evaluate(run, STREAMS, seed_moves="stream", output=root / "repeated")
    return root


@pytest.fixture(scope="module")
def adapted(folders: Path) -> Archive:
    """An archive with them, which tests only read."""
    made = Archive(folders / "results")
    pack("tiny", [folders / "runs", folders / "once", folders / "repeated"], made.results)
    fill_in(made.entry)
    write_index(made.results)
    return made


def faults_of(archive: Archive) -> list[str]:
    """What is wrong, besides that the code of the tests is in no commit."""
    return [fault for fault in archive.faults("") if DIRTY not in fault]


def evaluated(lines: list[PackedRun]) -> PackedRun:
    """The first line of an evaluation."""
    return next(line for line in lines if "evaluated" in line)


def repeated(lines: list[PackedRun]) -> PackedRun:
    """The first line of an evaluation that repeats the order of the stream."""
    return next(line for line in lines if line["run"]["identity"]["seed_moves"] == "stream")


def test_they_hold_and_say_how_they_were_made(adapted: Archive, folders: Path) -> None:
    assert faults_of(adapted) == []
    lines = read_packed(adapted.entry / "rows.jsonl.xz")
    assert sorted("spec" in line for line in lines) == [False, False, False, True]
    recorded = yaml.safe_load((adapted.entry / "entry.yaml").read_text())["recorded"]
    (study,) = (folders / "runs").glob("*-s0-*")
    model = f"dgbench evaluate 'model=[.../{study.name}]' adaptation=t3a adaptation.batch_size=32"
    keys = "adaptation.episodic=false adaptation.keep=100"
    orders = [f"{keys} adaptation.stream_seed={seed} seed_moves=stream" for seed in (3, 4)]
    commands = [line for line in recorded["commands"] if line.startswith("dgbench evaluate")]
    assert commands == [f"{model} {text}" for text in (keys, *orders)]


def test_tables_say_that_they_adapt(adapted: Archive) -> None:
    text = (adapted.results / "LEADERBOARD.md").read_text()
    assert "erm (adaptation=t3a)" in text and text.count("ADAPTED AT TEST TIME") == 2


#: what is changed, how, and what is found
CHANGED: list[tuple[str, Callable[[list[PackedRun]], object], str]] = [
    (
        "the trained run is not there",
        lambda lines: lines.remove(next(line for line in lines if "spec" in line)),
        "adapted, which the entry lacks; pack that run beside it",
    ),
    (
        "a key of the adaptation",
        lambda lines: evaluated(lines)["evaluated"]["adaptation"].update(keep=50),
        "its adaptation hashes to",
    ),
    (
        "a key of the rows",
        lambda lines: evaluated(lines)["run"]["identity"]["hparams"].update(lr=0.5),
        "differ in hparams",
    ),
    (
        "a key of the adaptation in the rows",
        lambda lines: evaluated(lines)["run"]["identity"]["hparams"].update(
            {"adaptation.keep": 50}
        ),
        "differ in hparams",
    ),
    (
        "the network of the rows",
        lambda lines: evaluated(lines)["run"]["identity"].update(tuning="lp"),
        "differ in tuning",
    ),
    (
        "the name of the method",
        lambda lines: evaluated(lines)["run"]["identity"].update(adaptation="bn"),
        "differ in adaptation",
    ),
    (
        "the seed of a repetition",
        lambda lines: repeated(lines)["run"]["identity"].update(seed=9),
        "differ in seed",
    ),
    (
        "the evaluated step",
        lambda lines: evaluated(lines)["rows"].update(
            step=[3] * len(evaluated(lines)["rows"]["step"])
        ),
        "its rows are not of step 4",
    ),
    (
        "a mean of several runs",
        lambda lines: evaluated(lines)["evaluated"].update(averaged=["a", "b"]),
        "nothing says how it was made",
    ),
    (
        "no model",
        lambda lines: evaluated(lines)["evaluated"].update(content=None),
        "nothing says how it was made",
    ),
]


@pytest.mark.parametrize(
    ("change", "what"), [case[1:] for case in CHANGED], ids=[case[0] for case in CHANGED]
)
def test_what_does_not_agree_is_found(
    adapted: Archive, change: Callable[[list[PackedRun]], object], what: str
) -> None:
    lines = read_packed(adapted.entry / "rows.jsonl.xz")
    change(lines)
    found: list[str] = []
    trained = {line["run"]["identity"]["run"]: line for line in lines if "spec" in line}
    for line in lines:
        if "evaluated" in line:
            found += evaluation_faults(line, trained)
    assert [fault for fault in found if what in fault], found


def test_other_evaluations_are_refused(folders: Path, tmp_path: Path) -> None:
    """A model that does not adapt has the rows of its run; a mean of runs has no one run."""
    copy = shutil.copytree(folders / "once", tmp_path / "once")
    (document,) = copy.glob("*/*/identity.json")
    document.write_text(document.read_text().replace('"adaptation": {', '"adapted": {'))
    lines = packed_runs(collect([folders / "runs", copy]))
    (fault,) = evaluation_faults(evaluated(lines), {})
    assert "nothing says how it was made" in fault
