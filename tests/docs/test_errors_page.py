"""docs/how_to/errors.md: its programs run on the file of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.studies import small_study, train_study

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how_to" / "errors.md").read_text()


def test_the_programs_run(tmp_path: Path) -> None:
    study = small_study(tmp_path, "trainer.steps=4", "trainer.eval_every=4", "protocol.folds=[0]",
                        "dataset.evaluation=sampled", "trainer.predictions=last")  # fmt: skip
    train_study(study)
    names: dict[str, Any] = {}
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        assert "outputs/STUDY/RUN" in program
        exec(program.replace("outputs/STUDY/RUN", str(study.runs[0].folder)), names)
    lines, wrong = names["lines"], names["wrong"]
    assert 0 < len(wrong) < len(lines)
    assert names["about"]["held_out"] == ["0.80"] and "0.80" in set(wrong["env"])
    assert all(f"`{column}`" in PAGE for column in lines.columns)
