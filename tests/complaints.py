"""What a complaint must be: one line with key, value and fault, however it is worded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dgbench.errors import ConfigError


def one_line(text: str, said: str) -> None:
    """A line in which a pattern is found, e.g. ``one_line(ended.complaints[0], r"seed=x.*integer >=
    0")``.
    """
    assert "\n" not in text and re.search(said, text), text


@contextmanager
def refused(said: str, kind: type[Exception] = ConfigError) -> Iterator[None]:
    """What is done inside ends with one line in which a pattern is found."""
    with pytest.raises(kind) as caught:
        yield
    one_line(str(caught.value), said)
