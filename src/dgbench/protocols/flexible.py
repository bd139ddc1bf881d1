"""Flexible domain generalization: every class has training and test environments of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgbench.errors import ConfigError
from dgbench.protocols.folds import Fold, Membership, Protocol
from dgbench.seeding import derive


@dataclass(frozen=True, kw_only=True)
class Flexible(Protocol):
    """One fold, in which each class draws its own environments (Zhang et al. 2023, section 5.3).

    For every class, ``dominant`` environments train with all their images of it, ``minor`` ones with
    ``minor_images``, and ``test`` others test with ``test_images``. Within one environment, the classes trained on
    make up the rows ``train`` and ``val`` (not held out), the classes tested the rows ``test`` (held out): no image of
    a tested class of that environment was ever trained on.

    * ``random``: drawn from all environments, so an environment may train one class and test another, which ties it
      to labels.
    * ``compositional``: ``exclusive`` environments are drawn once for all classes and only ever train; each class
      draws its dominant ones from them, and its minor and test ones from the rest, which they share.

    Args:
        setting: ``random`` or ``compositional``.
        dominant, minor, test: environments per class; what is over takes no part.
        exclusive: environments that only train (compositional).
        minor_images, test_images: images per class and minor or test environment; None takes all.
        seed: of all draws.
    """

    name: str = "flexible"
    setting: str = "random"
    dominant: int = 2
    minor: int = 2
    test: int = 2
    exclusive: int = 3
    minor_images: int | None = 50
    test_images: int | None = 50
    seed: int = 0

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        self._check(given, n_classes)
        draw = np.random.default_rng(derive(self.seed, "flexible", "exclusive")).permutation(len(given))
        exclusive = [given[i] for i in draw[: self.exclusive]] if self.setting == "compositional" else []
        training: dict[str, dict[int, int | None]] = {env: {} for env in given}
        tested: dict[str, dict[int, int | None]] = {env: {} for env in given}
        for label in range(n_classes):
            rng = np.random.default_rng(derive(self.seed, "flexible", label))
            order = [given[i] for i in rng.permutation(len(given))]
            first = [env for env in order if env in exclusive] if exclusive else order
            dominant = first[: self.dominant]
            rest = [env for env in order if env not in (exclusive or dominant)]
            for env in dominant:
                training[env][label] = None
            for env in rest[: self.minor]:
                training[env][label] = self.minor_images
            for env in rest[self.minor : self.minor + self.test]:
                tested[env][label] = self.test_images
        membership = Membership(
            {env: part for env, part in training.items() if part}, {env: part for env, part in tested.items() if part}
        )
        judged = tuple(membership.tested)
        return [Fold("0", tuple(membership.training), judged, (judged,), membership=membership)]

    def _check(self, given: Sequence[str], n_classes: int) -> None:
        if self.setting not in ("random", "compositional"):
            raise ConfigError(f"protocol.setting={self.setting} is unknown; choose random or compositional")
        if n_classes < 1:
            raise ConfigError("protocol=flexible needs the number of classes; use a dataset that has it")
        for key, least in (
            ("dominant", 1),
            ("minor", 0),
            ("test", 1),
            ("minor_images", 1),
            ("test_images", 1),
            ("seed", 0),
        ):
            value, default = getattr(self, key), getattr(Flexible, key)
            if not (value is None and key.endswith("images")) and (type(value) is not int or value < least):
                raise ConfigError(f"protocol.{key}={value} is not an integer >= {least}; {default} is the default")
        if self.setting == "random":
            needed, where = self.dominant + self.minor + self.test, len(given)
            if needed > where:
                raise ConfigError(
                    f"protocol.dominant + minor + test = {needed} is more than the {where} given environments; "
                    "lower one"
                )
            return
        if type(self.exclusive) is not int or not self.dominant <= self.exclusive < len(given):
            raise ConfigError(
                f"protocol.exclusive={self.exclusive} must be protocol.dominant={self.dominant} to {len(given) - 1}, "
                f"one less than the given environments"
            )
        shared = len(given) - self.exclusive
        if self.minor + self.test > shared:
            raise ConfigError(
                f"protocol.minor + test = {self.minor + self.test} is more than the {shared} environments that are "
                f"not exclusive (of {len(given)}, protocol.exclusive={self.exclusive}); lower one"
            )
