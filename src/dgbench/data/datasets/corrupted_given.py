"""Which corrupted environments a researcher has: drawn for each domain, or listed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from dgbench.data.option_checks import check_list, shown
from dgbench.data.transforms.corruption_names import NAMES
from dgbench.errors import ConfigError
from dgbench.seeding import derive


def corruption_names(corruptions: Sequence[str] | None) -> list[str]:
    """The chosen corruptions in the order of the paper.

    Raises:
        ConfigError: no list, an unknown name, or none at all.
    """
    if corruptions is None:
        return list(NAMES)
    names = check_list("corruptions", corruptions, "null takes all 15")
    if not names:
        raise ConfigError("dataset.corruptions=[] is no list of names; null takes all 15")
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"dataset.corruptions names {name}, which is unknown; choose from {', '.join(NAMES)}")
    return [name for name in NAMES if name in names]


def given_environments(
    given: str | Sequence[str], domains: Sequence[str], corruptions: Sequence[str], data_seed: int
) -> list[str]:
    """Names of the given environments, domain by domain.

    Args:
        given: ``1-0-2-...`` or names.
        domains: the clean environments.
        corruptions: those that exist.
        data_seed: decides which corruptions are drawn.

    Raises:
        ConfigError: a form that does not fit, or environments that do not exist or are repeated.
    """
    if isinstance(given, str):
        counts = [int(k) for k in given.split("-")] if re.fullmatch(r"\d+(-\d+)*", given) else []
        if len(counts) != len(domains) or max(counts) > len(corruptions) or not any(counts):
            raise ConfigError(
                f"dataset.given={given} is not one number of corruptions, at most {len(corruptions)}, for each of "
                f"{', '.join(domains)}; use e.g. dataset.given={'-'.join('1' * len(domains))}, or a list of names"
            )
        found = []
        for domain, k in zip(domains, counts, strict=True):
            order = np.random.default_rng(derive(data_seed, "given", domain)).permutation(len(corruptions))
            found += [f"{domain}+{corruptions[i]}" for i in sorted(order[:k])]
        return found
    if not isinstance(given, Sequence) or not given:
        raise ConfigError(
            f"dataset.given={shown(given)} is no list; use e.g. 1-1-1-1 or [{domains[0]}+{corruptions[0]}]"
        )
    for env in given:
        domain, plus, corruption = str(env).partition("+")
        if domain not in domains or (plus and corruption not in corruptions):
            raise ConfigError(
                f"dataset.given holds {env}, which does not exist; environments are DOMAIN and DOMAIN+CORRUPTION, e.g. "
                f"{domains[0]}+{corruptions[0]}; domains are {', '.join(domains)}"
            )
        if list(given).count(env) > 1:
            raise ConfigError(f"dataset.given holds {env} more than once; give each environment once")
    return [str(env) for env in given]
