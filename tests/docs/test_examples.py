"""Every override that a page shows inside a sentence, that a comment of ``conf/`` gives, or that a
message tells its reader to type, composes.

Whole commands stand in blocks, which test_blocks.py runs. A word in capitals stands for something:
``seed=SEED``.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.configuration import CONF
from dgbench.errors import DgbenchError
from dgbench.plan.explain import explain
from dgbench.plan.keys import owners_of, package_of
from dgbench.plan.names import in_our_names
from dgbench.plan.overrides import groups, open_keys, options
from tests.conftest import ROOT
from tests.studies import composed

GENERATED = ("configuration.md", "choices.md", "algorithms.md")
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED),
]
FILES = sorted(CONF.rglob("*.yaml"))
MODULES = sorted((ROOT / "src").rglob("*.py"))
ROOTS = ("train", "report", "shift")
#: what only ``dgbench evaluate`` or joblib's launcher take, and an algorithm that a page defines
LABELS = (
    "averaging=diwa_uniform",
    "averaging=diwa_greedy",
    "algorithm=erm,worst_risk",
    "hydra.launcher.n_jobs=2",
    'hydra.sweeper.params={seed: "0,1,2"}',  # Hydra refuses it in a process that composed it before
)
LAUNCHER_KEYS = {
    "ray": "hydra/launcher=ray",
    "workers": "hydra/launcher=local",
    "per_gpu": "hydra/launcher=local",
}

_SPAN = re.compile(r"(?<!`)`(?P<text>[^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"^[+~]{0,2}(?P<key>[a-z][\w/]*(?:\.\w+)*)=(?P<value>.+)$", re.DOTALL)
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]{2,}\b|\b(?:KEY|VALUE|ID|A|B|N|X)\b|\.\.\.|…")
_COMMENT = re.compile(r"(?:^|\s)#(?P<text>.*)$")
_ENTRY = re.compile(r"^(?P<indent> *)(?P<key>\w+):")
_MAPPING, _LIST = r"\{[^}]*\}", r"\[(?:[^\[\]]|\[[^\]]*\])*\]"
_TEXT = r"'[^']+'|(?!(?:a|an|of|the|with)\b)[\w.]+(?=[\s,;)]|$)"  # not the first word of a phrase
_HOLE = re.compile(r"\{\w*\}|%[sd]")  # of a text that is formatted later
_EXTRA = re.compile(r"dgbench\[([a-z]+)\]")
_VALUE = re.compile(rf"e\.g\. (?P<value>{_MAPPING}|{_LIST}|{_TEXT})")
_IN_COMMENT = re.compile(
    r"""(?P<quote>'?)[+]{0,2}[a-z][\w/]*(?:\.\w+)*=(?:\[[^\]]*\]|\{[^}]*\}|[^\s,;()'`]*[^\s,;()'`.:])(?P=quote)"""
)


def roots_of(key: str) -> list[str]:
    """The commands that have what a key begins with."""
    top = key.partition(".")[0]
    found = []
    for root in ROOTS:
        tops = {
            *groups(root),
            *(line.partition(":")[0] for line in (CONF / f"{root}.yaml").read_text().splitlines()),
        }
        if top in tops or (root == "train" and top.startswith("hydra")):
            found.append(root)
    return found


def faults(words: list[str]) -> Iterator[str]:
    """What is wrong with words that are typed together, a line each."""
    meant = [word for word in words if not _PLACEHOLDER.search(word)]
    chosen = tuple(word for word in meant if options(word.partition("=")[0]))
    for word in meant:
        match = _WORD.match(word)
        if match is None or word in LABELS:
            continue
        key = match["key"]
        roots = roots_of(key)
        if roots:
            problems = [fault_of(word, key, chosen, root) for root in roots]
            if all(problems):
                yield f"{word}: {problems[0]}"


@cache
def fault_of(word: str, key: str, chosen: tuple[str, ...], root: str) -> str:
    """What a command says of a word beside chosen files, or else beside a file that has its key;
    empty if nothing.
    """
    group, _, sub = key.partition(".")
    contexts = [
        [other for other in chosen if other != word and other.partition("=")[0] in groups(root)]
    ]
    contexts += [[owner] for owner in owners(group, sub)]
    problem = ""
    for context in contexts:
        try:
            for typed in jobs([*context, word]):
                composed(*typed, name=root, hydra=key.startswith("hydra"))
        except (DgbenchError, HydraException, OmegaConfBaseException) as error:
            problem = explain(error, root, [*context, word])
        else:
            return ""
    return problem


def jobs(words: list[str]) -> Iterator[tuple[str, ...]]:
    """The words of each job of a sweep over them."""
    overrides = OverridesParser.create().parse_overrides(open_keys(in_our_names(words)))
    values = [
        [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [str(override.input_line)]
        for override in overrides
    ]
    yield from product(*values)


def owners(group: str, sub: str) -> list[str]:
    """The choices that bring a key along, also one below a key of theirs."""
    if group == "hydra":
        name = sub.removeprefix("launcher.").partition(".")[0]
        return [LAUNCHER_KEYS.get(name, "hydra/launcher=slurm")]
    while sub:
        if found := owners_of(group, sub):
            return [found[0], found[-1]]
        sub = sub.rpartition(".")[0]
    return []


def of_page(text: str) -> Iterator[list[str]]:
    """Words of the spans of code of a page, those of one span together."""
    for match in _SPAN.finditer(_BLOCK.sub("", text)):
        try:
            words = shlex.split(match["text"].strip("()"))
        except ValueError:  # no words of a shell
            continue
        yield words


def of_comments(text: str) -> Iterator[list[str]]:
    """Overrides in the comments of a file, those of one line together."""
    for line in text.splitlines():
        comment = _COMMENT.search(line)
        if comment:
            yield [match[0].strip("'") for match in _IN_COMMENT.finditer(comment["text"])]


def of_values(file: Path) -> Iterator[list[str]]:
    """``KEY=VALUE`` of each value that the comment of a key of a file gives as an example."""
    folder = file.parent.relative_to(CONF)
    header = package_of(file)
    package = (
        []
        if folder == Path()
        else [*folder.parts[:-1], header]
        if header == folder.name
        else [header]
    )
    outer: list[tuple[int, str]] = []
    for line in file.read_text().splitlines():
        entry = _ENTRY.match(line)
        if not entry:
            continue
        indent = len(entry["indent"])
        outer = [(depth, name) for depth, name in outer if depth < indent] + [
            (indent, entry["key"])
        ]
        example = _VALUE.search(line.partition(" #")[2])
        if example:
            yield [".".join([*package, *(name for _, name in outer)]) + "=" + example["value"]]


def texts_of(module: Path) -> Iterator[str]:
    """The texts of a module but for its docstrings; what a text is filled with is ``VALUE``."""
    tree = ast.parse(module.read_text())
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # docstrings, and notes below a constant
            parts.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            constants = [
                value.value if isinstance(value, ast.Constant) else "VALUE" for value in node.values
            ]
            yield _HOLE.sub("VALUE", "".join(map(str, constants)))
            continue
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in parts:
            yield _HOLE.sub("VALUE", node.value)


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_overrides_within_a_sentence_compose(page: Path) -> None:
    assert [fault for words in of_page(page.read_text()) for fault in faults(words)] == []


@pytest.mark.thorough
def test_overrides_in_comments_of_conf_compose() -> None:
    problems = []
    for file in FILES:
        for words in (*of_comments(file.read_text()), *of_values(file)):
            problems += [f"{file.relative_to(CONF)}: {fault}" for fault in faults(words)]
    assert problems == []


#: a word that left, which a message answers, and one that is put together from a key
NOT_COMPOSED = ("plan=probe", "import.VALUE_from=file",
                "averaging=wise_ft", "averaging=dfr")  # of `dgbench evaluate`  # fmt: skip


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_overrides_in_messages_compose() -> None:
    problems: list[str] = []
    n_words = 0
    for module in MODULES:
        for text in texts_of(module):
            words = [match[0].strip("'") for match in _IN_COMMENT.finditer(text)]
            words = [word for word in words if word not in NOT_COMPOSED]
            n_words += len(words)
            problems += [f"{module.name}: {fault}" for fault in faults(words)]
    assert not problems, "\n".join(problems)
    assert n_words > 400


def test_packages_that_messages_name_are_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        extra for module in MODULES for text in texts_of(module) for extra in _EXTRA.findall(text)
    }
    assert {"wandb", "slurm", "weights"} <= named
    assert named <= set(project["optional-dependencies"])


def test_words_of_a_message_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""See seed=1."""\nNOTE = "add trainer.stepz=3"\n'
        'text = f"{name}: write grid.{key}=[1,2] or seed={number}" + "init=%s, init={name}"\n'
    )
    assert {*texts_of(module)} == {
        "VALUE: write grid.VALUE=[1,2] or seed=VALUE",
        "add trainer.stepz=3",
        "init=VALUE, init=VALUE",
    }


def test_a_wrong_example_is_found() -> None:
    assert [
        fault for words in of_page("take `trainer.stepz=3` or `seed=1`") for fault in faults(words)
    ] == [
        (
            "trainer.stepz=3: key trainer.stepz is unknown; did you mean trainer.steps? see "
            "docs/reference/configuration.md"
        )
    ]
    (words,) = of_comments("a: 1  # not `b`, e.g. trainer.stepz=3, or seed=[1,2]")
    assert words == ["trainer.stepz=3", "seed=[1,2]"]
    assert len(list(faults(words))) == 1


def test_examples_of_values_are_found() -> None:
    """Those of mappings that take new keys were refused, and of keys of a mapping in quotes."""
    assert list(of_values(CONF / "hydra/launcher/slurm.yaml")) == [
        ["hydra.launcher.gpus_per_node=1"],
        ['hydra.launcher.setup=["module load cuda"]'],
        ["hydra.launcher.additional_parameters={mail-type: END}"],
    ]
    assert list(of_values(CONF / "hydra/launcher/ray.yaml")) == [
        ["hydra.launcher.ray.remote.num_gpus=1"]
    ]
    assert list(of_values(CONF / "dataset/image_folder.yaml"))[-1] == [
        "dataset.split_pattern='clip(.+)_frame'"
    ]
    assert list(of_values(CONF / "import/table.yaml")) == [
        ["import.columns.hparams={lr: learning_rate}"],
        ["import.ignore=[params,year]"],
        ["import.where={in_distribution: false}"],
        ["import.in_distribution=[imagenet]"],
        ["import.rename={Sketch: sketch}"],
    ]
    assert list(of_values(CONF / "head/zero_shot.yaml")) == [['head.class_names={"0": zero}']]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("word", "inner"),
    [
        ("hydra.launcher.additional_parameters={mail-type: END}", "mail-type"),
        ('head.class_names={"0": zero}', "0"),
        ("callbacks={early: {_target_: pytorch_lightning.callbacks.EarlyStopping}}", "early"),
        ("dataset.augmentations={mine: {_target_: own.Mine}}", "mine"),
        ("import.columns={hparams: {lr: learning_rate}}", "hparams"),
        ("hydra.launcher.ray.remote={num_cpus: 2, memory: 4e9}", "memory"),
    ],
)
def test_mappings_are_set_as_a_whole(word: str, inner: str) -> None:
    """Also those whose names are the user's to choose; what was there beside them stays."""
    assert list(faults([word])) == []
    key = word.partition("=")[0]
    group, _, sub = key.partition(".")
    root = "report" if group == "import" else "train"
    beside = [owner for owner in owners(group, sub)[-1:] if owner not in word]
    config = composed(*beside, word, name=root, hydra=group == "hydra")
    assert inner in map(str, OmegaConf.select(config, key))
