"""kNN graphs against exact ones: runs of the citation recipes with ``backend=knn``, seed by seed.

    jlgcn run citation/cora --set backend=knn --seeds 3 --out runs
    python benchmarks/scale_knn.py --runs runs --out results/scale

The exact runs of the same variants and seeds are those recorded in results/citation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from measure import table, write_json


def exact_accuracies(path: Path, variant: str) -> dict[int, float]:
    """Return the test accuracy of every recorded exact run, by seed."""
    found = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if line["variant"] == variant and line["configuration"].get("backend") == "exact":
            found[int(line["seed"])] = float(line["test_accuracy"])
    return found


def main() -> None:
    """Pair runs with records, write and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--records", type=Path, default=Path("results/citation"))
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    pairs: dict[str, dict[str, list[float]]] = {}
    for path in sorted(args.runs.glob("citation/*/*/seed-*/result.json")):
        run = json.loads(path.read_text())
        name = run["recipe"].removeprefix("citation/")
        variant = run["variant"].replace(" backend=knn", "")
        exact = exact_accuracies(args.records / f"{name}.jsonl", variant)
        if run["seed"] in exact:
            pair = pairs.setdefault(f"{name}, {variant}", {"seeds": [], "exact": [], "knn": []})
            pair["seeds"].append(run["seed"])
            pair["exact"].append(exact[run["seed"]])
            pair["knn"].append(run["test_accuracy"])
    write_json(args.out / "knn_against_exact.json", {"num_neighbors": 16}, dict(pairs))
    rows = [[name, str(pair["exact"]), str(pair["knn"])] for name, pair in pairs.items()]
    print(table(["", "exact", "knn"], rows))


if __name__ == "__main__":
    main()
