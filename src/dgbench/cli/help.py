"""``train.py --help`` and the like: the command's own groups and keys, as conf/ tells of them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping

from dgbench.configuration import CONF, command_words
from dgbench.plan.overrides import options

WIDTH = 120
INDENT = 17
_ENTRY = re.compile(r"^(?P<indent> *)(?:- )?(?P<key>\w+):\s*(?P<value>[^#]*?)\s*(?:#\s*(?P<note>.*))?$")

#: command -> what is typed after it, and what that does
EXAMPLES = {
    "train": (
        ("dataset=sr_cmnist algorithm=vrex", "one study"),
        ("hparams.lr=1e-4 trainer.steps=1000", "other values; every hyperparameter is hparams.NAME"),
        ("grid.seed=[0,1,2] plan=true", "several studies in one job; plan=true only says what it would train"),
        ("-m hydra/launcher=local seed=0,1,2", "a sweep of jobs over all cores or GPUs of this machine"),
        ("dataset=pacs dataset.root=PACS", "photographs: a pretrained ResNet-50, unless a backbone is named"),
    ),
    "shift": (
        ("dataset=sr_cmnist", "every fold, training against held-out environments"),
        ("dataset=pacs dataset.root=PACS pairs=each", "every two environments, on features of a pretrained network"),
        ("'estimator=[joint,ood_bench,distances,concept]'", "several estimators"),
        (
            "-m dataset=sr_cmnist,cmnist hydra/launcher=local",
            "several datasets, over the cores or GPUs of this machine",
        ),
    ),
    "report": (
        ("", "measures of all runs under multirun and outputs"),
        ("report=leaderboard selection=train_val", "accuracies, at the steps that validation chooses"),
        ("report=status", "what is done, running, failed or stuck"),
        ("'runs=[results]' 'only=[measures]'", "the runs of a folder, and one table of the report"),
        ("report=reproduce run=0123456789ab", "the command that makes a run again"),
    ),
}
_MORE = {
    "train": "docs/reference/configuration.md has every key, docs/reference/algorithms.md every hyperparameter",
    "shift": "docs/how_to/shift.md says what is estimated, docs/reference/configuration.md what each key means",
    "report": "docs/how_to/reports.md and docs/reference/configuration.md say what each key means",
}


def option_lines(options: Mapping[str, str]) -> list[str]:
    """Options and what they mean, in two columns.

    Args:
        options: name -> what it means.
    """
    width = 2 + max(map(len, options))
    indent = " " * (width + 4)
    return [
        textwrap.fill(what, 110, initial_indent=f"  {key:{width}}", subsequent_indent=indent)
        for key, what in options.items()
    ]


def help_text(name: str) -> str:
    """What ``--help`` prints.

    Args:
        name: of the command, e.g. ``train``.
    """
    command = " ".join(command_words(name))
    lines = (CONF / f"{name}.yaml").read_text().splitlines()
    about = lines[0].partition(": ")[2]
    entries = list(_entries(lines))
    groups = [(key, value, note) for key, value, note, group in entries if group]
    keys = [(key, value, note) for key, value, note, group in entries if not group]
    shown = [f"{command} {words}".strip() for words, _ in EXAMPLES[name]]
    width = max(map(len, shown))
    examples = [f"  {line:{width}}  {what}" for line, (_, what) in zip(shown, EXAMPLES[name], strict=True)]
    return "\n".join(
        [
            about[:1].upper() + about[1:],
            f"\n  {command} [GROUP=NAME ...] [KEY=VALUE ...]\n",
            "Examples:",
            *examples,
            "\nGroups, each with its default, what it is, and its choices:",
            *(_shown(f"{key}={value}", f"{note}: {', '.join(options(key))}") for key, value, note in groups),
            "\nKeys, each with its default; those of a group are GROUP.KEY:",
            *(_shown(f"{key}={value}", note) for key, value, note in keys),
            f"\n{_MORE[name]}.",
            "--cfg job prints the composed configuration, --hydra-help the options of Hydra. Tab completion in bash:",
            f'  eval "$({command} --shell-completion install=bash)"',
        ]
    )


def _entries(lines: list[str]) -> Iterator[tuple[str, str, str, bool]]:
    """Key, default, comment, and whether it is a group; without what is Hydra's."""
    top = ""
    for line in lines:
        found = _ENTRY.match(line)
        if not found:
            continue
        nested, group = bool(found["indent"]), line.lstrip().startswith("- ")
        top = top if nested else found["key"]
        if top == "hydra" or not (found["value"] or nested):
            continue
        yield (
            found["key"] if group or not nested else f"{top}.{found['key']}",
            found["value"],
            found["note"] or "",
            group,
        )


def _shown(key: str, text: str) -> str:
    first = f"  {key:{INDENT}} " if len(key) <= INDENT else f"  {key}\n{'':{INDENT + 3}}"
    wrapped = textwrap.wrap(text, WIDTH - INDENT - 3) or [""]
    return first + f"\n{'':{INDENT + 3}}".join(wrapped)
