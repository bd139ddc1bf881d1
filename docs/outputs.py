"""Run the commands whose output a page shows, and put there what they print now.

Such a block of README.md or of a page of docs/ follows a line ``<!-- output of: COMMAND -->``,
which readers do not see. A test runs these commands at every commit. Those after ``<!-- dear output
of: COMMAND -->`` run with ``--dear`` alone: they take long, or another machine prints other digits,
as after training. The commands of a page run one after the other in one temporary folder, as a
reader would type them in one.

    python docs/outputs.py [--dear] [--only PART_OF_A_COMMAND] [README.md docs ...]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = (ROOT / "README.md", ROOT / "docs")
_BLOCK = re.compile(
    r"<!-- (?P<dear>dear )?output of: (?P<command>.+?) -->\n```\w*\n(?P<shown>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: a time or a size with the spaces that align it: two runs of one command differ in these
_MEASURED = re.compile(r"\s*~?\d[\d.,]*(?= (?:ms|s|min|h|core hours|[KMG]B)\b)")


@dataclass(frozen=True)
class Block:
    """One output on a page."""

    command: str
    dear: bool  #: only ``--dear`` runs the command
    shown: str  #: the block, with the typed lines ``$ ...`` that it may begin with
    span: tuple[int, int]  #: where that stands in the text of the page

    @property
    def output(self) -> str:
        """What the command printed."""
        lines = self.shown.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("$ "))

    @property
    def typed(self) -> str:
        """The lines ``$ ...`` above the output."""
        return self.shown.removesuffix(self.output)

    def shows(self, printed: str) -> bool:
        """Whether the block shows what was printed, apart from times and sizes of files."""
        return without_measured(self.output) == without_measured(printed)


def without_measured(text: str) -> str:
    """Put ``#`` for every time and size: ``12 s`` becomes ``# s``, ``3 seeds`` stays."""
    return _MEASURED.sub(" #", text)


def pages(places: Iterable[Path] = PLACES) -> list[Path]:
    """List the files among these places, and the Markdown files at any depth of the folders."""
    listed: list[Path] = []
    for place in places:
        listed.extend(sorted(place.rglob("*.md")) if place.is_dir() else [place])
    return listed


def blocks(text: str) -> list[Block]:
    """List the outputs that the text of a page shows, from top to bottom."""
    return [
        Block(match["command"], bool(match["dear"]), match["shown"], match.span("shown"))
        for match in _BLOCK.finditer(text)
    ]


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
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HYDRA", "WANDB", "PYTEST", "OMP_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**variables, "PATH": path, "COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")}
    shell = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], cwd=folder, env=env, capture_output=True, text=True
    )
    if shell.returncode:
        sys.exit(f"{command}\nfailed:\n{shell.stderr[-2000:]}")
    return shell.stdout


def printed_now(page: Path, dear: bool = False, only: str = "") -> Iterator[tuple[int, str]]:
    """Run the commands of a page; yield the number of each block on its page and what its command
    prints.

    Args:
        page: a Markdown file.
        dear: run the dear ones too.
        only: run only commands that contain this text.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, block in enumerate(blocks(page.read_text())):
            if only in block.command and (dear or not block.dear):
                yield number, run(block.command, Path(folder))


def show(page: Path, outputs: dict[int, str]) -> None:
    """Write outputs into the blocks with these numbers."""
    text = page.read_text()
    shown = blocks(text)
    for number in sorted(outputs, reverse=True):  # from the end, so that places before it stay
        first, last = shown[number].span
        text = text[:first] + shown[number].typed + outputs[number] + text[last:]
    page.write_text(text)


def renew(page: Path, dear: bool, only: str) -> int:
    """Run the commands of a page and show what they print now; return the number of new outputs.

    A block that differs only in times or sizes stays as it is.
    """
    shown = blocks(page.read_text())
    new: dict[int, str] = {}
    start = time.perf_counter()
    for number, output in printed_now(page, dear, only):
        block = shown[number]
        if not block.shows(output):
            new[number] = output
        seconds = time.perf_counter() - start
        found = "new " if number in new else "same"
        print(f"{seconds:6.1f} s  {found}  {block.command}", flush=True)
        start = time.perf_counter()
    if new:
        show(page, new)
    return len(new)


def main() -> None:
    """Update the outputs on pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dear", action="store_true", help="run dear commands too")
    parser.add_argument("--only", default="", help="run only commands that contain this text")
    parser.add_argument("places", nargs="*", type=Path, help="pages, or folders of pages")
    options = parser.parse_args()
    places = [place.resolve() for place in options.places] or [*PLACES]
    for place in places:
        if not place.exists():
            sys.exit(f"{place} does not exist; name pages or folders of pages")
    new = sum(renew(page, options.dear, options.only) for page in pages(places))
    print(f"{new} new outputs")


if __name__ == "__main__":
    main()
