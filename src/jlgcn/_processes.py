"""Worker processes."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """End this process as soon as its parent has ended; the initializer of a pool.

    Without it, workers of a command that was killed would wait for tasks forever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:  # not a worker
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end_with_parent", daemon=True).start()
