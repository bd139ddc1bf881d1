"""Durations as people read them."""

from __future__ import annotations


def roughly(seconds: float) -> str:
    """An expected duration, no finer than it is known: ``40 s``, ``12 min``, ``3 h 10 min``."""
    if seconds < 99.5:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 3570 else duration(max(seconds, 3600))


def duration(seconds: float) -> str:
    """``40 s``, ``2 min 05 s``, ``3 h 10 min``, ``2 d 04 h``; from 100 days on without hours, ``146 d``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days >= 100:
        return f"{days:,} d"
    if days:
        return f"{days} d {hours:02} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
