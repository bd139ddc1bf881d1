"""Rows, archives and entries that somebody made to do harm: each is named in a line, within seconds
and little memory.

None of them runs anything: what would, touches ``MARK``.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import pickle
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgbench.analysis.selection import Last
from dgbench.data.datasets.features import columns_of
from dgbench.errors import DgbenchError
from dgbench.records.predictions import PREDICTION_FILE, about_predictions, read_predictions
from dgbench.reports.frames import measures, results
from dgbench.reports.importers.domainbed import read_domainbed
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.shifts import read_shifts
from dgbench.reports.render.formats import active_markup, csv_text, write
from dgbench.reports.slices.features import FeaturesReport
from tests.shift.synthetic import estimates, shift_identity, write_shifts
from tests.tools.conftest import fill_in, write_study
from tools.archive.checking import check_archive, check_entry
from tools.archive.listing import index_files, write_index
from tools.archive.packing import pack

SECONDS, BYTES = 20, 500_000_000
HUGE, LONGER = 10**400, "9" * 5000  # Python reads the first and refuses the second
DEEP = b"[" * 200_000
MARK = Path("/tmp/dgbench-hostile-mark")
LAUGHS = "a: &a [lol, lol]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n"
    for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
)


class Harm:
    """What a pickle runs."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {MARK}",)


@pytest.fixture(autouse=True)
def harmless() -> Iterator[None]:
    """Nothing ran, waited or took much memory."""
    MARK.unlink(missing_ok=True)
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert not MARK.exists()
    assert time.monotonic() - started < SECONDS
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < BYTES


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study") / "multirun")


@pytest.fixture(scope="module")
def packed(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with one good entry."""
    root = tmp_path_factory.mktemp("archive") / "results"
    pack("tiny", [study], root)
    fill_in(root / "tiny")
    write_index(root)
    return root


@pytest.fixture
def entry(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "results")) / "tiny"


def one_line(texts: list[str]) -> None:
    assert texts and all("\n" not in text and len(text) < 1000 for text in texts), texts


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(DgbenchError) as caught:
        read()
    one_line([str(caught.value)])
    return str(caught.value)


def lines_of(file: Path) -> list[bytes]:
    return lzma.decompress(file.read_bytes()).splitlines(keepends=True)


def times(content: bytes, count: int) -> bytes:
    """A small file that holds a content many times: so many packed streams behind one another."""
    return lzma.compress(content, preset=0) * count


def bomb_of_runs(file: Path) -> bytes:
    return times(b"".join(lines_of(file)) * 100, 10)


ARCHIVES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "zeros in one line": ("16 MB|expands", lambda file: times(bytes(20_000_000), 100)),
    "empty lines": ("no whole archive", lambda file: times(b"\n" * 20_000_000, 10)),
    "objects": ("no whole archive", lambda file: times(b"{}\n" * 6_000_000, 10)),
    "runs again and again": ("expands", bomb_of_runs),
    "a good run, then zeros": (
        "16 MB|expands",
        lambda file: times(lines_of(file)[0], 1) + times(bytes(20_000_000), 9),
    ),
    "deep": ("JSON", lambda file: lzma.compress(DEEP + b"\n")),
    "digits": ("JSON", lambda file: lzma.compress(LONGER.encode() + b"\n")),
    "a pickle": ("no whole archive", lambda file: pickle.dumps(Harm())),
    "a packed pickle": ("JSON", lambda file: lzma.compress(pickle.dumps(Harm()))),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(entry: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # or a good run is read again for half a minute
    monkeypatch.setattr("dgbench.records.files.ALWAYS_ALLOWED", 2_000_000)
    file, (said, make) = entry / "rows.jsonl.xz", ARCHIVES[name]
    file.write_bytes(make(file))
    message = refusal(lambda: collect([file]))
    assert re.search(said, message), message
    one_line(check_archive(entry.parent))


def put(value: Any, *place: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in place[:-1]:
            content = content[key]
        if isinstance(content[place[-1]], list) and place[0] == "rows":
            content[place[-1]][0] = value
        else:
            content[place[-1]] = value

    return change


@pytest.mark.parametrize(
    "place",
    [
        *(("rows", name) for name in ("step", "seen", "wrong", "loss")), ("run", "row_count"),
        ("run", "last_step"),
        *(("run", "identity", name) for name in ("seed", "draw", "trial", "data_seed",
                "n_parameters")),
        ("run", "identity", "hparams", "lr"), ("run", "identity", "variant", "scale"),
        ("spec", "seed"),
    ],
)  # fmt: skip
def test_a_number_of_400_digits_costs_its_packed_run_only(
    entry: Path, place: tuple[str, ...]
) -> None:
    file = entry / "rows.jsonl.xz"
    first, *rest = lines_of(file)
    content = json.loads(first)
    put(HUGE, *place)(content)
    file.write_bytes(lzma.compress(json.dumps(content).encode() + b"\n" + b"".join(rest)))
    found = collect([file])
    if place[0] != "spec":  # which reports do not read
        assert [problem.where for problem in found.problems] == [f"{file}:1"]
    assert len(found.runs) >= len(rest)
    one_line([*(problem.reason for problem in found.problems), *check_entry(entry)])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "key", ["step", "seen", "wrong", "loss", "together", "seed", "n_trainable", "draw"]
)
@pytest.mark.parametrize("digits", [str(HUGE), LONGER, f"-{HUGE}", "1e999", "[" * 100_000])
def test_a_row_of_long_numbers_costs_itself_only(
    study: Path, tmp_path: Path, key: str, digits: str
) -> None:
    runs = shutil.copytree(study, tmp_path / "runs")
    file = sorted(runs.rglob("errors.jsonl"))[0]
    first, *rest = file.read_text().splitlines(keepends=True)
    row = {**json.loads(first), key: "HERE"}
    file.write_text(json.dumps(row).replace('"HERE"', digits) + "\n" + "".join(rest))
    found = collect([runs])
    good_as_loss = key == "loss" and digits == "1e999"
    assert [problem.where for problem in found.problems] == [] if good_as_loss else [f"{file}:1"]
    assert len(found.rows) == len(collect([study]).rows) - (not good_as_loss)
    assert len(measures(results(runs))) == len(measures(results(study)))


def test_hyperparameters_of_long_numbers(study: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(study, tmp_path / "runs")
    for file in runs.rglob("errors.jsonl"):
        file.write_text(file.read_text().replace('"lr":0.001', f'"lr":{HUGE}'))
    refusal(lambda: results(runs))


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda file: file.symlink_to("/dev/zero"),
    "circle": lambda file: file.symlink_to(file.name),
    "folder": lambda file: file.mkdir(),
    "link": lambda file: file.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("name", ODD_FILES)
@pytest.mark.parametrize(
    "file", ["README.md", "rows.jsonl.xz", "entry.yaml", "measures.csv", "further.md"]
)
def test_an_entry_holds_ordinary_files(entry: Path, name: str, file: str) -> None:
    """A link that is published shows a file of the machine that publishes."""
    (entry / file).unlink(missing_ok=True)
    ODD_FILES[name](entry / file)
    faults = check_entry(entry)
    one_line(faults)
    assert any(file in fault for fault in faults)
    refusal(lambda: index_files(entry.parent))


def test_an_entry_is_no_link_to_another_folder(entry: Path) -> None:
    shutil.move(entry, entry.parents[1] / "elsewhere")
    entry.symlink_to(entry.parents[1] / "elsewhere")
    assert "link" in "".join(check_entry(entry))


YAMLS = {
    "laughs": f"{LAUGHS}title: *k\nfrozen: *k\n",
    "merged": f"{LAUGHS}<<: *k\n",
    "itself": "title: &a [*a]\n",
    "code": f"title: !!python/object/apply:os.system ['touch {MARK}']\n",
    "deep": "title: " + "[" * 100_000,
    "deep blocks": "".join(f"{' ' * depth}a:\n" for depth in range(1200)),
    "digits": f"title: {LONGER}\n",
    "hexadecimal": f"title: 0x{LONGER}\ndate: 0x{LONGER}\nfrozen: 0x{LONGER}\n",
    "sexagesimal": "title: " + "9:" * 5000 + "9\n",
    "a date": "date: 9999-99-99\n",
    "large": "title: " + "a" * 10_000_000,
    "no text": "\x00\xff",
    "a list": "- a\n",
    "a key that is a list": "? [a]\n: b\n",
}


@pytest.mark.parametrize("name", YAMLS)
def test_descriptions_of_entries(entry: Path, name: str) -> None:
    (entry / "entry.yaml").write_text(YAMLS[name])
    one_line(check_archive(entry.parent))
    refusal(lambda: index_files(entry.parent))
    for run in entry.parent, entry:
        for problem in collect([run, entry / "rows.jsonl.xz"]).problems:
            one_line([problem.reason[:900]])


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a <!-- b", "</details>",
        "<svg/onload=alert(1)>", "[a](javascript:alert(1))", "[a]( JavaScript:alert(1))",
        "[a](\n javascript:alert(1))", "[a](data:text/html,b)",
        "[a](&#106;avascript:alert(1))", "[a](java\\script:alert(1))", "[a]: javascript:alert(1)",
        "[a](file:///etc)", "[a](<javascript:alert(1)>)", "<javascript:alert(1)>",
        "![a](vbscript:b)", "`\n\n<b>\n\n`",
    ],
)  # fmt: skip
def test_what_an_entry_says_of_itself_is_text(entry: Path, text: str) -> None:
    about = entry / "README.md"
    about.write_text(f"{about.read_text()}\n{text}\n")
    faults = check_entry(entry)
    one_line(faults)
    assert all("README.md holds" in fault for fault in faults)


def test_links_to_pages_may_stand_in_an_entry() -> None:
    good = (
        "[a](https://x.org/?a=b&c=d) [b](../x/README.md#c-d) [d](mailto:a@b.c) <https://x.org> 1 "
        "< 2 <3 [0, 1]: x"
    )
    assert active_markup(good) == []


def test_names_in_pages_are_text(study: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(study, tmp_path / "runs")
    names = {
        "erm": '=HYPERLINK(""http://x"")'.replace('""', "'"),
        "vrex": "<img src=x onerror=alert(1)>[a](javascript:b)",
    }
    for file in runs.rglob("errors.jsonl"):
        text = (
            file.read_text()
            .replace('"dataset":"sr_cmnist"', '"dataset":"@<b>[a](data:b)"')
            .replace('"0.10"', '"-0.5"')
        )
        for name, odd in names.items():
            text = text.replace(f'"algorithm":"{name}"', f'"algorithm":"{odd}"')
        file.write_text(text)
    write(MeasuresReport()(collect([runs]), Last()), tmp_path / "report")
    for file in (tmp_path / "report").glob("*.csv"):
        cells = pd.read_csv(file, dtype=str, header=None, keep_default_na=False).to_numpy().ravel()
        assert not [cell for cell in cells if cell[:1] in ("=", "@")], file
    assert "'=HYPERLINK" in (tmp_path / "report" / "measures.csv").read_text()
    page, text = ((tmp_path / "report" / name).read_text() for name in ("report.html", "report.md"))
    assert "<img src=x" not in page and "<b>" not in page and 'href="java' not in page
    assert (
        active_markup(
            text.replace("<u>", "").replace("</u>", "").replace("\\<", "").replace("]\\(", "")
        )
        == []
    )


def test_cells_that_a_spreadsheet_would_compute() -> None:
    names = [
        "=1+1",
        "+1",
        "-0.5",
        "-1+cmd|' /C calc'!A0",
        "@SUM(A1)",
        "\t=1",
        "-",
        "a=b",
        "",
        "-1e-3",
    ]
    frame = pd.DataFrame({"=name": names, "number": -0.5, "kind": pd.Categorical(names)})
    read = pd.read_csv(io.StringIO(csv_text(frame)), dtype=str, keep_default_na=False)
    safe = [
        "'=1+1",
        "+1",
        "-0.5",
        "'-1+cmd|' /C calc'!A0",
        "'@SUM(A1)",
        "'\t=1",
        "-",
        "a=b",
        "",
        "-1e-3",
    ]
    assert list(read) == ["'=name", "number", "kind"]
    assert read["'=name"].tolist() == read["kind"].tolist() == safe
    assert set(read["number"]) == {"-0.5"}


def test_names_in_the_leaderboard_of_an_archive_are_text(entry: Path) -> None:
    file = entry / "entry.yaml"
    text = file.read_text().replace("title: said", "title: <b>[a](javascript:b)|c")
    file.write_text(text.replace("name: said", "name: '=HYPERLINK(1)'"))
    texts = index_files(entry.parent)
    assert r"\<b\>[a]\(javascript:b)\|c" in texts["README.md"]
    assert "'=HYPERLINK(1)" in texts["all_measures.csv"] and ",=" not in texts["all_measures.csv"]


@pytest.mark.parametrize("digits", [str(HUGE), LONGER, "[" * 100_000, '"=1"'])
@pytest.mark.parametrize("key", ["values", "n", "seconds", "number", "settings"])
def test_estimates_of_shift(tmp_path: Path, key: str, digits: str) -> None:
    rows = estimates(shift_identity(), {"0": {"div": 0.1}, "1": {"div": 0.2}})
    file = write_shifts(tmp_path, rows) / "shifts.jsonl"
    first, *rest = file.read_text().splitlines(keepends=True)
    flat = {**json.loads(first), key: "HERE"}
    file.write_text(json.dumps(flat).replace('"HERE"', digits) + "\n" + "".join(rest))
    found = read_shifts([tmp_path])
    assert len(found.rows) == len(rest)
    one_line([problem.reason for problem in found.problems])


@pytest.mark.parametrize("digits", [str(HUGE), LONGER, "[" * 100_000])
@pytest.mark.parametrize("key", ["step", "env0_in_acc", "trial_seed", "lr"])
def test_sweeps_of_domainbed(tmp_path: Path, key: str, digits: str) -> None:
    for trial in (0, 1):
        args = {
            "dataset": "Own",
            "algorithm": "ERM",
            "test_envs": [0],
            "trial_seed": trial,
            "hparams_seed": 0,
        }
        accuracies = {f"env{i}_{part}_acc": 0.25 for i in range(2) for part in ("in", "out")}
        record = {"args": args, "hparams": {"lr": 0.1}, "step": 0, **accuracies}
        holder = next(part for part in (record, args, record["hparams"]) if key in part)  # type: ignore[operator]
        if trial:
            holder[key] = "HERE"  # type: ignore[index]
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / "done").write_text("")
        (folder / "results.jsonl").write_text(json.dumps(record).replace('"HERE"', digits) + "\n")
    found = read_domainbed(tmp_path)
    one_line([problem.reason for problem in found.problems])
    assert 0 in {run.identity["seed"] for run in found.runs}


def zeros(file: Path, **arrays: Any) -> None:
    np.savez_compressed(file, **{"features": np.zeros((20_000_000, 5), np.uint8), **arrays})


def announced(file: Path) -> None:
    """An array of 8 TB, of which nothing is there."""
    np.savez(file, features=np.zeros(1))
    file.write_bytes(
        file.read_bytes().replace(b"'shape': (1,), }" + b" " * 12, b"'shape': (1000000000000,), }")
    )


ARRAYS: dict[str, Callable[[Path], object]] = {
    "zeros": zeros,
    "announced": announced,
    "a pickle": lambda file: file.write_bytes(pickle.dumps(Harm())),
    "objects": lambda file: np.savez(
        file, features=np.array([Harm()], dtype=object), about=np.array([Harm()], object)
    ),
    "no archive": lambda file: file.write_bytes(b"PK\3\4" + bytes(100)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(study: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.npz"
    ARRAYS[name](file)
    refusal(lambda: columns_of(file, None))
    runs = shutil.copytree(study, tmp_path / "runs")
    for folder in sorted(runs.glob("*/*"))[:2]:
        shutil.copy(file, folder / "features.npz")
    shutil.copy(file, runs / ".dgbench-rows.npz")
    collection = collect([runs], cache=True)
    assert not collection.problems
    document = FeaturesReport()(collection, Last())
    assert len(document.problems) == 2
    one_line(list(document.problems.frame["reason"]))


def repeated(file: Path) -> None:
    pq.write_table(pa.table({"features": pa.array(np.zeros(100_000_000, np.int8))}), file)


def long_texts(file: Path) -> None:
    """A text of 1 MB that stands in each of 100,000 lines."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(100_000, np.int32)), pa.array(["a" * 1_000_000])
    )
    pq.write_table(pa.table({"image": texts}), file, store_schema=False)


def deep_schema(file: Path) -> None:
    pq.write_table(pa.table({"image": ["a"]}).replace_schema_metadata({"dgbench": DEEP}), file)


@pytest.mark.parametrize("make", [repeated, long_texts, deep_schema])
def test_predictions(tmp_path: Path, make: Callable[[Path], None]) -> None:
    file = tmp_path / PREDICTION_FILE
    make(file)
    refusal(lambda: about_predictions(file))
    refusal(lambda: columns_of(file, None))
    if make is repeated:
        refusal(lambda: read_predictions(file))


@pytest.mark.parametrize(
    "content", [DEEP, b'{"sessions": [{"time": %d}]}' % HUGE, LONGER.encode(), b"[1]"]
)
def test_what_lies_beside_rows(study: Path, tmp_path: Path, content: bytes) -> None:
    runs = shutil.copytree(study, tmp_path / "runs")
    for name in ("identity.json", "progress.json", "status", "planned.json"):
        for folder in sorted(runs.glob("*/*"))[:2]:
            (folder / name).write_bytes(content)
    assert len(collect([runs]).runs) == len(collect([study]).runs)
    folder, left_out = pack("again", [runs], tmp_path / "results")
    assert (folder / "rows.jsonl.xz").is_file()
    one_line([*left_out, "packed"])
