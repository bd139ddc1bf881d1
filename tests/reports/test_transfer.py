"""Tables of sources and targets, against errors written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgbench
from dgbench.analysis.selection import Last
from dgbench.errors import RecordError
from dgbench.records.rows import read_rows
from dgbench.reports.reading.collect import collect
from dgbench.reports.slices.transfer import OTHERS, TransferReport
from tests.studies import SMALL

WORDS = (*SMALL, "trainer.steps=4", "trainer.eval_every=4", "algorithm=erm")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sources, two seeds."""
    folder = tmp_path_factory.mktemp("sources")
    for seed in (0, 1):
        words = ["protocol=single_source", "protocol.folds=[0,1,2]", f"seed={seed}"]
        dgbench.train([*WORDS, *words], folder)
    return folder


def test_every_cell_is_the_mean_of_the_runs_of_a_source(trained: Path) -> None:
    document = TransferReport()(collect([trained]), Last())
    (section,) = document.sections
    (transfer,) = section.tables
    by_place: dict[tuple[str, str], list[float]] = {}
    for file in trained.rglob("errors.jsonl"):
        for row in read_rows(file)[0]:
            (source,) = set(row["given"]) - set(row["held_out"])
            if row["subset"] == "test" and row["env_held_out"]:
                place = by_place.setdefault((source, row["env"]), [])
                place.append(row["wrong"] / row["seen"])
    frame = transfer.frame.set_index("source")
    assert len(frame) == 3
    for source in frame.index:
        means = []
        for (other, target), errors in by_place.items():
            if other == source:
                assert len(errors) == 2
                mean = sum(errors) / 2
                means.append(mean)
                assert frame.loc[source, target] == pytest.approx(mean)
                deviation = abs(errors[0] - errors[1]) / 2**0.5
                assert frame.loc[source, f"{target}.std"] == pytest.approx(deviation)
        assert frame.loc[source, OTHERS] == pytest.approx(sum(means) / len(means))
        assert frame.loc[source, f"{source}.reason"] == "the model was trained in it"
    low = frame[OTHERS].idxmin()
    assert f"lowest from {low} " in section.answer[0]


def test_without_runs_of_one_source(tmp_path: Path) -> None:
    dgbench.train([*WORDS, "protocol.folds=[0]"], tmp_path)
    with pytest.raises(RecordError, match="protocol=single_source") as fault:
        TransferReport()(collect([tmp_path]), Last())
    assert "\n" not in str(fault.value)
