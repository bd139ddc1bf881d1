"""The documentation builds as a site without a warning, with every page, and fetches nothing from
elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: what a browser fetches of itself; a link is followed by a reader
_FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]*\bsrc=\"(https?:|//)|<link[^>]*rel=\"stylesheet\"[^>]*href=\"(https?:|//)"
)


BROWSER = next(
    (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as by ``make site``."""
    folder = tmp_path_factory.mktemp("site")
    words = (
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-d",
        folder / "trees",
        DOCS,
        folder / "html",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "html"


@pytest.mark.slow
def test_every_page_is_there_and_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = [page.relative_to(DOCS) for page in DOCS.rglob("*") if page.suffix in (".md", ".ipynb")]
    assert {page.with_suffix(".html") for page in pages if page.parts[0] != "data"} <= {
        page.relative_to(site) for page in site.rglob("*.html")
    }
    for page in site.rglob("*.html"):
        assert not _FETCHED.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", style.read_text()), style


@pytest.mark.slow
def test_links_of_the_gallery_open_reports(site: Path) -> None:
    page = re.sub(r"</?span[^>]*>", "", (site / "gallery" / "index.html").read_text())
    links = re.findall(r'href="(\w+\.html)">Open the report', page)
    assert len(links) >= 5
    assert all((site / "gallery" / link).stat().st_size > 10_000 for link in links)


@pytest.mark.slow
def test_a_link_out_of_docs_leads_to_the_repository(site: Path) -> None:
    page = (site / "how_to/networks.html").read_text()
    assert re.search(r'href="https://[^"]+/blob/main/src/dgbench/networks/featurizer.py"', page)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(
    BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the path"
)
def test_a_long_reference_page_is_filtered_by_words(site: Path) -> None:
    assert BROWSER
    address = (site / "reference" / "configuration.html").as_uri()
    ended = subprocess.run(
        [BROWSER, *FLAGS, f"{address}?filter=CHECKPOINT_seconds%20least"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    rows = re.findall(r"<tr[^>]*>.*?</tr>", ended.stdout, re.DOTALL)
    shown = [row for row in rows if "hidden" not in row.partition(">")[0] and "<td>" in row]
    assert len(rows) > 1_000
    assert len(shown) == 1
    assert "trainer.checkpoint_seconds" in shown[0]
    assert ">1 entry<" in ended.stdout


def test_the_page_of_the_gallery_is_fresh() -> None:
    entries = yaml.safe_load((DOCS / "gallery" / "gallery.yaml").read_text())
    assert (
        script(DOCS / "make_gallery.py").page(entries)
        == (DOCS / "gallery" / "index.md").read_text()
    ), "run make gallery"
    assert sum(file.stat().st_size for file in (DOCS / "gallery").iterdir()) < 7_000_000
