"""Rows of ``dgbench evaluate`` in an entry: trained runs of the same entry, adapted at test time.

Such a run has no specification of its own. It names the trained run that it is of, whose
specification stands in the same entry, and the keys of ``conf/adaptation``; its hash is computed
from these, and its command is printed from them. Rows of other evaluations, such as means of
several runs, are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from dgbench.configuration import command_line
from dgbench.plan.overrides import grammar
from dgbench.records.rows import DEFAULTS
from dgbench.records.spec import canonical, digest
from dgbench.reports.labels import OF_ADAPTATION
from dgbench.reports.reading.row_files import BY_SEED, SEEDED
from dgbench.seeding import STREAM

#: key of a packed run: what ``identity.json`` says of the evaluation
EVALUATED_KEY = "evaluated"
#: among the hyperparameters of rows
SEED_OF_STREAM = f"{OF_ADAPTATION}stream_seed"
#: keys of an identity that an adaptation changes
CHANGED = ("run", "adaptation", "hparams", "grouped", "user_code", "code")
#: ... if the order of the stream is repeated
REPEATED = ("seed", "seed_moves")
#: keys of an identity that a later version added, or that come from the images
UNCOMPARED = ("n_classes", "unlearnable")


class Origin(NamedTuple):
    """The trained run that an evaluated run is of."""

    run: str  #: its hash
    step: int  #: of its checkpoint


def origin_of(packed: Mapping[str, Any]) -> Origin | None:
    """Find the trained run that an evaluated run is of.

    Return None for a run that was not evaluated, or of which that is not known.
    """
    evaluated = packed.get(EVALUATED_KEY)
    if not isinstance(evaluated, Mapping) or not isinstance(evaluated.get("adaptation"), Mapping):
        return None
    if evaluated.get("averaged"):
        return None
    name, _, step = str(evaluated.get("content")).partition(" ")
    return Origin(name, int(step)) if step.isdecimal() else None


def evaluation_faults(
    packed: Mapping[str, Any], trained: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Check a run that was evaluated against the trained run that it is of.

    Args:
        packed: the run.
        trained: hash of a run of the entry that has a specification -> the run.
    """
    origin = origin_of(packed)
    if origin is None:
        yield (
            "it is an evaluation of something else than one trained run that adapts, so nothing "
            "says how it was made"
        )
        return
    source = trained.get(origin.run)
    if source is None:
        yield f"it is run {origin.run}, adapted, which the entry lacks; pack that run beside it"
        return
    identity = packed["run"]["identity"]
    computed = digest([origin.run, origin.step, _key_of(packed)])
    if computed != identity["run"]:
        yield f"its adaptation hashes to {computed}, its hash is {identity['run']}"
    if {*packed["rows"]["step"]} != {origin.step}:
        yield f"its rows are not of step {origin.step}, which it says was evaluated"
    yield from _differences(packed, source)


def _differences(packed: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[str]:
    """Compare the identity of an evaluated run with that of the trained one."""
    identity = {**DEFAULTS, **packed["run"]["identity"]}
    expected = {**DEFAULTS, **source["run"]["identity"]}
    adaptation = packed[EVALUATED_KEY]["adaptation"]
    hparams = {**expected["hparams"], **_keys_of_rows(identity, adaptation)}
    left_out = {*CHANGED, *UNCOMPARED}
    if identity["seed_moves"] == STREAM:
        left_out.update(REPEATED)
        if identity["seed"] != adaptation.get("stream_seed"):
            yield "its rows and its evaluation differ in seed, which is that of the stream"
    for key in SEEDED:
        if identity[key] == BY_SEED:  # said of a whole report, not of a run
            left_out.add(key)
    for key in sorted(identity.keys() - left_out):
        if canonical(identity[key]) != canonical(expected.get(key)):
            yield f"its rows and those of run {expected['run']} differ in {key}"
    if canonical(identity["hparams"]) != canonical(hparams):
        yield f"its rows differ in hparams from run {expected['run']} and its evaluation"
    if identity["adaptation"] != adaptation.get("name"):
        yield "its rows and its evaluation differ in adaptation"


def _keys_of_rows(identity: Mapping[str, Any], adaptation: Mapping[str, Any]) -> dict[str, Any]:
    """Name the keys of an adaptation as hyperparameters of rows.

    The seed of the stream stands there if it was typed, and no seed of a repetition does.
    """
    keys = {}
    for key, value in adaptation.items():
        if key not in ("_target_", "name"):
            keys[OF_ADAPTATION + key] = value
    if SEED_OF_STREAM not in identity["hparams"]:
        keys.pop(SEED_OF_STREAM, None)
    return keys


def _key_of(packed: Mapping[str, Any]) -> str:
    """Compute the digest of an adaptation, as the run's hash holds it."""
    identity = packed["run"]["identity"]
    adaptation = packed[EVALUATED_KEY]["adaptation"]
    repeats = identity.get("seed_moves") == STREAM
    typed = dict(adaptation)
    if not repeats:  # the evaluation says which seed was taken, the hash holds what was typed
        typed["stream_seed"] = identity["hparams"].get(SEED_OF_STREAM)
    code = identity.get("user_code") or {}
    named = [value for value in adaptation.values() if isinstance(value, str)]
    typed["user_code"] = {path: text for path, text in code.items() if path in named}
    return digest([typed, repeats])


def evaluation_commands(packed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the commands that evaluate the evaluated runs anew: one for each way to adapt.

    Folders are those of the trained runs' studies, below ``...``.
    """
    sources = {line["run"]["identity"]["run"]: line for line in packed if line.get("spec")}
    studies: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for line in packed:
        origin = origin_of(line)
        source = sources.get(origin.run) if origin else None
        if origin is None or source is None:
            continue
        study = PurePosixPath(source["run"]["folder"]).parent.name
        options = _options(line)
        if origin.step != source["run"]["last_step"]:
            options += ("step=best",)
        studies[options][f".../{study}"] = None
    commands = []
    for options, folders in studies.items():
        model = f"model=[{','.join(sorted(folders))}]"
        commands.append(command_line(["dgbench", "evaluate", model, *options]))
    return sorted(commands)


def _options(packed: Mapping[str, Any]) -> tuple[str, ...]:
    """Write the overrides that choose the adaptation of an evaluated run."""
    identity = packed["run"]["identity"]
    words = [f"adaptation={identity['adaptation']}"]
    for key, value in sorted(identity["hparams"].items()):
        if key.startswith(OF_ADAPTATION):
            words.append(f"{key}={grammar(value)}")
    if identity.get("seed_moves") == STREAM:
        words += [f"adaptation.stream_seed={identity['seed']}", "seed_moves=stream"]
    return tuple(words)
