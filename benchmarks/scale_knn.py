"""kNN graphs against exact ones: runs of the citation recipes with ``backend=knn``, seed by seed.

    jlgcn paper run citation/cora --set backend=knn --seeds 5 --out runs
    jlgcn paper run citation/cora --set backend=knn --set num_neighbors=64 --seeds 5 --out runs
    python -m benchmarks.scale_knn --runs runs --out results/scale

The exact runs of the same variants and seeds are those recorded in results/citation. Seeds that
were compared before, and are not among the runs, stay in the file.
"""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.measure import table, write_json

SCORES = ("exact", "knn", "exact_val", "knn_val")


def compared_before(path: Path) -> dict[tuple[str, int, int], dict[str, float]]:
    """Return the scores in a file of this script, by data, number of neighbours and seed."""
    if not path.exists():
        return {}
    return {
        (one["data"], one["num_neighbors"], seed): {score: one[score][place] for score in SCORES}
        for one in json.loads(path.read_text())["results"]["pairs"]
        for place, seed in enumerate(one["seeds"])
    }


def exact_runs(path: Path, variant: str) -> dict[int, dict[str, Any]]:
    """Return every recorded exact run, by seed."""
    lines = map(json.loads, path.read_text().splitlines())
    return {
        line["seed"]: line
        for line in lines
        if line["variant"] == variant and line["configuration"].get("backend") == "exact"
    }


def main() -> None:
    """Pair runs with records, write and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--records", type=Path, default=Path("results/citation"))
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    out = args.out / "knn_against_exact.json"
    pairs = compared_before(out)
    for path in sorted(args.runs.glob("citation/*/*/seed-*/result.json")):
        run = json.loads(path.read_text())
        if run["configuration"]["backend"] != "knn":
            continue
        data = run["recipe"].removeprefix("citation/")
        variant = run["variant"].split(" backend=")[0]
        exact = exact_runs(args.records / f"{data}.jsonl", variant).get(run["seed"])
        if exact is None:
            continue
        pairs[data, run["configuration"]["num_neighbors"], run["seed"]] = {
            "exact": exact["test_accuracy"],
            "knn": run["test_accuracy"],
            "exact_val": exact["val_accuracy"],
            "knn_val": run["val_accuracy"],
        }
    found: list[dict[str, Any]] = []
    for (data, num_neighbors), group in groupby(sorted(pairs), key=lambda pair: pair[:2]):
        seeds = [seed for *_, seed in group]
        scores = [pairs[data, num_neighbors, seed] for seed in seeds]
        columns = {score: [one[score] for one in scores] for score in SCORES}
        found.append({"data": data, "num_neighbors": num_neighbors, "seeds": seeds, **columns})
    write_json(out, {}, {"pairs": found})
    shown = ["data", "num_neighbors", "exact", "knn"]
    print(table(shown, [[str(one[name]) for name in shown] for one in found]))


if __name__ == "__main__":
    main()
