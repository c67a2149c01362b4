"""When a check may read a value that is on an accelerator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import torch

_num_calls: Counter[Hashable] = Counter()


def is_check_due(device: torch.device, check: Hashable) -> bool:
    """Return whether a check inside a forward pass runs at this call.

    Reading one value of a tensor, as ``bool(x.isfinite().all())`` does, makes the host wait until
    an accelerator has finished all queued work. There a check runs at calls 1, 2, 4, 8, … only. On
    a CPU it runs at every call, in compiled code at none.

    Args:
        device: where the value is.
        check: name of the check; calls are counted per name in each process.

    Example:
        >>> is_check_due(torch.device("cpu"), "finite")
        True
        >>> [is_check_due(torch.device("meta"), "finite") for call in range(1, 6)]
        [True, True, False, True, False]
    """
    if torch.compiler.is_compiling():
        return False
    if device.type == "cpu":
        return True
    _num_calls[check] += 1
    return _num_calls[check].bit_count() == 1
