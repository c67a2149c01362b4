"""Suspicious and missing edges of packages and of WordNet, drawn by rank, for a person to read.

Nobody knows which dependencies between Debian's packages are wrong. So the closed form is fitted to
all given edges (20 labels a class, seed 0), and the pairs at fixed ranks of both tables are written
down with their explanation. A person then adds three fields to each line: `holds`, whether the
claim holds (of a suspicious edge, that its ends are not alike; of a missing edge, that they are
related), `is_error`, whether the graph itself is wrong or incomplete there, and `note`, why. A file
that has been read is not written again.

    OMP_NUM_THREADS=1 python -m evaluation.studies.read_audit
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.studies.graph_audit import load
from jlgcn.estimator.audit import audit
from jlgcn.io.files import data_root

OUT = Path("results/studies/graph_audit_read.jsonl")
RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 500, 2000)


def read(name: str) -> Iterator[dict[str, Any]]:
    """Yield a line for every pair that is drawn."""
    file = "graphs/debian_packages.npz" if name == "packages" else "text/wordnet_nouns.npz"
    with np.load(data_root() / file) as data:
        names, classes, y = data["names"], data["classes"], data["y"]
        words = data["words"] if name == "packages" else None
        texts, kinds = _texts(data), _kinds(data)
    problem = load(name, 0)
    model = problem.model
    started = time.process_time()
    found = audit(model, names.tolist(), None)
    seconds = round(time.process_time() - started, 1)
    for table, pairs in (("suspicious", found.suspicious), ("missing", found.missing)):
        missing = table == "missing"
        for rank in RANKS:
            features, neighbors = found.reasons(rank - 1, missing=missing)
            rows = getattr(found.pairs, table)
            ends = [int(rows.source[rank - 1]), int(rows.target[rank - 1])]
            yield {
                "data": name,
                "table": table,
                "rank": rank,
                "source": str(pairs.source[rank - 1]),
                "target": str(pairs.target[rank - 1]),
                "kind": kinds.get(tuple(ends), ""),
                "classes": [str(classes[y[end]]) for end in ends],
                "texts": [texts[end] for end in ends] if texts else [],
                "score": round(float(pairs.score[rank - 1]), 4),
                "words": [[str(words[k]), round(v, 2)] for k, v in features]
                if words is not None
                else [],
                "neighbors": [str(names[k]) for k in neighbors[:4]],
                "num_neighbors": len(neighbors),
                "num_wrong": found.num_wrong,
                "cpu_seconds": seconds,
            }


def _texts(data: Any) -> list[str]:  # noqa: ANN401
    if "texts_utf8" not in data:
        return []
    text, ends = data["texts_utf8"].tobytes(), data["texts_offsets"].tolist()
    return [text[a:b].decode()[:120] for a, b in itertools.pairwise(ends)]


def _kinds(data: Any) -> dict[tuple[int, ...], str]:  # noqa: ANN401
    if "edge_kind" not in data:
        return {}
    ends = np.sort(data["edge_index"], 0).T.tolist()
    kinds = data["edge_kinds"][data["edge_kind"]].tolist()
    return {tuple(pair): str(kind) for pair, kind in zip(ends, kinds, strict=True)}


def main() -> None:
    """Write the pairs of both data sets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} has been read by a person; remove it to draw again")
    torch.set_flush_denormal(True)
    lines = [line for name in ("wordnet", "packages") for line in read(name)]
    options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
