"""A made-up table as messy as those of offices: requests to a city, and the department for each.

Windows-1252 with semicolons; ids and names with letters beyond ASCII; dates in two formats; decimal
commas; gaps written in six ways; misspelt strings of high cardinality; free text; a boolean, a
constant and an empty column. The department follows from no column alone.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LABEL = "department"
GAPS = ("", "NA", "n/a", "-", "k. A.", "?")
#: By department: mean of the logarithm of costs, share of urgent requests, first month of its
#: season, objects, and words of the comments.
_DEPARTMENTS: dict[str, tuple[float, float, int, tuple[str, ...], str]] = {
    "roads": (
        6.5,
        0.35,
        1,
        ("pothole", "kerb stone", "road sign", "traffic light", "zebra crossing"),
        "deep hole in the asphalt damaged a tyre and cyclists swerve into traffic near the bend",
    ),
    "water": (
        7.0,
        0.6,
        11,
        ("hydrant", "water main", "drain cover", "fountain pump", "storm drain"),
        "water runs down from a leak under the pavement and the cellar floods after every rain",
    ),
    "parks": (
        5.0,
        0.15,
        5,
        ("playground swing", "fallen branch", "park bench", "lawn edge", "oak tree"),
        "a rotten branch hangs over the path where children play and the bench lost its boards",
    ),
    "waste": (
        4.5,
        0.3,
        7,
        ("paper container", "bulky waste", "litter bin", "glass container", "dumped tyres"),
        "bags pile up around the bin for days and rats come at night because nobody collects them",
    ),
}
_COMMON = "please send someone soon as neighbours have complained before and nothing has happened"
_DISTRICTS = ("Altstadt", "Höhe", "Söderhof", "Île-Neuve", "Mühlfeld", "Østerby")
_STREETS = ("Bäcker", "Garten", "Königs", "Linden", "Müller", "Rosen", "Schloß", "Æble", "Châtel")
_NAMES = ("Zoë", "Jürgen", "Amélie", "Søren", "Iñaki", "Björn", "Grete", "Ole", "Maja", "Françoise")
_HEADER = (
    *("Nr.", "Bezirk", "street", "reported", "cost (€)", "urgent", "object", "reporter"),
    *("comment", "country", "checked by", LABEL),
)


def messy_table(
    path: Path, num_rows: int = 2000, *, seed: int = 0, num_labels: int | None = None
) -> NDArray[np.str_]:
    """Write the table as CSV, and return the department of every row.

    Args:
        path: file to write.
        num_rows: number of rows.
        seed: seed of all that is drawn.
        num_labels: rows that have a label in the file, the first ones; None for all.
    """
    rng = np.random.default_rng(seed)
    names = list(_DEPARTMENTS)
    truth = rng.choice(names, num_rows, p=[0.35, 0.15, 0.2, 0.3])
    lines = [_row(rng, names, str(own), 1000 * seed + k) for k, own in enumerate(truth)]
    for line in lines[num_rows if num_labels is None else num_labels :]:
        line[-1] = ""
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="\n").writerows([_HEADER, *lines])
    path.write_bytes(text.getvalue().encode("cp1252"))
    return np.array(truth)


def _row(rng: np.random.Generator, names: list[str], own: str, number: int) -> list[str]:
    """Return the cells of a request; a fifth of its columns speak of another department."""

    def kind() -> str:
        return own if rng.random() < 0.8 else str(rng.choice(names))

    cost, _, _, _, _ = _DEPARTMENTS[kind()]
    _, urgent, _, _, _ = _DEPARTMENTS[kind()]
    _, _, season, _, _ = _DEPARTMENTS[kind()]
    _, _, _, objects, _ = _DEPARTMENTS[kind()]
    month = 1 + (season + int(rng.integers(4))) % 12
    day, year = int(rng.integers(1, 29)), int(rng.integers(2021, 2025))
    is_iso = rng.random() < 0.4
    date = f"{year}-{month:02d}-{day:02d}" if is_iso else f"{day:02d}.{month:02d}.{year}"
    price = f"{rng.lognormal(cost, 0.7):,.2f}".translate(str.maketrans(",.", ".,"))
    district = _DISTRICTS[(names.index(kind()) + int(rng.integers(3))) % len(_DISTRICTS)]
    street = f"{rng.choice(_STREETS)}{rng.choice(['straße', 'gade', 'allée'])} {rng.integers(99)}"
    item = _misspelt(rng, str(rng.choice(objects)))
    if rng.random() < 0.5:
        item += f" no. {rng.integers(1, 400)}"
    words = (_DEPARTMENTS[kind()][4].split(), _COMMON.split())
    comment = " ".join(rng.choice(words[int(rng.random() < 0.6)]) for _ in range(14))
    if rng.random() < 0.1:
        comment += '; "urgent"\nThank you'
    cells = [
        *(district, street, date, f"{price} €", "yes" if rng.random() < urgent else "no", item),
        *(f"{rng.choice(_NAMES)} {rng.choice(_STREETS)}", comment),
    ]
    with_gaps = [str(rng.choice(GAPS)) if rng.random() < 0.08 else cell for cell in cells]
    return [f"Nº-{number:06d}", *with_gaps, "Østland", "", own]


def _misspelt(rng: np.random.Generator, word: str) -> str:
    """Return a word, one in four times with two neighbouring letters swapped."""
    if rng.random() >= 0.25:
        return word
    place = int(rng.integers(len(word) - 1))
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
