"""How much memory is free, and refusals before more than that is asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

#: A compressed file may claim to be this much larger before anybody asks whether it is meant.
_HARMLESS_BYTES = 200 * 2**20


_LARGEST_RATIO = 100


def available_bytes(device: torch.device | str = "cpu") -> int:
    """Return how much memory is free: of a GPU, or of this machine and its control group.

    Where the system does not tell, it is the memory of the machine, or without limit.

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
    """Return the memory of this machine; on Windows, which does not tell, more than any has."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


#: Where each version of control groups is, and how it calls its limit, what is used, and what of
#: that is cache which the system takes back first.
_GROUPS = (
    ("", "", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def group_bytes(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[int]:
    """Return what is left in each of the control groups of this process that has a limit.

    Args:
        root: where the system shows its groups.
        own: the file that names those of this process.

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
            # In a container, a path may be one of the host's: then the group is at the root.
            for place in (group, *group.parents):
                if not place.is_relative_to(root / folder):
                    break
                if (place / limit).exists() and (place / limit).read_text().strip() != "max":
                    stat_file = place / "memory.stat"  # which some sandboxes do not show
                    lines = stat_file.read_text().splitlines() if stat_file.exists() else []
                    stat = dict(line.split() for line in lines)
                    held = int((place / used).read_text()) - int(stat.get(cache, 0))
                    found.append(max(0, int((place / limit).read_text()) - held))
    return found


def check_memory(needed: int, device: torch.device | str, what: str, remedy: str) -> None:
    """Raise before memory is asked for that is not there.

    Args:
        needed: bytes.
        device: where they would be.
        what: what needs them.
        remedy: what to use instead.
    """
    # Asking costs a file; what is small need not ask.
    if torch.compiler.is_compiling() or needed < _HARMLESS_BYTES:
        return
    available = available_bytes(device)
    if needed > available:
        raise ValueError(
            f"{what} needs {needed / 2**30:,.1f} GiB but {available / 2**30:,.1f} GiB of memory "
            f"are free; {remedy} takes memory in proportion to the nodes"
        )


def check_unpacked(
    path: Path, num_bytes: int, remedy: str, *, largest_ratio: int = _LARGEST_RATIO
) -> None:
    """Raise if a small file claims to hold very much, before it is unpacked.

    Args:
        path: the file.
        num_bytes: what it says that it holds.
        remedy: what to do if it is meant.
        largest_ratio: how many times its own size a file may hold.
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
