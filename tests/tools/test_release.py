"""Every check of ``make release`` finds what it is for; the check of this repository itself is
``make release``.
"""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import release
from tools.fresh_environment import Failed, run

VERSION = '"""The version."""\n\n__version__ = "1.2.0"\n'
CHANGELOG = (
    "# Changelog\n\n## [1.2.0] - 2026-11-23\n\n### Added\n\n- All.\n\n## [1.1.0] - 2025-01-01\n"
)
CITATION = "cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2026-11-23\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A committed repository whose three files agree."""
    files = {"src/dgbench/version.py": VERSION, "CHANGELOG.md": CHANGELOG, "CITATION.cff": CITATION}
    for name, text in {**files, "conf/train.yaml": "a: 1\n", ".gitignore": "dist/\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
        subprocess.run(("git", *words), cwd=tmp_path, check=True)
    return tmp_path


def test_a_repository_in_order_has_no_problem(repository: Path) -> None:
    assert release.uncommitted(repository) == []
    assert release.package_version(repository) == "1.2.0"
    assert release.version_problems(repository) == []
    assert release.conf_files(repository) == {"conf/train.yaml"}


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("src/dgbench/version.py", "1.2.0", "1.3.0",
            "top entry of CHANGELOG.md is [1.2.0], dgbench.version is 1.3.0"),
        ("CHANGELOG.md", "[1.2.0]", "[Unreleased]",
            "the top entry of CHANGELOG.md is [Unreleased]"),
        ("CHANGELOG.md", " - 2026-11-23", "", "entry [1.2.0] of CHANGELOG.md has no date"),
        ("CHANGELOG.md", "## [", "## ", "CHANGELOG.md has no entry"),
        ("CHANGELOG.md", "2026-11-23", "2026-11-24",
            "was released 2026-11-23, CHANGELOG.md says 2026-11-24"),
        ("CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.1.0", "CITATION.cff has version 1.1.0"),
        ("CITATION.cff", "\nversion: 1.2.0", "", "CITATION.cff has version None"),
    ],
)  # fmt: skip
def test_versions_that_disagree(
    repository: Path, file: str, old: str, new: str, problem: str
) -> None:
    text = (repository / file).read_text()
    assert old in text
    (repository / file).write_text(text.replace(old, new))
    assert problem in "\n".join(release.version_problems(repository))


@pytest.mark.parametrize(
    ("file", "status"), [("CHANGELOG.md", " M CHANGELOG.md"), ("new.py", "?? new.py")]
)
def test_a_tree_that_is_not_committed_is_refused_first(
    repository: Path, file: str, status: str
) -> None:
    with (repository / file).open("a") as opened:
        opened.write("\n")
    assert release.uncommitted(repository) == [status]
    with pytest.raises(Failed, match="not committed"):
        release.check(repository, print)


def test_archives_of_an_earlier_release_are_not_overwritten(repository: Path) -> None:
    (repository / "dist").mkdir()
    (repository / "dist" / "old.whl").touch()
    with pytest.raises(Failed, match=r"holds old\.whl; remove it"):
        release.check(repository, lambda line: None)


CONF = ["conf/train.yaml", "conf/init/moco.yaml"]
WHEEL = [
    "dgbench/__init__.py",
    "hydra_plugins/dgbench.py",
    *(f"dgbench/{name}" for name in CONF),
    "a.dist-info/RECORD",
]
SDIST = ["src/dgbench/__init__.py", "README.md", *CONF]


def test_archives_in_order_have_no_problem() -> None:
    assert release.content_problems(CONF, WHEEL, SDIST) == []


@pytest.mark.parametrize(
    ("wheel", "sdist", "problem"),
    [
        (WHEEL[:3] + WHEEL[4:], SDIST, "the wheel lacks dgbench/conf/init/moco.yaml"),
        (WHEEL, SDIST[:-1], "the sdist lacks conf/init/moco.yaml"),
        ([*WHEEL, "dgbench/conf/old.yaml"], SDIST, "the wheel holds dgbench/conf/old.yaml"),
        ([*WHEEL, "tests/test_api.py"], SDIST, "the wheel holds tests/test_api.py"),
        (WHEEL, [*SDIST, "tests/test_api.py"], "the sdist holds tests/test_api.py"),
        (WHEEL, [*SDIST, "data/MNIST/raw"], "the sdist holds data/MNIST/raw"),
    ],
)
def test_archives_that_lack_or_hold_too_much(
    wheel: list[str], sdist: list[str], problem: str
) -> None:
    assert release.content_problems(CONF, wheel, sdist) == [problem]


def test_names_in_both_kinds_of_archive(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as wheel:
        wheel.write(tmp_path / "a.py", "dgbench/a.py")
    with tarfile.open(tmp_path / "p-1.tar.gz", "w:gz") as sdist:
        sdist.add(tmp_path / "a.py", "p-1/src/dgbench/a.py")
    assert release.names_in(tmp_path / "p.whl") == ["dgbench/a.py"]
    assert release.names_in(tmp_path / "p-1.tar.gz") == ["src/dgbench/a.py"]


def test_a_command_that_fails_is_named_with_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"ended with status 3:\nsaid"):
        run("sh", "-c", "echo said; exit 3", cwd=tmp_path)
