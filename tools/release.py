"""``make release``: checks what would be published, builds it in dist/, uses it, and says what to
do next.

Publishes nothing. The checks, in order: a clean tree; one version in ``dgbench.version``,
CHANGELOG.md and CITATION.cff; sdist and wheel build and have valid metadata; they hold all of conf/
and no tests, data or results; from dist/ as an index, with all extras, a newest set of dependencies
resolves; the wheel by pip and the sdist by uv, each in an environment of its own, train and report.
Before them, the costs that come with the package (``make costs``) must be of this code.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, only tools/ is there

from tools.fresh_environment import INSTALLERS, Failed, install, run, smoke  # noqa: E402

#: folders of the repository that are not part of the package
LEFT_OUT = ("tests", "data", "results", "docs", "benchmarks", "outputs", "multirun", "tools")

#: what a user may ask for
EXTRAS = ("slurm", "parquet", "clip", "onnx", "tensorboard", "wandb")

ENTRY = re.compile(r"^## \[(?P<version>[^]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?\s*$", re.M)


def uncommitted(root: Path) -> list[str]:
    """List files that differ from the last commit or are not in it, as in ``git status``."""
    listed = subprocess.run(
        ("git", "status", "--porcelain"), cwd=root, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def package_version(root: Path) -> str:
    """Read ``__version__`` of src/dgbench/version.py."""
    text = (root / "src" / "dgbench" / "version.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.M)
    if not found:
        raise Failed('src/dgbench/version.py has no line __version__ = "..."')
    return found[1]


def version_problems(root: Path) -> list[str]:
    """List what keeps version.py, CHANGELOG.md and CITATION.cff from naming one version and one
    date.
    """
    version = package_version(root)
    top = ENTRY.search((root / "CHANGELOG.md").read_text())
    if not top:
        return ["CHANGELOG.md has no entry ## [VERSION] - YYYY-MM-DD"]
    problems = []
    if top["version"] != version:
        problems.append(
            f"the top entry of CHANGELOG.md is [{top['version']}], dgbench.version is {version}"
        )
    elif not top["date"]:
        problems.append(f"entry [{version}] of CHANGELOG.md has no date")
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    if str(cited.get("version")) != version:
        problems.append(
            f"CITATION.cff has version {cited.get('version')}, dgbench.version is {version}"
        )
    if top["date"] and str(cited.get("date-released")) != top["date"]:
        problems.append(
            f"CITATION.cff was released {cited.get('date-released')}, CHANGELOG.md says "
            f"{top['date']}"
        )
    return problems


def conf_files(root: Path) -> set[str]:
    """List conf/GROUP/NAME.yaml of every file under version control."""
    listed = subprocess.run(
        ("git", "ls-files", "conf"), cwd=root, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.splitlines())


def content_problems(conf: Iterable[str], wheel: Iterable[str], sdist: Iterable[str]) -> list[str]:
    """List what is missing in the two archives, or should not be there.

    Args:
        conf: paths of the configuration below the repository, e.g. ``conf/train.yaml``.
        wheel, sdist: names of their files; those of the sdist below its top folder.
    """
    conf = set(conf)
    wheel = set(wheel)
    sdist = set(sdist)
    installed = {f"dgbench/{name}" for name in conf}
    held = {name for name in wheel if name.startswith("dgbench/conf/")}
    problems = [f"the wheel lacks {name}" for name in sorted(installed - wheel)]
    problems += [f"the sdist lacks {name}" for name in sorted(conf - sdist)]
    problems += [f"the wheel holds {name}" for name in sorted(held - installed)]
    expected = ("dgbench/", "hydra_plugins/")
    problems += [
        f"the wheel holds {name}"
        for name in sorted(wheel)
        if not name.startswith(expected) and ".dist-info/" not in name
    ]
    problems += [
        f"the sdist holds {name}" for name in sorted(sdist) if name.split("/")[0] in LEFT_OUT
    ]
    return problems


def names_in(archive: Path) -> list[str]:
    """List the files of a wheel, or of an sdist below its top folder."""
    if archive.suffix == ".whl":
        return [name for name in zipfile.ZipFile(archive).namelist() if not name.endswith("/")]
    with tarfile.open(archive) as tar:
        return [member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()]


def built(root: Path, out: Path) -> tuple[Path, Path]:
    """Build sdist and wheel of the last commit, the latter from the former, in the empty folder
    ``out``.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        run("git", "clone", "--quiet", "--depth=1", root.as_uri(), source, cwd=Path(folder))
        run(
            sys.executable,
            "-m",
            "uv",
            "build",
            "--no-create-gitignore",
            "--out-dir",
            out,
            source,
            cwd=Path(folder),
        )
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def require(problems: Sequence[str]) -> None:
    """Refuse to go on.

    Raises:
        Failed: there is a problem; the message has one line for each.
    """
    if problems:
        raise Failed("\n".join(problems))


def check(root: Path, say: Callable[[str], None]) -> tuple[Path, Path]:
    """Run every check in turn; put the sdist and the wheel into dist/.

    Raises:
        Failed: what is wrong, one line for each problem.
    """
    version = package_version(root)
    require([f"not committed: {line}" for line in uncommitted(root)])
    require(version_problems(root))
    say(f"version {version}: clean tree, CHANGELOG.md and CITATION.cff agree")
    out = root / "dist"
    require([f"{out} holds {path.name}; remove it" for path in sorted(out.glob("*"))])
    sdist, wheel = built(root, out)
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, cwd=root)
    require(content_problems(conf_files(root), names_in(wheel), names_in(sdist)))
    say(f"{sdist.relative_to(root)} and {wheel.name}: metadata and contents are right")
    rehearse(out, version, say, root / "results")
    return sdist, wheel


def rehearse(
    archives: Path, version: str, say: Callable[[str], None], results: Path | None = None
) -> None:
    """Install the archives of a folder as a user would from an index, and use them.

    Args:
        archives: folder of sdist and wheel.
        version: that they must have.
        say: is told of each step.
        results: the repository's results/, checked where it is given.

    Raises:
        Failed: the dependencies conflict, or an installed program does not work.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "empty" / "bin" / "python"
        run(
            sys.executable,
            "-m",
            "uv",
            "venv",
            "--quiet",
            "--python",
            sys.executable,
            python.parents[1],
            cwd=archives,
        )
        every = f"dgbench[{','.join(EXTRAS)}]=={version}"
        words = ("pip", "install", "--dry-run", "--python", python, "--find-links", archives, every)
        resolved = run(sys.executable, "-m", "uv", *words, cwd=archives)
        say(f"{every}: {resolved.count(' + ')} packages of the package index go together")
        for installer in INSTALLERS:
            empty = Path(folder) / f"work-{installer}"
            empty.mkdir()
            smoke(install(archives, Path(folder) / installer, installer), empty, version, results)
            say(f"installed by {installer} in an environment of its own: trains and reports")


def rehearsal() -> None:
    """Build the last commit into a temporary folder and use it from there; nothing else is checked
    or kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        built(ROOT, Path(folder))
        rehearse(Path(folder), package_version(ROOT), lambda line: print(line, flush=True))


def main() -> int:
    try:
        if sys.argv[1:] == ["--rehearse"]:
            rehearsal()
            return 0
        from tools.costs import main as costs  # plans hundreds of studies

        if costs(["--check"]):
            return 1
        sdist, wheel = check(ROOT, lambda line: print(line, flush=True))
    except Failed as error:
        print("\n".join(f"dgbench: {line}" for line in str(error).splitlines()), file=sys.stderr)
        return 1
    tag = f"v{package_version(ROOT)}"
    print(
        f"\nNothing is published. What remains:\n  git tag -a {tag} -m {tag} && git push origin "
        f"{tag}\n  {sys.executable} -m twine upload {sdist.relative_to(ROOT)} "
        f"{wheel.relative_to(ROOT)}\nThen set the next version in src/dgbench/version.py and "
        "CITATION.cff, and head CHANGELOG.md with its entry."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
