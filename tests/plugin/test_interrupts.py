"""An interrupt while engines start is not lost, whatever vLLM does with it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import pytest

pytestmark = pytest.mark.vllm

_SIGNALS = [signal.SIGINT, signal.SIGTERM]


def _raise(*_: object) -> NoReturn:
    raise KeyboardInterrupt("terminated")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Both signals interrupt, as in vLLM's front end, and are as before at the end."""
    before = {number: signal.signal(number, _raise) for number in _SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def _swallowing() -> Iterator[str]:
    with suppress(KeyboardInterrupt):
        yield "launch"


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_swallowed_interrupt_is_raised_at_the_end(number: signal.Signals) -> None:
    from minedraft.plugin.interrupts import kept_interrupts

    went_on = False
    with pytest.raises(KeyboardInterrupt), kept_interrupts(), _swallowing():
        os.kill(os.getpid(), number)
        went_on = True
    assert not went_on, "it interrupts at once"
    assert signal.getsignal(number) is _raise


def test_what_is_raised_passes() -> None:
    from minedraft.plugin.interrupts import kept_interrupts

    with pytest.raises(KeyboardInterrupt, match="terminated"), kept_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)


def test_nothing_is_raised_without_an_interrupt() -> None:
    from minedraft.plugin.interrupts import kept_interrupts

    with kept_interrupts(), _swallowing() as launch:
        assert launch == "launch"
    assert [signal.getsignal(number) for number in _SIGNALS] == [_raise, _raise]


def test_asyncios_ctrl_c_interrupts_where_nothing_awaits() -> None:
    """Its handler alone cancels the task, which notices at its next await."""
    from minedraft.plugin.interrupts import kept_interrupts

    went_on = []

    async def start() -> None:
        with kept_interrupts(), _swallowing():
            os.kill(os.getpid(), signal.SIGINT)
            went_on.append("in the launch")
        went_on.append("after it")

    signal.signal(signal.SIGINT, signal.default_int_handler)  # else asyncio sets none
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(start())
    assert went_on == []


def test_a_handler_that_only_notes_is_kept_so() -> None:
    """A program of a user may ask not to be interrupted."""
    from minedraft.plugin.interrupts import kept_interrupts

    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    signal.signal(signal.SIGTERM, note)
    with kept_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert noted == [signal.SIGTERM]


@pytest.mark.parametrize("left", [signal.SIG_IGN, signal.SIG_DFL])
def test_signals_without_a_handler_are_left_alone(left: Any) -> None:
    from minedraft.plugin.interrupts import kept_interrupts

    signal.signal(signal.SIGTERM, left)
    with kept_interrupts():
        assert signal.getsignal(signal.SIGTERM) is left
