"""Sphinx configuration of the documentation site, see ``make site``.

The pages are plain Markdown that also reads well in the repository. Links to files outside
``docs/`` become links to the repository on the web, and a page that only names a file at the top of
the repository shows that file.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

from docutils import nodes
from sphinx import addnodes

import dgbench
from dgbench.version import __version__

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

project, author, release = "dgbench", "The dgbench authors", __version__
copyright = author
html_title = f"dgbench {__version__.partition('+')[0]}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["data"]
suppress_warnings = ["config.cache"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]
nb_execution_mode = "off"  # the notebook is committed with its outputs; a test executes it
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88  # longer ones get a line for each argument
napoleon_numpy_docstring = False
napoleon_use_rtype = False
# references of docstrings to public names must have a target; Python, torch and pandas have sites
# of their own, and what is not public has no page
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!dgbench\b).*"),
    (
        r"py:.*",
        r"dgbench\.(training|trained|records\.shift_rows|reports\.evaluation|analysis\.\w+\.).*",
    ),
]

html_theme = "furo"
highlight_language = "text"  # a block without a language is output
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}
linkcheck_anchors = False  # pages of GitHub make theirs in the browser
linkcheck_timeout = 20

# a page -> the file at the top of the repository that it shows
SHOWN = {"development/contributing": "CONTRIBUTING.md", "development/changelog": "CHANGELOG.md"}
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?(?=\))")


def read_source(app: Any, page: str, content: list[str]) -> None:
    """Show the files of ``SHOWN`` on their pages, and point links that leave docs/ at the
    repository.
    """
    file = DOCS / f"{page}.md"
    if not file.exists():
        return  # a notebook
    shown = ROOT / SHOWN[page] if page in SHOWN else file
    text = shown.read_text() if shown.exists() else content[0]
    content[0] = _LINK.sub(lambda link: target(shown.parent, file.parent, link), text)


def target(origin: Path, folder: Path, found: re.Match[str]) -> str:
    """Rewrite a link of a file in ``origin`` so that it leads to the same place from a page in
    ``folder``.
    """
    anchor = found["anchor"] or ""
    path = Path(os.path.normpath(origin / found["path"]))
    if path.is_relative_to(DOCS):
        return os.path.relpath(path, folder) + anchor
    if not path.is_relative_to(ROOT) or not path.exists():
        return found[0]  # Sphinx says that there is no such page
    return (
        f"{REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/main/{path.relative_to(ROOT)}{anchor}"
    )


def open_reports(app: Any, doctree: nodes.document) -> None:
    """Let links to reports of the gallery open them; Sphinx would offer them as downloads."""
    for link in list(doctree.findall(addnodes.download_reference)):
        if link["reftarget"].endswith(".html"):
            link.replace_self(
                nodes.reference("", "", *link.children, refuri=link["reftarget"], internal=True)
            )


def copy_reports(app: Any, error: Exception | None) -> None:
    """Copy the reports that those links open into the finished HTML site."""
    for report in (DOCS / "gallery").glob("*.html"):
        if error is None and app.builder.format == "html":
            shutil.copy(report, Path(app.outdir) / "gallery")


def plain_types(app: Any, function: Any, bound: bool) -> None:
    """Show the argument types of a checked function without annotations that restrict values."""
    if hasattr(function, "__wrapped__"):
        function.__annotations__ = get_type_hints(
            function, localns={"TrainResult": dgbench.TrainResult}
        )


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx's events; Sphinx calls this."""
    app.connect("autodoc-before-process-signature", plain_types)
    app.connect("source-read", read_source)
    app.connect("doctree-read", open_reports, priority=400)  # before Sphinx collects downloads
    app.connect("build-finished", copy_reports)
