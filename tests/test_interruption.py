"""A request to end the process outlives code that turns it into an error of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from dgbench.interruption import (
    end_with,
    forget,
    interrupt,
    raise_if_ending,
    request_first,
    stop_soon,
    stopped_by,
)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)
    forget()


def losing_it() -> None:
    """Stand for a package whose ``finally`` raises, as OmegaConf's does where it is interrupted."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        raise KeyError("half written")


def test_ctrl_c_that_a_package_turns_into_its_own_error_ends_the_run() -> None:
    with pytest.raises(KeyboardInterrupt), request_first():
        losing_it()


def test_it_ends_whatever_else_catches_errors() -> None:
    with pytest.raises(KeyError):
        losing_it()
    with pytest.raises(KeyboardInterrupt):
        raise_if_ending()


def test_a_requeue_keeps_its_exit_code() -> None:
    with pytest.raises(SystemExit, match="255"), request_first():
        try:
            end_with(SystemExit(255))
        except SystemExit:
            raise ValueError from None


def test_errors_without_a_request_stay() -> None:
    raise_if_ending()
    with pytest.raises(KeyError), request_first():
        raise KeyError("of a run")


def test_another_command_of_the_process_begins_anew() -> None:
    with pytest.raises(KeyboardInterrupt):
        end_with(KeyboardInterrupt())
    forget()
    raise_if_ending()


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_status_names_the_signal(number: signal.Signals, name: str) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        interrupt(number, None)
    assert stopped_by(raised.value) == f"stopped by {name}"
    assert stopped_by(raised.value, 40) == f"stopped by {name} at step 40"


def test_a_status_names_who_asked_for_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt, match=r"^Slurm$"):
            stop_soon("Slurm")
        forget()
        with pytest.raises(KeyboardInterrupt, match=r"^Ctrl-C$"):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_nobody_is_named_who_is_not_known() -> None:
    assert stopped_by(KeyboardInterrupt(), 3) == ""
