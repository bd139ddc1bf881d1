"""Every function of the Python API refuses a value of a wrong type in one line that begins with the
argument.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import dgbench
from dgbench import reports
from dgbench.errors import DgbenchError
from dgbench.training.modules import training_module

THING = object()
VALUES: dict[str, Any] = {"None": None, "5": 5, "x": "x", "[1]": [1], "{}": {}, "object": THING}
X, Y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
FRAME: dict[str, Any] = {"frame": pd.DataFrame()}
NETWORK: dict[str, Any] = {"networks": nn.Linear(2, 2), "n_classes": 2, "n_envs": 2}
OVER_SEEDS = ("leaderboard", "measures", "held_out_errors", "selected", "correlation", "seeds")
#: function -> arguments that are refused for their values alone, before anything is done
FUNCTIONS: dict[Callable[..., Any], dict[str, Any]] = {
    dgbench.train: {"overrides": ["nothing=1"]},
    dgbench.load: {"run": "nowhere"},
    dgbench.evaluate: {"model": "nowhere", "overrides": ["nothing=1"]},
    dgbench.algorithm: {"name": "nothing", **NETWORK},
    training_module: {"objective": "nothing", **NETWORK},
    dgbench.estimate_shift: {"x_p": X, "y_p": Y, "x_q": X, "y_q": Y, "estimator": "nothing"},
    dgbench.results: {"source": "nowhere"},
    dgbench.measures: FRAME,
    dgbench.score: {"y_true": [0, 1], "y_pred": [1], "environments": ["a", "b"]},
    **{getattr(reports, name): FRAME for name in (*OVER_SEEDS, "certainty", "differences")},
}
FREE = ("None", "5", "x", "[1]", "{}", "object")
#: argument -> what of the values it may have; of no other argument is any right
RIGHT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("output", "name", "push", "run", "spread", "estimator", "objective"), ("x",)),
    **dict.fromkeys(("weights", "averaging", "split_by"), ("None", "x")),
    **dict.fromkeys(("n_classes", "n_envs", "features", "trials", "halves", "min_per_class",
            "seed"), ("5",)),
    **dict.fromkeys(("n_images", "n_trained_on"), ("5",)),
    **dict.fromkeys(("max_per_class", "n_features"), ("None", "5")),
    **dict.fromkeys(("hparams", "keys", "values"), ("None", "{}")),
    **dict.fromkeys(("statistics", "rule", "dtype", "measures", "compared"), ("None",)),
    **dict.fromkeys(("image", "pixel_mean", "pixel_std"), ("[1]",)),
    "y_true": ("x", "[1]"), "given": ("None", "[1]"), "groups": ("None", "[1]"), "y_pred": ("[1]",),
    "environments": ("[1]",), "model": FREE, "search": FREE, "networks": ("{}",), "source": ("x",),
    "selection": ("x",),
}  # fmt: skip
OPTIONAL: Mapping[tuple[Any, str], tuple[str, ...]] = {
    (dgbench.evaluate, "name"): ("None", "x"),
    (dgbench.evaluate, "step"): ("None",),
    (dgbench.evaluate, "initial"): ("None", "x"),
    (dgbench.evaluate, "alphas"): ("None", "[1]"),
    (dgbench.evaluate, "groups"): ("None", "x"),
    (dgbench.train, "output"): ("None", "x"),
    (dgbench.score, "training_groups"): ("None", "{}"),
    (dgbench.algorithm, "dtype"): (),
    (dgbench.estimate_shift, "device"): ("x",),
}


def arguments() -> list[Any]:
    return [
        pytest.param(
            function,
            name,
            id=f"{function.__module__.rpartition('.')[2]}.{function.__name__}-{name}",
        )
        for function in FUNCTIONS
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]


@pytest.mark.parametrize(("function", "name"), arguments())
def test_a_wrong_type_is_refused_by_name(
    function: Callable[..., Any], name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right = OPTIONAL.get((function, name), RIGHT.get(name, ()))
    for text, value in VALUES.items():
        with pytest.raises(DgbenchError) as refused:
            function(**{**FUNCTIONS[function], name: value})
        line = str(refused.value)
        assert "\n" not in line and "; " in line, line
        assert (
            re.match(rf"{name.removesuffix('s')}s?(=| holds | is )", line) is not None
        ) or text in right, f"{name}={text}: {line}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dgbench.train("seed=1"), "overrides=seed=1 is no list"),
        (
            lambda: dgbench.evaluate("x", ensemble="maybe"),
            "ensemble=maybe is unknown; choose true or false",
        ),
        (lambda: dgbench.evaluate([]), "model=.. names no model"),
        (lambda: dgbench.estimate_shift(X, Y, X, Y, trials=0), "trials=0"),
        (lambda: dgbench.estimate_shift(X, Y.astype(float), X, Y), "labels no integers"),
        (lambda: dgbench.estimate_shift(X, Y, X.astype(object), Y), "features are no numbers"),
        (lambda: dgbench.load("x", device="nothing"), "device=nothing cannot be used"),
        (lambda: dgbench.load("x", step="first"), "step=first is unknown; choose last or best"),
        (lambda: dgbench.measures(pd.DataFrame({"a": [1]})), "frame"),
        (lambda: dgbench.algorithm("erm", nn.Linear(2, 2), 2, 2, n_features=2, seed="x"), "seed=x"),
    ],
)
def test_what_people_type(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(DgbenchError, match=said):
        call()


def test_integers_of_numpy_and_iterators_are_taken() -> None:
    port = dgbench.algorithm(
        "erm", nn.Linear(2, 2), np.int64(2), np.int64(2), n_features=2, dtype=torch.float32
    )
    assert port.module.algorithm.sizes.n_classes == 2
    with pytest.raises(DgbenchError, match="under a, b"):
        dgbench.results(name for name in ("a", "b"))
