"""SIGTERM ends a command by an exception, and only while it is asked to."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from minedraft.termination import exit_on_sigterm


def test_sigterm_is_an_exception_and_then_what_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    ended = False
    with pytest.raises(SystemExit) as error, exit_on_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 5.0)
        finally:
            ended = True
    assert error.value.code == 128 + signal.SIGTERM
    assert ended
    assert signal.getsignal(signal.SIGTERM) == before


def test_another_thread_changes_nothing() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with exit_on_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
