"""``python docs/reference_pages.py``: the pages of docs/reference/ written from ``conf/``,
docstrings and comments.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_class
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.data.fetch.fetching import Archive, DatasetSource, Form, sources
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN
from dgbench.objectives.contract import Algorithm
from dgbench.plan.hyperparameters import SHARED, entry_of, resolve
from dgbench.plan.names import CODES, algorithm_names
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import ROW_FILE, SHIFT_FILE, Row
from dgbench.records.run_identity import RunIdentity
from dgbench.records.shift_rows import ShiftIdentity, ShiftRow
from dgbench.reports.words import GLOSSARY

DOCS = CONF.parent / "docs"
REFERENCE, DATA = DOCS / "reference", DOCS / "data"
NOTES, FAMILIES, COSTS = (
    DATA / "algorithm_notes.md",
    DATA / "algorithm_families.yaml",
    DATA / "algorithm_costs.json",
)
BESIDE_DOMAINBED = DATA / "domainbed_head.md"
_LINE = re.compile(
    r"^(?P<indent> *)\"?(?P<key>[\w-]+)\"?:"
    r"(?P<value>(?:[^#'\"]|(?<=\S)#|'[^']*'|\"[^\"]*\")*?)(?:\s+#\s*(?P<note>.*))?$"
)
_ENTRY = re.compile(
    r"\{default: (?P<default>.*?)(?:, range: (?P<range>.*?))?, help: \"(?P<help>.*)\"\}"
)
_PACKAGE = re.compile(r"^# @package (\S+)")
# search spaces stand in docs/reference/algorithms.md, downloads in docs/reference/downloads.md
_SKIP = {"_target_", "_partial_", "defaults", "version", "hydra", "search", "fetch"}
# where defaults of hyperparameters stand -> the address that sets them
_ADDRESSES = {"algorithm.hparams.": "hparams.", "hparams.shared.hparams.": "hparams."}
_TITLES = {
    "train.yaml": "python train.py",
    "shift.yaml": "python shift.py",
    "report.yaml": "python report.py",
}
CONFIGURATION_HEAD = """# Configuration

<!-- Written by `make docs` from the comments in conf/; edit those. -->

Choose a file of a group with `GROUP=NAME` (`algorithm=vrex`), set a single key with \
`GROUP.KEY=VALUE`
(`trainer.steps=1000`), sweep with `-m` and commas (`-m seed=0,1,2 algorithm=erm,vrex`). `--cfg \
job` prints the
composed configuration (with `--resolve` values stand in the place of references), `--help` the \
choices.
`paths.output_dir=DIR` and, with `-m`, `hydra.sweep.dir=DIR` say where studies go. A number from \
an environment
variable, such as the index of a job array, is written \
`'seed=${oc.decode:${oc.env:SLURM_ARRAY_TASK_ID}}'`. A mistyped
key is an error. Every hyperparameter has one address, `hparams.NAME=VALUE`, under which it is \
listed here.
"""


def configuration_page() -> str:
    """Compose the text of docs/reference/configuration.md."""
    parts = [CONFIGURATION_HEAD, "## Commands\n"]
    for name, command in _TITLES.items():
        parts.append(_group_section(f"`{command}`", "", CONF / name))
    for folder in sorted(path for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"):
        parts.append(f"\n## `{folder.name}`\n")
        parts.extend(
            _group_section(f"`{folder.name}={file.stem}`", f"{folder.name}.", file)
            for file in sorted(folder.glob("*.yaml"))
        )
    return "\n".join(parts)


def _group_section(title: str, prefix: str, file: Path) -> str:
    lines = file.read_text().splitlines()
    about = " ".join(
        line.lstrip("# ") for line in _leading_comment(lines) if "@package" not in line
    )
    for line in lines:
        if package := _PACKAGE.match(line):
            prefix = "" if package[1] == "_global_" else f"{package[1]}."
    rows = [
        f"| `{_address(prefix + key)}` | {f'`{value}`' if value else ''} | {note} |"
        for key, value, note in _keys(lines)
    ]
    table = ["| key | default | meaning |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([f"### {title}\n", *([about, ""] if about else []), *table])


def _address(key: str) -> str:
    """Map the dotted key of a value to the key that sets it on the command line."""
    for place, address in _ADDRESSES.items():
        if key.startswith(place):
            return address + key.removeprefix(place)
    return key


def _leading_comment(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("#"):
            return
        yield line


def _keys(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield dotted key, value as written and comment of each line; indentation nests blocks."""
    path: list[tuple[int, str]] = []
    for line in _whole(lines):
        match = _LINE.match(line)
        if not match:
            continue
        indent = len(match["indent"])
        path = [(depth, key) for depth, key in path if depth < indent]
        dotted = ".".join([*(key for _, key in path), match["key"]])
        path.append((indent, match["key"]))
        value, note = match["value"].strip(), match["note"] or ""
        if entry := _ENTRY.fullmatch(value):
            allowed = f"{entry['range']}: " if entry["range"] and "|" not in entry["range"] else ""
            value, note = entry["default"], f"{allowed}{entry['help']}"
        if not _SKIP.intersection(dotted.split(".")) and (value or note):
            yield dotted, value.replace("|", "\\|"), note.replace("|", "\\|")


def _whole(lines: list[str]) -> Iterator[str]:
    """Yield the lines, those of an entry that continues after a comma joined to one."""
    entry = ""
    for line in lines:
        entry = f"{entry} {line.strip()}" if entry else line
        if not entry.endswith(","):
            yield entry
            entry = ""


ALGORITHMS_HEAD = """# Algorithms

<!-- Written by `make docs` from conf/algorithm/, the docstrings, algorithm_families.yaml, \
algorithm_notes.md and
algorithm_costs.json; edit those. -->

Each is a pure objective in `src/dgbench/algorithms/`, checked in double precision against \
reference numbers where those
exist (`tests/golden`). R_e is the mean cross entropy on the minibatch of environment e, N the \
images of a step, z
features, l logits. `lr`, `weight_decay` and `batch_size` are shared (see
[Configuration](configuration.md)); `hparams.draw=K hparams.trial=T` replaces defaults by draw K \
of the search space
`hparams.space`, and `hparams.KEY=VALUE` overrides both. Small and large are kinds of images \
(`dataset.image_kind`).
What differs from DomainBed on purpose, and its slips, stand in [Beside DomainBed](domainbed.md). \
`averaging=swad`,
`averaging=eoa` and `tuning=lp_ft` go around any of them, `sharpness=sam` around most.

**Cost** is the time of a training step over ERM's, measured by `make bench-algorithms` (CPU, \
`mnist_cnn`, 3 x 64 images
of 28 x 28); the *floor* is what its passes through the network take at least. *Memory* is what \
an algorithm keeps from
step to step besides weights and optimizer; *stacks* says whether runs train together \
(`execution=stacked`).

"""


def algorithms_page() -> str:
    """Compose docs/reference/algorithms.md: tables by family, sections by file of
    ``conf/algorithm``, notes, names.
    """
    files = sorted((CONF / "algorithm").glob("*.yaml"))
    sections = "\n".join(_algorithm_section(file) for file in files)
    return "\n".join(
        [ALGORITHMS_HEAD + family_tables(), sections, NOTES.read_text(encoding="utf-8"), _names()]
    )


def domainbed_page() -> str:
    """Compose the text of docs/reference/domainbed.md."""
    names = algorithm_names()
    domainbed = {
        name: theirs["domainbed"] for name, theirs in names.items() if "domainbed" in theirs
    }
    head = BESIDE_DOMAINBED.read_text(encoding="utf-8").format(n=len(domainbed))
    lines = [head, "| algorithm | in DomainBed | differences and switches |", "|---|---|---|"]
    lines += [
        f"| {_linked(name)} | `{theirs}` | {'<br>'.join(_beside(name))} |"
        for name, theirs in domainbed.items()
    ]
    lines += ["\n## Not in DomainBed\n", "| algorithm | follows |", "|---|---|"]
    lines += [
        f"| {_linked(name)} | {source(objective_of(name))} |"
        for name in names
        if name not in domainbed
    ]
    return "\n".join(lines) + "\n"


def _linked(name: str) -> str:
    return f"[`{name}`](algorithms.md#{name})"


def objective_of(name: str) -> type[Algorithm]:
    """Import the class that a file of ``conf/algorithm`` names."""
    kind: type[Algorithm] = get_class(
        OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")["objective"]
    )
    return kind


def _beside(name: str) -> list[str]:
    """List the docstring's paragraphs that begin with DomainBed, and the algorithm's switches that
    they do not name.
    """
    kind, config = objective_of(name), OmegaConf.load(CONF / "algorithm" / f"{name}.yaml")
    paragraphs = [
        " ".join(text.split()) for text in inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    ]
    texts = [text.replace("``", "`") for text in paragraphs[1:] if text.startswith("DomainBed")]
    switches = {
        key: entry_of(config["hparams"][key])
        for key in kind.choices
        if f"`{key}=" not in " ".join(texts)
    }
    forms = (
        (f"{key}={str(entry.default).lower()}", entry.help.replace(" | ", "; "))
        for key, entry in switches.items()
    )
    return [
        *texts,
        *(f"`{form}`: {text.removeprefix(form.partition('=')[2] + ': ')}" for form, text in forms),
    ]


def source(kind: type[Algorithm]) -> str:
    """Extract the paper and the code that an algorithm follows, as the first paragraph of its
    docstring names them.
    """
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    return text[text.rindex("(") + 1 : text.rindex(")")]


def _names() -> str:
    lines = [
        "## Names elsewhere\n",
        "| here | in papers | DomainBed | OoD-Bench | NICO++ code |",
        "|---|---|---|---|---|",
    ]
    for ours, names in algorithm_names().items():
        theirs = [f"`{names[code]}`" if code in names else "" for code in CODES]
        lines.append(f"| {' | '.join([f'[`{ours}`](#{ours})', names['title'], *theirs])} |")
    return "\n".join(lines) + "\n"


def _algorithm_section(file: Path) -> str:
    config: Any = OmegaConf.to_container(OmegaConf.load(file))
    text = inspect.cleandoc(get_class(config["objective"]).__doc__ or "")
    search = config.get("search") or {}
    spaces = list(search)
    lines = [f"## {file.stem}\n", text + "\n"]
    if config["hparams"]:
        lines.append(
            "| hyperparameter | default | range | meaning |"
            + "".join(f" {space} |" for space in spaces)
        )
        lines.append("|---|---|---|---|" + "---|" * len(spaces))
        for key, declared in config["hparams"].items():
            entry = entry_of(declared)
            drawn = "".join(
                f" {_distribution((search[space] or {}).get(key))} |" for space in spaces
            )
            allowed, meaning = entry.range.replace("|", "or"), entry.help.replace("|", ";")
            lines.append(
                f"| `{key}` | {_hyperparameter_default(entry.default)} | {allowed} | {meaning} "
                f"|{drawn}"
            )
        lines.append("")
    return "\n".join(lines)


def _hyperparameter_default(value: Any) -> str:
    return (
        ", ".join(f"{kind}: {v}" for kind, v in _cases(value))
        if isinstance(value, dict)
        else str(value)
    )


def _cases(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    """List the values for small and large images and for single datasets, each with the name of its
    case.
    """
    return [
        *((kind, value) for kind, value in entry.items() if kind != "datasets"),
        *entry.get("datasets", {}).items(),
    ]


def _distribution(entry: Any) -> str:
    if entry is None:
        return ""
    kinds = _cases(entry) if set(entry) <= {"small", "large", "datasets"} else [("", entry)]
    return "; ".join(f"{kind}{': ' if kind else ''}{_call(drawn)}" for kind, drawn in kinds)


def _call(drawn: Any) -> str:
    ((name, arguments),) = drawn.items()
    return f"{name}({', '.join(str(a) for a in arguments)})"


EXAMPLE = Sizes(n_features=0, n_classes=2, n_envs=3, image=(2, 28, 28), n_steps=5000, n_images=100)
FAMILY_HEAD = (
    "| method | what it does | own networks | memory | passes | cost | floor | stacks | "
    "environments |"
)


def families() -> list[dict[str, Any]]:
    """Read ``family``, ``about`` and ``algorithms`` of each family, in order."""
    content: list[dict[str, Any]] = yaml.safe_load(FAMILIES.read_text(encoding="utf-8"))
    return content


def family_tables() -> str:
    """Format one table per family, in Markdown."""
    costs = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    parts = []
    for family in families():
        lines = [_family_row(name, costs.get(name)) for name in family["algorithms"]]
        rule = "|---|---|---|---|---|---|---|---|---|"
        parts.append(
            "\n".join(
                [f"**{family['family']}**: {family['about']}.\n", FAMILY_HEAD, rule, *lines, ""]
            )
        )
    return "\n".join(parts)


def _family_row(name: str, cost: Mapping[str, Any] | None) -> str:
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "algorithm" / f"{name}.yaml"))
    kind: type[Algorithm] = get_class(config["objective"])
    hparams = _defaults(config)
    networks, memory = _made_of(kind, hparams)
    measured = (
        (cost["passes"], f"{cost['cost']:.2f}", f"{cost['floor']:.2f}") if cost else ("", "-", "-")
    )
    cells = [
        f"[`{name}`](#{name})", purpose(kind), ", ".join(networks) or "-", ", ".join(memory) or "-",
        *measured, "yes" if kind.stackable else "no", f"{_fewest(kind, hparams)} or more",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the default of every hyperparameter that an algorithm reads, for small images."""
    shared: Any = OmegaConf.to_container(OmegaConf.load(CONF / "hparams" / "default.yaml"))
    declared = {"hparams": config["hparams"], "search": {}}
    return resolve(
        shared["shared"], declared, kind="small", read=list(config.get("shared", SHARED))
    )


def _fewest(kind: type[Algorithm], hparams: Mapping[str, Any]) -> int:
    """Find the least number of training environments that the hyperparameters work with."""
    for n in count(1):
        try:
            kind.check(replace(EXAMPLE, n_features=128, n_envs=n), hparams)
        except ConfigError:
            continue
        return n
    raise AssertionError("never reached")


def purpose(kind: type[Algorithm]) -> str:
    """Extract the first paragraph of a docstring, without its sources (parentheses that hold a
    year).
    """
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r"\s*\([^()]*\d{4}[^()]*\)", "", text).rstrip(".")


def _made_of(kind: type[Algorithm], hparams: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """List the names of the networks besides featurizer and classifier, and of the state kept from
    step to step.
    """
    networks, sizes = build_networks(
        lambda image: MNISTCNN(image), EXAMPLE, lambda sizes: kind.networks_needed(sizes, hparams),
        kind.extra_channels, seed=0,
    )  # fmt: skip
    extra_names = (
        re.sub(r"_\d+$", "s", name) for name in networks if name not in ("featurizer", "classifier")
    )
    state = kind(sizes, hparams).initial_state(networks)
    return list(dict.fromkeys(extra_names)), list(
        dict.fromkeys(name.partition("/")[0] for name in state)
    )


DOWNLOADS_HEAD = """# Downloads

<!-- Written by `make docs` from conf/dataset; edit that. -->

Where `dgbench fetch NAME` looks, in this order. A checksum stands here only where a public \
source states
it: a sha256 tells every change, an md5 damage but not malice. Where none is stated, the sha256 \
of what came is printed
and noted, and `verify` compares later ones with it ([Fetching datasets](../how_to/fetching.md)). \
The addresses stand in
`conf/dataset/NAME.yaml`; public sources name them, and no test asks them.
"""


def downloads_page() -> str:
    """Compose the text of docs/reference/downloads.md."""
    datasets = [source for name, source in sources().items() if name == source.name]
    files = [archive for source in datasets for form in source.forms for archive in form.files]
    unverified = [archive for archive in files if not archive.published]
    parts = [
        DOWNLOADS_HEAD,
        (
            f"**Unverified: {len(unverified)} of {len(files)} files**, those without a checksum "
            "below.\n"
        ),
    ]
    parts += ["| dataset | file | hosts | checksum |", "|---|---|---|---|"]
    parts += [
        line
        for source in datasets
        for form in source.forms
        for line in _download_lines(source, form)
    ]
    parts.append("\nOnly by hand, hence wholly unverified:\n")
    parts += [
        f"- `{source.name}`: {' '.join(source.manual.split())}"
        for source in datasets
        if not source.files
    ]
    return "\n".join(parts) + "\n"


def _download_lines(source: DatasetSource, form: Form) -> Iterator[str]:
    """Yield a line per file, or per series of files on the same hosts with the same checksums, as a
    rule none.
    """
    name = f"`{source.name}`" if form is source else f"`{source.name}`, another form"
    for (hosts, checksums), archives in groupby(
        form.files, key=lambda archive: (_hosts(archive), _checksums(archive))
    ):
        yield (
            f"| {name} | {_file_names(list(archives))} | {hosts} | "
            f"{checksums or '**none stated**'} |"
        )


def _file_names(archives: Sequence[Archive]) -> str:
    first, last = archives[0].name, archives[-1].name
    return f"`{first}`" if len(archives) == 1 else f"{len(archives)} files, `{first}` to `{last}`"


def _hosts(archive: Archive) -> str:
    hosts = Counter(url.split("/")[2] for url in archive.urls)
    return ", ".join(
        host if number == 1 else f"{host} ({number} addresses)" for host, number in hosts.items()
    )


def _checksums(archive: Archive) -> str:
    return ", ".join(f"{key} `{value}`" for key, value in archive.published.items())


_FIELD = re.compile(
    r"^(?P<above>(?:    #: .+\n)*)    (?P<name>\w+): .*?(?:#: (?P<beside>.+))?$", re.MULTILINE
)
_ROLE = re.compile(r"Annotated\[|, Role\.\w+\]")  # beside the type of a key of a run's identity
#: fields that stand in the file under another name
_RENAMED = {(Row, "held_out"): "env_held_out"}

ROWS_HEAD = f"""# Rows

<!-- Written by `make docs` from the classes of src/dgbench/records; edit those. -->

Each run keeps its errors in `{ROW_FILE}`, one JSON object per line: which run wrote it, and one \
counted error. Every
measure, table and figure is computed from such rows. `dgbench.results` reads them as a data frame
([From Python](python.md)); [Files](files.md) says where they are.

The error is `wrong / seen`, a fraction. A key with a default may be absent in rows that are \
older than the key.
"""

ROWS_MIDDLE = f"""
`{PREDICTION_FILE}` is described in [Which images are wrong](../how_to/errors.md), `metrics.csv` in
[Loggers](../how_to/loggers.md).

Estimates of `shift.py` are kept in `{SHIFT_FILE}` in the same way ([Dataset \
shift](../how_to/shift.md)).
"""


def rows_page() -> str:
    """Compose the text of docs/reference/rows.md."""
    parts = [
        ROWS_HEAD,
        f"## `{ROW_FILE}`: the error\n",
        *_field_table(Row),
        f"\n## `{ROW_FILE}`: the run\n",
        *_field_table(RunIdentity),
        ROWS_MIDDLE,
        f"## `{SHIFT_FILE}`: the estimate\n",
        *_field_table(ShiftRow),
        f"\n## `{SHIFT_FILE}`: what is estimated\n",
        *_field_table(ShiftIdentity),
    ]
    return "\n".join(parts) + "\n"


def _field_table(kind: type[Any]) -> list[str]:
    """Format a table, one line per field of a dataclass of rows; ``identity`` stands in a table of
    its own.
    """
    comments = _FIELD.finditer(inspect.getsource(kind))
    texts = {match["name"]: _text_above(match["above"]) or match["beside"] for match in comments}
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for declared in fields(kind):
        if declared.name != "identity":
            cells = (
                f"`{_RENAMED.get((kind, declared.name), declared.name)}`",
                f"`{_ROLE.sub('', str(declared.type))}`",
                _field_default(declared),
                texts[declared.name],
            )
            lines.append(
                "| "
                + " | ".join(cell.replace("|", "\\|").replace("``", "`") for cell in cells)
                + " |"
            )
    return lines


def _text_above(comment: str) -> str:
    """Join the lines of a comment above a field."""
    return " ".join(line.strip().removeprefix("#: ") for line in comment.splitlines())


def _field_default(field: Any) -> str:
    if field.default_factory is not MISSING:
        return f"`{field.default_factory()}`"
    return "" if field.default is MISSING else f"`{field.default!r}`"


WORDS_HEAD = """# Words

<!-- Written by `make docs` from src/dgbench/reports/words.py; edit that. -->

What reports mean by their terms. A page of a report explains a term where it first stands, and \
the terminal explains
the columns that it prints, in the same sentences.
"""
#: topic of the glossary -> heading
_TOPICS = {
    "studies": "Everywhere",
    "measures": "report=measures",
    "accuracies": "report=leaderboard",
    "leakage": "report=leakage",
    "power": "report=power",
    "claims": "report=claims, published tables",
    "trials": "report=claims report.of=rows",
    "components": "report=components",
    "errors": "report=errors",
    "distribution": "report=distribution",
    "transfer": "report=transfer",
    "theory": "report=theory",
    "shift": "report=shift",
}


def words_page() -> str:
    """Compose the text of docs/reference/words.md."""
    parts = [WORDS_HEAD]
    for topic, terms in GLOSSARY.items():
        parts += [f"## {_TOPICS[topic]}\n", "| word | meaning |", "|---|---|"]
        parts += [f"| {term} | {sentence} |" for term, sentence in terms.items()]
        parts.append("")
    return "\n".join(parts)


PAGES = {
    "configuration.md": configuration_page,
    "algorithms.md": algorithms_page,
    "domainbed.md": domainbed_page,
    "downloads.md": downloads_page,
    "rows.md": rows_page,
    "words.md": words_page,
}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
        print(REFERENCE / name)


if __name__ == "__main__":
    main()
