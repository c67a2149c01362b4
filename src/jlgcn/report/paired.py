"""How far one method is ahead of another, with what chance could make of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from jlgcn.train.result import mean_and_interval

Line = dict[str, Any]


def ahead(ours: Sequence[Line], theirs: Sequence[Line]) -> dict[str, Any] | None:
    r"""Return the difference of two methods' test accuracies, and its 95 % interval.

    Runs of the same seed are paired: they saw the same split, and lack the same edges. Where all
    seeds have the same test nodes, seeds alone would say how chance in training matters but not how
    chance in the choice of test nodes does, and of methods without chance nothing at all. So the
    half-width there is

    .. math:: \sqrt{(1.96 \, s_n)^2 + (t \, s_s)^2}

    with s_n the standard error of the mean over nodes of the difference in being right, and s_s
    that over seeds.

    Args:
        ours: recorded lines of one method, a seed each.
        theirs: those of the other.

    Returns:
        mean, low, high, and the number of seeds; None where neither seeds nor nodes can be paired.
    """
    first, second = ({line["seed"]: line for line in lines} for lines in (ours, theirs))
    seeds = sorted(first.keys() & second.keys())
    by_seed = [first[seed]["test_accuracy"] - second[seed]["test_accuracy"] for seed in seeds]
    if not all("correct" in line for line in (*ours, *theirs)):
        return mean_and_interval(by_seed) if by_seed else None
    if len(seeds) > 1:
        found = mean_and_interval(by_seed)
        seed_error = found["high"] - found["mean"]
        first, second = ({seed: lines[seed] for seed in seeds} for lines in (first, second))
    else:  # a method without chance, and perhaps one with it
        seed_error = math.hypot(*(_half_width(lines.values()) for lines in (first, second)))
    difference = _share_right(first.values()) - _share_right(second.values())
    node_error = 1.96 * float(scipy.stats.sem(difference))
    mean, half = float(difference.mean()), math.hypot(node_error, seed_error)
    num_seeds = max(len(first), len(second))
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": num_seeds}


def _half_width(lines: Collection[Line]) -> float:
    found = mean_and_interval([line["test_accuracy"] for line in lines])
    return 0.0 if found["high"] is None else float(found["high"] - found["mean"])


def _share_right(lines: Collection[Line]) -> NDArray[np.float64]:
    """Return for every test node the share of seeds that were right."""
    bits = [
        np.unpackbits(
            np.frombuffer(bytes.fromhex(line["correct"]), dtype=np.uint8), count=line["num_test"]
        )
        for line in lines
    ]
    share: NDArray[np.float64] = np.stack(bits).mean(0)
    return share
