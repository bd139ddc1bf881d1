"""The page in headless Chromium: no console error, the answer on the first screen, tables that
sort, fit for phones.
"""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.analysis.selection import Last
from dgbench.reports.importers.table import read_table
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.render.formats import render_html

BROWSER = next(
    (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-component-update", "--disable-background-networking", "--disable-sync",
    "--hide-scrollbars", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the path"
    ),
]

# Runs before the page's own script, so that its errors are heard too.
LISTEN = (
    "<script>window.heard = []; addEventListener('error', e => "
    "heard.push(String(e.message)));</script>"
)
# Clicks the header of every table's last column twice, opens what is folded by its address, then
# looks at the page in frames of a phone (everything unfolded) and of a laptop (as it comes).
ASK = """<script>
addEventListener("load", async () => {
  const answer = {heard: window.heard, tables: []};
  for (const table of document.querySelectorAll("table")) {
    const heads = table.tHead.rows[0].cells, column = heads.length - 1, head = heads[column];
    const read = () => Array.from(table.tBodies[0].rows, row => row.cells[column].dataset.key);
    const title = table.parentNode.getAttribute("aria-label");
    const found = {title: title, number: head.classList.contains("number")};
    head.querySelector("button").click();
    found.up = read(); found.first = head.getAttribute("aria-sort");
    head.querySelector("button").click();
    found.down = read(); found.second = head.getAttribute("aria-sort");
    answer.tables.push(found);
  }
  const later = time => new Promise(done => setTimeout(done, time));
  const to = async (element, folded) => {
    if (!folded) return null;
    location.hash = "#" + element.id;
    await later(100);
    return folded.open && element.getBoundingClientRect().bottom > 0;
  };
  const whole = document.querySelector("details.whole");
  const item = document.querySelector("section:not(.leading) .item");
  answer.whole = await to(whole && whole.parentNode, whole);
  answer.item = await to(item, item);
  const links = [...document.querySelectorAll("a[href^='#']")];
  answer.links = links.length;
  const names = links.map(a => a.getAttribute("href").slice(1));
  answer.dead = names.filter(name => !document.getElementById(name));
  const meaning = dfn => document.getElementById(dfn.getAttribute("aria-describedby")).textContent;
  const word = dfn => [dfn.textContent, dfn.dataset.meaning === meaning(dfn)];
  answer.words = Array.from(document.querySelectorAll("dfn"), word);
  const framed = async (page, width, height) => {
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = height; frame.style.border = 0; frame.srcdoc = page;
    document.body.append(frame);
    await new Promise(done => frame.addEventListener("load", done));
    await later(300);
    return frame.contentDocument;
  };
  const phone = await framed(window.unfolded, 390, 844);
  answer.width = phone.documentElement.scrollWidth;
  const ranked = phone.querySelector(".leading table thead th:nth-child(2)");
  answer.ranked = ranked && ranked.getBoundingClientRect().right;
  answer.boxes = Array.from(phone.querySelectorAll(".box"), box => {
    const inner = box.firstElementChild, goes_on = inner.scrollWidth > inner.clientWidth + 1;
    inner.scrollLeft = 40;
    const first = inner.querySelector("tbody th");
    const left = first && first.getBoundingClientRect().left;
    return {shaded: box.classList.contains("right"), goes_on,
            moved: first ? Math.abs(left - inner.getBoundingClientRect().left - 1) : 0};
  });
  const laptop = await framed(window.original, 1280, 800);
  const bottom = where => {
    const e = laptop.querySelector(where);
    return e && e.getBoundingClientRect().bottom;
  };
  answer.first = [".leading > .answer", ".leading svg", ".leading .first table"].map(bottom);
  answer.wide = laptop.documentElement.scrollWidth;
  laptop.defaultView.scrollTo(0, laptop.documentElement.scrollHeight);
  await later(100);
  answer.contents = laptop.querySelector(".contents")?.getBoundingClientRect().top;
  const out = document.createElement("pre");
  out.id = "answer";
  out.textContent = JSON.stringify(answer);
  document.body.append(out);
});
</script>"""


def opened(page: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What the page answers, and what the browser wrote to its log."""
    original, unfolded = (
        json.dumps(text).replace("</", "<\\/")
        for text in (page, page.replace("<details", "<details open"))
    )
    frames = f"<script>window.original = {original}; window.unfolded = {unfolded};</script>"
    text = page.replace("<head>", f"<head>{LISTEN}{frames}", 1)
    file = folder / "page.html"
    file.write_text(text.replace("</body>", ASK + "</body>"), encoding="utf-8")
    assert BROWSER is not None
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=9000",
        file.as_uri(),
    ]
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
                        make.write_run(root, who, shift, folder=run)
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
            assert keys == present + [""] * (len(keys) - len(present)), (
                f"{table['title']}: absent values come last"
            )
            if table["number"]:
                assert present == sorted(present, key=float, reverse=reverse), table["title"]
    assert (answer["whole"], answer["item"]) == (True, True)
    assert answer["width"] == 390
    assert any(box["goes_on"] for box in answer["boxes"])
    assert all(box["shaded"] == box["goes_on"] for box in answer["boxes"])
    assert all(box["moved"] < 1 for box in answer["boxes"]), "the first column stays"
    assert (3 < answer["links"] < 20, answer["dead"]) == (True, [])
    assert {"selection", "worst+gap"} <= {term for term, _ in answer["words"]}
    assert all(same for _, same in answer["words"])


def test_long_names_leave_room_for_their_numbers_on_a_phone(tmp_path: Path) -> None:
    """Names like those of timm: the column that ranks is in sight, notes do not widen the page."""
    names = ["vit_so400m_patch14_siglip_gap_378.webli_ft_in1k", "eva02_large_patch14_448.mim_m38m"]
    places = enumerate(itertools.product(names, "abcd", range(3)))
    lines = [(*place, 60 + (7 * number) % 13) for number, place in places]
    frame = pd.DataFrame(lines, columns=["algorithm", "environment", "seed", "accuracy"])
    page = render_html(MeasuresReport()(read_table(frame), Last()))
    answer, _ = opened(page, tmp_path)
    assert answer["width"] == 390
    assert 0 < answer["ranked"] < 390


def test_the_first_screen_holds_answer_and_picture_and_the_table_follows(
    study: Path, tmp_path: Path
) -> None:
    answer, _ = opened(render_html(MeasuresReport()(collect([study]), Last())), tmp_path)
    text, picture, table = answer["first"]
    assert 0 < text < picture <= 800
    assert picture < table
    assert answer["wide"] == 1280
    assert answer["contents"] == 0, "the contents stay in sight"


def test_a_script_error_would_be_heard(tmp_path: Path) -> None:
    """The test above can fail: a page whose script is broken is caught both ways."""
    page = (
        "<!doctype html><html><head></head><body><script>undefined_name();</script></body></html>"
    )
    answer, log = opened(page, tmp_path)
    assert "undefined_name" in answer["heard"][0]
    assert "CONSOLE" in log
