"""What the packed runs of one entry must agree in."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dgbench.reports.archive.packed_runs import Line

#: of an identity, what runs share that see the same images
_IMAGES = ("dataset", "variant", "base", "data_seed", "split_seed", "given", "content")
#: and what runs share that are of one shape
_SHAPE = (*_IMAGES, "algorithm", "hparams", "averaging", "backbone", "init", "head", "tuning", "protocol", "fold")
_SUBSETS = ("train", "val", "test")

Said = tuple[str, str, Any, Line]  # what is compared, its name, the value, whose it is


def faults_across(lines: Sequence[Line]) -> Iterator[str]:
    """Runs that are there twice, and those that differ from most in what should be equal."""
    identities = [line["run"]["identity"] for line in lines]
    for (run, _), count in Counter((identity["run"], identity["code"]) for identity in identities).items():
        if count > 1:
            yield f"run {run} is there {count} times"
    yield from _different(_images_seen(lines), "images of {what}")
    yield from _different(_last_environments(lines), "{what} environments at the last step")
    yield from _different(_facts(lines), "{what}")
    contents: dict[str, set[str]] = defaultdict(set)
    for identity in identities:
        contents[f"{identity['dataset']} ({identity['base']})"].add(identity.get("content", ""))
    for dataset, found in contents.items():
        if len(found) > 1:
            versions = ", ".join(sorted(found))
            yield f"{dataset} is of {len(found)} versions of its files ({versions}); make them two entries"


def name_of(line: Line) -> str:
    """``run HASH (erm seed 0 fold 1)``."""
    identity = line["run"]["identity"]
    return f"run {identity['run']} ({identity['algorithm']} seed {identity['seed']} fold {identity['fold']})"


def _images_seen(lines: Iterable[Line]) -> Iterator[Said]:
    for line in lines:
        rows, identity = line["rows"], line["run"]["identity"]
        own = identity["fold"] if line.get("spec", {}).get("fold", {}).get("membership") else ""
        images = _key(identity, _IMAGES) + own
        for env, subset, seen in dict.fromkeys(zip(rows["env"], rows["subset"], rows["seen"], strict=True)):
            yield f"{images} {env} {subset}", f"{env} {subset}", seen, line


def _last_environments(lines: Iterable[Line]) -> Iterator[Said]:
    for line in lines:
        rows, identity = line["rows"], line["run"]["identity"]
        fold = _key(identity, (*_IMAGES, "protocol", "fold"))
        last = [at for at, step in enumerate(rows["step"]) if step == line["run"]["last_step"]]
        for subset in _SUBSETS:
            environments = sorted(rows["env"][at] for at in last if rows["subset"][at] == subset)
            yield f"{fold} {subset}", subset, environments, line


def _facts(lines: Iterable[Line]) -> Iterator[Said]:
    for line in lines:
        identity = line["run"]["identity"]
        yield _key(identity, _IMAGES), "beyond", identity.get("beyond", True), line
        for key in ("grouped", "n_parameters", "n_trainable"):
            yield f"{_key(identity, _SHAPE)} {key}", key, identity.get(key), line


def _different(said: Iterable[Said], text: str) -> Iterator[str]:
    """Whoever says something else than most do of the same thing."""
    groups: dict[str, list[tuple[str, Any, Line]]] = defaultdict(list)
    for key, what, value, line in said:
        groups[key].append((what, value, line))
    for group in groups.values():
        counted = Counter(json.dumps(value) for _, value, _ in group)
        usual = json.loads(counted.most_common(1)[0][0])
        for what, mine, line in group if len(counted) > 1 else ():
            if mine != usual:
                yield f"{name_of(line)}: {text.format(what=what)}: {_apart(mine, usual)}"


def _apart(mine: Any, usual: Any) -> str:
    if not isinstance(mine, list):
        return f"{json.dumps(mine)}, most runs like it have {json.dumps(usual)}"
    lacks, more = sorted(set(usual) - set(mine)), sorted(set(mine) - set(usual))
    return (
        f"it lacks {', '.join(lacks) or 'none'} and has {', '.join(more) or 'none'} besides those of most runs like it"
    )


def _key(identity: dict[str, Any], keys: Sequence[str]) -> str:
    return json.dumps([identity.get(key) for key in keys], sort_keys=True)
