"""Impossible hyperparameters are refused by the plan, so before anything is written, and alike
single and stacked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.errors import ConfigError
from dgbench.plan.hyperparameters import DeclaredHparam, checked, entry_of, resolve
from tests.complaints import one_line
from tests.studies import make_plan

NAMES = sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml"))
SHARED: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hparams" / "default.yaml").shared)

# as a user typed them; each was trained once, or failed without naming the key
TYPED = [
    ("irm irm_lambda=-1", "number >= 0"),
    ("irm irm_lambda=nan", "number >= 0"),
    ("irm irm_lambda=inf", "number >= 0"),
    ("vrex vrex_lambda=-100", "number >= 0"),
    ("vrex vrex_lambda=true", "number >= 0"),
    ("vrex vrex_penalty_anneal_iters=-1", "integer >= 0"),
    ("vrex vrex_penalty_anneal_iters=1.5", "integer >= 0"),
    ("mmd mmd_gamma=-1", "number >= 0"),
    ("group_dro groupdro_eta=-1", "number >= 0"),
    ("group_dro groupdro_divide_by_n=1", "unknown.*true, false"),
    ("rsc rsc_f_drop_factor=3", "number >= 0.*< 1"),
    ("and_mask tau=9", "number >= 0.*<= 1"),
    ("mixup mixup_alpha=0", "number > 0"),
    ("dann beta1=2", "number >= 0.*< 1"),
    ("dann mlp_width=0.5", "integer >= 1"),
    ("dann dann_gp=cee", "unknown.*ce, softmax_column"),
    ("eqrm eqrm_quantile=1", "number > 0.*< 1"),
    ("fishr ema=1", "number >= 0.*< 1"),
    ("mixstyle ms_layers=4", "unknown.*1, 2, 3, 12, 13, 23, 123"),
    ("erm lr=-1", "number >= 0"),
    ("erm batch_size=2.5", "integer >= 1"),
    ("erm weight_decay=much", "number >= 0"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["single", "stacked"])
@pytest.mark.parametrize(("typed", "said"), TYPED, ids=[typed for typed, _ in TYPED])
def test_refused_before_training(tmp_path: Path, typed: str, said: str, mode: str) -> None:
    algorithm, word = typed.split()
    key, _, value = word.partition("=")
    with pytest.raises(ConfigError) as refused:
        make_plan(
            tmp_path,
            "dataset.base=digits",
            f"algorithm={algorithm}",
            f"execution={mode}",
            f"hparams.{word}",
        )
    line = str(refused.value)
    assert re.match(rf"hparams\.{key}=({value}|True) ", line)
    one_line(line, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_no_value_outside_a_range_passes(name: str) -> None:
    """Beyond each bound of every hyperparameter, and what is no number; the line tells what the key
    means.
    """
    declared: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml"))
    entries = {
        key: entry_of(each) for key, each in {**SHARED["hparams"], **declared["hparams"]}.items()
    }
    tried = 0
    for key, entry in entries.items():
        for value in outside(entry):
            with pytest.raises(ConfigError) as refused:
                resolve(
                    SHARED,
                    declared,
                    kind="small",
                    read=list(SHARED["hparams"]),
                    chosen={key: value},
                )
            line = str(refused.value)
            assert line.startswith(f"hparams.{key}={value} is ") and line.endswith(
                f"({entry.help})"
            )
            tried += 1
    assert tried >= 4 * len(entries)


def outside(entry: DeclaredHparam) -> Iterator[Any]:
    """Values that a range does not hold."""
    if "|" in entry.range:
        yield from ("nonsense", -1, math.nan, None)
        return
    yield from ("nonsense", math.nan, math.inf, -math.inf, True)
    if entry.range.startswith("integer"):
        yield 1.5
    for sign, bound in re.findall(r"([<>]=?) (\S+)", entry.range):
        step = 1 if entry.range.startswith("integer") else 1e-9
        beyond = float(bound) + (step if "<" in sign else -step) * ("=" in sign)
        yield int(beyond) if entry.range.startswith("integer") else beyond


@pytest.mark.parametrize(
    ("declared", "value", "kept"),
    [
        ({"default": 500, "range": "integer >= 0"}, 500.0, 500),
        ({"default": "123", "range": "12 | 123"}, 12, "12"),
        ({"default": True, "range": "true | false"}, False, False),
        ({"default": 1, "range": "number"}, -3.5, -3.5),
        ({"default": "a"}, "anything", "anything"),
        (0.5, 1e-3, 1e-3),
    ],
)
def test_one_value_has_one_form(declared: Any, value: Any, kept: Any) -> None:
    found = checked("x", value, entry_of(declared))
    assert found == kept and type(found) is type(kept)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"default": 1, "range": "above 3"}, "range 'above 3' cannot be read"),
        ({"default": 1, "range": "number >= x"}, "bound.*number"),
        ({"default": 1, "ranges": "number"}, "x.*default, range.*help.*ranges.*default"),
        ({"default": {"small": 1}, "large": 2}, r"large.*default.*x: \{default: \.\.\.\}"),
    ],
)
def test_an_entry_that_cannot_be_read(declared: Mapping[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked("x", 1, entry_of(declared, "x"))
