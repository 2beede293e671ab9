"""Ctrl-C and SIGTERM while engines start: the front end ends, as it does at other times.

Owns the signals of the front end for as long as it waits for its engines; ending them is
vLLM's.
"""

from __future__ import annotations

import signal
import threading
from asyncio import Runner
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Raise an interrupt that comes in the context, at its end if something swallowed it.

    vLLM 0.32 loses an interrupt while its front end waits for its engines (`zmq_socket_ctx`
    swallows KeyboardInterrupt) and goes on waiting, up to VLLM_ENGINE_READY_TIMEOUT_S, for
    engines that may have heard it. This can go when it does not.

    Asyncio's handler of Ctrl-C only cancels the task that waits here, so it raises as well.
    Signals that are ignored or end the process by themselves are left as they are, and so
    is everything in a thread that is not the main one, to which Python gives no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[KeyboardInterrupt] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, _keeping(handler, caught))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
    if caught:
        raise caught[0]


def _keeping(handler: _Handler, caught: list[KeyboardInterrupt]) -> _Handler:
    def keep(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
            if _is_asyncios(handler):
                raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            caught.append(interrupt)
            raise

    return keep


def _is_asyncios(handler: _Handler) -> bool:
    method = getattr(handler, "func", None)
    return isinstance(getattr(method, "__self__", None), Runner)
