"""Seeds: every use of chance has its own, derived from one base seed and words for its purpose.

No global generator is ever seeded for science; a draw depends only on (base seed, purpose), never
on what was drawn before it. That is why data are the same for every algorithm and why a resumed run
continues exactly.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

#: what the seed of a run draws, key ``seed_moves``
Moved = Literal["all", "order", "weights", "inputs", "nothing"]
ALL: Moved = get_args(Moved)[0]
#: ``seed_moves`` of rows whose seed is the order of the images that a model adapts to; no training
STREAM = "stream"


def derive(base: int, *purpose: str | int) -> int:
    """Derive a 63-bit seed for one purpose.

    Args:
        base: the seed a user typed (0 is a seed like any other).
        purpose: words and numbers that name the use, e.g. ``"order", "0.80", 3``.

    Returns:
        An integer in [0, 2**63).
    """
    text = "\x1f".join([str(int(base)), *(str(word) for word in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_for(part: Moved, seed: int, moves: Moved) -> int:
    """Choose the base seed of one part of a run's randomness.

    It is the run's own if it moves that part, else 0.

    Args:
        part: ``order`` of minibatches and their augmentation, initial ``weights``, or random
            ``inputs`` of the algorithm and its layers.
        seed: of the run.
        moves: its ``seed_moves``.
    """
    return seed if moves in (ALL, part) else 0
