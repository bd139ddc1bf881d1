"""Run every command whose output a page shows, and put there what it prints now.

Such a block of README.md or of a page of docs/ follows a line ``<!-- output of: COMMAND -->``,
which readers do not see. The commands of a page run one after the other in one temporary folder, as
a reader would type them in one; ``outputs.json`` keeps which code printed each output and how long
that took, so that a test can say which outputs are older than their code.

    python docs/outputs.py [--only PART_OF_A_COMMAND] README.md docs ...
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "outputs.json"
_BLOCK = re.compile(
    r"(?<=<!-- output of: )(?P<command>.+?) -->\n```\w*\n(?P<shown>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# what a command depends on besides conf/: training does not import reports, nor what is only said
# on a terminal
_NOT_IN_TRAINING = ("reports", "cli", "sweeps")


@dataclass(frozen=True)
class Block:
    """One output on a page."""

    command: str
    shown: str  #: the block, with the typed lines ``$ ...`` that it may begin with
    span: tuple[int, int]  #: where that stands in the text of the page

    @property
    def output(self) -> str:
        """What the command printed."""
        return "".join(
            line for line in self.shown.splitlines(keepends=True) if not line.startswith("$ ")
        )

    @property
    def depends_on(self) -> str:
        """Digest of the code that decides the output."""
        skipped = () if "report.py" in self.command else _NOT_IN_TRAINING
        files = [*(ROOT / "src" / "dgbench").rglob("*.py"), *(ROOT / "conf").rglob("*.yaml")]
        digest = hashlib.sha256()
        for file in sorted(files):
            if not set(file.relative_to(ROOT).parts) & set(skipped):
                digest.update(file.read_bytes())
        return digest.hexdigest()[:12]


def pages(places: Iterable[Path] = (ROOT / "README.md", ROOT / "docs")) -> list[Path]:
    """List the files among these places, and the Markdown files in the folders among them, at any
    depth.
    """
    return [
        page
        for place in places
        for page in (sorted(place.rglob("*.md")) if place.is_dir() else [place])
    ]


def blocks(text: str) -> list[Block]:
    """List the outputs that the text of a page shows, from top to bottom."""
    return [
        Block(match["command"], match["shown"], match.span("shown"))
        for match in _BLOCK.finditer(text)
    ]


def name(page: Path) -> str:
    """Return the name of a page in ``outputs.json``: its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def kept() -> dict[str, dict[str, dict[str, Any]]]:
    """Read page -> command -> ``code`` that printed its output (:attr:`Block.depends_on`) and
    ``seconds`` it took.
    """
    content: dict[str, dict[str, dict[str, Any]]] = (
        json.loads(KEPT.read_text()) if KEPT.exists() else {}
    )
    return content


def run(command: str, folder: Path) -> str:
    """Run a command in ``folder``; return what it prints, with standard error if it ends with
    ``2>&1 || true``.

    Raises:
        SystemExit: it fails.
    """
    for linked in ("results", "docs"):
        if not (folder / linked).exists():
            (folder / linked).symlink_to(ROOT / linked)
    words = re.sub(r"\bpython (train|report|shift)\.py\b", rf"python {ROOT}/\1.py", command)
    words = re.sub(r"\bmake\b", f"make --no-print-directory -C {ROOT}", words)
    variables = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("HYDRA", "WANDB", "PYTEST", "OMP_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**variables, "PATH": path, "COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")}
    shell = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], cwd=folder, env=env, capture_output=True, text=True
    )
    if shell.returncode:
        sys.exit(f"{command}\nfailed:\n{shell.stderr[-2000:]}")
    return shell.stdout


@dataclass(frozen=True)
class Renewed:
    """What a command of a page prints now."""

    page: Path
    number: int  #: of the block on its page
    block: Block
    output: str
    seconds: float


def renew(page: Path, only: str) -> Iterator[Renewed]:
    """Run the commands of a page that contain ``only``, and yield what each prints now."""
    with tempfile.TemporaryDirectory() as temporary:
        for number, block in enumerate(blocks(page.read_text())):
            if only not in block.command:
                continue
            start = time.perf_counter()
            output = run(block.command, Path(temporary))
            seconds = time.perf_counter() - start
            print(
                (
                    f"{seconds:6.1f} s  {'same' if output == block.output else 'new '}  "
                    f"{block.command}"
                ),
                flush=True,
            )
            yield Renewed(page, number, block, output, seconds)


def write(renewed: Renewed) -> None:
    """Put an output in its place, and note which code printed it."""
    page, block = renewed.page, renewed.block
    text = page.read_text()
    first, last = blocks(text)[renewed.number].span
    typed = block.shown.removesuffix(block.output)
    page.write_text(text[:first] + typed + renewed.output + text[last:])
    content = kept()
    commands = {
        **content.get(name(page), {}),
        block.command: {"code": block.depends_on, "seconds": round(renewed.seconds, 1)},
    }
    content[name(page)] = {
        item.command: commands[item.command] for item in blocks(text) if item.command in commands
    }
    KEPT.write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Update the outputs on pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="renew only commands that hold this text")
    parser.add_argument(
        "places",
        nargs="*",
        type=Path,
        default=[ROOT / "README.md"],
        help="pages, or folders of pages",
    )
    options = parser.parse_args()
    if missing := [str(place) for place in options.places if not place.exists()]:
        sys.exit(f"{missing[0]} does not exist; name pages or folders of pages")
    outputs: list[Renewed] = []
    try:
        for page in pages(place.resolve() for place in options.places):
            outputs.extend(renew(page, options.only))
    finally:  # a page that changes between two commands would make two code versions of them
        for renewed in outputs:
            write(renewed)


if __name__ == "__main__":
    main()
