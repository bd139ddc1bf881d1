"""The page of what is downloaded from where, and of what nobody can check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from dgbench.data.fetch.sources import Archive, Form, Source, sources

_HEAD = """# Downloads

<!-- Written by `make docs` from conf/dataset; edit that. -->

Where `python -m dgbench.data.fetch NAME` looks, in this order. A checksum stands here only where a public source states
it: a sha256 tells every change, an md5 damage but not malice. Where none is stated, the sha256 of what came is printed
and noted, and `verify` compares later ones with it ([Fetching datasets](../how_to/fetching.md)). The addresses stand in
`conf/dataset/NAME.yaml`; public sources name them, and no test asks them.
"""


def downloads_page() -> str:
    """The text of docs/reference/downloads.md."""
    known = [source for name, source in sources().items() if name == source.name]
    files = [archive for source in known for form in source.forms for archive in form.files]
    unverified = [archive for archive in files if not archive.published]
    parts = [_HEAD, f"**Unverified: {len(unverified)} of {len(files)} files**, those without a checksum below.\n"]
    parts += ["| dataset | file | hosts | checksum |", "|---|---|---|---|"]
    parts += [line for source in known for form in source.forms for line in _lines(source, form)]
    parts.append("\nOnly by hand, hence wholly unverified:\n")
    parts += [f"- `{source.name}`: {' '.join(source.manual.split())}" for source in known if not source.files]
    return "\n".join(parts) + "\n"


def _lines(source: Source, form: Form) -> Iterator[str]:
    """One line per file, or for files of one host that have no checksum."""
    name = f"`{source.name}`" if form is source else f"`{source.name}`, another form"
    for (hosts, checksums), same in groupby(form.files, key=lambda archive: (_hosts(archive), _checksums(archive))):
        yield f"| {name} | {_files(list(same))} | {hosts} | {checksums or '**none stated**'} |"


def _files(archives: Sequence[Archive]) -> str:
    first, last = archives[0].name, archives[-1].name
    return f"`{first}`" if len(archives) == 1 else f"{len(archives)} files, `{first}` to `{last}`"


def _hosts(archive: Archive) -> str:
    hosts = Counter(url.split("/")[2] for url in archive.urls)
    return ", ".join(host if count == 1 else f"{host} ({count} addresses)" for host, count in hosts.items())


def _checksums(archive: Archive) -> str:
    return ", ".join(f"{key} `{value}`" for key, value in archive.published.items())
