"""Declared random inputs reproduce, bit for bit, what algorithms drew themselves before inputs were
declared.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import hydra.utils
import numpy as np
import pytest
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.network_specs import Sizes
from dgbench.objectives.step import RandomInputs, draw
from dgbench.plan.hyperparameters import entry_of

FROZEN: dict[str, Any] = json.loads((Path(__file__).parent / "random_inputs.json").read_text())
SIZES = Sizes(n_features=6, n_classes=3, n_envs=3, image=(1, 3, 3))


def digests(inputs: RandomInputs, rng: np.random.Generator, steps: int) -> dict[str, str]:
    arrays = draw(inputs, rng, steps)
    if steps == 1:
        arrays = {name: array[0] for name, array in arrays.items()}
    return {
        name: (
            f"{a.dtype} {list(a.shape)} "
            f"{hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]}"
        )
        for name, a in arrays.items()
    }


def small(value: Any) -> Any:
    return value["small"] if isinstance(value, dict) and set(value) == {"small", "large"} else value


@pytest.mark.parametrize("case", FROZEN)
def test_draws_are_those_of_old(case: str) -> None:
    """Five steps and one prediction from one generator; the number that comes next says that no
    draw was added.
    """
    found = re.fullmatch(r"(\w+) (\{.*\}) (\(.*\))", case)
    assert found
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{found[1]}.yaml"))
    own = {key: small(entry_of(value).default) for key, value in config["hparams"].items()}
    values = {"lr": 0.01, "weight_decay": 0.0, "batch_size": 6, **own, **ast.literal_eval(found[2])}
    algorithm = hydra.utils.get_class(config["objective"])(SIZES, values)
    rng = np.random.default_rng([7, 1])
    assert (
        digests(algorithm.random_inputs(ast.literal_eval(found[3])), rng, 5)
        == FROZEN[case]["steps"]
    )
    assert digests(algorithm.prediction_inputs(6), rng, 1) == FROZEN[case]["prediction"]
    assert float(rng.random()) == FROZEN[case]["next"]
