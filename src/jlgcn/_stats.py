"""Confidence intervals of means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import scipy.stats


def mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, Student-t 95 % confidence interval and sample size; none for one value.

    Example:
        >>> mean_and_interval([0.5])
        {'mean': 0.5, 'low': None, 'high': None, 'seeds': 1}
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return {"mean": mean, "low": None, "high": None, "seeds": len(values)}
    error = float(scipy.stats.sem(values))
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": len(values)}
