"""train.py on image files, as a user runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.complaints import one_line
from tests.conftest import rows_in

pytestmark = pytest.mark.slow

CLASSES = {"cat": 7, "dog": 6}


@pytest.fixture
def pacs(command: Any, image_tree: Callable[..., Path]) -> Callable[..., Any]:
    """``pacs(cwd=...)``: four tiny environments under PACS' name, 4 steps, evaluated every 2."""
    root = image_tree(art_painting=CLASSES, cartoon=CLASSES, photo=CLASSES, sketch=CLASSES)

    def run(*words: object, **options: Any) -> Any:
        return command(
            "train.py", "dataset=pacs", f"dataset.root={root}", "dataset.image_size=16",
            "dataset.published=null", "backbone=mlp", "backbone.width=8", "trainer.steps=4",
            "trainer.eval_every=2", "hparams.batch_size=3",
            "trainer.device=cpu", "trainer.checkpoint_seconds=0", *words, **options,
        )  # fmt: skip

    run.root = root  # type: ignore[attr-defined]
    return run


def test_every_environment_has_rows(pacs: Any, command: Any, tmp_path: Path) -> None:
    """4 folds; 13 images an environment, int(13 * 0.2) = 2 of them val, so a held-out one is tested
    on 11.
    """
    ended = pacs(cwd=tmp_path)
    assert ended.code == 0, ended.err
    last = [row for row in rows_in(tmp_path) if row["step"] == 4]
    for fold, env in enumerate(["art_painting", "cartoon", "photo", "sketch"]):
        own = [row for row in last if row["fold"] == str(fold)]
        assert {(r["env"], r["seen"]) for r in own if r["subset"] == "test"} == {(env, 11)}
        assert sorted((r["seen"], r["env_held_out"]) for r in own if r["subset"] == "val") == [
            (2, False)
        ] * 3 + [(2, True)]
    assert last[0]["variant"]["images"] == 52
    assert {row["fold"] for row in last} == {"0", "1", "2", "3"}, (
        "nothing could judge a model of all four"
    )
    assert "ideal: only the given" in ended.out
    for name in ("average", "worst+gap"):
        assert name in ended.out
    report = command("report.py", "runs=[outputs]", "selection=train_val", cwd=tmp_path)
    assert report.code == 0, report.err
    assert "pacs" in report.out


def test_killed_and_started_again(pacs: Any, rows_of: Any, tmp_path: Path) -> None:
    """Killed while it writes its second checkpoint; the same command continues to the same rows."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    before = (
        "import os, signal\n"
        "from dgbench.callbacks.checkpointer import Checkpointer\n"
        "write = Checkpointer.write\n"
        "calls = []\n"
        "def second(self, *arguments):\n"
        "    calls.append(1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if len(calls) == 2 else write(self, *arguments)\n"
        "Checkpointer.write = second"
    )
    words = ("protocol.folds=[2]", "execution=single")
    assert pacs(*words, cwd=whole).code == 0
    assert pacs(*words, cwd=cut, before=before).code == -9
    ended = pacs(*words, cwd=cut)
    assert ended.code == 0, ended.err
    assert len(rows_in(cut)) == 2 * 5
    assert rows_of(cut) == rows_of(whole)


def test_a_stack_gives_the_rows_of_its_runs(pacs: Any, rows_of: Any, tmp_path: Path) -> None:
    """Same images, order and augmentation; what is left is floating-point summation, too small to
    flip an answer.
    """
    folders = {mode: tmp_path / mode for mode in ("single", "stacked")}
    for mode, folder in folders.items():
        folder.mkdir()
        ended = pacs(f"execution={mode}", cwd=folder)
        assert ended.code == 0, ended.err
    single, stacked = (
        {
            (r["fold"], r["step"], r["env"], r["subset"]): (r["wrong"], r["loss"])
            for r in rows_in(folder)
        }
        for folder in folders.values()
    )
    assert single.keys() == stacked.keys()
    for key, (wrong, loss) in single.items():
        assert stacked[key] == (wrong, pytest.approx(loss, rel=1e-4)), key


def test_a_model_of_all_environments_on_request(pacs: Any, tmp_path: Path) -> None:
    """It has val rows only, and nothing is reported missing for it."""
    ended = pacs("protocol.folds=full", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert {(row["env"], row["subset"]) for row in rows_in(tmp_path)} == {
        (env, "val") for env in ("art_painting", "cartoon", "photo", "sketch")
    }
    assert "fold full" not in ended.out


def test_images_decoded_each_time_give_the_same_rows(
    pacs: Any, rows_of: Any, tmp_path: Path
) -> None:
    folders = {store: tmp_path / store for store in ("ram", "file", "none")}
    for store, folder in folders.items():
        folder.mkdir()
        ended = pacs("protocol.folds=[1]", "execution=single", f"dataset.store={store}", cwd=folder)
        assert ended.code == 0, ended.err
    assert rows_of(folders["ram"]) == rows_of(folders["file"]) == rows_of(folders["none"])
    assert not list(folders["none"].rglob("data.uint8"))


def test_what_is_wrong_is_said_in_a_line(pacs: Any, command: Any, tmp_path: Path) -> None:
    missing = command("train.py", "dataset=vlcs", "paths.data_dir=nowhere", cwd=tmp_path)
    assert missing.code == 1
    one_line(
        *missing.complaints,
        r"dataset\.root=nowhere/VLCS .*folder; .*dgbench fetch vlcs --to nowhere$",
    )
    unset = command("train.py", "dataset=image_folder", cwd=tmp_path)
    assert unset.code == 1
    assert len(unset.complaints) == 1
    assert "dataset.root" in unset.complaints[0]
    (pacs.root / "photo" / "cat" / "03.png").write_bytes(b"\x89PNG broken")
    broken = pacs(cwd=tmp_path)
    assert broken.code == 1
    assert len(broken.complaints) == 1
    assert "photo/cat/03.png cannot be decoded" in broken.complaints[0]
    assert not list(tmp_path.rglob("errors.jsonl")), "nothing was trained"
