"""What a received file may name: classes of dgbench that its own group of ``conf/`` names, and
nothing that imports.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from dgbench.configuration import CONF
from dgbench.errors import RecordError
from dgbench.plan.code import FUNCTIONS, allowed_code, refuse_code

GROUPS = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir())
IMPORTERS = (
    "import_module",
    "__import__",
    "get_method",
    "get_object",
    "get_class",
    "_locate",
    "imported",
    "class_at",
)


def of(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("group", GROUPS)
def test_allowed_code_is_of_dgbench_and_imports_nothing(group: str) -> None:
    for path in allowed_code(group):
        assert path.startswith("dgbench."), path
        thing = of(path)
        assert inspect.isclass(thing) or path.startswith(FUNCTIONS), path
        if not inspect.isclass(thing):
            assert not {*thing.__code__.co_names} & {*IMPORTERS}, path


def test_there_is_a_list_for_each_group_that_received_files_name() -> None:
    for group in (
        "algorithm",
        "averaging",
        "backbone",
        "dataset",
        "init",
        "protocol",
        "head",
        "tuning",
    ):
        assert allowed_code(group), group
    assert "dgbench.networks.small.MLPFeaturizer" in allowed_code("backbone")
    assert "dgbench.networks.small.MLPFeaturizer" not in allowed_code("dataset")
    assert not allowed_code("no_group")


@pytest.mark.parametrize(
    ("group", "content"),
    [
        ("protocol", {"_target_": "hydra.utils.get_method", "path": "evil.run"}),
        ("protocol", {"_target_": "hydra.utils.get_object", "path": "evil.run"}),
        ("init", {"_target_": "hydra.utils.get_class", "path": "evil.Thing"}),
        ("dataset", {"_target_": "dgbench.plan.building.imported", "path": "evil.run", "key": "x"}),
        ("dataset", {"_target_": "dgbench.networks.small.MLPFeaturizer"}),
        (
            "backbone",
            {"_target_": "dgbench.training.modules.training_module", "objective": "evil.Thing"},
        ),
        (
            "algorithm",
            {"_target_": "dgbench.training.modules.training_module", "objective": "evil.Thing"},
        ),
        ("algorithm", {"objective": "dgbench.networks.small.MLPFeaturizer"}),
        ("logger", {"_target_": "pytorch_lightning.loggers.CSVLogger"}),
        ("dataset", {"reader": {"_target_": "dgbench.data.datasets.readers.nothing"}}),
        ("dataset", {"name": "${oc.env:HOME}"}),
    ],
)
def test_a_group_names_nothing_of_another(group: str, content: Any) -> None:
    with pytest.raises(RecordError, match="trust=true") as refused:
        refuse_code(content, "file", group)
    assert "\n" not in str(refused.value)


def test_an_algorithms_own_files_pass() -> None:
    refuse_code({"objective": "dgbench.algorithms.vrex.VREx", "seed": 0}, "file", "algorithm")
    refuse_code({"paint": {"_target_": "dgbench.data.transforms.paint.tint"}}, "file", "dataset")
