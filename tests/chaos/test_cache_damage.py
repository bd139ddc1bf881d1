"""Caches are damaged by chance: the same command has the rows of an undisturbed one, and names what
it made again.

Caches of images, clean and corrupted, mapped and loaded; of features; of downloaded weights; of the
rows of a report. Each damage has a seed, and a failure tells it: ``CHAOS_SEED=117 CHAOS_DAMAGES=1``
makes that one again.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench.networks.timm_networks import TimmFeaturizer
from dgbench.reports.reading import row_cache
from dgbench.reports.reading.collect import collect
from tests.damage import CACHES, damage
from tests.studies import make_study, train_study

pytestmark = pytest.mark.chaos

DAMAGES = int(os.environ.get("CHAOS_DAMAGES", "100"))
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
SHORT = (
    "dataset=image_folder", "dataset.image_size=32", "trainer.device=cpu", "hparams.batch_size=4",
    "trainer.steps=2", "trainer.eval_every=1", "protocol.folds=[0]", "init=random",
)  # fmt: skip
SMALL = ("backbone=mnist_cnn",)
FOG = ("corruptions=hendrycks", "dataset.corruptions=[fog]", "dataset.given=1-1-0", *SMALL)
FROZEN = ("backbone=resnet18", "tuning=lp", "tuning.cache_features=true", "dataset.augment=none")
KINDS = {
    "images, mapped": (*SMALL, "dataset.store=file"),
    "images, loaded": (*SMALL, "dataset.store=ram"),
    "corrupted images, mapped": (*FOG, "dataset.store=file"),
    "corrupted images, loaded": (*FOG, "dataset.store=ram"),
    "features": FROZEN,
    "weights": ("backbone=resnet18", "init=file"),
}
NOTES = "complete.jsonl"
Rows = Callable[[Path], dict[str, bytes]]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of arrays and of downloads below a folder, by its path; of rows of reports,
    whether there is one.
    """
    files = [file for name in ("data.uint8", "*.pth") for file in folder.rglob(name)]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture
def words_of(tmp_path: Path, image_tree: Any) -> Callable[[str, Path], list[str]]:
    """Make the words of a study of a kind, with its caches in a folder."""
    classes = {"cat": 30, "dog": 30}
    root = image_tree(a=classes, b=classes, c=classes)
    weights = tmp_path / "source" / "resnet18.pth"
    weights.parent.mkdir()
    torch.manual_seed(0)
    torch.save(TimmFeaturizer((3, 32, 32), arch="resnet18").body.state_dict(), weights)

    def words(kind: str, cache: Path) -> list[str]:
        keys = [*SHORT, f"dataset.root={root}", f"paths.cache_dir={cache}", *KINDS[kind]]
        if kind == "features":
            keys.append(f"tuning.cache_dir={cache}")
        if kind == "weights":
            keys = [word for word in keys if word != "init=random"] + [
                f"init.url={weights.as_uri()}"
            ]
        return keys

    return words


def test_damaged_caches_change_no_row(
    words_of: Any,
    rows_of: Rows,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is changed or cut is named; what is gone is made without a word, as the first time."""
    wholes = {}
    for kind in KINDS:
        folder = tmp_path / "whole" / kind.replace(", ", "-")
        assert all(
            train_study(make_study(folder / "runs", *words_of(kind, folder / "cache"))).values()
        )
        wholes[kind] = folder
    failures, outcomes, done_to = [], Counter[str](), Counter[str]()
    for seed in range(FIRST, FIRST + DAMAGES):
        chance = random.Random(seed)
        kind = chance.choice(sorted(KINDS))
        root, whole = tmp_path / f"seed{seed}", wholes[kind]
        shutil.copytree(whole / "cache", root / "cache")
        ways = {name: CACHES[name] for name in CACHES if next((root / "cache").rglob(name), None)}
        done = [damage(root / "cache", chance, ways) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        done_to.update(
            f"{kind}: {one.split()[0]} {Path(one.split()[-1]).name.split('-')[-1]}" for one in done
        )
        case = f"seed {seed}, {kind}: {done}"
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            complete = train_study(make_study(root / "runs", *words_of(kind, root / "cache")))
        if not all(complete.values()) or rows_of(root / "runs") != rows_of(whole / "runs"):
            failures.append(f"{case}: other rows, or none")
        was_made = contents(root / "cache") == contents(whole / "cache")
        said = "\n".join(record.getMessage() for record in caplog.records)
        is_named = "damaged" in said
        # without its notes a cache is not there: it is made as the first time
        is_gone = all(one.startswith("remove") for one in done) or any(
            "remove" in one and NOTES in one for one in done
        )
        # where corrupted images are kept, clean ones may never be looked at
        is_unused = kind == "corrupted images, mapped" and all("images/" in one for one in done)
        outcomes[
            "named and made again"
            if is_named and was_made
            else "made again"
            if was_made
            else "not used"
        ] += 1
        if not was_made and not is_unused:
            failures.append(f"{case}: the cache stays damaged")
        # bytes behind the end of the notes may say nothing
        in_notes = all(one.endswith(NOTES) for one in done)
        if not (is_named or is_gone or in_notes or is_unused):
            failures.append(f"{case}: silent")
        shutil.rmtree(root)
    with capsys.disabled():
        print(
            f"\n{DAMAGES} damages of caches from seed {FIRST} on: {dict(outcomes)}, "
            f"{len(failures)} failures"
        )
        print(*(f"{count:4} {what}" for what, count in sorted(done_to.items())), sep="\n")
    assert not failures, "\n".join(failures)


def test_damaged_caches_of_rows(
    rows_of: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A report with a damaged cache of rows is the report without one, and the next one reads a
    whole cache.
    """
    monkeypatch.setattr(row_cache, "WORTH_CACHING", 1)
    words = (
        "dataset.base=digits",
        "backbone.width=8",
        "trainer.device=cpu",
        "trainer.steps=4",
        "trainer.eval_every=2",
    )
    for algorithm in ("erm", "vrex"):
        assert all(
            train_study(make_study(tmp_path / "runs", f"algorithm={algorithm}", *words)).values()
        )
    for file in (tmp_path / "runs").rglob("errors.jsonl"):
        os.utime(file, (1e9, 1e9))  # settled
    expected = collect([tmp_path / "runs"])
    outcomes: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + DAMAGES):
        collect([tmp_path / "runs"], cache=True)
        done = damage(
            tmp_path / "runs",
            random.Random(seed),
            {row_cache.CACHE_FILE: CACHES[row_cache.CACHE_FILE]},
        )
        for _ in range(2):
            read = collect([tmp_path / "runs"], cache=True)
            assert read.runs == expected.runs and read.rows.equals(expected.rows), (
                f"seed {seed}: {done}"
            )
        outcomes[done.split()[0]] += 1
    with capsys.disabled():
        print(
            f"\n{DAMAGES} damages of the cache of rows from seed {FIRST} on, none changed a "
            f"report: {dict(outcomes)}"
        )
