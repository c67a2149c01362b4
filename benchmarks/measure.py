"""How benchmarks measure: times side by side in one run, memory as a peak in a fresh process."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import torch

from jlgcn.training.environment import versions

Run = Callable[[], object]
T = TypeVar("T")


def times_side_by_side(cases: dict[str, Run], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every repeat of every case.

    Cases take turns, so that a machine that slows down slows all of them down; which one begins
    changes from round to round. One round before the first is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for name in names:
        cases[name]()
    for round_number in range(repeats):
        shift = round_number % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            cases[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def median_ratio(seconds: Sequence[float], base: Sequence[float]) -> float:
    """Return the median over rounds of how many times longer a case took than the base."""
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


def peak_bytes(prepare: Callable[..., Run], *args: object, num_threads: int) -> int:
    """Return by how much running ``prepare(*args)()`` raises the memory of a fresh process.

    Inputs that `prepare` makes do not count, nor does what the first run of anything allocates
    once (a small run comes before): only what the size asks for. The kernel's own high-water mark
    is read, so nothing between two samples is missed.
    """
    # Without this the allocator keeps freed blocks, and the peak is that of its history.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    return in_own_process(_peak_bytes, prepare, *args, num_threads=num_threads)


def _peak_bytes(prepare: Callable[..., Run], *args: object) -> int:
    small = tuple(min(a, 64) if isinstance(a, int) else a for a in args)
    prepare(*small)()
    run = prepare(*args)
    Path("/proc/self/clear_refs").write_text("5")  # forget the high-water mark so far
    before = status_bytes("VmRSS")
    run()
    return status_bytes("VmHWM") - before


def in_own_process(function: Callable[..., T], *args: object, num_threads: int) -> T:
    """Return what a function returns, called in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, args, num_threads))
    process.start()
    sender.close()
    try:
        found: T = receiver.recv()
    except EOFError:
        process.join()
        raise MemoryError(f"the measuring process ended with {process.exitcode}") from None
    process.join()
    return found


def _send(
    sender: Connection, function: Callable[..., T], args: tuple[object, ...], num_threads: int
) -> None:
    torch.set_num_threads(num_threads)
    sender.send(function(*args))


def status_bytes(field: str) -> int:
    """Return a figure of this process, such as VmHWM, its highest memory so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def growth_exponent(sizes: Sequence[int], amounts: Sequence[float]) -> float:
    """Return p of the power law amount ~ size^p through the points, by least squares of logs."""
    x, y = [math.log(s) for s in sizes], [math.log(a) for a in amounts]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def write_json(path: Path, settings: dict[str, object], results: dict[str, object]) -> None:
    """Write what was measured, with what and on what."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"settings": settings, "results": results, "environment": versions()}
    path.write_text(json.dumps(document, indent=2) + "\n")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


class Peak:
    """Measures CPU seconds, and the largest anonymous memory, of a process and its descendants.

    Anonymous memory leaves out mapped files, whose pages the system may drop. It is sampled twenty
    times a second, as the CPU seconds of descendants are.

    Attributes:
        num_bytes: largest memory of all processes together.
        own_bytes: largest memory of this process.
        cpu_seconds: CPU seconds of all processes.
    """

    def __enter__(self) -> Peak:
        self.num_bytes = self.own_bytes = self._stage_bytes = 0
        self._start = time.process_time()
        self._others: dict[str, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds so far."""
        return time.process_time() - self._start + sum([*self._others.values()])

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            own, total = _anonymous_bytes("self"), 0
            for number in _descendants(str(os.getpid())):
                total += _anonymous_bytes(number)
                self._others[number] = max(_cpu_seconds(number), self._others.get(number, 0.0))
            self.own_bytes = max(self.own_bytes, own)
            self.num_bytes = max(self.num_bytes, own + total)
            self._stage_bytes = max(self._stage_bytes, own + total)

    def take_stage_bytes(self) -> int:
        """Return the largest memory of all processes since the last call."""
        found, self._stage_bytes = self._stage_bytes, 0
        return found


def _descendants(process: str) -> Iterator[str]:
    try:
        threads = [*Path(f"/proc/{process}/task").iterdir()]
        children = [child for t in threads for child in (t / "children").read_text().split()]
    except OSError:  # it has ended
        return
    for child in children:
        yield child
        yield from _descendants(child)


def _cpu_seconds(process: str) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _anonymous_bytes(process: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((1024 * int(x.split()[1]) for x in lines if x.startswith("RssAnon")), 0)
