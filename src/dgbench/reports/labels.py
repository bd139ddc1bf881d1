"""What things are called in tables: algorithms, datasets and settings, with whatever tells several
of them apart.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dgbench.records.rows import Role, identity_key, keys
from dgbench.records.spec import HASH_DIGITS, digest
from dgbench.seeding import ALL

SHARPNESS = "sharpness.name"  #: key of a row's hyperparameters
ROUNDED = ("trainer.precision", "trainer.matmul")  # of them, those that change rounding alone
_LONG = ("folds", "given")  # keys that mostly follow from the others
_LONGEST = 100  # letters of a name: a file's may hold two, and ends at 255


def algorithm_name(identity: Mapping[str, Any]) -> str:
    """Name an algorithm: ``vrex``, ``vrex+swad`` (averaged weights), ``vrex (sharpness=sam)``
    (trained around SAM).
    """
    averaging, sharpness = identity["averaging"], identity["hparams"].get(SHARPNESS)
    name = str(identity["algorithm"]) + ("" if averaging == "none" else f"+{averaging}")
    return _with_addition(name, f"sharpness={sharpness}" if sharpness else "")


def network_text(identity: Mapping[str, Any]) -> str:
    """Format ``resnet50-bn_frozen, supervised_tv_in1k:0676ba61 init, ft``, and head and seeds if
    they are not usual.
    """
    head = "" if identity["head"] == "random" else f", {identity['head']} head"
    moves = "" if identity["seed_moves"] == ALL else f", seeds move {identity['seed_moves']}"
    return f"{identity['backbone']}, {identity['init']} init{head}, {identity['tuning']}{moves}"


def algorithm_labels(
    identities: Sequence[Mapping[str, Any]], *, searches: bool = False
) -> list[str]:
    """Label runs by algorithm, and by draw of a search or hyperparameters where it occurs with
    several of them.

    A random draw has other hyperparameters for every trial, so the number of the draw stands for
    them, unless one draw occurs with several sets for the same seed and held-out environments, or
    draw 0, the default set, with several.

    Args:
        identities: of runs that may share a table.
        searches: the draws are to be chosen among, so they share the plain name.
    """
    sets: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    places: dict[tuple[object, ...], str] = {}
    muddled: set[str] = set()
    names = _search_names(identities)
    flat = [{**_hyperparameters(identity), "draw": identity["draw"]} for identity in identities]
    texts = [json.dumps(values, sort_keys=True, default=str) for values in flat]
    for identity, name, values, text in zip(identities, names, flat, texts, strict=True):
        sets[name][text] = values
        draw = identity["draw"]
        place = (
            (name, draw, tuple(identity["held_out"]), identity["seed"]) if draw else (name, draw)
        )
        if places.setdefault(place, text) != text:
            muddled.add(name)
    extra: dict[str, dict[str, str]] = {}
    for name, variants in sets.items():
        drawn = {values["draw"] for values in variants.values()}
        if name in muddled or drawn == {0}:
            extra[name] = _differing(variants)
        elif not searches and len(drawn) > 1:
            extra[name] = {text: f"draw={values['draw']}" for text, values in variants.items()}
    return [
        _with_addition(name, extra.get(name, {}).get(text, ""))
        for name, text in zip(names, texts, strict=True)
    ]


def _hyperparameters(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Drop settings of rounding from hyperparameters where seeds move nothing: repetitions differ
    by rounding there.
    """
    rounded = ROUNDED if identity.get("seed_moves") == "nothing" else ()
    return {key: value for key, value in identity["hparams"].items() if key not in rounded}


def _search_names(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the algorithms, with search space and trial where one occurs with several that are no
    repetitions.

    A trial is a repetition, like a seed, when every seed has one trial.
    """
    names = [algorithm_name(identity) for identity in identities]
    spaces: dict[str, set[str]] = defaultdict(set)
    trials: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for identity, name in zip(identities, names, strict=True):
        spaces[name].add(identity["space"])
        trials[name][identity["seed"]].add(identity["trial"])
    apart = {
        name
        for name, seeds in trials.items()
        if any(len(of_seed) > 1 for of_seed in seeds.values())
    }
    labels = []
    for identity, name in zip(identities, names, strict=True):
        with_space = _with_addition(
            name, f"space={identity['space']}" if len(spaces[name]) > 1 else ""
        )
        labels.append(
            _with_addition(with_space, f"trial={identity['trial']}" if name in apart else "")
        )
    return labels


def _with_addition(name: str, extra: str) -> str:
    """Append in parentheses: ``erm (a)`` and ``b`` make ``erm (a, b)``."""
    if not extra:
        return name
    return f"{name[:-1]}, {extra})" if name.endswith(")") else f"{name} ({extra})"


def _differing(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Format what differs, ``trainer.precision=bf16-mixed`` or ``=default``: rows leave out what is
    at its default.
    """
    names = sorted({name for values in variants.values() for name in values})
    differing = [
        n for n in names if len({str(values.get(n, "default")) for values in variants.values()}) > 1
    ]
    return {
        text: ", ".join(f"{n}={values.get(n, 'default')}" for n in differing)
        for text, values in variants.items()
    }


def setting_titles(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name settings by dataset, base images and errors, and by all else in which those of one
    dataset differ.
    """
    keys = {key for identity in identities for key in identity}
    titles = dataset_titles(identities, keys, ("base", "evaluation"))
    return [
        f"{title}, {identity['base']}, {identity['evaluation']}"
        for title, identity in zip(titles, identities, strict=True)
    ]


def dataset_titles(
    identities: Sequence[Mapping[str, Any]], keys: Collection[str], shown_keys: Sequence[str] = ()
) -> list[str]:
    """Name datasets, with whatever tells several forms of one apart.

    Args:
        identities: one per dataset.
        keys: of the identity, besides the dataset and its variant, that a title may name.
        shown_keys: of them, those whose values stand beside every title; the others are then named
            by the alphabet.
    """
    flat: list[dict[str, Any]] = []
    for identity in identities:
        form = {
            key: value
            for key, value in identity.items()
            if key in keys and key not in ("dataset", "variant")
        }
        values = {**form, **identity.get("variant", {})}
        flat.append(
            {
                "dataset": identity["dataset"],
                **(dict(sorted(values.items())) if shown_keys else values),
            }
        )
    titles = []
    for dataset in flat:
        peers = [
            peer for peer in flat if peer["dataset"] == dataset["dataset"] and peer is not dataset
        ]
        differing = [
            key
            for key in dataset
            if key not in shown_keys and any(peer.get(key) != dataset[key] for peer in peers)
        ]
        named = [key for key in differing if key not in _LONG]
        if any(
            all(peer.get(key) == dataset[key] for key in (*shown_keys, *named)) for peer in peers
        ):
            named = (
                [*named, *(key for key in _LONG if key in differing)][: len(named) + 1]
                if shown_keys
                else differing
            )
        titles.append(
            " ".join(
                [str(dataset["dataset"]), *(f"{key}={words_of(dataset[key])}" for key in named)]
            )
        )
    return titles


def setting_labels(
    identities: Sequence[Mapping[str, Any]], split_by: str | None = None
) -> list[tuple[str, str]]:
    """List title of the setting and label of the algorithm of every run, in the order of the runs.

    Args:
        identities: of the runs.
        split_by: one more key whose values make settings of their own.
    """
    names = keys(Role.SETTING, split_by)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, identity in enumerate(identities):
        groups[identity_key(identity, names)].append(index)
    titles = setting_titles(
        [{key: identities[group[0]][key] for key in names} for group in groups.values()]
    )
    labels = {}
    for title, group in zip(titles, groups.values(), strict=True):
        for index, algorithm in zip(
            group, algorithm_labels([identities[index] for index in group]), strict=True
        ):
            labels[index] = title, algorithm
    return [labels[index] for index in range(len(identities))]


def variant_text(identity: Mapping[str, Any]) -> str:
    """Format the dataset and its form in words: ``sr_cmnist ratio=3 scale=1``."""
    form = [f"{key}={value}" for key, value in sorted(identity["variant"].items())]
    return " ".join([str(identity["dataset"]), *form])


def words_of(value: object) -> str:
    """Format a value in words: ``a-b`` for a list, and ``a+b-c`` for a list of lists."""
    if not isinstance(value, list):
        return str(value)
    return "-".join("+".join(item) if isinstance(item, list) else str(item) for item in value)


def slug(text: str) -> str:
    """Turn a title into a name for files and anchors; a hash stands for the end of a long one."""
    name = re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - HASH_DIGITS - 1]}_{digest(name)}"


def sortable(value: str) -> tuple[bool, float, str]:
    """Build a sort key: numbers by size, then everything else by the alphabet."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value
