"""A built wheel in an environment of its own, used as a user does."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

#: what a user who set nothing does not have
FOREIGN = ("PYTHON", "HYDRA", "DGBENCH", "PYTEST", "SLURM", "WANDB")

#: 12 steps on the digits that scikit-learn carries
TINY = (
    "dataset.base=digits",
    "backbone.width=8",
    "trainer.steps=12",
    "trainer.eval_every=12",
    "trainer.device=cpu",
)


class Failed(RuntimeError):
    """A command that should have ended well did not; the message holds what it printed."""


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command in the environment of a user who set one thread; return its standard output and
    standard error.

    Raises:
        Failed: it ended with another status than 0, or took longer than five minutes.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    try:
        ended = subprocess.run(
            words,
            cwd=cwd,
            env={**kept, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(
            f"{' '.join(map(str, words))} did not end within {error.timeout:.0f} s"
        ) from error
    printed = ended.stdout + ended.stderr
    if ended.returncode:
        raise Failed(
            f"{' '.join(map(str, words))} ended with status {ended.returncode}:\n{printed}"
        )
    return printed


#: how ``dgbench`` of a folder with archives comes into the environment of a Python: the wheel by
#: pip, the sdist by uv
INSTALLERS = {
    "pip": ("pip", "install", "--ignore-installed", "--no-deps", "--no-index", "--quiet"),
    "uv": (
        "uv",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--no-binary=dgbench",
        "--no-build-isolation",
        "--quiet",
    ),
}


def install(archives: Path, folder: Path, installer: str) -> Path:
    """Make a new environment in ``folder``, and return its ``dgbench`` program.

    It sees the dependencies of the running Python, but not a checkout installed there.

    Args:
        archives: folder of the wheel, and the sdist where uv installs; the only index.
        folder: of the environment.
        installer: one of :data:`INSTALLERS`.

    Raises:
        Failed: the installer refused, the dependencies conflict, or another dgbench would be
            imported.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    # .pth files in there are not read
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    where = ("--prefix", folder) if installer == "pip" else ("--python", python)
    run(
        python,
        "-m",
        *INSTALLERS[installer],
        *where,
        "--find-links",
        archives.resolve(),
        "dgbench",
        cwd=folder,
    )
    # of all other packages nothing is asked
    check = f"{python} -m pip check | grep ^dgbench && exit 1 || exit 0"
    run("bash", "-c", check, cwd=folder)
    found = Path(run(python, "-c", "import dgbench; print(dgbench.__file__)", cwd=folder).strip())
    if not found.is_relative_to(site):
        raise Failed(f"{python} imports dgbench from {found}")
    return folder / "bin" / "dgbench"


def smoke(program: Path, folder: Path, version: str, archive: Path | None = None) -> None:
    """Train and report in the empty ``folder``, and check the archive of results.

    Args:
        archive: the repository's results/, checked where it is given.

    Raises:
        Failed: a command failed, or printed something else than it should.
    """

    def expect(words: tuple[str, ...], text: str) -> None:
        printed = run(program, *words, cwd=folder)
        if text not in printed:
            raise Failed(f"dgbench {' '.join(words)} does not print {text!r}:\n{printed}")

    expect(("--version",), f"dgbench {version}")
    expect(("train", *TINY), "worst+gap")
    expect(("report",), "5 finished runs in 1 setting.")
    if archive:
        run(program, "results", "check", archive, cwd=folder)
