"""The plan of a study: numbers from a pilot's rows or a published table, and the command that goes
on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgbench.analysis import bounded_evidence, detectable, deviation_of, evidence, seeds_needed
from dgbench.analysis.evidence import fewest_seeds
from dgbench.analysis.selection import Last, TrainVal
from dgbench.errors import ConfigError
from dgbench.reports.document import Document
from dgbench.reports.published import published
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.commands import adding_commands
from dgbench.reports.slices.power import PowerReport
from tests.reports.conftest import GIVEN
from tests.tables import line, table


def plan_of(
    make: Any,
    root: Path,
    errors: Mapping[str, Mapping[int, float]],
    draws: Sequence[int] = (0,),
    **keys: Any,
) -> Document:
    """The same error in every environment: worst+gap is that error."""
    for algorithm, by_seed in errors.items():
        for seed, error in by_seed.items():
            for fold in range(len(GIVEN)):
                for draw in draws:
                    name = f"{algorithm}-{seed}-{fold}-{draw}"
                    who = make.identity(
                        algorithm,
                        str(fold),
                        seed,
                        run=name,
                        draw=draw,
                        trial=seed if len(draws) > 1 else 0,
                    )
                    make.write_run(
                        root,
                        who,
                        lambda e, s, same=error: same,
                        folder=f"{algorithm}-{seed}/{name}",
                    )
    selection = TrainVal() if len(draws) > 1 else Last()
    return PowerReport(**keys)(collect([root]), selection)


def test_a_pilot_of_two(make: Any, tmp_path: Path) -> None:
    """Differences of 1, 2 and 3 points."""
    differences = [0.01, 0.02, 0.03]
    pilot = {
        "erm": dict(enumerate([0.2, 0.2, 0.2])),
        "irm": {at: 0.2 + d for at, d in enumerate(differences)},
    }
    document = plan_of(make, tmp_path, pilot, differences=[5, 0.5], seeds=[4, 7])
    deviation = deviation_of([0.01], 3)
    needed = line(table(document, "seeds_needed"), "worst+gap")
    assert needed["deviation"].value == pytest.approx(deviation.estimate)
    assert needed["0.5 points"].value == seeds_needed(deviation.estimate, 0.005)
    assert needed["0.5 points"].high == seeds_needed(deviation.high, 0.005)
    assert line(table(document, "resolution"), "average")["7 seeds"].value == pytest.approx(
        detectable(deviation.estimate, 7)
    )
    cost = line(table(document, "cost"), "0.5 points of worst+gap")
    assert cost["models"].value == 2 * len(GIVEN) * needed["0.5 points"].value
    assert cost["hours"].value is None and cost["hours"].reason
    pair = line(table(document, "pairs"), "erm", "irm")
    assert (
        pair["evidence"].value == pytest.approx(evidence(differences))
        and pair["verdict"].value == "undecided"
    )
    facts = dict(document.sections[0].facts)
    assert f"With {needed['5 points'].value:.0f} seeds" in facts["for a methods section"]
    assert any("grid.seed=[3,4]" in text for text in document.sections[0].answer)


def test_what_is_decided_needs_no_more_seeds(make: Any, tmp_path: Path) -> None:
    """a is 10 points better in each of 5 seeds than c, and as good as b, which lacks a seed."""
    noise = np.random.default_rng(0).normal(size=(3, 5)) / 1000
    pilot = {
        name: {seed: level + noise[at, seed] for seed in range(5 - (name == "b"))}
        for at, (name, level) in enumerate({"a": 0.2, "b": 0.2001, "c": 0.3}.items())
    }
    document = plan_of(make, tmp_path, pilot, batch=1)
    first, second = sorted(("a", "b"), key=lambda name: np.mean(list(pilot[name].values())))
    decided = line(table(document, "pairs"), first, "c")
    assert decided["verdict"].value == "decided, if differences are about normal"
    assert (
        decided["without"].value < 40 <= decided["evidence"].value
        and decided["lower in"].value >= 4
    )
    assert line(table(document, "pairs"), first, second)["verdict"].value == "undecided"
    commands = [text for text in document.sections[0].answer if "train.py" in text]
    assert len(commands) == 2 and not any("algorithm=c" in text for text in commands)
    assert any("algorithm=a" in text and "grid.seed=[5]" in text for text in commands)
    assert any("algorithm=b" in text and "grid.seed=[4,5]" in text for text in commands)


def test_a_verdict_says_what_it_assumes(make: Any, tmp_path: Path) -> None:
    """10 points over 5 seeds are decided where differences are about normal; 90 points over 9 in
    any case.
    """
    noise = np.random.default_rng(0).normal(size=(2, 9)) / 1000
    close = {
        name: dict(enumerate(level + noise[at, :5]))
        for at, (name, level) in enumerate({"a": 0.2, "b": 0.3}.items())
    }
    far = {
        name: dict(enumerate(level + noise[at]))
        for at, (name, level) in enumerate({"a": 0.05, "b": 0.95}.items())
    }
    document = plan_of(make, tmp_path / "close", close)
    answer = document.sections[0].answer
    bounded = bounded_evidence(
        list(np.subtract(list(close["b"].values()), list(close["a"].values()))), 1.5
    )
    assert line(table(document, "pairs"), "a", "b")["without"].value == pytest.approx(
        bounded
    )  # 4 environments
    assert (
        answer[1]
        == "Decided: a leads by worst+gap; 5 seeds, however often one looks, separate a from b."
    )
    assert answer[2] == "That takes differences over seeds to be about normal."
    takes = fewest_seeds(line(table(document, "pairs"), "a", "b")["difference"].value, 1.5, 40)
    assert (
        answer[3].startswith("Without that assumption: not yet decided against b")
        and f"take {takes} seeds" in answer[3]
    )
    document = plan_of(make, tmp_path / "far", far)
    assert line(table(document, "pairs"), "a", "b")["verdict"].value == "decided"
    assert document.sections[0].answer[2] == "That holds whatever differences over seeds are like."


def test_draws_multiply_models(make: Any, tmp_path: Path) -> None:
    pilot = {
        name: {seed: 0.2 + 0.01 * seed * at for seed in range(3)}
        for at, name in enumerate(("erm", "irm"))
    }
    document = plan_of(make, tmp_path, pilot, draws=(0, 1, 2))
    cost = line(table(document, "cost"), "5 points of worst+gap")
    assert cost["models"].value == 2 * 3 * len(GIVEN) * cost["seeds"].value


def test_one_seed_is_no_pilot(make: Any, tmp_path: Path) -> None:
    document = plan_of(make, tmp_path, {"erm": {0: 0.2}, "irm": {0: 0.3}})
    [section] = document.sections
    assert not section.tables and "2 seeds" in section.answer[0]


def test_error_bars_of_a_published_table() -> None:
    """DomainBed's ± times sqrt(3) sqrt(3/2) is the sample deviation of 3 seeds."""
    document = PowerReport(published="domainbed2020_train_val")(None, Last())
    bars = [line["pacs"].error for line in published("domainbed2020_train_val").values.values()]
    pairs = [np.hypot(a, b) / 100 for at, a in enumerate(bars) for b in bars[at + 1 :]]
    expected = deviation_of(np.array(pairs) * 3 / np.sqrt(2), 3)
    found = line(table(document, "seeds_needed"), "pacs accuracy")["deviation"]
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.estimate, expected.low, expected.high)
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"published": "zhang2023_table2"}, "no error bars; choose one of .*domainbed2020"),
        ({"published": "hwang2024_table1"}, "no accuracies"),
        ({"seeds": [1]}, r"report.seeds=\[1\]"),
        ({"differences": [0]}, r"report.differences=\[0\]"),
        ({"power": 1}, "report.power=1"),
    ],
)
def test_what_cannot_be_planned_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refusal:
        PowerReport(**keys)(None, Last())
    assert "\n" not in str(refusal.value)


def test_the_command_is_what_was_typed_with_more_seeds(tmp_path: Path) -> None:
    folds = "'protocol.folds=[0,1]'"
    typed = {
        "erm": f"[{folds}, algorithm=erm, seed=0]",
        "irm": f"[{folds}, algorithm=irm, seed=1]",
        "mmd": "[hparams=search, algorithm=mmd, seed=1]",
    }
    runs = []
    for algorithm, words in typed.items():
        (tmp_path / algorithm / ".hydra").mkdir(parents=True)
        (tmp_path / algorithm / ".hydra" / "overrides.yaml").write_text(words)
        runs.append((algorithm, tmp_path / algorithm / "fold-0", [3]))
    together, search = adding_commands(runs)
    place = f"paths.output_dir={tmp_path}"  # beside the others
    assert together.endswith(
        f"train.py 'protocol.folds=[0,1]' 'grid.algorithm=[erm,irm]' 'grid.seed=[3]' {place}"
    )
    assert search.endswith(
        f"train.py hparams=search seed=1 algorithm=mmd 'hparams.scheme.trials=[3]' {place}"
    )


def test_what_takes_long_is_counted(
    make: Any, tmp_path: Path, at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_of(make, tmp_path, {"erm": {0: 0.2, 1: 0.2}, "irm": {0: 0.2, 1: 0.3}})
    said = capsys.readouterr().err
    assert "evaluating studies: 1 of 1 settings" in said
    assert "planning seeds: 1 of 1 settings" in said
