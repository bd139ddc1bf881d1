"""Wilson's interval against published values."""

from __future__ import annotations

import pytest

from dgbench.analysis.intervals import wilson


def test_wilson_by_hand() -> None:
    """Newcombe (1998), table I: 81 of 263 gives 0.2553 to 0.3662; none of 20 gives 0 to 0.1611."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)
    with pytest.raises(ValueError, match="no proportion"):
        wilson(3, 2)
