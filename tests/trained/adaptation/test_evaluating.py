"""``dgbench evaluate adaptation=...``: streams, rows, what never changes, and interruptions."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dgbench
from dgbench.analysis.selection import CHOSEN, TrainVal
from dgbench.cli.main import main
from dgbench.data.minibatches import EvalSetLoader
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.trained.adaptation import Adaptation, Adapter
from dgbench.trained.adaptation import stream as streams
from dgbench.trained.adaptation.stream import Stream, StreamLoader
from dgbench.trained.adaptation.tent import Tent
from dgbench.trained.matched import Matched
from tests.conftest import ROOT, Command
from tests.trained.conftest import Trained

Evaluated = Callable[..., list[dict[str, Any]]]


def small_network() -> nn.Module:
    """BatchNorm with running statistics of its own, on three channels."""
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=4),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 2),
    )
    body.train()
    for _ in range(10):
        body(0.5 + torch.randn(16, 3, 32, 32))
    return body.eval()


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return small_network()


@pytest.fixture
def words(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [
        "dataset=pacs",
        f"dataset.root={pictures}",
        "dataset.image_size=32",
        "dataset.published=null",
        f"dataset.cache_dir={tmp_path_factory.getbasetemp() / 'adapted_cache'}",
        "trainer.device=cpu",
        "protocol.folds=[0]",
    ]


@pytest.fixture
def evaluated(network: nn.Module, words: list[str], tmp_path: Path) -> Evaluated:
    """``evaluated("adaptation=bn")``: rows of the small network in the first fold."""

    def rows(*more: str, **options: Any) -> list[dict[str, Any]]:
        options.setdefault("output", tmp_path / "rows")
        found = dgbench.evaluate(network, [*words, *more], name="net", **options)
        (folder,) = found.folders
        return read_rows(folder / ROW_FILE)[0]

    return rows


def losses(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {(row["env"], row["subset"]): row["loss"] for row in rows}


# ---- streams -------------------------------------------------------------------------------------


def test_order_and_batches() -> None:
    stream = Stream(batch_size=4, seed=1)
    order = stream.order("test/a", 9)
    assert sorted(order.tolist()) == list(range(9)) != order.tolist()
    assert torch.equal(order, Stream(2, seed=1).order("test/a", 9)), "batches change no order"
    assert not torch.equal(order, stream.order("val/a", 9))
    assert not torch.equal(order, Stream(4, seed=2).order("test/a", 9))
    cut = {n: [(p.start, p.stop) for p in stream.parts(n)] for n in (1, 3, 4, 5, 8, 9, 10)}
    assert cut == {
        1: [(0, 1)],
        3: [(0, 3)],
        4: [(0, 4)],
        5: [(0, 5)],
        8: [(0, 4), (4, 8)],
        9: [(0, 4), (4, 9)],
        10: [(0, 4), (4, 8), (8, 10)],
    }


class Noting(Adaptation):
    """Leaves a model as it is, and notes what it is shown."""

    def start(self, network: Matched) -> Adapter:
        seen: list[Tensor] = []
        NOTES.append(seen)

        def adapt(x: Tensor) -> Tensor:
            seen.append(x)
            return network(x)

        return adapt


NOTES: list[list[Tensor]] = []


def noted(evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch, *more: str) -> list[list[Tensor]]:
    """The batches of each stream that begins."""
    NOTES.clear()
    monkeypatch.setattr(Tent, "start", Noting.start)
    evaluated("adaptation=tent", *more)
    return list(NOTES)


def test_every_environment_is_a_stream_that_begins_anew(
    evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """17 images an environment: 3 to validate on, 14 to test or train on."""
    found = noted(evaluated, monkeypatch, "adaptation.batch_size=4")
    assert [[len(x) for x in stream] for stream in found] == [[3]] * 4 + [[4, 4, 4, 2]]
    forgetting = noted(
        evaluated, monkeypatch, "adaptation.batch_size=4", "adaptation.episodic=true"
    )
    assert [[len(x) for x in stream] for stream in forgetting] == [[3]] * 4 + [[4], [4], [4], [2]]


def test_a_seed_orders_the_stream(evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*more: str) -> list[Tensor]:
        return [torch.cat(stream) for stream in noted(evaluated, monkeypatch, *more)]

    first = shown()
    for own, again in zip(first, shown("adaptation.stream_seed=0"), strict=True):
        assert torch.equal(own, again), "of a model without a seed the order is that of seed 0"
    for own, other in zip(first, shown("adaptation.stream_seed=1"), strict=True):
        assert not torch.equal(own, other)
        by_sum = [x.sum((1, 2, 3)).sort().values for x in (own, other)]
        torch.testing.assert_close(*by_sum), "the same images"


def test_state_does_not_reach_the_next_environment(evaluated: Evaluated, tmp_path: Path) -> None:
    """Without the environment that comes first, the others have the same rows."""
    keys = ("adaptation=tent", "adaptation.lr=0.1", "adaptation.batch_size=2")
    among_four = losses(evaluated(*keys))
    fewer = "dataset.environments=[cartoon,photo,sketch]"
    among_three = losses(evaluated(*keys, fewer, output=tmp_path / "three"))
    shared = {place for place in among_three if place in among_four}
    assert shared == {(env, "val") for env in ("cartoon", "photo", "sketch")}
    for place in shared:
        assert among_three[place] == among_four[place]


def test_episodic_tent_of_one_step_is_batch_statistics(evaluated: Evaluated) -> None:
    keys = ("adaptation.batch_size=4", "adaptation.lr=0.1", "adaptation.episodic=true")
    forgotten = losses(evaluated("adaptation=tent", *keys))
    assert forgotten == losses(evaluated("adaptation=bn", "adaptation.batch_size=4"))
    learned = losses(evaluated("adaptation=tent", *keys[:2]))
    assert learned != forgotten
    assert learned["art_painting", "val"] == forgotten["art_painting", "val"], "one batch"


# ---- equal to no adaptation ----------------------------------------------------------------------


def test_an_endless_prior_has_the_counts_of_no_adaptation(evaluated: Evaluated) -> None:
    plain = evaluated()
    same = evaluated("adaptation=bn", "adaptation.prior=inf")
    for before, after in zip(plain, same, strict=True):
        assert after["loss"] == pytest.approx(before["loss"], rel=1e-6)
        for key in ("env", "subset", "env_held_out", "seen", "wrong", "majority_wrong"):
            assert after[key] == before[key]
    assert losses(evaluated("adaptation=bn")) != losses(plain)


def test_no_adaptation_is_in_no_row_and_no_name(
    network: nn.Module, words: list[str], tmp_path: Path
) -> None:
    plain = dgbench.evaluate(network, words, name="net", output=tmp_path / "a").folders[0]
    chosen = [*words, "adaptation=none"]
    none = dgbench.evaluate(network, chosen, name="net", output=tmp_path / "b").folders[0]
    assert plain.relative_to(tmp_path / "a") == none.relative_to(tmp_path / "b")
    content = (plain / ROW_FILE).read_bytes()
    assert content == (none / ROW_FILE).read_bytes()
    assert b"adapt" not in content


# ---- what rows say -------------------------------------------------------------------------------


def test_rows_say_how_a_model_adapts(evaluated: Evaluated) -> None:
    plain, *_ = evaluated()
    adapted, *_ = evaluated("adaptation=bn", "adaptation.prior=16", "adaptation.batch_size=5")
    assert (plain["adaptation"], plain["grouped"]) == ("none", False)
    assert (adapted["adaptation"], adapted["grouped"]) == ("bn", True)
    shown = {"batch_size": 5, "episodic": False, "prior": 16}
    assert adapted["hparams"] == {f"adaptation.{key}": value for key, value in shown.items()}
    same = ("dataset", "content", "protocol", "fold", "held_out", "algorithm", "seed", "step")
    assert {key: plain[key] for key in same} == {key: adapted[key] for key in same}
    runs = {plain["run"]}
    for word in ("stream_seed=0", "stream_seed=1", "prior=1", "batch_size=6", "episodic=true"):
        row, *_ = evaluated("adaptation=bn", f"adaptation.{word}")
        runs.add(row["run"])
    assert len(runs) == 6, "each is a result of its own"


def test_a_run_on_its_own_dataset(pictures_run: Path, pictures: Path, tmp_path: Path) -> None:
    own = read_rows(pictures_run / ROW_FILE)[0]
    keys = ["adaptation=tent", "adaptation.batch_size=4"]
    found = dgbench.evaluate(pictures_run, keys, predictions=True, output=tmp_path)
    (folder,) = found.folders
    rows = read_rows(folder / ROW_FILE)[0]
    assert {row["adaptation"] for row in rows} == {"tent"}
    last = [row for row in own if row["step"] == 2]
    for key in ("env", "subset", "seen", "env_held_out", "algorithm", "fold", "held_out", "step"):
        assert [row[key] for row in rows] == [row[key] for row in last]
    assert rows[0]["run"] != own[0]["run"]
    assert (folder / PREDICTION_FILE).exists() and not (pictures_run / PREDICTION_FILE).exists()
    about = json.loads((folder / "identity.json").read_text())["evaluated"]["adaptation"]
    assert (about["name"], about["lr"], about["stream_seed"]) == ("tent", 0.001, 0)


@pytest.mark.thorough
def test_exact_errors_become_sampled(trained: Trained, tmp_path: Path) -> None:
    run = trained("algorithm=erm")
    found = dgbench.evaluate(run, ["adaptation=t3a"], output=tmp_path)
    rows = read_rows(found.folders[0] / ROW_FILE)[0]
    assert {(row["evaluation"], row["grouped"]) for row in rows} == {("exact", True)}
    assert all(float(row["wrong"]).is_integer() for row in rows), "counted, not expected"
    studies = dgbench.measures(dgbench.results([tmp_path]))
    assert studies["label"].tolist() == ["erm (adaptation=t3a)"]


@pytest.mark.thorough
def test_a_run_that_was_trained_on_cached_features_adapts_on_images(
    trained: Trained, tmp_path: Path
) -> None:
    frozen = ("algorithm=erm", "tuning=lp")
    rows = []
    for place, cached in (("images", "false"), ("features", "true")):
        run = trained(*frozen, f"tuning.cache_features={cached}")
        found = dgbench.evaluate(run, ["adaptation=t3a"], output=tmp_path / place)
        rows.append(read_rows(found.folders[0] / ROW_FILE)[0])
    for from_images, from_features in zip(*rows, strict=True):
        assert from_features["adaptation"] == "t3a"
        for key in ("env", "subset", "seen", "wrong"):
            assert from_features[key] == from_images[key]


# ---- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["bn", "tent", "t3a", "sar"])
def test_labels_reach_no_method(
    evaluated: Evaluated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """With other labels everywhere, a model predicts the same for every image."""
    keys = (f"adaptation={method}", "adaptation.batch_size=4")

    def predicted(place: str) -> tuple[list[np.ndarray], list[float]]:
        logits: list[np.ndarray] = []
        call = streams.AdaptingModel.__call__

        def watched(model: Any, x: Tensor, name: str, index: int) -> Tensor:
            found = call(model, x, name, index)
            logits.append(found.numpy())
            return found

        monkeypatch.setattr(streams.AdaptingModel, "__call__", watched)
        rows = evaluated(*keys, output=tmp_path / place)
        monkeypatch.setattr(streams.AdaptingModel, "__call__", call)
        return logits, [row["wrong"] for row in rows]

    before, wrong = predicted("labels")
    batches = StreamLoader.__iter__

    def with_other_labels(loader: StreamLoader) -> Any:
        for batch in batches(loader):
            batch.y = 1 - batch.y
            yield batch

    monkeypatch.setattr(StreamLoader, "__iter__", with_other_labels)
    after, other_wrong = predicted("other_labels")
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one, other)
    assert wrong != other_wrong


@pytest.mark.thorough
def test_choices_do_not_depend_on_the_labels_of_tested_environments(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fold, five adaptations: other labels there, the same choices by validation."""
    keys = ["adaptation.batch_size=4"]
    methods = ["none", "bn", "t3a", "tent", "sar"]
    batches = EvalSetLoader.__iter__, StreamLoader.__iter__

    def choices(place: str, seed: int | None) -> tuple[list[str], list[float]]:
        """Runs that count, and their errors in tested environments."""
        rng = np.random.default_rng(seed)

        def replaced(number: int) -> Any:
            def iterate(loader: Any) -> Any:
                for batch in batches[number](loader):
                    if seed is not None and loader.name.startswith("train/"):
                        batch.y = torch.from_numpy(rng.integers(0, 2, len(batch.y)))
                    yield batch

            return iterate

        monkeypatch.setattr(EvalSetLoader, "__iter__", replaced(0))
        monkeypatch.setattr(StreamLoader, "__iter__", replaced(1))
        folds = [word for word in words if not word.startswith("protocol")]
        for method in methods:
            chosen = [f"adaptation={method}", *(keys if method != "none" else [])]
            dgbench.evaluate(small_network(), [*folds, *chosen], name="n", output=tmp_path / place)
        frame = dgbench.results([tmp_path / place], TrainVal(adaptation=CHOSEN))
        tested = frame[(frame["subset"] == "test") & frame["env_held_out"]]
        return sorted(tested["run"].unique()), (tested["wrong"] / tested["seen"]).tolist()

    runs, errors = choices("true", None)
    assert len(runs) == 4
    for seed in (1, 2):
        other_runs, other_errors = choices(f"other{seed}", seed)
        assert other_runs == runs
        assert other_errors != errors


# ---- repetitions ---------------------------------------------------------------------------------


def test_streams_as_repetitions(network: nn.Module, words: list[str], tmp_path: Path) -> None:
    keys = ["adaptation=tent", "adaptation.batch_size=4", "adaptation.stream_seed=[0,1,2]"]
    found = dgbench.evaluate(
        network, [*words, *keys], name="n", seed_moves="stream", output=tmp_path
    )
    rows = [read_rows(folder / ROW_FILE)[0] for folder in found.folders]
    assert [of_seed[0]["seed"] for of_seed in rows] == [0, 1, 2]
    assert {row["seed_moves"] for of_seed in rows for row in of_seed} == {"stream"}
    assert not any("adaptation.stream_seed" in of_seed[0]["hparams"] for of_seed in rows)
    assert len({folder.parent for folder in found.folders}) == 3, "a study for each seed"
    assert len({str(losses(of_seed)) for of_seed in rows}) == 3
    studies = dgbench.measures(dgbench.results([tmp_path]))
    assert sorted(studies["seed"]) == [0, 1, 2]
    assert set(studies["label"]) == {"n (adaptation=tent)"}


# ---- a method of the user's own ------------------------------------------------------------------

SHARPER = """
from dgbench.trained.adaptation import Adaptation


class Sharper(Adaptation):
    factor: float

    def start(self, network):
        return lambda x: self.factor * network(x)
"""
SHARPER_KEYS = """
_target_: sharper.Sharper
name: sharper
batch_size: 4
episodic: false
stream_seed: null
factor: 2
"""
NETWORK = """
from tests.trained.adaptation.test_evaluating import small_network

network = small_network()
"""


def test_a_method_from_the_users_own_folder(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "argv", ["dgbench"])
    Path("my_configs/adaptation").mkdir(parents=True)
    Path("my_configs/adaptation/sharper.yaml").write_text(SHARPER_KEYS)
    Path("sharper.py").write_text(SHARPER)
    Path("own_network.py").write_text(NETWORK)
    typed = ["model=own_network:network", "name=n", *words]
    main(["evaluate", "--config-dir", "my_configs", *typed, "adaptation=sharper"])
    assert "adaptation=sharper, batch_size=4, episodic=False, factor=2" in capsys.readouterr().out
    main(["evaluate", *typed])
    rows = [read_rows(file)[0] for file in sorted(Path("outputs").glob("*/*/errors.jsonl"))]
    sharper, plain = sorted(rows, key=lambda rows: rows[0]["adaptation"] == "none")
    assert sharper[0]["adaptation"] == "sharper"
    assert list(sharper[0]["user_code"]) == ["sharper.Sharper"]
    assert [row["wrong"] for row in sharper] == [row["wrong"] for row in plain]
    assert [row["loss"] for row in sharper] != [row["loss"] for row in plain]


# ---- interruptions -------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 6, 10])
def test_interrupted_in_mid_stream(
    network: nn.Module,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
) -> None:
    """The same command gives the same rows, byte for byte."""
    keys = [*words, "adaptation=tent", "adaptation.lr=0.1", "adaptation.batch_size=2"]
    whole = dgbench.evaluate(network, keys, name="net", output=tmp_path / "whole").folders[0]
    calls = 0
    call = streams.AdaptingModel.__call__

    def interrupted(model: Any, x: Tensor, name: str, index: int) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > batch:
            raise KeyboardInterrupt
        return call(model, x, name, index)

    monkeypatch.setattr(streams.AdaptingModel, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dgbench.evaluate(network, keys, name="net", output=tmp_path / "again")
    assert not list((tmp_path / "again").rglob(ROW_FILE))
    monkeypatch.setattr(streams.AdaptingModel, "__call__", call)
    again = dgbench.evaluate(network, keys, name="net", output=tmp_path / "again").folders[0]
    assert (again / ROW_FILE).read_bytes() == (whole / ROW_FILE).read_bytes()


PROGRAM = """
from dgbench.cli.main import main

main()
"""
KILL = """
import os, signal
from dgbench.trained.adaptation.stream import AdaptingModel

call = AdaptingModel.__call__
batches = []


def killed(model, x, name, index):
    batches.append(index)
    if len(batches) > {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(model, x, name, index)


AdaptingModel.__call__ = killed
"""


@pytest.mark.thorough
def test_killed_in_mid_stream(command: Command, pictures_run: Path, tmp_path: Path) -> None:
    """Nothing counts as evaluated, and the same command again writes the same bytes."""
    (tmp_path / "dgbench.py").write_text(PROGRAM)
    words = ["evaluate", f"model={pictures_run}", "predictions=true", "adaptation=tent"]
    words += ["adaptation.batch_size=4", "adaptation.lr=0.1"]

    def written(output: str, code: int, before: str = "") -> dict[str, bytes]:
        typed = [*words, f"output={output}"]
        ended = command(tmp_path / "dgbench.py", *typed, cwd=tmp_path, before=before)
        assert ended.code == code, ended.err
        root = tmp_path / output
        files = [*root.rglob(ROW_FILE), *root.rglob(PREDICTION_FILE)]
        return {str(file.relative_to(root)): file.read_bytes() for file in files}

    whole = written("whole", 0)
    assert len(whole) == 2
    for after in (1, 5):
        assert not written("again", -signal.SIGKILL, KILL.format(after=after))
    assert written("again", 0) == whole
