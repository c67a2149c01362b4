"""Stopping at the end of an epoch, where everything is consistent, instead of in its middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Remembers a signal that asked for the end."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def raise_it(self) -> None:
        """End as the signal would have: Ctrl-C as KeyboardInterrupt, SIGTERM with code 143."""
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt


@contextmanager
def deferred_interruption() -> Iterator[Interruption]:
    """Within, the first Ctrl-C or SIGTERM only leaves a note; a second one ends at once.

    Signals reach the main thread alone; in another thread nothing changes.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}

    def note(number: int, frame: FrameType | None) -> None:
        interruption.signal = number
        for each in watched:
            signal.signal(each, before[each])

    for number in watched:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        for number in watched:
            signal.signal(number, before[number])
