"""Validation of JSON documents: composable checks of type, range and length.

A check takes a value and its path in the document, and returns the value unchanged or raises a
ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Check = Callable[[Any, str], Any]


def whole(low: int, high: int) -> Check:
    """Accept an integer from `low` to `high`, but no boolean."""

    def check(value: Any, where: str) -> Any:  # noqa: ANN401
        if type(value) is not int or not low <= value <= high:
            raise _wrong(where, f"a whole number from {low:,} to {high:,}", value)
        return value

    return check


def real(low: float, high: float, *, above: bool = False) -> Check:
    """Accept a finite number in [low, high], or (low, high] if `above`, but no boolean."""

    def check(value: Any, where: str) -> Any:  # noqa: ANN401
        is_inside = type(value) in (int, float) and low <= value <= high  # False for NaN
        if not is_inside or (above and value == low):
            start = f"above {low:g} and at most" if above else f"from {low:g} to"
            raise _wrong(where, f"a number {start} {high:g}", value)
        return value

    return check


def word(*choices: str) -> Check:
    """Accept one of the given strings."""

    def check(value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, str) or value not in choices:
            raise _wrong(where, f"one of {', '.join(choices)}", value)
        return value

    return check


def text(max_length: int) -> Check:
    """Accept a string of limited length that can be encoded as UTF-8."""

    def check(value: Any, where: str) -> Any:  # noqa: ANN401
        is_text = isinstance(value, str) and len(value) <= max_length
        if not is_text or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise _wrong(where, f"text of at most {max_length:,} characters", value)
        return value

    return check


def flag(value: Any, where: str) -> Any:  # noqa: ANN401
    """Accept true or false."""
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def maybe(check: Check) -> Check:
    """Accept null, or a value that another check accepts."""
    return lambda value, where: None if value is None else check(value, where)


def either(first: Check, second: Check) -> Check:
    """Accept a list that the second check accepts, or anything else that the first does."""
    return lambda value, where: (second if isinstance(value, list) else first)(value, where)


def list_of(check: Check, max_length: int, *, min_length: int = 0) -> Check:
    """Accept a list of limited length whose entries another check accepts."""

    def check_all(value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, list) or not min_length <= len(value) <= max_length:
            least = f"{min_length:,} to" if min_length else "at most"
            raise _wrong(where, f"a list of {least} {max_length:,} entries", value)
        for index, entry in enumerate(value):
            check(entry, f"{where}[{index}]")
        return value

    return check_all


def record(checks: dict[str, Check]) -> Check:
    """Accept an object with exactly these fields."""

    def check_all(value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        if value.keys() != checks.keys():
            names = ", ".join(sorted(map(repr, value.keys() ^ checks.keys()))[:5])
            raise ValueError(f"{where or 'it'} lacks fields, or has unknown ones: {names[:200]}")
        for name, check in checks.items():
            check(value[name], f"{where}.{name}" if where else name)
        return value

    return check_all


def variant(name: str, fields: dict[str, Callable[[], dict[str, Check]]]) -> Check:
    """Accept an object whose field `name` says which other fields it has.

    Args:
        name: the field.
        fields: for each of its values, a function that returns the checks of the other fields.
    """

    def check_all(value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        kind = word(*fields)(value.get(name), f"{where}.{name}" if where else name)
        return record({name: word(kind)} | fields[kind]())(value, where)

    return check_all


def _wrong(where: str, needed: str, value: Any) -> ValueError:  # noqa: ANN401
    shown = f"a {type(value).__name__}"
    if isinstance(value, str | float | bool | None):
        shown = repr(value[:40] if isinstance(value, str) else value)
    elif isinstance(value, int) and abs(value) < 10**18:
        shown = str(value)
    return ValueError(f"{where or 'it'} must be {needed}, but it is {shown}")
