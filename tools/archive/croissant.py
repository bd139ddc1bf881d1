"""Croissant descriptions of entries of ``results/``, by which searches for data sets find them.

A ``croissant.json`` says in schema.org's words what the files of an entry are, who made them, under
which license, and what each column of ``measures.csv`` and ``leaderboard.csv`` holds. ``python
tools/results.py index`` writes one into every entry.

Source: Croissant Format Specification 1.0, MLCommons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CROISSANT = "croissant.json"
ADDRESS = "https://github.com/dgbench/dgbench"
_LICENSES = {
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "CC0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "MIT": "https://opensource.org/license/mit",
}
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
#: file -> format and what it holds
_FORMATS = {
    "rows.jsonl.xz": ("application/x-xz", "Every counted error: a JSON object for each run."),
    "measures.csv": ("text/csv", "A line for each setting, algorithm and seed."),
    "leaderboard.csv": ("text/csv", "A line for each setting and algorithm: means over seeds."),
}


@dataclass(frozen=True)
class Described:
    """What a description says of an entry."""

    name: str
    title: str
    notes: str
    authors: Sequence[Mapping[str, str]]  #: ``name``, and perhaps ``affiliation`` and ``url``
    date: str
    license: str  #: a key of those of ``entry.yaml``
    datasets: Sequence[str]  #: whose images were used
    sha256: Mapping[str, str]  #: file -> its checksum
    #: CSV file -> column -> whether it holds numbers alone
    columns: Mapping[str, Mapping[str, bool]]


def croissant_text(entry: Described) -> str:
    """Write the description of an entry as JSON-LD, the same bytes for the same entry."""
    creators = []
    for person in entry.authors:
        creator = {"@type": "Person", "name": person["name"]}
        if person.get("url"):
            creator["url"] = person["url"]
        creators.append(creator)
    described = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": entry.name,
        "description": f"{entry.title}. {entry.notes}",
        "keywords": ["domain generalization", "benchmark results", *entry.datasets],
        "license": _LICENSES[entry.license],
        "url": f"{ADDRESS}/tree/main/results/{entry.name}",
        "creator": creators,
        "datePublished": entry.date,
        "version": "1.0.0",
        "citeAs": f"{', '.join(person['name'] for person in entry.authors)}: {entry.title}. "
        f"dgbench results, {entry.date}.",
        "distribution": [_file(name, digest) for name, digest in entry.sha256.items()],
        "recordSet": [_records(name, columns) for name, columns in entry.columns.items()],
    }
    return json.dumps(described, separators=(",", ":"), ensure_ascii=False) + "\n"


def _file(name: str, digest: str) -> dict[str, Any]:
    kind, content = _FORMATS[name]
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": content,
        "contentUrl": name,
        "encodingFormat": kind,
        "sha256": digest,
    }


def _records(name: str, columns: Mapping[str, bool]) -> dict[str, Any]:
    """Describe the lines of a CSV file; errors are fractions."""
    record_set = name.partition(".")[0]
    fields = []
    for column, is_number in columns.items():
        source = {"fileObject": {"@id": name}, "extract": {"column": column}}
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{record_set}/{column}",
                "name": column,
                "dataType": "sc:Float" if is_number else "sc:Text",
                "source": source,
            }
        )
    return {
        "@type": "cr:RecordSet",
        "@id": record_set,
        "name": record_set,
        "description": _FORMATS[name][1] + " Errors are fractions.",
        "field": fields,
    }
