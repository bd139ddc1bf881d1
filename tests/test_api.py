"""``import dgbench``: what is public, light, and trained from Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

import dgbench
from dgbench.configuration import CONF
from dgbench.errors import ConfigError, DataError

TINY = [
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.steps=12",
    "trainer.eval_every=6",
    "trainer.device=cpu",
]


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Nor does listing its names."""
    heavy = ("torch", "pandas", "numpy", "hydra", "omegaconf", "pytorch_lightning")
    program = (
        f"import sys, dgbench\ndir(dgbench), dgbench.__version__\nprint([n for n in {heavy} if n "
        "in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout.strip(), ended.stderr) == ("[]", "")


def test_results_need_no_torch() -> None:
    program = (
        "import sys, dgbench\ndgbench.results, dgbench.measures\nprint('torch' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout.strip(), ended.stderr) == ("False", "")


@pytest.mark.parametrize("name", dgbench.__all__)
def test_every_public_name_exists_and_is_listed(name: str) -> None:
    assert getattr(dgbench, name)
    assert name in dir(dgbench)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute 'trian'"):
        dgbench.trian  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dgbench.TrainResult]]:
    place = tmp_path_factory.mktemp("trained")
    yield place, dgbench.train([*TINY, "algorithm=vrex"], place)


def test_training_gives_the_results_of_the_study(trained: tuple[Path, dgbench.TrainResult]) -> None:
    place, result = trained
    assert result.failed == {}
    assert len(result.folders) == 5
    assert all(folder.is_relative_to(place.resolve()) for folder in result.folders)
    assert set(result.frame["fold"]) == {*"0123", "full"}
    assert set(result.frame["label"]) == {"vrex"}
    assert set(result.frame["step"]) == {12}
    (line,) = dgbench.measures(result.frame).to_dict("records")
    assert line["missing"] == ""
    assert line["worst_gap"] >= line["worst"]


def test_what_is_done_is_not_trained_again(trained: tuple[Path, dgbench.TrainResult]) -> None:
    place, first = trained
    stamps = {folder: (folder / "errors.jsonl").stat().st_mtime_ns for folder in first.folders}
    again = dgbench.train([*TINY, "algorithm=vrex"], place)
    assert {
        folder: (folder / "errors.jsonl").stat().st_mtime_ns for folder in again.folders
    } == stamps
    assert again.frame.equals(first.frame)


def test_the_frame_is_that_of_the_folder(trained: tuple[Path, dgbench.TrainResult]) -> None:
    place, result = trained
    order = ["fold", "env", "subset"]
    there = dgbench.results(place).drop(columns="folder").sort_values(order, ignore_index=True)
    assert result.frame.drop(columns="folder").sort_values(order, ignore_index=True).equals(there)


def test_the_same_runs_as_by_the_command(
    trained: tuple[Path, dgbench.TrainResult], tmp_path: Path, command: Callable[..., Any]
) -> None:
    _, result = trained
    assert command("train.py", *TINY, "algorithm=vrex", cwd=tmp_path).code == 0
    typed = {
        path.parent.name: path.read_bytes() for path in (tmp_path / "outputs").rglob("errors.jsonl")
    }
    assert typed == {
        folder.name: (folder / "errors.jsonl").read_bytes() for folder in result.folders
    }


def test_several_studies_in_one_call(tmp_path: Path) -> None:
    result = dgbench.train([*TINY, "grid.seed=[0,1]", "protocol.folds=[0]"], tmp_path)
    assert sorted(set(result.frame["seed"])) == [0, 1]
    assert len(result.folders) == 2


def test_a_run_that_fails_is_named_and_the_others_count(tmp_path: Path) -> None:
    result = dgbench.train(
        [*TINY, "execution=single", "hparams.lr=1e30", "protocol.folds=[0]"], tmp_path
    )
    assert [why.split()[0] for why in result.failed.values()] == ["FAILED"]
    assert result.frame.empty


def test_inside_a_hydra_application_its_state_stays(tmp_path: Path) -> None:
    with initialize_config_dir(str(CONF), job_name="mine", version_base="1.3"):
        mine = GlobalHydra.instance().hydra
        config = compose("report", return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        dgbench.train([*TINY, "protocol.folds=[0]"], tmp_path)
        assert GlobalHydra.instance().hydra is mine
        assert HydraConfig.get().job.config_name == "report"
        assert compose("report").only is None
    assert not GlobalHydra.instance().is_initialized()
    HydraConfig.instance().cfg = None


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["algorithm=vrexx"], ConfigError, r"algorithm=vrexx.*unknown.*vrex\?"),
        (["trainer.stepz=1"], ConfigError, "key trainer.stepz is unknown"),
        (["trainer.steps=abc"], ConfigError, "trainer.steps"),
        (["-m", "seed=0,1"], ConfigError, "-m.*option.*command line"),
        (["dataset=pacs"], DataError, "pacs"),
    ],
)
def test_what_cannot_work_is_raised_and_hydra_stays_usable(
    words: list[str],
    kind: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DGBENCH_DATA_DIR", str(tmp_path / "nothing"))
    with pytest.raises(kind, match=message):
        dgbench.train(words, tmp_path)
    assert not GlobalHydra.instance().is_initialized()
