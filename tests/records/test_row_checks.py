"""What a row may hold: the types of its fields, what is refused in which words, and lines that
share a beginning.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.rows import LATER_KEYS, Row, RowParser, parse_rows, read_rows
from dgbench.records.run_identity import IDENTITY_CHECKS, RunIdentity
from tests.complaints import one_line

IDENTITY = RunIdentity(
    run="abc", dataset="sr_cmnist", variant={"ratio": 3, "groups": ["a", "b"], "augment": None},
    base="digits", evaluation="exact", data_seed=0, split_seed=1, given=["0.80", "0.10"],
    algorithm="vrex", hparams={"lr": 1e-3, "clip": float("inf")}, backbone="mlp", protocol="loo",
    fold="1", held_out=["0.10"], seed=0, code="0.1",
)  # fmt: skip
GOOD = json.loads(
    Row(
        identity=IDENTITY,
        step=5,
        env="0.10",
        subset="test",
        held_out=True,
        seen=200,
        wrong=53.25,
        loss=0.1,
    ).to_json()
)


def outcome(*rows: dict[str, Any]) -> tuple[int, list[tuple[int, str]]]:
    """How many lines are rows, and the others; the same however they are spaced, which decides how
    they are parsed.
    """
    spaced, compact = (
        parse_rows("".join(json.dumps(row, separators=marks) + "\n" for row in rows).encode())
        for marks in ((", ", ": "), (",", ":"))
    )
    assert [len(found) for found, _ in (spaced, compact)] == [len(spaced[0])] * 2
    assert spaced[1] == compact[1]
    return len(compact[0]), compact[1]


@pytest.mark.parametrize("absent", [(), ("majority_wrong",), ("together", "majority_wrong")])
def test_lines_of_one_run_are_parsed_together(
    absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever keys they lack because they are older: one by one takes three times as long."""
    row = {**GOOD, "majority_wrong": 20.0}
    lines = [
        {**{k: v for k, v in row.items() if k not in absent}, "step": step} for step in range(50)
    ]
    content = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode()
    singly = []
    parse = RowParser.parse
    monkeypatch.setattr(
        RowParser, "parse", lambda self, line: singly.append(line) or parse(self, line)
    )
    rows, dropped = parse_rows(content)
    assert (len(rows), dropped, len(singly)) == (50, [], 1)


BAD = [
    ("step", 1e30, r"step.*1e\+30.*whole number.*0.*2147483647"),
    ("step", 1.5, r"step.*1\.5.*whole number.*0.*2147483647"),
    ("step", 5.0, r"step.*5\.0.*whole number.*0.*2147483647"),
    ("step", True, "step.*true.*whole number.*0.*2147483647"),
    ("step", -1, "step.*-1.*whole number.*0.*2147483647"),
    ("seen", 0, "seen.*0.*whole number.*1.*2147483647"),
    ("wrong", 201, "201 wrong.*200 seen.*error"),
    ("wrong", float("nan"), "wrong.*NaN.*finite number"),
    ("wrong", "53", 'wrong.*"53".*finite number'),
    ("majority_wrong", 201, "201 majority_wrong.*200 seen.*error"),
    ("worst_class_wrong", 200.5, r"200\.5 worst_class_wrong.*200 seen.*error"),
    ("balanced_wrong", -1, "-1 balanced_wrong.*200 seen.*error"),
    ("majority_wrong", float("nan"), "majority_wrong.*NaN.*finite number"),
    ("majority_wrong", "53", 'majority_wrong.*"53".*finite number'),
    ("loss", float("nan"), "loss.*NaN.*finite number"),
    ("loss", [0.1], r"loss.*\[0\.1\].*finite number"),
    ("together", 0, "together.*0.*whole number.*1.*2147483647"),
    ("env", 0.1, "env is 0.1, not text"),
    ("env", "a\nb", r'env .*printed: "a\\nb"'),
    ("env", "\ud800", r'env .*printed: "\\ud800"'),
    ("env", "x" * 1001, "env is 1001 characters long"),
    ("subset", "valid", 'subset.*"valid".*train, val'),
    ("env_held_out", 1, "env_held_out.*1, neither true.*false"),
    ("hparams", [1], r"hparams is \[1\], not a mapping"),
    ("hparams", {"lr": float("nan")}, "hparams.*lr.*NaN"),
    ("hparams", {"lr": 10**30}, "hparams.*lr.*1000000000000000000000000000000.*finite number"),
    ("hparams", {"a": [["\x1b"]]}, r'hparams has a, .*item.*item.*printed: "\\u001b"'),
    ("variant", None, "variant.*null.*mapping"),
    ("variant", {"a": {"b": 1}}, r'variant.*\{"b": 1\}.*text'),
    ("seed", "zero", 'seed.*"zero".*whole number.*-9223372036854775807.*9223372036854775807'),
    ("seed", 10**30,
        "seed is 1000000000000000000000000000000, .*-9223372036854775807.* 9223372036854775807"),
    ("given", "0.80", 'given is "0.80", not a list'),
    ("given", [["0.80"]], r'given.*item.*\["0\.80"\].*text'),
    ("given", [], r"given is \[\], not different names"),
    ("given", ["0.10", "0.10"], r'given is \["0\.10", "0\.10"\], not different names'),
    ("held_out", ["0.5"], r'held_out.*"0\.5".*given'),
    ("folds", [["0.80"]], 'fold is "1", none of its 1 folds'),
    ("folds", [0], "folds.*item.*0.*list"),
    ("n_parameters", 1.5,
        r"n_parameters.*1\.5.*whole number.*-9223372036854775807.*9223372036854775807"),
    ("beyond", None, "beyond.*null, neither.*false"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "said"), BAD, ids=[f"{key}-{number}" for number, (key, _, _) in enumerate(BAD)]
)
def test_what_is_refused(key: str, value: Any, said: str) -> None:
    """As the first line, and as one whose beginning is known; the good lines around it are rows."""
    bad = {**GOOD, key: value}
    for lines, number in (((bad, GOOD), 1), ((GOOD, GOOD, bad, GOOD), 3)):
        rows, ((place, why),) = outcome(*lines)
        assert (rows, place) == (number, number)
        one_line(why, said)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss", float("inf")),
        ("wrong", 0),
        ("wrong", 200.0),
        ("together", None),
        ("n_parameters", None),
        ("env", ""),
    ],
)
def test_what_is_taken(key: str, value: Any) -> None:
    assert outcome(GOOD, {**GOOD, key: value}) == (2, [])


def test_every_field_of_an_identity_is_checked() -> None:
    assert IDENTITY_CHECKS.keys() == asdict(IDENTITY).keys()


def test_every_line_is_read_as_json_reads_it(tmp_path: Path) -> None:
    """Whether its beginning is known or not, in our order of keys or another, with keys of other
    versions.
    """
    own = ("step", "env", "subset", "seen", "wrong", "loss", "together", "env_held_out")
    other = {**GOOD, "run": "def", "hparams": {"step": 7, "x": ',"step":'}}
    old = {key: value for key, value in GOOD.items() if key not in ("together", "content")}
    lines = [
        GOOD, {**GOOD, "step": 6}, other, {**other, "step": 8}, GOOD, {**GOOD, "future": 1},
        {"future": 1, **GOOD}, old,
        {**old, "step": 9}, {**{key: GOOD[key] for key in own}, **GOOD}, dict(sorted(GOOD.items())),
        {**GOOD, "run": "last", "step": 10, "loss": 1},
    ]  # fmt: skip
    text = [json.dumps(line, separators=(",", ":")) for line in lines]
    # of two values for one key, JSON takes the later
    text.append(text[0][:-1] + ',"run":"again","seen":300}')
    file = tmp_path / "errors.jsonl"
    file.write_text("\n".join(text) + "\r\n")
    rows, dropped = read_rows(file)
    assert dropped == []
    assert [row["run"] for row in rows] == ["abc"] * 2 + ["def"] * 2 + ["abc"] * 7 + [
        "last",
        "again",
    ]
    for row, line in zip(rows, text, strict=True):
        later = {
            **dict.fromkeys(LATER_KEYS),
            "n_classes": None,
            "content": "",
            "user_code": {},
            "adaptation": "none",
        }
        read = {**later, "unlearnable": {}, "seed_moves": "all", **json.loads(line)}
        read.pop("future", None)
        assert row == read


def test_equal_identities_are_one_object() -> None:
    """Of a file with two runs whose lines alternate."""
    other = {**GOOD, "run": "def"}
    rows, _ = parse_rows(
        "\n".join(json.dumps(row, separators=(",", ":")) for row in [GOOD, other] * 3).encode()
    )
    assert len({id(row.identity) for row in rows}) == 2


def test_lines_that_only_look_like_a_row() -> None:
    """Brackets that close in another line, a deep nest, a number too long to read."""
    good = json.dumps(GOOD, separators=(",", ":")).encode()
    head, tail = good[: good.rindex(b',"step"')], good[good.rindex(b',"step"') :]
    lines = [
        good,
        head + tail[:-1],
        b"[" * 100_000,
        head + b"}" + tail,
        good.replace(b'"seed":0', b'"seed":' + b"9" * 5000),
    ]
    rows, dropped = parse_rows(b"\n".join(lines))
    assert len(rows) == 1
    assert dropped == [(line, "not a whole JSON object (half-written?)") for line in (2, 3, 4, 5)]
