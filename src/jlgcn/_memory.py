"""Available memory, and checks before large allocations."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import torch

#: Allocations and unpacked files below this size are not checked.
_HARMLESS_BYTES = 200 * 2**20


def available_bytes(device: torch.device | str = "cpu") -> int:
    """Return the available memory of a CUDA device, or of this machine and its control group.

    If the system does not report it, the physical memory of the machine, or no limit.

    Example:
        >>> available_bytes() > 0
        True
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    found += group_bytes()
    return min(found) if found else _physical_bytes()


def _physical_bytes() -> int:
    """Return the physical memory of this machine; on Windows, which has no sysconf, no limit."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


#: Control groups v2 and v1: controller, folder, and the files or fields of the limit, the usage and
#: the reclaimable page cache within it.
_GROUPS = (
    ("", "", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def group_bytes(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[int]:
    """Return the remaining bytes of each control group of this process that has a limit.

    Args:
        root: mount point of the control groups.
        own: the file that lists the groups of this process.

    Example:
        >>> all(room >= 0 for room in group_bytes())
        True
    """
    found: list[int] = []
    names = own.read_text().splitlines() if own.exists() else []
    for controllers, path in (name.split(":", 2)[1:] for name in names):
        for controller, folder, limit, used, cache in _GROUPS:
            if controller not in controllers.split(","):
                continue
            group = root / folder / path.lstrip("/")
            # In a container the path may be the host's; the group is then at the root.
            for place in (group, *group.parents):
                if not place.is_relative_to(root / folder):
                    break
                if (place / limit).exists() and (place / limit).read_text().strip() != "max":
                    stat_file = place / "memory.stat"  # hidden in some sandboxes
                    lines = stat_file.read_text().splitlines() if stat_file.exists() else []
                    stat = dict(line.split() for line in lines)
                    held = int((place / used).read_text()) - int(stat.get(cache, 0))
                    found.append(max(0, int((place / limit).read_text()) - held))
    return found


def check_memory(needed: int, device: torch.device | str, what: str, remedy: str) -> None:
    """Raise a ValueError before an allocation that exceeds the available memory.

    Args:
        needed: bytes of the allocation.
        device: its device.
        what: subject of the error message.
        remedy: the alternative to recommend.
    """
    # Reading the available memory costs a file access; small allocations skip it.
    if torch.compiler.is_compiling() or needed < _HARMLESS_BYTES:
        return
    available = available_bytes(device)
    if needed > available:
        raise ValueError(
            f"{what} needs {needed / 2**30:,.1f} GiB but {available / 2**30:,.1f} GiB of memory "
            f"are free; {remedy} takes memory in proportion to the nodes"
        )


def check_unpacked(path: Path, num_bytes: int, remedy: str, *, largest_ratio: int = 100) -> None:
    """Raise if a compressed file declares an implausible or unaffordable size (zip bomb).

    Args:
        path: the file.
        num_bytes: the declared uncompressed size.
        remedy: what to do if the size is real.
        largest_ratio (int, default 100): largest plausible compression ratio.
    """
    packed = path.stat().st_size
    if num_bytes > max(_HARMLESS_BYTES, largest_ratio * packed):
        raise ValueError(
            f"{path} has {packed:,} bytes and says that it holds {num_bytes:,}, as no honest file "
            f"of numbers does; {remedy}"
        )
    if num_bytes > available_bytes():
        raise ValueError(
            f"{path} holds {num_bytes / 2**30:,.1f} GiB, and {available_bytes() / 2**30:,.1f} GiB "
            "of memory are free; take a part of it, or a larger machine"
        )


def return_freed_memory() -> None:
    """Give memory that was freed back to the system, where the C library keeps it for later.

    glibc keeps freed blocks below others that are in use: after an index of small lists, as much as
    the index took.

    Example:
        >>> return_freed_memory()
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
