"""How well a share is known from n images."""

from __future__ import annotations

import math

Z95 = 1.959963984540054  # of the standard normal distribution: 2.5 % of it lie above


def wilson(count: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    Source: Wilson, 1927; Brown, Cai and DasGupta, 2001, equation 4.

    Args:
        count: images of a kind, 0 to n; a fraction where it is an expected number.
        n: images, at least 1.
        z: quantile of the normal distribution; the default gives 95 %.

    Returns:
        Lower and upper end, in [0, 1].

    Raises:
        ValueError: ``n`` below 1, or ``count`` outside 0 to n.
    """
    if n < 1 or not 0 <= count <= n:
        raise ValueError(f"{count} of {n} is no proportion")
    p = count / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
