"""The page in headless Chromium: it loads without a console error, its tables sort, a phone sees no wide page."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dgbench.protocols.selection import Last
from dgbench.reports.collect import collect
from dgbench.reports.measures_report import MeasuresReport
from dgbench.reports.renderers.page import render_html

BROWSER = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the path"),
]

# Runs before the page's own script, so that its errors are heard too.
LISTEN = "<script>window.heard = []; addEventListener('error', e => heard.push(String(e.message)));</script>"
# Clicks the header of every table's last column twice, opens a folded section by its address, measures at 390 pixels.
ASK = """<script>
addEventListener("load", () => {
  const answer = {heard: window.heard, tables: []};
  const number = cell => cell.dataset.key === "" ? null : Number(cell.dataset.key);
  for (const table of document.querySelectorAll("table")) {
    const heads = table.tHead.rows[0].cells, head = heads[heads.length - 1], column = heads.length - 1;
    const read = () => Array.from(table.tBodies[0].rows, row => row.cells[column].dataset.key);
    const found = {title: table.parentNode.getAttribute("aria-label"), number: head.classList.contains("number")};
    head.querySelector("button").click();
    found.up = read(); found.first = head.getAttribute("aria-sort");
    head.querySelector("button").click();
    found.down = read(); found.second = head.getAttribute("aria-sort");
    answer.tables.push(found);
  }
  const folded = document.querySelector("details.whole");
  if (folded) location.hash = "#" + folded.parentNode.id;
  const frame = document.createElement("iframe");
  frame.width = 390; frame.height = 800; frame.style.border = 0;
  frame.srcdoc = window.original;
  frame.addEventListener("load", () => {
    answer.width = frame.contentDocument.documentElement.scrollWidth;
    answer.opened = folded ? folded.open : null;
    const out = document.createElement("pre");
    out.id = "answer";
    out.textContent = JSON.stringify(answer);
    document.body.append(out);
  });
  document.body.append(frame);
});
</script>"""


def opened(page: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What the page answers, and what the browser wrote to its log."""
    inner = json.dumps(page.replace("<details", "<details open")).replace("</", "<\\/")
    text = page.replace("<head>", f"<head>{LISTEN}<script>window.original = {inner};</script>", 1)
    file = folder / "page.html"
    file.write_text(text.replace("</body>", ASK + "</body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", file.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    answer = re.search(r'<pre id="answer">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert answer, f"the page gave no answer; the browser said: {ended.stderr[-2000:]}"
    return json.loads(html.unescape(answer[1])), ended.stderr


@pytest.fixture
def study(make: Any, tmp_path: Path) -> Path:
    """4 configurations x 3 algorithms x 2 seeds, one algorithm without its full fold."""
    root = tmp_path / "runs"
    for scale in (1, 2):
        for ratio in (3, 4):
            for at, name in enumerate(("erm", "vrex", "irm")):
                for seed in (0, 1):
                    for fold in ("0", "1", "2", "3", "full"):
                        if (fold, name) == ("full", "irm"):
                            continue
                        run = f"{scale}{ratio}{name}{seed}{fold}"
                        variant = {"ratio": ratio, "scale": scale}
                        who = make.identity(name, fold, seed, variant=variant, run=run)
                        error = 0.2 + 0.1 * at + 0.02 * seed
                        shift = lambda e, s, b=error, k=at: min(1.0, b + k * (1 - float(e)) / 4)  # noqa: E731
                        make.write_member(root, who, shift, folder=run)
    return root


def test_sorts_without_a_console_error_and_fits_a_phone(study: Path, tmp_path: Path) -> None:
    page = render_html(MeasuresReport()(collect([study]), Last()))
    answer, log = opened(page, tmp_path)
    assert answer["heard"] == []
    assert "CONSOLE" not in log, [line for line in log.splitlines() if "CONSOLE" in line]
    assert len(answer["tables"]) > 20
    for table in answer["tables"]:
        assert (table["first"], table["second"]) == ("ascending", "descending"), table["title"]
        for keys, reverse in ((table["up"], False), (table["down"], True)):
            present = [key for key in keys if key != ""]
            assert keys == present + [""] * (len(keys) - len(present)), f"{table['title']}: absent values come last"
            if table["number"]:
                assert present == sorted(present, key=float, reverse=reverse), table["title"]
    assert answer["opened"] is True
    assert answer["width"] == 390


def test_a_script_error_would_be_heard(tmp_path: Path) -> None:
    """The test above can fail: a page whose script is broken is caught both ways."""
    page = "<!doctype html><html><head></head><body><script>undefined_name();</script></body></html>"
    answer, log = opened(page, tmp_path)
    assert "undefined_name" in answer["heard"][0]
    assert "CONSOLE" in log
