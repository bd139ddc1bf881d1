"""``make readme``: run every command whose output README.md shows, and put there what it prints now.

Such a block of the README follows a line ``<!-- output of: COMMAND -->``, which readers do not see. The commands run
one after the other in one temporary folder, as a reader would type them in one; ``readme_outputs.json`` keeps which
code printed each output and how long that took, so that a test can say which outputs are older than their code.

    python docs/readme_outputs.py [--only PART_OF_A_COMMAND]
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README, KEPT = ROOT / "README.md", ROOT / "docs" / "readme_outputs.json"
_BLOCK = re.compile(r"(?<=<!-- output of: )(?P<command>.+?) -->\n```\w*\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL)
# what a command depends on besides conf/: training does not import reports, nor what is only said on a terminal
_NOT_IN_TRAINING = ("reports", "cli", "sweeps")


@dataclass(frozen=True)
class Block:
    """One output in the README."""

    command: str
    shown: str  #: the block, with the typed lines ``$ ...`` that it may begin with

    @property
    def output(self) -> str:
        """What the command printed."""
        return "".join(line for line in self.shown.splitlines(keepends=True) if not line.startswith("$ "))

    @property
    def depends_on(self) -> str:
        """Digest of the code that decides the output."""
        without = () if "report.py" in self.command else _NOT_IN_TRAINING
        files = [*(ROOT / "src" / "dgbench").rglob("*.py"), *(ROOT / "conf").rglob("*.yaml")]
        found = hashlib.sha256()
        for file in sorted(files):
            if not set(file.relative_to(ROOT).parts) & set(without):
                found.update(file.read_bytes())
        return found.hexdigest()[:12]


def blocks(text: str) -> Iterator[Block]:
    """The outputs that a README shows, from top to bottom."""
    for found in _BLOCK.finditer(text):
        yield Block(found["command"], found["shown"])


def kept() -> dict[str, dict[str, Any]]:
    """Command -> ``code`` that printed its output (see :attr:`Block.depends_on`) and ``seconds`` that it took."""
    content: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return content


def run(command: str, folder: Path) -> str:
    """What a command prints, typed in ``folder``; standard error, too, of one that ends with ``2>&1 || true``.

    Raises:
        SystemExit: it fails.
    """
    if not (folder / "results").exists():
        (folder / "results").symlink_to(ROOT / "results")
    words = re.sub(r"\bpython (train|report)\.py\b", rf"python {ROOT}/\1.py", command)
    words = re.sub(r"\bmake\b", f"make --no-print-directory -C {ROOT}", words)
    kept_names = {k: v for k, v in os.environ.items() if not k.startswith(("HYDRA", "WANDB", "PYTEST", "OMP_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**kept_names, "PATH": path, "COLUMNS": "120", "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", words], cwd=folder, env=env, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{command}\nfailed:\n{ended.stderr[-2000:]}")
    return ended.stdout


def main() -> None:
    """Renew the README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="renew only commands that hold this text")
    only = parser.parse_args().only
    known = kept()
    with tempfile.TemporaryDirectory() as temporary:
        for block in blocks(README.read_text()):
            if only not in block.command:
                continue
            start = time.perf_counter()
            output = run(block.command, Path(temporary))
            seconds = time.perf_counter() - start
            typed = block.shown.removesuffix(block.output)
            text = README.read_text()
            old, new = (f"{block.command} -->\n```\n{shown}```" for shown in (block.shown, typed + output))
            if old not in text:
                sys.exit(f"{block.command}: the block must begin with ``` alone")
            README.write_text(text.replace(old, new, 1))
            known[block.command] = {"code": block.depends_on, "seconds": round(seconds, 1)}
            print(f"{seconds:6.1f} s  {'same' if output == block.output else 'new '}  {block.command}", flush=True)
            shown = {each.command: known[each.command] for each in blocks(README.read_text()) if each.command in known}
            KEPT.write_text(json.dumps(shown, indent=2) + "\n")


if __name__ == "__main__":
    main()
