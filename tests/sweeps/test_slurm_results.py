"""How a job of the queue ended stands in JSON; of the pickles in its folder nothing is read."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from dgbench.sweeps.submissions import Submissions, write_result


class Marks:
    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


def test_problems_come_back(tmp_path: Path) -> None:
    write_result(
        tmp_path, "7_1", {"problems": {"a": "lr is too\nlarge \x1b[31m", "b": "no images"}}
    )
    assert Submissions(tmp_path).result("7_1") == {"a": "lr is too large ?[31m", "b": "no images"}
    assert Submissions(tmp_path).result("7_2") is None


def test_pickles_of_a_folder_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7_1_0_result.pkl").write_bytes(pickle.dumps(("success", Marks())))
    (tmp_path / "7_1_0_log.err").write_text(
        "Traceback ...\nModuleNotFoundError: No module named 'timm'\n"
    )
    (tmp_path / "7_2_0_result.pkl").write_bytes(pickle.dumps(("success", Marks())))
    submissions = Submissions(tmp_path)
    assert submissions.result("7_1") == "job 7_1: ModuleNotFoundError: No module named 'timm'"
    assert submissions.result("7_2") == "job 7_2: ended without a result"
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        '"x"',
        "{}",
        '{"problems": 3}',
        '{"error": {"a": 1}}',
        "[" * 100_000,
        "\x00",
    ],
)
def test_a_result_that_cannot_be_read_is_named_and_blocks_no_other(
    content: str, tmp_path: Path
) -> None:
    (tmp_path / "7_1_result.json").write_text(content)
    write_result(tmp_path, "7_2", {"problems": {}})
    submissions = Submissions(tmp_path)
    said = submissions.result("7_1")
    assert isinstance(said, str) and said.startswith("job 7_1: ") and "\n" not in said
    assert submissions.result("7_2") == {}


def test_results_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "7_1_result.json").mkdir()
    os.mkfifo(tmp_path / "7_2_result.json")
    os.mkfifo(tmp_path / "7_3_0_log.err")
    (tmp_path / "7_3_0_result.pkl").write_bytes(b"")
    for job in ("7_1", "7_2", "7_3"):
        assert str(Submissions(tmp_path).result(job)).startswith(f"job {job}: ")


def test_a_result_is_written_whole(tmp_path: Path) -> None:
    write_result(tmp_path, "7", {"problems": {"a": "x"}})
    assert [file.name for file in tmp_path.iterdir()] == ["7_result.json"]
    assert json.loads((tmp_path / "7_result.json").read_text()) == {"problems": {"a": "x"}}
