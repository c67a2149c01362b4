"""Graceful shutdown: signals stop training at the end of an epoch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

#: Seconds that an epoch may take after a signal; schedulers often send SIGKILL ten after SIGTERM.
GRACE_SECONDS = 4.0

_HAS_TIMER = hasattr(signal, "setitimer")  # not on Windows


class GraceExpired(BaseException):
    """An epoch did not end within the grace period after a signal; it is discarded."""


class Interruption:
    """The signal that was received, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._may_leave = False

    def raise_it(self) -> NoReturn:
        """Exit as the signal would: KeyboardInterrupt for Ctrl-C, exit code 143 for SIGTERM."""
        if _HAS_TIMER:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    @contextmanager
    def may_leave(self) -> Iterator[None]:
        """Allow :class:`GraceExpired` within; code between epochs always runs to its end."""
        self._may_leave = True
        try:
            yield
        finally:
            self._may_leave = False

    def expire(self, number: int, frame: FrameType | None) -> None:
        """Abort the epoch; the handler of SIGALRM."""
        if self._may_leave:
            raise GraceExpired


@contextmanager
def deferred_interruption(grace: float = GRACE_SECONDS) -> Iterator[Interruption]:
    """Record the first Ctrl-C or SIGTERM instead of stopping; the second stops at once.

    An epoch that still runs after `grace` seconds is aborted with :class:`GraceExpired`; on
    Windows, which has no interval timer, it runs to its end. Python delivers
    signals to the main thread; in another thread this has no effect.

    Args:
        grace (float > 0): seconds until an epoch is aborted.
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
