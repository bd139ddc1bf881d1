"""One line for whatever went wrong, that names the fix."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.configuration import CONF, CONFIG_DIR, command_words, config_options, quoted_word
from dgbench.errors import LESS_MEMORY, DgbenchError, is_out_of_memory, reason_of
from dgbench.plan.keys import content_of_file, keys_of_file, nested_keys, owners_of, package_of
from dgbench.plan.names import in_our_names
from dgbench.plan.overrides import groups, options, quoted

LISTED = 30  # more keys of a group are left to the docs
TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".xlsx")  #: of files that import=table reads
LAUNCHER = "hydra/launcher"
SEE = "see docs/reference/configuration.md"

#: choice that an earlier version had -> what to use
LEFT = {
    (
        "report",
        "reproduce",
    ): "identity.json of a run has the command that made it, see docs/how_to/search.md",
}

#: key that an earlier version of a choice had -> what to use
LEFT_KEYS = {
    ("report", "leaderboard", "shifts_from"): (
        "report.shifts={DATASET: diversity} names the kinds of shift, which report=shift estimates"
    ),
}


def explain(error: BaseException, config_name: str, words: Sequence[str] = ()) -> str:
    """Explain an error in one line that names the fix.

    Args:
        error: whatever was raised.
        config_name: of the command, ``train`` or ``report``.
        words: what was typed, which decides which keys there are.
    """
    if isinstance(error, HydraException) and isinstance(error.__cause__, DgbenchError):
        error = error.__cause__  # raised where Hydra makes an object
    if isinstance(error, DgbenchError) or is_out_of_memory(error):
        return reason_of(error, less_memory(config_name))
    if isinstance(error, (HydraException, OmegaConfBaseException)):  # some are an OSError, too
        override = getattr(error, "override", None)
        if override:
            return _unreadable(str(override), str(error), config_name)
        return _of_composing(error, config_name, words)
    if isinstance(error, OSError):
        return _of_files(error, words)
    if isinstance(error, ValueError) and "Config group override must be" in str(error):
        return (
            "a group of conf/ is set to no name of a file; write e.g. dataset=sr_cmnist, "
            "see docs/reference/configuration.md"
        )
    return f"{reason_of(error)}; HYDRA_FULL_ERROR=1 shows where"


def _of_files(error: OSError, words: Sequence[str]) -> str:
    """Explain an error of a file or folder."""
    fault = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{fault}; free some space and start the same command again"
    return f"{fault}; name a folder you may write with {_key_of(str(error.filename), words)}"


def _unreadable(override: str, text: str, config_name: str) -> str:
    """Explain an override that Hydra cannot parse, from what it says of it."""
    meant = _meant(override, config_name)
    if meant:
        return f"{override} names no key; did you mean {meant}?"
    reason = text.splitlines()[0].removesuffix(
        " See https://hydra.cc/docs/1.2/advanced/override_grammar/basic for details"
    )
    return (
        f"{override} cannot be read: {reason}; write KEY=VALUE, and quote it for the shell, "
        f"e.g. 'KEY=[1,2]'{_as_text(override)}"
    )


def _of_composing(
    error: HydraException | OmegaConfBaseException, config_name: str, words: Sequence[str]
) -> str:
    """Explain an error of composing a configuration."""
    text = str(error)
    typed_key = re.search(r"Could not override '([^']+)'", text)
    inner_key = str(getattr(error.__cause__, "full_key", None))
    if typed_key and inner_key.startswith(f"{typed_key[1]}."):  # of a mapping, and no file has it
        return unknown_key(inner_key, config_name, words)
    for pattern, say in _KNOWN:
        match = re.search(pattern, text)
        if match:
            return say(*match.groups(), config_name, words)
    full_key = getattr(error, "full_key", None)
    prefix = f"{full_key}: " if full_key else ""
    return prefix + " ".join(text.split("\n    full_key")[0].split())


def less_memory(config_name: str) -> str:
    """Explain what to do if a command has not enough memory."""
    return "read fewer runs, or use a larger machine" if config_name == "report" else LESS_MEMORY


def _key_of(file: str, words: Sequence[str]) -> str:
    """Find the typed key whose value is a folder above a file, ``paths.output_dir`` by default."""
    typed = (word.partition("=") for word in words)
    return next(
        (key for key, _, place in typed if place and Path(file).is_relative_to(place)),
        "paths.output_dir",
    )


def _meant(word: str, root: str) -> str:
    """Guess what a word without an equal sign is: a choice of a group, or what a report reads.

    Returns an empty text if it is neither.
    """
    if "=" in word:
        return ""
    choices = [in_our_names([f"{group}={word}"])[0] for group in groups(root)]
    chosen = [
        choice
        for choice in choices
        if choice.partition("=")[2] in options(choice.partition("=")[0])
    ]
    read = []
    if root == "report" and Path(word).is_dir():
        read = [quoted_word(f"runs=[{word}]")]
    if root == "report" and word.endswith(TABLE_ENDINGS):
        read = [f"import=table {quoted_word(f'import.path={word}')}"]
    return " or ".join([*chosen, *read])


def _as_text(override: str) -> str:
    """Show how to type an override whose value is one text with special characters.

    Returns an empty text for a list or mapping.
    """
    key, equals, value = override.partition("=")
    if not equals or not value or value[0] in "[{":
        return ""
    return f"; a text with such signs is written {quoted_word(f'{key}={quoted(value)}')}"


def _choice(group: str, name: str, _: str, words: Sequence[str]) -> str:
    while not options(group) and "/" in group:  # the name has a slash itself
        group, head = group.rsplit("/", 1)
        name = f"{head}/{name}"
    if (group, name) in LEFT:
        return f"{group}={name} is no choice any more: {LEFT[group, name]}"
    close = get_close_matches(name, options(group), n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    listed = ", ".join(options(group)) or f"no group {group}"
    return (
        f"{group}={name} is unknown; {meant}choose from "
        f"{listed}{_from_elsewhere(group, name, words)}"
    )


def _from_elsewhere(group: str, name: str, words: Sequence[str]) -> str:
    """Explain how to choose what no file of ``conf/`` is.

    That is a file of the user's own, or a network of timm.
    """
    if group == "backbone":
        return f"; a network of timm: backbone=timm backbone.arch={name}"
    if not options(group) or any(word.startswith(CONFIG_DIR) for word in words):
        return ""
    files = sorted(Path().glob(f"*/{group}/{name}.yaml"))
    folder = quoted_word(str(files[0].parents[1])) if files else "FOLDER"
    where = "" if files else f", where FOLDER/{group}/{name}.yaml is"
    return f"; one of your own: add --config-dir {folder}{where}"


def _several(word: str, *_: object) -> str:
    key, values = word.split("=", 1)
    as_list, as_text = (
        quoted_word(f"{key}={written}") for written in (f"[{values}]", quoted(values))
    )
    return (
        f"{word} names several values; add -m to sweep over them, write "
        f"{quoted_word(f'grid.{key}=[{values}]')} to train all in one job, {as_list} for a list, "
        f"or {as_text} for one text"
    )


def _there(key: str, *_: object) -> str:
    return f"+{key} adds a key that is there already; write {key}=VALUE without +"


def _gone(key: str, config_name: str, words: Sequence[str]) -> str:
    return f"~{key} takes out a key that is not there: {unknown_key(key, config_name, words)}"


def _unset(variable: str, *_: object) -> str:
    return (
        f"the environment variable {variable} is not set; set it, or write "
        f"${{oc.env:{variable},VALUE}} with a default"
    )


def _endless(*_: object) -> str:
    return (
        "interval(A,B) lists no values, and a sweep trains each that is listed; "
        "docs/how_to/search.md draws some"
    )


def _not_of_launcher(key: str, *_: object) -> str:
    files = (CONF / LAUNCHER).glob("*.yaml")
    launchers = [f"{LAUNCHER}={file.stem}" for file in sorted(files) if key in keys_of_file(file)]
    fix = f"add {' or '.join(launchers)}" if launchers else "remove it"
    return f"the launcher that was chosen has no key hydra.launcher.{key}; {fix}"


def unknown_key(key: str, root: str, words: Sequence[str]) -> str:
    """Explain in one line a key that a command does not have, given all that was typed."""
    config, chosen = _composed(root, words, key)
    keys = [*nested_keys(config, ""), *_hyperparameters(config)]
    group, _, sub = key.partition(".")
    if options(group) and group not in groups(root):
        return (
            f"{group} is no group of {' '.join(command_words(root))}; its groups are "
            f"{', '.join(sorted(groups(root)))}"
        )
    left = LEFT_KEYS.get((group, str(chosen.get(group)), sub))
    if left:
        return f"{key} is of an earlier version of {group}={chosen[group]}: {left}"
    table = [
        word for word in words if word.startswith("import.path=") and word.endswith(TABLE_ENDINGS)
    ]
    if key == "import.path" and table:
        return (
            f"{table[0]} needs to know what the file is; did you mean import=table "
            f"{quoted_word(table[0])}?"
        )
    listed = "" if owners_of(group, sub) else _listed_siblings(key, keys)
    if listed:
        return f"key {key} is unknown; {listed}"
    if not sub or not options(group):
        return f"key {key} is unknown; {_similar_key_question(key, keys)}{SEE}"
    own_file = _own_file(group, words)
    if own_file:
        return _not_of_own_file(group, sub, own_file)
    subkeys = list(nested_keys(config.get(group), ""))
    close = get_close_matches(sub, subkeys, n=1, cutoff=0.65)
    owners = owners_of(group, sub)
    if sub in subkeys:  # a file of the user's own, in another folder, chose for the group
        return (
            f"the {group} that was chosen has no key {sub}; name one that has: "
            f"{', '.join(owners) or SEE}"
        )
    if close and not owners:
        return f"key {key} is unknown; did you mean {group}.{close[0]}? {SEE}"
    meant = _meant_key_question(key, [] if owners else keys)
    names = [name for name in subkeys if "." not in name and not name.startswith("_")]
    listed = f"its keys are {', '.join(names)}" if names else "it has no keys"
    if len(names) > LISTED:
        listed = f"for its keys {SEE}"
    belongs = f", and {sub} belongs to {', '.join(owners)}" if owners else ""
    return f"{group}={chosen.get(group) or 'null'} has no key {sub}; {meant}{listed}{belongs}"


def _meant_key_question(key: str, keys: Sequence[str]) -> str:
    """Ask for the key under which another file of the group, or else any of these keys, has it.

    Returns:
        ``did you mean X? ``, or an empty text if there is no such key.
    """
    group, _, sub = key.partition(".")
    for file in (CONF / group).glob("*.yaml"):
        moved = f"{package_of(file)}.{sub}"
        if moved != key and sub in keys_of_file(file):
            return f"did you mean {moved}? "
    last = key.rpartition(".")[2]
    for entry in keys:
        if entry.rpartition(".")[2] == last:
            alone = f" (not {key})" if entry == sub else ""
            return f"did you mean {entry}{alone}? "
    return ""


def _own_file(group: str, words: Sequence[str]) -> Path | None:
    """Find the file of the user's own that was chosen for a group, or return None."""
    folder = config_options(words)
    names = [word.partition("=")[2] for word in words if word.partition("=")[0] == group]
    if not folder or not names:
        return None
    file = Path(folder[-1].rpartition("=")[2], group, f"{names[-1]}.yaml")
    return file if file.is_file() else None


def _not_of_own_file(group: str, key: str, file: Path) -> str:
    """Explain that a file of the user's own lacks a key, with those that it has."""
    names = [name for name in keys_of_file(file) if "." not in name and not name.startswith("_")]
    close = get_close_matches(key, names, n=1)
    meant = f"did you mean {group}.{close[0]}? " if close else ""
    return (
        f"{group}={file.stem} has no key {key}; {meant}{file} has "
        f"{', '.join(sorted(names)) or 'none'}"
    )


def _listed_siblings(key: str, keys: Sequence[str]) -> str:
    """Name what a mapping below a group holds, for a key that it lacks.

    Returns an empty text if the mapping is unknown as well.
    """
    parent, _, last = key.rpartition(".")
    prefix = f"{parent}."
    siblings = [name.removeprefix(prefix) for name in keys if name.startswith(prefix)]
    names = [name for name in siblings if "." not in name and not name.startswith("_")]
    if "." not in parent or not names:
        return ""
    close = get_close_matches(last, names, n=1)
    return (
        f"did you mean {prefix}{close[0]}? {SEE}"
        if close
        else f"the keys of {parent} are {', '.join(names)}"
    )


def _similar_key_question(key: str, keys: Sequence[str]) -> str:
    """Ask whether a key is meant that ends like this one, or looks like it.

    Returns an empty text if there is none.
    """
    last = key.rpartition(".")[2]
    same_ending = [
        candidate for candidate in keys if candidate.rpartition(".")[2] == last and candidate != key
    ]
    shallow = sorted(same_ending, key=lambda candidate: candidate.count("."))[:2]
    close = shallow or get_close_matches(
        key, [candidate for candidate in keys if candidate != key], n=1
    )
    if not close:
        by_last = {candidate.rpartition(".")[2]: candidate for candidate in reversed(keys)}
        close = [by_last[name] for name in get_close_matches(last, list(by_last), n=1, cutoff=0.7)]
    return f"did you mean {' or '.join(close)}? " if close else ""


def _composed(root: str, words: Sequence[str], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compose the configuration of the chosen groups.

    Returns it with the name of the choice in each group.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    choices = {}
    for word in words:
        group, _, names = word.lstrip("+").partition("=")
        if group not in (*groups(root), LAUNCHER):  # of another command
            continue
        chosen = [name for name in names.split(",") if name in options(group)]
        lacking = []  # of a sweep over several, those that have no such key
        for name in chosen:
            if key.partition(".")[2] not in keys_of_file(CONF / group / f"{name}.yaml"):
                lacking.append(name)
        if chosen:
            choices[group] = (lacking or chosen)[0]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config: Any = compose(
            root, [f"{g}={name}" for g, name in choices.items()], return_hydra_config=True
        )
    chosen_by_group = dict(config.hydra.runtime.choices)
    content: Any = OmegaConf.to_container(config, resolve=False)
    content["hydra"] = {"launcher": content["hydra"]["launcher"]}
    return content, chosen_by_group


def _hyperparameters(config: Any) -> list[str]:
    """List the addresses ``hparams.NAME`` of all hyperparameters.

    No file of ``conf/`` has them under these keys.
    """
    if "hparams" not in config:
        return []
    names = dict.fromkeys(config["hparams"]["shared"]["hparams"])
    for file in sorted((CONF / "algorithm").glob("*.yaml")):
        names |= dict.fromkeys(content_of_file(file).get("hparams") or {})
    return [f"hparams.{name}" for name in names]


#: what Hydra says -> our line
_KNOWN: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"Could not find '([^']+)/([^']*)'", _choice),
    (r"Could not load '([^']+)/([^']*)'", _choice),
    (r"Could not override '([^']+)'", unknown_key),
    (r"Ambiguous value for argument '(.*)'\n", _several),
    (r"An item is already at '([^']+)'", _there),
    (r"Could not delete from config\. '([^']+)' does not exist", _gone),
    (r"Environment variable '([^']+)' not found", _unset),
    (r"sweep type : INTERVAL_SWEEP", _endless),
    (r"Launcher':?\s[\s\S]*unexpected keyword argument '(\w+)'", _not_of_launcher),
)
