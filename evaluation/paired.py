"""How far one method is ahead of another, with what chance could make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from jlgcn._stats import mean_and_interval

Line = dict[str, Any]


def ahead(
    ours: Sequence[Line], theirs: Sequence[Line], *, ours_vary: bool, theirs_vary: bool
) -> dict[str, Any] | None:
    r"""Return the difference of two methods' test accuracies, and its 95 % interval.

    Runs are paired by seed, and seeds that only one of the methods has are left out: runs of the
    same seed saw the same split, and lack the same edges and labels. A run that does not vary with
    the seed is the run of every seed.

    Where all seeds have the same test nodes, runs are paired by node, too, since these nodes are a
    sample. The half-width of the interval there is

    .. math:: \sqrt{(1.96 \, s_n)^2 + (t \, s_s)^2}

    with s_n the standard error of the mean over nodes of the difference in being right, and s_s the
    standard error over seeds, which is 0 where neither method varies. One seed of a method that
    varies does not tell how much, so there is no interval then.

    Args:
        ours: recorded lines of one method, a seed each.
        theirs: those of the other.
        ours_vary: whether another seed may give another answer, by the method or by its data.
        theirs_vary: the same of the other method.

    Returns:
        mean, low and high (None where there is no interval) and the number of common seeds; None
        where there are none.
    """
    first, second = ({line["seed"]: line for line in lines} for lines in (ours, theirs))
    if not ours_vary:
        first = dict.fromkeys(second, ours[0])
    if not theirs_vary:
        second = dict.fromkeys(first, theirs[0])
    seeds = sorted(first.keys() & second.keys())
    if not ours_vary and not theirs_vary:
        seeds = seeds[:1]
    if not seeds:
        return None
    pairs = [(first[seed], second[seed]) for seed in seeds]
    found = mean_and_interval([a["test_accuracy"] - b["test_accuracy"] for a, b in pairs])
    if not all("correct" in line for pair in pairs for line in pair):
        return found
    difference = _share_right([a for a, _ in pairs]) - _share_right([b for _, b in pairs])
    found["mean"] = mean = float(difference.mean())
    if len(seeds) == 1 and (ours_vary or theirs_vary):
        return found
    seed_error = 0.0 if len(seeds) == 1 else found["high"] - mean
    half = math.hypot(1.96 * float(scipy.stats.sem(difference)), seed_error)
    return found | {"low": mean - half, "high": mean + half}


def _share_right(lines: Sequence[Line]) -> NDArray[np.float64]:
    """Return for every test node the share of seeds that were right."""
    bits = [
        np.unpackbits(
            np.frombuffer(bytes.fromhex(line["correct"]), dtype=np.uint8), count=line["num_test"]
        )
        for line in lines
    ]
    share: NDArray[np.float64] = np.stack(bits).mean(0)
    return share
