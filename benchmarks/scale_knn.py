"""kNN graphs against exact ones: runs of the citation recipes with ``backend=knn``, seed by seed.

    jlgcn run citation/cora --set backend=knn --seeds 5 --out runs
    jlgcn run citation/cora --set backend=knn --set num_neighbors=64 --seeds 5 --out runs
    python benchmarks/scale_knn.py --runs runs --out results/scale

The exact runs of the same variants and seeds are those recorded in results/citation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from measure import table, write_json


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
    pairs: dict[tuple[str, int], dict[str, list[Any]]] = {}
    for path in sorted(args.runs.glob("citation/*/*/seed-*/result.json")):
        run = json.loads(path.read_text())
        if run["configuration"]["backend"] != "knn":
            continue
        data = run["recipe"].removeprefix("citation/")
        variant = run["variant"].split(" backend=")[0]
        exact = exact_runs(args.records / f"{data}.jsonl", variant).get(run["seed"])
        if exact is None:
            continue
        pair = pairs.setdefault((data, run["configuration"]["num_neighbors"]), {})
        for name, value in (
            ("seeds", run["seed"]),
            ("exact", exact["test_accuracy"]),
            ("knn", run["test_accuracy"]),
            ("exact_val", exact["val_accuracy"]),
            ("knn_val", run["val_accuracy"]),
        ):
            pair.setdefault(name, []).append(value)
    found = [
        {"data": data, "num_neighbors": num_neighbors, **pair}
        for (data, num_neighbors), pair in sorted(pairs.items())
    ]
    write_json(args.out / "knn_against_exact.json", {}, {"pairs": found})
    columns = ("data", "num_neighbors", "exact", "knn")
    print(table(list(columns), [[str(one[name]) for name in columns] for one in found]))


if __name__ == "__main__":
    main()
