"""Stopping at the end of an epoch, where everything is consistent, instead of in its middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

#: Seconds that an epoch may still take after a signal; whoever sends SIGTERM often kills after ten.
GRACE_SECONDS = 4.0

_HAS_TIMER = hasattr(signal, "setitimer")  # not on Windows


class GraceExpired(BaseException):
    """An epoch did not end in time after a signal; nothing of it counts."""


class Interruption:
    """Remembers a signal that asked for the end."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._may_leave = False

    def raise_it(self) -> NoReturn:
        """End as the signal would have: Ctrl-C as KeyboardInterrupt, SIGTERM with code 143."""
        if _HAS_TIMER:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    @contextmanager
    def may_leave(self) -> Iterator[None]:
        """Within, the end of the grace raises; what comes between epochs is done as a whole."""
        self._may_leave = True
        try:
            yield
        finally:
            self._may_leave = False

    def expire(self, number: int, frame: FrameType | None) -> None:
        """Leave an epoch at once."""
        if self._may_leave:
            raise GraceExpired


@contextmanager
def deferred_interruption(grace: float = GRACE_SECONDS) -> Iterator[Interruption]:
    """Within, the first Ctrl-C or SIGTERM only leaves a note; a second one ends at once.

    After `grace` seconds an epoch that still runs is left, by :class:`GraceExpired`; on Windows,
    which has no interval timer, it is waited for.

    Signals reach the main thread alone; in another thread nothing changes.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}
    alarm = signal.getsignal(signal.SIGALRM) if _HAS_TIMER else None

    def note(number: int, frame: FrameType | None) -> None:
        interruption.signal = number
        for each in watched:
            signal.signal(each, before[each])
        if _HAS_TIMER:
            signal.signal(signal.SIGALRM, interruption.expire)
            signal.setitimer(signal.ITIMER_REAL, grace)

    for number in watched:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        if interruption.signal is not None and _HAS_TIMER:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
        for number in watched:
            signal.signal(number, before[number])
