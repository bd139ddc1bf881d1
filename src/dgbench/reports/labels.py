"""What things are called in tables: algorithms, datasets and settings, with whatever tells several
of them apart.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dgbench.plan.folds import LOO
from dgbench.plan.names import letters_of, our_name
from dgbench.records.run_identity import NOT_ADAPTED, Role, identity_key, keys
from dgbench.records.spec import HASH_DIGITS, digest
from dgbench.reports.importers import UNKNOWN, is_from_table
from dgbench.seeding import ALL

SHARPNESS = "sharpness.name"  #: key of a row's hyperparameters
OF_ADAPTATION = "adaptation."  #: beginning of keys of a row's hyperparameters
#: keys of a row's hyperparameters that change nothing but rounding
ROUNDED = ("trainer.precision", "trainer.matmul")
_FOLLOW_FROM_OTHERS = ("folds", "given")  # keys that are named last, as the others mostly tell them
_LONGEST_NAME = 100  # letters: a file name may hold two such names, and ends at 255


def algorithm_name(identity: Mapping[str, Any]) -> str:
    """Name an algorithm: ``vrex``, ``vrex+swad`` (averaged weights), ``vrex (sharpness=sam)``
    (trained around SAM), ``vrex (adaptation=tent)`` (adapted at test time).
    """
    name = str(identity["algorithm"])
    if identity["averaging"] != "none":
        name += f"+{identity['averaging']}"
    sharpness = identity["hparams"].get(SHARPNESS)
    name = _with_addition(name, f"sharpness={sharpness}" if sharpness else "")
    if not is_adapted(identity):
        return name
    return _with_addition(name, f"adaptation={identity['adaptation']}")


def is_adapted(identity: Mapping[str, Any]) -> bool:
    """Return whether a model adapted to the images that it was tested on."""
    return bool(identity.get("adaptation", NOT_ADAPTED) != NOT_ADAPTED)


def adaptation_text(identity: Mapping[str, Any]) -> str:
    """Format how a run adapts: ``adaptation=tent, batch_size=32, lr=0.001``.

    The text is empty if it does not.
    """
    if not is_adapted(identity):
        return ""
    words = [f"adaptation={identity['adaptation']}"]
    for key, value in identity["hparams"].items():
        if key.startswith(OF_ADAPTATION):
            words.append(f"{key.removeprefix(OF_ADAPTATION)}={words_of(value)}")
    return ", ".join(words)


def label_meant(name: str, labels: Collection[str]) -> str | None:
    """Find the label of an algorithm that a user names: itself, else the only one that means it.

    Case, and what stands between letters and digits, do not matter, nor whose name it is:
    ``GroupDRO`` and ``group_dro`` are one algorithm.

    Args:
        name: as it was typed.
        labels: of the algorithms that there are.

    Returns:
        The label; None if there is none, or several may be meant.
    """
    if name in labels:
        return name
    typed = letters_of(our_name(name))
    alike = [label for label in labels if letters_of(our_name(label)) == typed]
    return alike[0] if len(alike) == 1 and typed else None


def network_text(identity: Mapping[str, Any]) -> str:
    """Format ``resnet50-bn_frozen, supervised_tv_in1k:0676ba61 init, ft``, and head and seeds if
    they are not usual.
    """
    if is_from_table(identity):
        return known_network(identity) or "not known"
    head = "" if identity["head"] == "random" else f", {identity['head']} head"
    moves = "" if identity["seed_moves"] == ALL else f", seeds move {identity['seed_moves']}"
    return f"{identity['backbone']}, {identity['init']} init{head}, {identity['tuning']}{moves}"


def protocol_text(identity: Mapping[str, Any]) -> str:
    """Write the protocol of an identity; the short name of the usual one is spelled out."""
    protocol = str(identity["protocol"])
    return f"leave-one-out ({LOO})" if protocol == LOO else protocol


def known_network(identity: Mapping[str, Any]) -> str:
    """Write what a table of others says of network and initial weights; empty if it says nothing.

    Args:
        identity: of runs that it describes.
    """
    backbone, init = (str(identity[key]) for key in ("backbone", "init"))
    known = (backbone, "") if init == UNKNOWN else (backbone, f"{init} init")
    return ", ".join(text for text in known if text not in ("", UNKNOWN))


def algorithm_labels(
    identities: Sequence[Mapping[str, Any]], *, searches: bool = False
) -> list[str]:
    """Label runs by algorithm, and by draw or hyperparameters where it occurs with several.

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
    flat = []
    for identity in identities:
        values = _hyperparameters(identity)
        if searches and is_adapted(identity):  # chosen among, as draws are
            values = without_adaptation(values)
        flat.append({**values, "draw": identity["draw"]})
    texts = [json.dumps(values, sort_keys=True, default=str) for values in flat]
    for identity, name, values, text in zip(identities, names, flat, texts, strict=True):
        sets[name][text] = values
        draw = identity["draw"]
        place: tuple[object, ...] = (name, draw)
        if draw:
            place = (name, draw, tuple(identity["held_out"]), identity["seed"])
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


def without_adaptation(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what says how a model adapts to test images from hyperparameters."""
    return {key: value for key, value in hparams.items() if not key.startswith(OF_ADAPTATION)}


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
    most_trials = {name: max(map(len, of_seed.values())) for name, of_seed in trials.items()}
    labels = []
    for identity, name in zip(identities, names, strict=True):
        label = name
        if len(spaces[name]) > 1:
            label = _with_addition(label, f"space={identity['space']}")
        if most_trials[name] > 1:
            label = _with_addition(label, f"trial={identity['trial']}")
        labels.append(label)
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
    differing = []
    for name in sorted(set().union(*variants.values())):
        occurring = {str(values.get(name, "default")) for values in variants.values()}
        if len(occurring) > 1:
            differing.append(name)
    texts = {}
    for text, values in variants.items():
        shown = [f"{name}={values.get(name, 'default')}" for name in differing]
        texts[text] = ", ".join(shown)
    return texts


def setting_titles(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name settings by dataset, base images and errors, and by all else in which those of one
    dataset differ.
    """
    keys = set().union(*identities)
    titles = dataset_titles(identities, keys, ("base", "evaluation"))
    whole = []
    for title, identity in zip(titles, identities, strict=True):
        if is_from_table(identity):  # which says nothing else
            whole.append(title)
        else:
            whole.append(f"{title}, {identity['base']}, {identity['evaluation']}")
    return whole


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
    forms = [_form(identity, keys, sort=bool(shown_keys)) for identity in identities]
    by_dataset: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for form in forms:
        by_dataset[form["dataset"]].append(form)
    peers = {dataset: _Peers(group, shown_keys) for dataset, group in by_dataset.items()}
    titles = []
    for form in forms:
        named = peers[form["dataset"]].naming_keys(form)
        words = [f"{key}={words_of(form[key])}" for key in named]
        titles.append(" ".join([str(form["dataset"]), *words]))
    return titles


def _form(identity: Mapping[str, Any], keys: Collection[str], sort: bool) -> dict[str, Any]:
    """Return the dataset and what a title may name of it, its variant included."""
    form = {
        key: value
        for key, value in identity.items()
        if key in keys and key not in ("dataset", "variant")
    }
    form |= identity.get("variant", {})
    if sort:
        form = dict(sorted(form.items()))
    return {"dataset": identity["dataset"], **form}


class _Peers:
    """All forms of one dataset, which titles have to tell apart.

    Args:
        forms: of the dataset.
        shown_keys: keys that every title shows.
    """

    def __init__(self, forms: Sequence[Mapping[str, Any]], shown_keys: Sequence[str]) -> None:
        self._forms = [_hashable_form(form) for form in forms]
        self._shown_keys = shown_keys
        occurring: dict[str, set[Any]] = defaultdict(set)
        for key in set().union(*forms):
            occurring[key].update(form.get(key) for form in self._forms)
        self._differing = {key for key, values in occurring.items() if len(values) > 1}
        self._counts: dict[tuple[str, ...], Counter[Any]] = {}

    def naming_keys(self, form: Mapping[str, Any]) -> list[str]:
        """List the keys that tell a form from its peers, apart from those that are shown anyway."""
        differing = [key for key in form if key in self._differing and key not in self._shown_keys]
        named = [key for key in differing if key not in _FOLLOW_FROM_OTHERS]
        if not self._is_shared(form, named):
            return named
        if not self._shown_keys:
            return differing
        last = [key for key in _FOLLOW_FROM_OTHERS if key in differing]
        return [*named, *last[:1]]

    def _is_shared(self, form: Mapping[str, Any], named: Sequence[str]) -> bool:
        """Return whether another form has the same values under all keys that a title shows."""
        keys = (*self._shown_keys, *named)
        if keys not in self._counts:
            counts: Counter[tuple[Any, ...]] = Counter()
            for peer in self._forms:
                counts[tuple(peer.get(key) for key in keys)] += 1
            self._counts[keys] = counts
        return self._counts[keys][tuple(_hashable(form.get(key)) for key in keys)] > 1


def _hashable_form(form: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _hashable(value) for key, value in form.items()}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


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
    settings = []
    for group in groups.values():
        first = identities[group[0]]
        settings.append({key: first[key] for key in names})
    labels = {}
    for title, group in zip(setting_titles(settings), groups.values(), strict=True):
        algorithms = algorithm_labels([identities[index] for index in group])
        for index, algorithm in zip(group, algorithms, strict=True):
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
    words = []
    for item in value:
        words.append("+".join(item) if isinstance(item, list) else str(item))
    return "-".join(words)


def slug(text: str) -> str:
    """Turn a title into a name for files and anchors; a hash stands for the end of a long one."""
    name = re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")
    return (
        name
        if len(name) <= _LONGEST_NAME
        else f"{name[: _LONGEST_NAME - HASH_DIGITS - 1]}_{digest(name)}"
    )


def sortable(value: str) -> tuple[bool, float, str]:
    """Build a sort key: numbers by size, then everything else by the alphabet."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value
