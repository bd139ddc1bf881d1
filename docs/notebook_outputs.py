"""Run docs/tutorials/notebook.ipynb in an empty folder and save it with what its cells print and
draw now.

python docs/notebook_outputs.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).resolve().parent / "tutorials" / "notebook.ipynb"


def executed(folder: Path) -> NotebookNode:
    """Run the notebook's cells one after the other in ``folder``; return it with fresh outputs.

    Raises:
        CellExecutionError: a cell raises; the message holds the cell and its traceback.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, record_timing=False, resources={"metadata": {"path": str(folder)}}
    )
    notebook = client.execute()
    # without the version of the Python that ran it
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main() -> None:
    """Save the notebook with fresh outputs."""
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(Path(folder)), NOTEBOOK)


if __name__ == "__main__":
    main()
