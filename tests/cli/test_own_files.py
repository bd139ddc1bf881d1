"""Files of a user's own: found beside ``--config-dir``, and what is wrong in them is said with file
and line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import dgbench
from dgbench.cli.entry import options_first
from dgbench.errors import DgbenchError

ALGORITHM = """
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome


class Mine(Algorithm):
    def objective(self, s):
        loss = s.environment_risks().mean()
        LINE
        return Outcome(loss)
"""
YAML = """_target_: dgbench.training.modules.training_module
name: mine
objective: own.Mine
hparams: {}
search: {}
"""


def write(folder: Path, line: str) -> tuple[str, ...]:
    """An algorithm with one more line; and the words that train it, whose options stand last."""
    (folder / "conf" / "algorithm").mkdir(parents=True)
    (folder / "conf" / "algorithm" / "mine.yaml").write_text(YAML)
    (folder / "own.py").write_text(ALGORITHM.replace("LINE", line))
    return "algorithm=mine", "protocol.folds=[0,1]", "--config-dir", str(folder / "conf")


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("seed=1 -m algorithm=erm", "-m seed=1 algorithm=erm"),
        ("seed=1 --config-dir mine algorithm=erm", "--config-dir mine seed=1 algorithm=erm"),
        (
            "seed=1 -cd=mine ~a.b --multirun algorithm=erm",
            "--multirun -cd=mine seed=1 ~a.b algorithm=erm",
        ),
        (
            "seed=1 -c job algorithm=erm --package algorithm",
            "-c job --package algorithm seed=1 algorithm=erm",
        ),
        ("seed=1 -cd a=b -m algorithm=erm", "-m -cd a=b seed=1 algorithm=erm"),
        ("seed=1 --info defaults", "--info defaults seed=1"),
        ("--info seed=1 --resolve", "--info --resolve seed=1"),
    ],
)
def test_options_may_stand_anywhere(typed: str, parsed: str) -> None:
    assert options_first(typed.split()) == parsed.split()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "launcher", [(), ("-m", "hydra/launcher=local", "hydra.launcher.workers=1")]
)
def test_it_is_found_beside_the_configuration(
    launcher: tuple[str, ...], train: Any, tmp_path: Path
) -> None:
    """Also from another folder, by the processes of a sweep, and when the model is loaded."""
    words, here = write(tmp_path, "pass"), tmp_path / "elsewhere"
    here.mkdir()
    ended = train(*launcher, *words, cwd=here)
    assert ended.code == 0, ended.err
    (run,) = here.rglob("fold-0-*")
    with pytest.raises(
        DgbenchError,
        match=r"own\.Mine cannot be imported.*put the folder that holds own on PYTHONPATH",
    ):
        dgbench.load(run, trust=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line",
    ["if loss > 1: loss = 2 * loss", "loss.item()", "loss = s.x[s.x > 0].mean()"],
    ids=["branch", "number", "shape"],
)
def test_what_cannot_be_stacked_is_said_once_with_its_line(
    line: str, train: Any, tmp_path: Path
) -> None:
    words = write(tmp_path, line)
    ended = train("execution=stacked", *words, cwd=tmp_path)
    (said,) = [text for text in ended.err.splitlines() if "own.py" in text]
    assert re.search(r"own\.py, line 9 takes .* from data.*execution=single", said)
    assert "vmap" not in ended.err and len(said) < 400
    statuses = [file.read_text() for file in tmp_path.rglob("status")]
    assert len(statuses) == 2 and all("own.py, line 9" in status for status in statuses)


def test_an_error_of_the_objective_names_its_line(train: Any, tmp_path: Path) -> None:
    ended = train(*write(tmp_path, "loss.nothing()"), cwd=tmp_path)
    assert len(re.findall(r"AttributeError: .*own\.py, line 9\)", ended.err)) == 1, ended.err


BROKEN = {
    "syntax": ("def broken(:", r"broken\.py, line 1: SyntaxError"),
    "package": (
        "\nimport no_such_package",
        r"broken\.py, line 2: ModuleNotFoundError: No module named 'no_such_package'",
    ),
    "error": (
        "import torch\n\n\nraise ValueError('a\\nb')",
        r"broken\.py, line 4: ValueError: a b",
    ),
    "name": ("", r"AttributeError.*correct the path"),
    "absent": (None, r"No module named 'broken'\); put the folder that holds broken on PYTHONPATH"),
}
KEYS = ("backbone._target_", "averaging._target_", "+callbacks.x._target_", "logger._target_")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("key", "kind"),
    [*(("algorithm.objective", kind) for kind in BROKEN), *((key, "package") for key in KEYS)],
)
def test_what_keeps_a_file_from_being_imported(
    key: str, kind: str, train: Any, tmp_path: Path
) -> None:
    text, said = BROKEN[kind]
    if text is not None:
        (tmp_path / "broken.py").write_text(text)
    beside = {
        "averaging._target_": ["averaging=swad"],
        "algorithm.objective": ["algorithm.name=mine"],
    }
    words = beside.get(key, [])
    path = f"import sys; sys.path.append({str(tmp_path)!r})"
    ended = train(*words, f"{key}=broken.Thing", cwd=tmp_path, before=path)
    (complaint,) = ended.complaints
    assert ended.code == 1 and re.search(said, complaint), ended.err
    assert f"{key.lstrip('+')}=broken.Thing cannot be imported" in complaint
