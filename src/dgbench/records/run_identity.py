"""The identity of a run: its keys, and the roles by which reports group runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import Flag, auto
from typing import Annotated, Any, get_type_hints

from dgbench.records.checks import BY_TYPE, shown

#: backbone, initial weights and tuning of a model that dgbench did not train
EVALUATED = "evaluated"
NOT_ADAPTED = "none"  #: adaptation of a model that is tested as it was trained


class Role(Flag):
    """What a key of a run's identity tells. Reports group runs by roles, see :func:`keys`."""

    DATASET = auto()  #: which dataset, of which base images, and how errors are counted
    FORM = auto()  #: which form of the dataset
    DATA_SEED = auto()  #: what is random in its images and their split
    NETWORK = auto()
    PROTOCOL = auto()
    FOLDS = auto()  #: which environments all folds together are tested in
    FOLD = auto()  #: which environments this run is tested in
    TRAINING = auto()
    SEARCH = auto()  #: which draw of which search of hyperparameters
    SEED = auto()
    RUN = auto()
    CODE = auto()
    FACT = auto()  #: what follows from the others, and groups nothing
    DATA = DATASET | FORM | DATA_SEED
    SETTING = DATA | NETWORK | PROTOCOL | FOLDS  #: what results share that stand in one table


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Who wrote a row: one run, i.e. one trained model (fold x seed x hyperparameters)."""

    run: Annotated[str, Role.RUN]  #: hash of the run's specification, see ``dgbench.records.spec``
    dataset: Annotated[str, Role.DATASET]  #: name of the dataset, e.g. ``sr_cmnist``
    #: what distinguishes this form of the dataset (ratio, scale, resolution, ...)
    variant: Annotated[dict[str, Any], Role.FORM]
    #: base images, e.g. ``mnist`` or ``digits``; reports never mix two
    base: Annotated[str, Role.DATASET]
    evaluation: Annotated[str, Role.DATASET]  #: ``exact`` or ``sampled`` errors
    #: which images an environment gets, label noise, spurious features
    data_seed: Annotated[int, Role.DATA_SEED]
    split_seed: Annotated[int, Role.DATA_SEED]  #: train/val split
    given: Annotated[list[str], Role.FORM]  #: names of the given environments, in order
    algorithm: Annotated[str, Role.TRAINING]  #: name of the algorithm, e.g. ``vrex``
    #: what is read of hyperparameters, and settings of training that are not the default
    hparams: Annotated[dict[str, Any], Role.TRAINING]
    #: number of the hyperparameter draw; 0 is the default set
    draw: Annotated[int, Role.SEARCH] = 0
    space: Annotated[str, Role.SEARCH] = "domainbed"  #: search space that the draw is from
    trial: Annotated[int, Role.SEARCH] = 0  #: repetition of the search that the draw is from
    backbone: Annotated[str, Role.NETWORK]  #: name of the network, e.g. ``resnet50-bn_frozen``
    init: Annotated[str, Role.NETWORK] = "random"  #: initial weights of the featurizer
    #: what the classifier starts from: ``random``, ``zero`` or ``zero_shot``
    head: Annotated[str, Role.NETWORK] = "random"
    #: ``ft`` fine-tuning, ``lp`` linear probing, ``freezeK`` with K frozen stages, ``lora``,
    #: ``bias`` and ``norm`` with few trained parameters
    tuning: Annotated[str, Role.NETWORK] = "ft"
    #: of all networks together; None in rows older than the key
    n_parameters: Annotated[int | None, Role.FACT] = None
    #: how many parameters training changes; None in rows older than the key
    n_trainable: Annotated[int | None, Role.FACT] = None
    #: K of the dataset; None in rows older than the key
    n_classes: Annotated[int | None, Role.FACT] = None
    #: which random numbers the seed decides: ``all``, ``order``, ``weights``, ``inputs``,
    #: ``nothing``; ``stream``: the order of the images that a model adapts to
    seed_moves: Annotated[str, Role.NETWORK] = "all"
    protocol: Annotated[str, Role.PROTOCOL]  #: name of the protocol, e.g. ``loo``
    fold: Annotated[str, Role.FOLD]  #: ``0``, ``1``, ... or ``full``
    #: given environments this run never trained on (flexible: of which it lacks some class)
    held_out: Annotated[list[str], Role.FOLD]
    #: tested environments of every fold; None: one each (loo) or all others
    folds: Annotated[list[list[str]] | None, Role.FOLDS] = None
    #: initial weights, order of minibatches, random inputs of the algorithm
    seed: Annotated[int, Role.SEED]
    #: what averages the weights over steps, ``none``, ``swad``, ``eoa``, ...
    averaging: Annotated[str, Role.TRAINING] = "none"
    #: what adapts the model to unlabeled test images, ``none``, ``bn``, ``tent``, ...
    adaptation: Annotated[str, Role.TRAINING] = NOT_ADAPTED
    #: whether environments besides the given ones exist, as the ideal measure needs
    beyond: Annotated[bool, Role.FACT] = True
    #: predictions depend on what is scored together: ``test`` sampled even if ``exact``
    grouped: Annotated[bool, Role.FACT] = False
    #: ``ENVIRONMENT: CLASS`` of a tested environment and a class that no training environment of
    #: the run has -> its share of the tested images; empty if there is none, and in rows older
    #: than the key
    unlearnable: Annotated[dict[str, float], Role.FACT] = field(default_factory=dict)
    #: hash of the images' files, if the dataset has any; empty in rows older than the key
    content: Annotated[str, Role.FACT] = ""
    #: import path of a user's class or function -> hash of its module's text
    user_code: Annotated[dict[str, str], Role.CODE] = field(default_factory=dict)
    #: version of dgbench that wrote the row, with the commit if it is known
    code: Annotated[str, Role.CODE]


def misfit(identity: Mapping[str, Any]) -> str:
    """Describe what in an identity contradicts the rest of it, in no words if nothing does."""
    names: Sequence[str] = identity["given"]
    if not names or len(set(names)) < len(names):
        return f"given is {shown(names)}, not different names"
    strange = [env for env in identity["held_out"] if env not in names]
    if strange:
        return f"held_out has {shown(strange[0])}, which is not given"
    fold = identity["fold"]
    folds = identity.get("folds")
    if folds and fold != "full" and not (fold.isdecimal() and int(fold) < len(folds)):
        return f"fold is {shown(fold)}, none of its {len(folds)} folds"
    return ""


def defaults_of(kind: type[Any]) -> dict[str, Any]:
    """Collect the defaults of those fields of a dataclass that have one."""
    plain = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    built = {f.name: f.default_factory() for f in fields(kind) if f.default_factory is not MISSING}
    return {**plain, **built}


#: what keys of an identity mean that a row lacks because it is older than they are
DEFAULTS = defaults_of(RunIdentity)

IDENTITY_CHECKS = {name: BY_TYPE[kind] for name, kind in get_type_hints(RunIdentity).items()}

_ROLES: dict[str, Role] = {
    name: kind.__metadata__[0]
    for name, kind in get_type_hints(RunIdentity, include_extras=True).items()
}


def keys(roles: Role, *more: str | None) -> tuple[str, ...]:
    """List the keys of an identity that have one of these roles, in their order.

    Args:
        roles: e.g. ``Role.DATASET | Role.NETWORK``.
        more: further keys, which come last; None is none.
    """
    names = [name for name, role in _ROLES.items() if role in roles]
    names += [name for name in more if name is not None]
    return tuple(dict.fromkeys(names))


def identity_key(identity: Mapping[str, Any], names: Sequence[str]) -> str:
    """Format a text that is equal for identities that agree in all these keys."""
    return json.dumps([identity.get(name) for name in names], sort_keys=True, default=str)


_PLAIN_TYPES = frozenset({type(None), str, int, float, bool})


def identity_keys(
    identities: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> list[tuple[str, ...]]:
    """Make a key of each identity, equal for those that agree in all these keys.

    Many runs share long values, such as thousands of environments: each is formatted once, and keys
    share its text.
    """
    texts: dict[Any, str] = {}

    def key_of(identity: Mapping[str, Any]) -> tuple[str, ...]:
        key = []
        for name in names:
            value = identity.get(name)
            place = (type(value), value) if type(value) in _PLAIN_TYPES else id(value)
            text = texts.get(place)
            if text is None:
                text = texts[place] = json.dumps(value, sort_keys=True, default=str)
            key.append(text)
        return tuple(key)

    return [key_of(identity) for identity in identities]
