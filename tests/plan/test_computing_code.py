"""What a counted number depends on: the text of the code that computes, and what it imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dgbench.plan import computing_code as module
from dgbench.plan.computing_code import COMPUTING, computing_code

#: whose __init__.py only says what they hold
PACKAGES = {f"dgbench.{name}" for name in ("algorithms", "networks", "objectives", "training")}

TEXTS = {
    "algorithms/first.py": "from dgbench.objectives.step import Step\n\nRATE = 1  # a number\n",
    "algorithms/second.py": "def late():\n    import dgbench.objectives.step\n",
    "algorithms/third.py": "from dgbench.plan import keys\nimport torch\n",
    "objectives/__init__.py": "",
    "objectives/step.py": "from dgbench import batches\n\nclass Step:\n    pass\n",
    "batches.py": "SIZE = 32\n",
    "plan/__init__.py": "",
    "plan/keys.py": "KEYS = ()\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package with the folders of dgbench."""
    package = tmp_path / "dgbench"
    for name, text in TEXTS.items():
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(module, "PACKAGE", package)
    module._read.cache_clear()
    yield package
    module._read.cache_clear()


def texts_of(name: str) -> dict[str, str]:
    module._read.cache_clear()
    return computing_code([f"dgbench.algorithms.{name}.Class"])


def test_imports_are_followed_to_any_depth(package: Path) -> None:
    shared = {"dgbench.objectives.step", "dgbench.batches"}
    assert set(texts_of("first")) == {"dgbench.algorithms.first", *shared}
    assert set(texts_of("second")) == {"dgbench.algorithms.second", *shared}
    assert set(texts_of("third")) == {"dgbench.algorithms.third"}
    assert computing_code(["torch.nn.Linear", "dgbench.plan.keys", "dgbench"]) == {}


@pytest.mark.parametrize(
    ("file", "edit", "changed"),
    [
        ("algorithms/first.py", lambda text: text.replace("1", "2"), {"first"}),
        ("algorithms/first.py", lambda text: text.replace("a number", "the rate"), set()),
        ("algorithms/first.py", lambda text: '"""Say what it is."""\n\n' + text, set()),
        ("objectives/step.py", lambda text: text.replace("pass", "size = 3"), {"first", "second"}),
        ("batches.py", lambda text: text.replace("32", "64"), {"first", "second"}),
        ("plan/keys.py", lambda text: text.replace("()", "(1,)"), set()),
    ],
)
def test_an_edit_counts_for_what_imports_it(
    file: str, edit: Callable[[str], str], changed: set[str], package: Path
) -> None:
    names = ("first", "second", "third")
    before = {name: texts_of(name) for name in names}
    (package / file).write_text(edit(TEXTS[file]))
    assert {name for name in names if texts_of(name) != before[name]} == changed


PROGRAM = """
import sys
from pathlib import Path
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from dgbench.configuration import CONF
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import planned_again
with initialize_config_dir(str(CONF), version_base="1.3"):
    composed = compose("train", open_keys(sys.argv[1:]))
study = planned_again(OmegaConf.to_container(composed, resolve=True), Path("nowhere"))
planning = set(sys.modules)
from dgbench.training.cost import count
count(study)
print(*(name for name in set(sys.modules) - planning if name.startswith("dgbench.")))
"""


@pytest.mark.thorough
def test_no_code_that_counting_runs_is_missed() -> None:
    words = ("dataset=pacs", "dataset.root=nowhere", "backbone=resnet18", "algorithm=dann")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    loaded = set(ended.stdout.split())
    computing = {
        name for name in loaded if name.split(".")[1] in COMPUTING and name not in PACKAGES
    }
    roots = (
        "dgbench.training.cost",
        "dgbench.algorithms.dann.DANN",
        "dgbench.networks.timm_networks.ResNet",
        "dgbench.networks.initial_heads.RandomHead",
        "dgbench.training.tuning.Tuning",
    )
    assert "dgbench.training.modules.single" in computing
    assert computing <= set(computing_code(roots))
