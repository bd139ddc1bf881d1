"""An entry from run folders."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.errors import DgbenchError, RecordError
from tests.conftest import TINY
from tests.tools.conftest import fill_in, spec_of, write_run, write_study
from tools.archive.checking import check_entry
from tools.archive.packed_runs import read_packed, write_packed
from tools.archive.packing import pack


def test_only_what_a_human_must_say_is_left_blank(study: Path, tmp_path: Path) -> None:
    folder, left_out = pack("mine", [study], tmp_path / "results")
    assert left_out == []
    blanks = {why.partition(" ")[0].partition(".")[0].strip(":") for why in check_entry(folder)}
    assert blanks == {"title", "who", "license", "obtained", "notes", "README"}
    fill_in(folder)
    assert check_entry(folder) == []


def test_runs_of_a_folder_of_images(command: Any, image_tree: Any, tmp_path: Path) -> None:
    """Their rows say how many images there were, and a hash of them; the specification hashes the
    dataset.
    """
    words = (
        "dataset=image_folder",
        f"dataset.root={image_tree(a={'cat': 9, 'dog': 9}, b={'cat': 9, 'dog': 9})}",
    )
    small = (
        "dataset.image_size=8",
        "backbone=mlp",
        "init=random",
        "hparams.batch_size=2",
        "protocol.folds=[0]",
    )
    assert command("train.py", *TINY[1:], *words, *small, cwd=tmp_path).code == 0
    folder, _ = pack("mine", [tmp_path / "outputs"], tmp_path / "results")
    fill_in(folder)
    assert [fault for fault in check_entry(folder) if "differ in" in fault] == []
    lines = read_packed(folder / "rows.jsonl.xz")
    lines[0]["run"]["identity"]["variant"]["image_size"] = 16
    write_packed(lines, folder / "rows.jsonl.xz")
    assert [fault for fault in check_entry(folder) if "differ in variant" in fault]


def test_what_runs_say_is_recorded(study: Path, tmp_path: Path) -> None:
    folder, _ = pack("mine", [study], tmp_path / "results")
    assert yaml.safe_load((folder / "entry.yaml").read_text())["recorded"] == {
        "commands": ["python train.py dataset.root=.../PACS"],
        "datasets": ["sr_cmnist (digits), files feed"],
        "runs": 20,
        "failed": [],
    }
    (line, *_) = read_packed(folder / "rows.jsonl.xz")
    assert line["sessions"][0]["packages"] == {"torch": "2.15.0", "timm": None}
    assert (line["sessions"][0]["cpu"], line["sessions"][0]["cores"]) == ("a CPU", 2)


def test_no_host_user_or_folder_of_a_machine_is_packed(study: Path, tmp_path: Path) -> None:
    folder, _ = pack("mine", [study], tmp_path / "results")
    text = lzma.decompress((folder / "rows.jsonl.xz").read_bytes()).decode()
    assert not [
        word for word in ("secret-host", "ann", "cluster7", str(tmp_path), "77,") if word in text
    ]
    assert '"folder":"sr_cmnist-erm-s0/fold-0-' in text


def test_two_sweeps_make_one_entry(tmp_path: Path) -> None:
    roots = [write_study(tmp_path / name, (name,)) for name in ("erm", "vrex")]
    folder, _ = pack("both", roots, tmp_path / "results")
    lines = read_packed(folder / "rows.jsonl.xz")
    assert {line["run"]["identity"]["algorithm"] for line in lines} == {"erm", "vrex"}


def test_the_numbers_are_those_of_the_measures(study: Path, tmp_path: Path) -> None:
    """ERM, seed 0: 1,000 images, 100 wrong where the color agrees with the label, 700 where it does
    not.
    """
    import pandas as pd

    folder, _ = pack("mine", [study], tmp_path / "results")
    table = pd.read_csv(folder / "measures.csv").set_index(["algorithm", "seed"])
    own = table.loc[("erm", 0)]
    errors = [0.58, 0.64, 0.595, 0.16]  # 0.1 + 0.6 e
    assert own["average"] == pytest.approx(sum(errors) / 4, abs=1e-6)
    assert (own["worst"], own["gap"], own["worst_gap"]) == pytest.approx(
        (0.64, 0.48, 0.64 + 0.48 / 2), abs=1e-6
    )
    assert (own["ideal"], own["ideal_env"], own["code"]) == (0.7, 1.0, "0.1.0+abcdef0")
    board = pd.read_csv(folder / "leaderboard.csv").set_index("algorithm")
    assert set(board.index) == {"vrex", "erm"}
    assert board.loc["erm", "ideal"] == 0.7015 and board.loc["erm", "ideal_n"] == 2
    assert board.loc["erm", "ideal_std"] == pytest.approx(0.003 / 2**0.5, abs=1e-6)


def test_unfinished_runs_are_named_and_diverged_ones_kept(tmp_path: Path) -> None:
    root = tmp_path / "multirun"
    kept, failed, running = (write_run(root, spec_of("erm", 0, fold)) for fold in ("0", "1", "2"))
    (failed / "status").write_text("FAILED loss became nan at step 20\n")
    (running / "status").write_text("RUNNING\n")
    folder, left_out = pack("mine", [root], tmp_path / "results")
    statuses = [line["run"]["status"] for line in read_packed(folder / "rows.jsonl.xz")]
    assert sorted(statuses) == ["DONE", "FAILED"]
    assert any(str(running) in why for why in left_out)
    written = yaml.safe_load((folder / "entry.yaml").read_text())
    (missing,) = written["missing"]
    assert missing.startswith("sr_cmnist, digits, exact (code 0.1.0+abcdef0): erm seed 0: folds 1")
    (told,) = written["recorded"]["failed"]
    assert told.startswith("erm seed 0 fold 1: ") and "loss became nan" in told
    assert kept.is_dir()


def test_two_records_that_disagree_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, spec_of("erm", 0, "0"))
    rows = next((tmp_path / "b").rglob("errors.jsonl"))
    lines = [json.loads(text) for text in rows.read_text().splitlines()]
    lines[0]["wrong"] += 1
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RecordError, match=r"errors differ.*step 20"):
        pack("mine", [tmp_path / "a", tmp_path / "b"], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_runs_of_two_code_versions_get_tables_of_their_own(tmp_path: Path) -> None:
    roots = [
        write_study(tmp_path / "a", ("erm",)),
        write_study(tmp_path / "b", ("vrex",), code="0.1.0+1234567"),
    ]
    folder, _ = pack("both", roots, tmp_path / "results")
    fill_in(folder)
    assert check_entry(folder) == []
    text = (folder / "leaderboard.csv").read_text()
    assert ",0.1.0+abcdef0," in text and ",0.1.0+1234567," in text


def test_data_drawn_for_every_seed_share_a_table(tmp_path: Path) -> None:
    """The packed identity keeps the number, or the specification would contradict it."""
    folder, _ = pack(
        "mine", [write_study(tmp_path / "runs", data_by_seed=True)], tmp_path / "results"
    )
    fill_in(folder)
    assert check_entry(folder) == []
    assert {
        line["run"]["identity"]["data_seed"] for line in read_packed(folder / "rows.jsonl.xz")
    } == {
        0,
        1,
    }
    lines = (folder / "leaderboard.csv").read_text().splitlines()
    assert len(lines) == 3 and all(",exact,by seed,0," in line for line in lines[1:])


@pytest.mark.parametrize(
    ("name", "selection", "why"),
    [
        ("../mine", "last", r"\.\./mine is no name"),
        ("mine", "oracle", "selection=oracle .* last, train_val, loo_val"),
        ("taken", "last", "replaces: taken"),
    ],
)
def test_what_is_refused(study: Path, tmp_path: Path, name: str, selection: str, why: str) -> None:
    (tmp_path / "results" / "taken").mkdir(parents=True)
    with pytest.raises(RecordError, match=why):
        pack(name, [study], tmp_path / "results", selection)


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(DgbenchError, match="no runs under"):
        pack("mine", [tmp_path / "absent"], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_train_val_selects_by_validation(study: Path, tmp_path: Path) -> Any:
    folder, _ = pack("mine", [study], tmp_path / "results", "train_val")
    fill_in(folder)
    assert check_entry(folder) == []
    assert ",train_val," in (folder / "measures.csv").read_text()
