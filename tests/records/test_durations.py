"""Durations as people read them."""

from __future__ import annotations

import pytest

from dgbench.records.status import duration, roughly

DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (39.6, "40 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3 * 3600 + 605, "3 h 10 min"),
        (100_000, "1 d 03 h"),
        (2 * DAY + 4 * 3600, "2 d 04 h"),
        (100 * DAY - 1, "99 d 23 h"),
        (3515 * 3600, "146 d"),
        (4000 * DAY, "4,000 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (84, "84 s"),
        (99.7, "2 min"),
        (725, "12 min"),
        (3580, "1 h 00 min"),
        (DAY, "1 d 00 h"),
    ],
)
def test_time_left(seconds: float, text: str) -> None:
    """No seconds once it is minutes."""
    assert roughly(seconds) == text
