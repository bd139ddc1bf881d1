"""``make gallery``: run the commands of docs/gallery/gallery.yaml, keep their reports, write the
page that shows them.

    python docs/make_gallery.py [--folder DIR] [--only PAGE]

Runs that are done in DIR are not trained again. ``PACS`` in a command is the folder PACS, or its
smaller copy PACS_64, of ``DGBENCH_DATA_DIR``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"
WIDTH = 900  # of a picture, pixels
_HEAD = """# Gallery

<!-- Written by `make gallery` from gallery.yaml; edit that. -->

Finished reports, each with the commands that made it. A report is one HTML file that needs no \
network. Those of an
entry of `results/` show results to build on; the others come from small runs, some minutes on \
two cores.
"""


def run(command: str, folder: Path) -> None:
    """Run one command as a reader types it in ``folder``, its standard output dropped.

    Raises:
        SystemExit: it fails.
    """
    program, *words = shlex.split(command)
    start = (
        [str(ROOT / words.pop(0))]
        if program == "python"
        else ["-c", "import dgbench.cli.main as cli; cli.main()"]
    )
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    print(command, flush=True)
    process = subprocess.run(
        [sys.executable, *start, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    if process.returncode:
        sys.exit(f"make_gallery: this command failed, in {folder}: {command}")


def keep(entry: dict[str, Any], folder: Path) -> None:
    """Copy a report's page, and one of its figures, or the top of the page, as a picture."""
    report = folder / entry["report"]
    if "picture" not in entry:
        photograph(report / "report.html", report / "page.png")
    pattern = entry.get("picture", "page.png")
    figures = sorted(report.glob(pattern))
    if not figures:
        names = ", ".join(path.name for path in sorted(report.glob("*.png")))
        sys.exit(f"make_gallery: {entry['page']}: no figure is named {pattern}; there are {names}")
    shutil.copy(report / "report.html", GALLERY / entry["page"])
    picture = Image.open(figures[0]).convert("RGB")
    picture.thumbnail((WIDTH, WIDTH))
    picture.quantize(256).save((GALLERY / entry["page"]).with_suffix(".png"), optimize=True)


def photograph(page: Path, file: Path) -> None:
    """Save a PNG of the top of a page as a browser shows it."""
    chromium = shutil.which("chromium") or sys.exit(
        "make_gallery: a page without figures is shown by chromium; install it"
    )
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1100,700",
        f"--screenshot={file}",
    )
    subprocess.run([chromium, *options, page.as_uri()], check=True, capture_output=True)


def page(entries: list[dict[str, Any]]) -> str:
    """Compose the text of docs/gallery/index.md."""
    parts = [_HEAD]
    for entry in entries:
        commands = "\n".join(
            " \\\n    ".join(textwrap.wrap(command, 84, break_on_hyphens=False))
            for command in entry["commands"]
        )
        name = Path(entry["page"]).stem
        text = textwrap.fill(entry["reads"], 120)
        parts.append(
            f"## {entry['title']}\n\n![{entry['alt']}]({name}.png)\n\n{text}\n\n"
            f"[Open the report]({entry['page']})\n\n```bash\n{commands}\n```\n"
        )
    return "\n".join(parts)


def make(entries: list[dict[str, Any]], folder: Path) -> None:
    """Run the commands of entries, each once, and keep the reports that they make."""
    data = Path(os.environ.get("DGBENCH_DATA_DIR", ROOT / "data"))
    copies = [data / name for name in ("PACS", "PACS_64") if (data / name).is_dir()]
    if not copies:
        sys.exit(f"make_gallery: there is no PACS in {data}; run dgbench fetch pacs")
    for name, target in (("PACS", copies[0].resolve()), ("results", ROOT / "results")):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    done = set()
    for entry in entries:
        for command in entry["commands"]:
            if command not in done:
                run(command, folder)
                done.add(command)
        keep(entry, folder)


def main() -> None:
    """Make the gallery again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="where commands run; kept (default: a temporary folder)"
    )
    parser.add_argument("--only", help="one page, e.g. shift.html")
    options = parser.parse_args()
    entries = yaml.safe_load((GALLERY / "gallery.yaml").read_text())
    chosen = [entry for entry in entries if options.only in (None, entry["page"])]
    if not chosen:
        sys.exit(
            f"make_gallery: no page is {options.only}; choose from "
            f"{', '.join(item['page'] for item in entries)}"
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder.resolve() if options.folder else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        make(chosen, folder)
    (GALLERY / "index.md").write_text(page(entries))


if __name__ == "__main__":
    main()
