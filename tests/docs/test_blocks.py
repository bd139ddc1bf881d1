"""Every code block of README.md and docs/ is run here, by a test named below, or says in a hidden
line why it is not.

Hidden lines stand right before a block: ``<!-- not run: REASON -->``, ``<!-- output of: COMMAND
-->`` or ``<!-- dear output of: COMMAND -->`` (test_outputs.py), or ``<!-- given: CODE -->``, which
is run first. A block after a line "`PATH`:" is a file that is written.
"""

from __future__ import annotations

import doctest
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.cli.entry import EXAMPLES
from dgbench.cli.models import EXAMPLES as EXAMPLES_OF_EVALUATE
from dgbench.data.fetch.fetching import sources
from tests.conftest import ROOT, Command, draw_tree
from tests.trained.test_domainbed_models import MNISTCNN, erm, saved

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
#: page and kind of its blocks -> the test that runs them, more thoroughly than here
ELSEWHERE = {
    ("docs/how_to/errors.md", "python"): "test_errors_page.py",
    ("docs/how_to/features.md", "python"): "test_features_page.py",
    ("docs/how_to/features.md", "bash"): "test_features_page.py",
    ("docs/reference/python.md", "python"): "test_python.py",
    ("docs/tutorials/own_algorithm.md", "python"): "test_docs.py",
}
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|(?:dear )?output of|given): (?P<said>(?:(?!-->).)+?) -->\n)?"
    r"(?P<indent> *)```(?P<kind>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"^`([\w./-]+)`:\n\n\Z", re.MULTILINE)
#: marks of blocks that are not checked here
NOT_RUN = ("not run", "output of", "dear output of")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")  #: of PACS
#: a model of the user's own, which always gives one answer
PREDICT = """
import torch


def predict(images):
    return torch.eye(7)[:1].expand(len(images), 7)
"""
SMALL = (
    "dataset=pacs dataset.root=PACS dataset.image_size=16 dataset.augment=none backbone=mlp "
    "backbone.width=8"
)
SHORT = (
    "init=random trainer.steps=2 trainer.eval_every=1 hparams.batch_size=4 trainer.predictions=last"
)
#: programs of a shell that a page may show without being checked
_SHELL = ("cat", "cd", "cp", "echo", "head", "ls", "mkdir", "source", "tail")


@dataclass(frozen=True)
class Block:
    """One block of a page; ``mark`` and what it ``said`` are empty where no hidden line stands
    before it.
    """

    kind: str
    text: str
    mark: str
    said: str
    file: str  #: path of the file that the block is, or empty
    line: int


def blocks(text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        file = _FILE.search(text[: found.start()])
        line = text.count("\n", 0, found.start()) + 1
        mark, said = found["mark"] or "", found["said"] or ""
        yield Block(found["kind"].strip(), found["text"], mark, said, file[1] if file else "", line)


@dataclass
class Work:
    """What the blocks of one page share."""

    page: str
    folder: Path  #: where a reader types
    command: Command
    names: dict[str, Any] = field(default_factory=dict)


def run_session(block: Block, work: Work) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, work.page, work.page, block.line)
    test.globs = work.names  # shared by the sessions of a page
    runner, said = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE), list[str]()
    runner.run(test, out=said.append, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def run_python(block: Block, work: Work) -> None:
    exec(block.said if block.mark == "given" else "", work.names)
    exec(compile("\n" * block.line + block.text, work.page, "exec"), work.names)


def check_yaml(block: Block, work: Work) -> None:
    assert yaml.safe_load(block.text)


def check_bash(block: Block, work: Work) -> None:
    """The shell says which programs would be started, with which words; each is checked by its
    name.
    """
    programs = {
        **PROGRAMS,
        ".venv/bin/python": PROGRAMS["python"],
        **dict.fromkeys(_SHELL, lambda words, path, work: None),
    }
    stubs = "\n".join(
        f"{name}() {{ printf '%s\\0' {name} \"${{PYTHONPATH:-}}\" \"$@\" $'\\n'; }}"
        for name in programs
    )
    shell = shutil.which("bash")
    assert shell
    ended = subprocess.run(
        [shell, "-e", "-u", "-c", f"{stubs}\n{block.text}"],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, f"no check knows what this starts: {ended.stderr}"
    for started in filter(None, ended.stdout.split("\n\0")):
        name, path, *words = started.split("\0")[:-1]
        try:
            programs[name](words, path, work)
        except AssertionError as error:
            raise AssertionError(f"{name} {' '.join(words)}\n{error}") from None


def check_python(words: list[str], path: str, work: Work) -> None:
    """Jobs are planned, reports composed, other programs asked for their help."""
    if words[0] == "-m":
        file = ROOT / "src" / words[1].replace(".", "/")
        script, rest = (
            (file / "__main__.py" if file.is_dir() else file.with_suffix(".py")),
            words[2:],
        )
    else:
        script, rest = ROOT / words[0], words[1:]
    assert script.is_file(), f"there is no {script}"
    start(script.name if script.parent == ROOT else str(script), rest, path, work)


def start(script: str, words: list[str], path: str, work: Work) -> None:
    instead = {
        "train.py": [*words, "plan=true"],
        "shift.py": [*words, "plan=true"],
        "report.py": [*words, "--cfg", "job"],
    }
    asked = words if "--help" in words else instead.get(script, ["--help"])
    if script == "report.py" and reads_what_is_there(words, work.folder):
        (run,) = (work.folder / "outputs" / "STUDY").glob("RUN")
        run_hash = json.loads((run / "identity.json").read_text())["run"]
        asked = [word.replace("0123456789ab", run_hash) for word in words]
    before = f"import sys; sys.path.append({str(work.folder / path)!r})" if path else ""
    ended = work.command(
        script, *asked, cwd=work.folder, before=before, env={"DGBENCH_DATA_DIR": str(work.folder)}
    )
    assert ended.code == 0, ended.err[-2000:]
    assert "phase would begin" not in ended.out, ended.out[-2000:]


def reads_what_is_there(words: list[str], folder: Path) -> bool:
    """Whether a report ends by itself and its runs are there, so that it is really made; others are
    composed only.
    """
    keys = dict(word.partition("=")[::2] for word in words if "=" in word)
    if keys.keys() & {"report.every", "report.wandb", "import"} or keys.get("report") in (
        "features",
        "shift",
    ):
        # without end, with an account, of a folder that another block makes, of other rows
        return False
    return all(
        (folder / name).exists() for name in keys.get("runs", "outputs").strip("[]").split(",")
    )


def check_dgbench(words: list[str], path: str, work: Work) -> None:
    """``train``, ``report`` and ``shift`` as their files; other commands really run, on a small
    trained model.
    """
    name, *rest = words
    if name == "fetch":  # a network is needed for most of them
        assert {word for word in rest if not word.startswith("-")} <= {
            "list",
            "verify",
            "DIR",
            *sources(),
        }
        return
    if (ROOT / f"{name}.py").exists():
        start(f"{name}.py", rest, path, work)
        return
    program = work.folder / "dgbench.py"
    program.write_text("from dgbench.cli.main import main\nmain()\n")
    ended = work.command(program, *words, cwd=work.folder)
    assert ended.code == 0, ended.err[-2000:]


def check_make(words: list[str], path: str, work: Work) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words if "=" not in word} <= {*targets}


def check_pip(words: list[str], path: str, work: Work) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = re.search(r"(?:dgbench|\.)\[([\w,-]+)\]", " ".join(words))
    assert named is None or {*named[1].split(",")} <= {*extras}


PROGRAMS: dict[str, Callable[[list[str], str, Work], None]] = {
    "python": check_python,
    "dgbench": check_dgbench,
    "make": check_make,
    "pip": check_pip,
}
KINDS: dict[str, Callable[[Block, Work], None]] = {
    "pycon": run_session,
    "python": run_python,
    "bash": check_bash,
    "yaml": check_yaml,
}


def faults(text: str, work: Work) -> list[str]:
    """What is wrong with the blocks of a page, one line each."""
    found = []
    for block in blocks(text):
        directive = block.kind.startswith("{")  # the site runs its own
        if block.mark in NOT_RUN or directive:
            continue
        try:
            if (work.page, block.kind) in ELSEWHERE and not block.file:
                continue
            if block.file:
                (work.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (work.folder / block.file).write_text(block.text)
            else:
                assert block.kind in KINDS, f"a block of kind {block.kind!r} is not run: mark it"
                KINDS[block.kind](block, work)
        except (Exception, SystemExit) as error:
            found.append(f"{work.page}:{block.line}: {type(error).__name__}: {error}")
    return found


@pytest.fixture(scope="module")
def folder(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages speak of: PACS in small, lists of it, a trained run as outputs/STUDY/RUN, a
    report, two pictures.
    """
    made = tmp_path_factory.mktemp("reader")
    draw_tree(
        made / "PACS",
        dict.fromkeys(("art_painting", "cartoon", "photo", "sketch"), dict.fromkeys(CLASSES, 16)),
    )
    (made / "DIR").symlink_to(made / "PACS")
    lines = [
        ",".join((str(path.relative_to(made / "PACS")), *path.parts[-3:-1]))
        for path in made.glob("PACS/*/*/*.png")
    ]
    (made / "LIST.csv").write_text("\n".join(["path,environment,class", *lines]))
    sides = ("train", "valid", "train", "test")
    stems = [line.partition(".")[0] for line in lines]
    clips = [
        f"{line},{stem[:-1]},{sides[int(stem[-1]) % 4]}"
        for line, stem in zip(lines, stems, strict=True)
    ]
    (made / "CLIPS.csv").write_text("\n".join(["path,environment,class,clip,split", *clips]))
    picture = made / "PACS" / "photo" / "dog" / "00.png"
    for name in ("a.png", "b.png", "b.jpg"):
        shutil.copy(picture, made / name)
    for name in ("results", "conf"):
        (made / name).symlink_to(ROOT / name)
    ended = command("train.py", *SMALL.split(), *SHORT.split(), "protocol.folds=[0]", cwd=made)
    assert ended.code == 0, ended.err
    shutil.copytree(made / "outputs", made / "multirun")
    run = next((made / "outputs").glob("pacs-*/fold-0-*"))
    shutil.copytree(run, made / "outputs" / "STUDY" / "RUN")
    ended = command("report.py", "runs=multirun", cwd=made)
    assert ended.code == 0, ended.err
    return made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_run_or_marked(
    page: Path, command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DGBENCH_DATA_DIR", str(folder))
    found = faults(page.read_text(), Work(str(page.relative_to(ROOT)), folder, command))
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name in EXAMPLES for words, _ in EXAMPLES[name]]
)
def test_examples_of_help_run(name: str, words: str, command: Command, folder: Path) -> None:
    weights = ["init=random"] if "pairs=each" in words else []  # a shift reads them for its plan
    check_python([f"{name}.py", *shlex.split(words), *weights], "", Work("help", folder, command))


@pytest.fixture(scope="module")
def models(folder: Path, command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples of ``dgbench evaluate --help`` speak of, beside what pages do."""
    import timm
    import torch
    from torch import nn

    made = tmp_path_factory.mktemp("models") / "made"
    shutil.copytree(folder, made, symlinks=True)
    draws = ("hparams.draw=1", "paths.output_dir=multirun", "protocol.folds=[0]")
    ended = command("train.py", *SMALL.split(), *SHORT.split(), *draws, cwd=made)
    assert ended.code == 0, ended.err
    torch.save(timm.create_model("resnet50", num_classes=7).state_dict(), made / "FILE")
    state, _ = erm(MNISTCNN(3), nn.Linear(128, 7))
    (made / "sweep" / "0a1b").mkdir(parents=True)
    saved(made / "sweep" / "0a1b" / "model.pkl", state, (3, 28, 28), model_num_classes=7)
    (made / "my_module.py").write_text(PREDICT)
    return made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("words", [words for words, _ in EXAMPLES_OF_EVALUATE])
def test_examples_of_the_help_of_evaluate_run(words: str, command: Command, models: Path) -> None:
    """On pictures that are smaller than those that are meant."""
    typed = shlex.split(words.replace("[dog,elephant,...]", f"[{','.join(CLASSES)}]"))
    sizes = {"model.pkl": 28, "pacs_corrupted": 32}
    size = next((size for word, size in sizes.items() if word in words), 16)
    if any(word.startswith("dataset=") for word in typed):
        typed.append(f"dataset.image_size={size}")
    check_dgbench(["evaluate", *typed], "", Work("help", models, command))


@pytest.mark.parametrize(("page", "kind"), ELSEWHERE)
def test_the_other_test_is_about_that_page(page: str, kind: str) -> None:
    assert Path(page).name in (Path(__file__).parent / ELSEWHERE[page, kind]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```\nnumbers\n```\n", "mark it"),
        ("```bash\npython train.py trainer.stepz=1\n```\n", "trainer.steps"),
        ("```bash\ncurl x\n```\n", "no check knows"),
        ("```bash\npip install 'dgbench[nothing]'\n```\n", "dgbench[nothing]"),
        ("```bash\nmake coffee\n```\n", "make coffee"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```pycon\n>>> 1 + 1\n3\n\n```\n", "Expected"),
    ],
)
def test_a_wrong_block_is_found(
    text: str, fault: str, command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (found,) = faults(text, Work("page.md", folder, command))
    assert found.startswith("page.md:1: ") and fault in found
