"""Suspicious and missing edges: the audit of a fitted model beside other scores of pairs.

Suspicious edges: 10, 25 and 50 % of edges between random pairs are added to Cora, Citeseer and the
packages, fitted with 20 labels a class of development splits; or Cora is attacked by Metattack (5
to 25 %, labels of the published training and validation nodes only). A line has the AUC, and the
precision among as many edges as are wrong.

Missing edges: half and three quarters of the edges are hidden, also of WordNet nouns (20 labels a
class). Pairs without a given edge are ranked: those of every node, or of 2,000 nodes drawn at
random with all others. A line has the average precision of all these pairs, and the share of a
node's hidden edges among its ten first, a mean over nodes with a hidden edge (of at most ten).

Scores are the audit's; its learned distance alone; its own terms with the edge left in the graph
(what taking it out costs, or gains); Jaccard similarity of the words; cosine of their tf-idf;
Adamic-Adar; and the inner products of PyTorch Geometric's GAE (32 and 16 channels, 200 epochs).

Cleaned graphs: a graph convolutional network (two layers, 200 epochs, no selection) is trained on
the given graph, on it without suspicious edges, on `cleaned_graph()`, and on the given graph with
as many missing edges as it has edges; of attacked Cora, and of Cora and Citeseer with half of the
edges hidden. It is scored on development nodes; the audit has the labels that the network has.

A line for every task, data set, share, seed and score goes to one file, and a run goes on where
the file ends; `--show` prints means.

    OMP_NUM_THREADS=1 python -m evaluation.studies.graph_audit --only cora citeseer
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAE

from evaluation.claim_data import load_claim
from evaluation.claim_experiment import scaled
from evaluation.npz import load_npz
from evaluation.studies.learn_graph import accuracy, draw
from evaluation.study_tables import AUDIT_MEASURES, audit_table
from evaluation.suite.run import append_line
from jlgcn.closed_form import ClosedFormModel, fit_closed_form
from jlgcn.closed_form.audit import GIVEN_DECAY, GraphAudit, audit_graph
from jlgcn.closed_form.layer import unit_rows
from jlgcn.closed_form.pairs import PairTerms
from jlgcn.estimator.audit import audit as audited
from jlgcn.graphs import Graph, SparseGraph, as_graph
from jlgcn.io.files import data_root
from jlgcn.ops import SparseFeatures
from jlgcn.paper.records import read_lines

OUT = Path("results/studies/graph_audit.jsonl")
WRONG = {"cora": (0.1, 0.25, 0.5), "citeseer": (0.1, 0.25, 0.5), "packages": (0.1, 0.25, 0.5)}
ATTACKS = (0.05, 0.1, 0.15, 0.2, 0.25)
HIDDEN = (0.5, 0.75)
CLEANED = {"metattack": (0.1, 0.25), "cora": (0.5,), "citeseer": (0.5,)}  # attacked, or hidden
NUM_ROWS = 2000  # of larger data sets, whose pairs with all others are ranked
_BLOCK = 200  # rows whose scores are computed at a time

Features = Tensor | SparseFeatures
Rows = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Problem:
    """Nodes with words, labels of some of them, and edges of which some are wrong or hidden.

    Attributes:
        x: features that the model sees.
        words: features whose words are compared, (N, words).
        y: classes of labelled nodes, -1 elsewhere, (N,).
        truth: classes of these and of the nodes that a network is scored on, -1 elsewhere, (N,).
        edges: given edges, each once, (2, E).
        is_wrong: whether an edge was added, (E,), bool.
        hidden: edges that were taken away, (2, H).
    """

    x: Features
    words: scipy.sparse.csr_array
    y: Tensor
    truth: Tensor
    edges: np.ndarray
    is_wrong: np.ndarray
    hidden: np.ndarray

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.y)

    @cached_property
    def graph(self) -> SparseGraph:
        """The given graph."""
        both = np.concatenate([self.edges, self.edges[::-1]], 1)
        return SparseGraph(torch.from_numpy(both), num_nodes=self.num_nodes)

    @cached_property
    def model(self) -> ClosedFormModel:
        """The closed form with its defaults."""
        train = (self.y >= 0).nonzero().flatten()
        return fit_closed_form(self.x, self.y, self.graph, train=train)


def load(name: str, seed: int, root: Path | None = None) -> Problem:
    """Return a data set with all of its edges."""
    x: Features
    if name == "wordnet":
        with np.load(data_root(root) / "text/wordnet_nouns.npz") as file:
            x, y = torch.from_numpy(file["x"].astype(np.float32)), torch.from_numpy(file["y"])
            parts = tuple(file[f"tfidf_{part}"] for part in ("data", "indices", "indptr"))
            words = scipy.sparse.csr_array(parts, shape=(len(y), len(file["words"])))
            edges = file["edge_index"].astype(np.int64)
        train = draw(y.long(), 20, seed).nonzero().flatten()
    else:
        full = "debian_packages" if name == "packages" else name
        data = load_claim("given", full, seed=seed, root=root, develops=True)
        found = scaled(data.x)
        assert isinstance(found, SparseFeatures)
        x, y, edges, train = found, data.y, data.edge_index.numpy(), data.train
        words = found.to_scipy()
    known = _only(y, train)
    edges = np.unique(np.sort(edges, 0), axis=1)
    none = np.empty((2, 0), dtype=np.int64)
    scored = torch.cat([train, data.test]) if name in CLEANED else train
    is_wrong = np.zeros(edges.shape[1], dtype=bool)
    return Problem(x, words, known, _only(y, scored), edges, is_wrong, none)


def _only(y: Tensor, nodes: Tensor) -> Tensor:
    """Return the classes of some nodes, -1 elsewhere."""
    known = torch.full((len(y),), -1)
    known[nodes] = y[nodes].long()
    return known


def load_attacked(share: float, seed: int | None = None, root: Path | None = None) -> Problem:
    """Return attacked Cora, with the labels of training and validation nodes.

    With a seed, those of a development split, which has nodes to score a network on.
    """
    path = data_root(root) / "attacks/cora_metattack.npz"
    clean = load_npz(path, edges="edge_index_0.00")
    data = load_npz(path, edges=f"edge_index_{share:.2f}")
    train, scored = torch.cat([data.train, data.val]), torch.cat([data.train, data.val])
    if seed is not None:
        split = load_claim("attack25", "cora_metattack", seed=seed, root=root, develops=True)
        train, scored = split.train, torch.cat([split.train, split.val, split.test])
    x = scaled(data.x)
    assert isinstance(x, SparseFeatures)
    true, edges = (np.unique(np.sort(each.edge_index.numpy(), 0), axis=1) for each in (clean, data))
    keys, true_keys = (each[0] * len(data.y) + each[1] for each in (edges, true))
    is_wrong, none = ~np.isin(keys, true_keys), np.empty((2, 0), dtype=np.int64)
    known, truth = _only(data.y, train), _only(data.y, scored)
    return Problem(x, x.to_scipy(), known, truth, edges, is_wrong, none)


def add_edges(problem: Problem, share: float, seed: int) -> Problem:
    """Add edges between random pairs, a share of the number of edges."""
    generator, num_nodes = np.random.default_rng(seed), problem.num_nodes
    num_added = round(share * problem.edges.shape[1])
    pairs = np.sort(generator.integers(num_nodes, size=(2, 2 * num_added + 10)), 0)
    keys, known = pairs[0] * num_nodes + pairs[1], problem.edges[0] * num_nodes + problem.edges[1]
    keys = keys[(pairs[0] != pairs[1]) & ~np.isin(keys, known)]
    _, first = np.unique(keys, return_index=True)
    keys = keys[np.sort(first)][:num_added]
    edges = np.concatenate([problem.edges, [keys // num_nodes, keys % num_nodes]], 1)
    is_wrong = np.arange(edges.shape[1]) >= problem.edges.shape[1]
    return replace(problem, edges=edges, is_wrong=is_wrong)


def hide_edges(problem: Problem, share: float, seed: int) -> Problem:
    """Take away a share of the edges."""
    edges = problem.edges
    order = np.random.default_rng(seed).permutation(edges.shape[1])
    hidden, kept = np.split(order, [round(share * len(order))])
    return replace(
        problem, edges=edges[:, kept], is_wrong=problem.is_wrong[kept], hidden=edges[:, hidden]
    )


# --- scores of given edges -----------------------------------------------------------------------


def edge_scores(problem: Problem, seed: int) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield scores of the given edges, high for true ones, by name, with their CPU seconds."""
    started = time.process_time()
    model = problem.model
    fitted = time.process_time() - started
    ends = torch.from_numpy(problem.edges)
    started = time.process_time()
    audit = audit_graph(model)
    found = _in_order(audit, problem)
    yield "audit", found, time.process_time() - started
    is_kept = torch.ones(problem.graph.pattern.num_edges, dtype=torch.bool)
    terms = PairTerms.of(model, is_kept, GIVEN_DECAY)(ends[0], ends[1])
    yield "audit, edge left in", audit.heads[-1](terms).numpy(), 0.0
    yield "learned distance", -(terms[:, 0] + terms[:, 1]).numpy(), fitted
    yield "adamic-adar", terms[:, 3].numpy(), 0.0
    first, second = (problem.words[rows] for rows in problem.edges)
    yield "tf-idf cosine", _cosine(first, second), 0.0
    yield "jaccard", _jaccard(first, second), 0.0
    started = time.process_time()
    z = _autoencode(problem, seed)
    yield "gae", (z[ends[0]] * z[ends[1]]).sum(-1).numpy(), time.process_time() - started


def _in_order(audit: GraphAudit, problem: Problem) -> np.ndarray:
    """Return the log-odds of the given edges in their order in the problem."""
    table, num_nodes = audit.suspicious, problem.num_nodes
    keys = (table.source * num_nodes + table.target).numpy()
    order = np.argsort(keys)
    wanted = problem.edges[0] * num_nodes + problem.edges[1]
    log_odds: np.ndarray = table.log_odds.numpy()[order[np.searchsorted(keys[order], wanted)]]
    return log_odds


def _cosine(first: scipy.sparse.csr_array, second: scipy.sparse.csr_array) -> np.ndarray:
    norms = [np.sqrt(np.asarray(each.power(2).sum(1)).ravel()) for each in (first, second)]
    product = np.asarray(first.multiply(second).sum(1)).ravel()
    cosine: np.ndarray = product / np.maximum(norms[0] * norms[1], 1e-30)
    return cosine


def _jaccard(first: scipy.sparse.csr_array, second: scipy.sparse.csr_array) -> np.ndarray:
    a, b = (scipy.sparse.csr_array(each > 0).astype(np.float64) for each in (first, second))
    both = np.asarray(a.multiply(b).sum(1)).ravel()
    either = np.asarray(a.sum(1)).ravel() + np.asarray(b.sum(1)).ravel() - both
    jaccard: np.ndarray = both / np.maximum(either, 1)
    return jaccard


class Encoder(nn.Module):
    """The two graph convolutions of PyTorch Geometric's example, by faster products on a CPU."""

    def __init__(self, x: Features, graph: Graph) -> None:
        super().__init__()
        self.x, self.graph = x, graph
        self.first = nn.Linear(x.shape[1], 32, bias=False)
        self.second = nn.Linear(32, 16, bias=False)

    def forward(self) -> Tensor:
        """Return the embedding of all nodes."""
        hidden = self.graph.matmul(self.x @ self.first.weight.mT).relu()
        return self.graph.matmul(self.second(hidden))


def _autoencode(problem: Problem, seed: int) -> Tensor:  # (N, 16)
    """Return the embedding of a graph auto-encoder of the given graph."""
    torch.manual_seed(seed)
    nodes = torch.arange(problem.num_nodes)
    edges = problem.graph.edge_index
    with_loops = torch.cat([edges, nodes.expand(2, -1)], -1)
    graph = as_graph(with_loops, problem.num_nodes).normalized()
    x = problem.x
    if isinstance(x, SparseFeatures):
        x = SparseFeatures.from_scipy(normalize_words(x.to_scipy()))
    model = GAE(Encoder(x, graph))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        model.recon_loss(model.encode(), edges).backward()
        optimizer.step()
    with torch.no_grad():
        embedding: Tensor = model.encode()
    return embedding


def normalize_words(words: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return rows that sum to 1."""
    total = np.maximum(np.asarray(words.sum(1)).ravel(), 1e-30)
    return scipy.sparse.diags_array(1 / total) @ words


# --- scores of all pairs of some nodes -----------------------------------------------------------


def row_scores(problem: Problem, seed: int) -> Iterator[tuple[str, Rows, float]]:
    """Yield functions from nodes to their scores with all others, by name, with CPU seconds."""
    model = problem.model
    started = time.process_time()
    audit = audit_graph(model, num_missing=0)
    seconds = time.process_time() - started
    terms, head = audit.terms[-1], audit.heads[-1]
    z = model.x @ model.layers[-1].metric
    adjacency = _adjacency(problem)
    rarity = scipy.sparse.diags_array(1 / np.log(np.maximum(adjacency.sum(1), 2)))
    words = problem.words
    norm = np.sqrt(np.asarray(words.power(2).sum(1)).ravel())
    unit = scipy.sparse.csr_array(scipy.sparse.diags_array(1 / np.maximum(norm, 1e-30)) @ words)
    is_word = scipy.sparse.csr_array(words > 0).astype(np.float32)
    count = np.asarray(is_word.sum(1)).ravel()

    def euclidean(nodes: np.ndarray) -> np.ndarray:
        found: np.ndarray = _euclidean(model.x, nodes) / model.candidates.unit
        return found

    def learned(nodes: np.ndarray) -> np.ndarray:
        return _euclidean(z, nodes)

    def common(nodes: np.ndarray) -> np.ndarray:
        found: np.ndarray = (adjacency[nodes] @ rarity @ adjacency).toarray()
        return found

    def combined(nodes: np.ndarray) -> np.ndarray:
        similarity = (terms.direction[torch.from_numpy(nodes)] @ terms.direction.mT).numpy()
        of_euclidean, of_learned, of_similarity, of_neighbors = head.weight.tolist()
        found: np.ndarray = of_euclidean * euclidean(nodes) + of_learned * learned(nodes)
        found += of_similarity * similarity + of_neighbors * np.log1p(common(nodes))
        return found

    def cosine(nodes: np.ndarray) -> np.ndarray:
        found: np.ndarray = (unit[nodes] @ unit.T).toarray()
        return found

    def jaccard(nodes: np.ndarray) -> np.ndarray:
        both = (is_word[nodes] @ is_word.T).toarray()
        found: np.ndarray = both / np.maximum(count[nodes][:, None] + count - both, 1)
        return found

    yield "audit", combined, seconds
    yield "learned distance", lambda nodes: -euclidean(nodes) - learned(nodes), 0.0
    yield "adamic-adar", common, 0.0
    yield "tf-idf cosine", cosine, 0.0
    yield "jaccard", jaccard, 0.0
    if isinstance(problem.x, Tensor):
        x = unit_rows(problem.x)
        yield "embedding cosine", lambda nodes: (x[torch.from_numpy(nodes)] @ x.mT).numpy(), 0.0
    started = time.process_time()
    code = _autoencode(problem, seed)
    seconds = time.process_time() - started
    yield "gae", lambda nodes: (code[torch.from_numpy(nodes)] @ code.mT).numpy(), seconds


def _euclidean(x: Features, nodes: np.ndarray) -> np.ndarray:
    """Return squared distances of some rows to all, (len(nodes), N)."""
    rows = x.to_scipy() if isinstance(x, SparseFeatures) else x.numpy()
    square = x.square_norms() if isinstance(x, SparseFeatures) else x.square().sum(-1)
    norms, product = square.numpy(), rows[nodes] @ rows.T
    dense = product.toarray() if scipy.sparse.issparse(product) else product
    distance: np.ndarray = norms[nodes][:, None] + norms - 2 * dense
    return distance


def _adjacency(problem: Problem) -> scipy.sparse.csr_array:
    row, col = problem.graph.edge_index.numpy()
    size = (problem.num_nodes, problem.num_nodes)
    return scipy.sparse.csr_array((np.ones(len(row), dtype=np.float32), (row, col)), shape=size)


def rank_quality(problem: Problem, score: Rows, seed: int) -> tuple[float, float]:
    """Return average precision and hits at ten of hidden edges among pairs without an edge."""
    nodes = np.arange(problem.num_nodes)
    if len(nodes) > 2 * NUM_ROWS:
        nodes = np.sort(np.random.default_rng(seed).permutation(nodes)[:NUM_ROWS])
    given = _adjacency(problem)
    hidden = _adjacency(replace(problem, edges=problem.hidden))
    hits, positive, others = [], [], []
    for block in np.split(nodes, range(_BLOCK, len(nodes), _BLOCK)):
        found = score(block).astype(np.float32)
        is_given, is_hidden = given[block].toarray() > 0, hidden[block].toarray() > 0
        is_given[np.arange(len(block)), block] = True
        found[is_given] = -np.inf
        best = np.argpartition(-found, 10, axis=1)[:, :10]
        num_hidden = is_hidden.sum(1)
        num_found = np.take_along_axis(is_hidden, best, 1).sum(1)
        has_any = num_hidden > 0
        hits.append((num_found / np.minimum(np.maximum(num_hidden, 1), 10))[has_any])
        positive.append(found[is_hidden])
        others.append(found[~is_hidden & ~is_given])
    return average_precision(np.concatenate(positive), others), float(np.concatenate(hits).mean())


def average_precision(positive: np.ndarray, others: list[np.ndarray]) -> float:
    """Return the average precision of positive scores among others, ties counted against them.

    Example:
        >>> average_precision(np.array([3.0, 1.0]), [np.array([2.0]), np.array([0.0])])
        0.8333333333333333
    """
    levels = np.sort(positive)
    above = np.zeros(len(levels) + 1, dtype=np.int64)
    for part in others:  # the number of positive scores that are not above each other score
        above += np.bincount(np.searchsorted(levels, part, side="right"), minlength=len(above))
    num_others = above[::-1].cumsum()[::-1][1:]  # scores at least as high as each positive one
    num_positive = len(levels) - np.arange(len(levels))
    return float((num_positive / (num_positive + num_others)).mean())


# --- networks on cleaned graphs ------------------------------------------------------------------


def network_scores(problem: Problem, seed: int) -> Iterator[tuple[str, float, float]]:
    """Yield the accuracy of a graph convolutional network by graph, with CPU seconds."""
    started = time.process_time()
    audit = audited(problem.model, None, None)
    seconds = time.process_time() - started
    num_edges = problem.edges.shape[1]
    x = torch.from_numpy(normalize_words(problem.words).toarray().astype(np.float32))
    graphs = {
        "given graph": audit.cleaned(0, 0),
        "suspicious edges removed": audit.cleaned(None, 0),
        "cleaned graph": audit.cleaned(),
        "as many missing edges added": audit.cleaned(0, min(num_edges, len(audit.missing.source))),
    }
    for name, edges in graphs.items():
        both = torch.stack(
            [torch.cat([edges.source, edges.target]), torch.cat([edges.target, edges.source])]
        )
        weight = torch.ones(both.shape[1])
        data = Data(x=x, y=problem.truth, edge_index=both, edge_weight=weight)
        yield name, accuracy("gcn", data, problem.y >= 0, seed), seconds


# --- runs ----------------------------------------------------------------------------------------


def tasks(names: list[str], num_seeds: int) -> Iterator[tuple[str, str, float, int]]:
    """Yield task, data set, share and seed of every run."""
    for seed in range(num_seeds):
        for name in names:
            if name == "metattack" and seed == 0:
                yield from (("suspicious", name, share, seed) for share in ATTACKS)
            yield from (("suspicious", name, share, seed) for share in WRONG.get(name, ()))
            if name != "metattack":
                yield from (("missing", name, share, seed) for share in HIDDEN)
            yield from (("cleaned", name, share, seed) for share in CLEANED.get(name, ()))


def measure(task: str, name: str, share: float, seed: int) -> Iterator[dict[str, object]]:
    """Yield a line for every score."""
    if task == "suspicious":
        problem = (
            load_attacked(share)
            if name == "metattack"
            else add_edges(load(name, seed), share, seed)
        )
        num_wrong = int(problem.is_wrong.sum())
        order = np.random.default_rng(seed).permutation(len(problem.is_wrong))  # of equal scores
        for method, score, seconds in edge_scores(problem, seed):
            first = order[np.argsort(score[order], kind="stable")[:num_wrong]]
            yield {
                "method": method,
                "auc": round(float(roc_auc_score(~problem.is_wrong, score)), 4),
                "precision": round(float(problem.is_wrong[first].mean()), 4),
                "cpu_seconds": round(seconds, 1),
            }
        return
    if task == "cleaned":
        attacked = name == "metattack"
        problem = (
            load_attacked(share, seed) if attacked else hide_edges(load(name, seed), share, seed)
        )
        for method, share_right, seconds in network_scores(problem, seed):
            yield {
                "method": method,
                "accuracy": round(share_right, 4),
                "cpu_seconds": round(seconds, 1),
            }
        return
    problem = hide_edges(load(name, seed), share, seed)
    for method, rows, seconds in row_scores(problem, seed):
        precision, hits = rank_quality(problem, rows, seed)
        yield {
            "method": method,
            "average_precision": round(precision, 5),
            "hits_at_10": round(hits, 4),
            "cpu_seconds": round(seconds, 1),
        }


def main() -> None:
    """Run what the file does not have."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[*WRONG, "wordnet", "metattack"])
    parser.add_argument("--tasks", nargs="*", default=list(AUDIT_MEASURES))
    parser.add_argument("--shares", nargs="*", type=float, help="only these shares of edges")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        for task in AUDIT_MEASURES:
            print(f"{task}\n{audit_table(lines, task)}")
        return
    done = {(line["task"], line["data"], line["share"], line["seed"]) for line in lines}
    warnings.simplefilter("ignore")
    torch.set_flush_denormal(True)
    for task, name, share, seed in tasks(options.only, options.seeds):
        if task not in options.tasks or (task, name, share, seed) in done:
            continue
        if options.shares is not None and share not in options.shares:
            continue
        key = {"task": task, "data": name, "share": share, "seed": seed}
        for line in [*measure(task, name, share, seed)]:  # all of them, or none
            append_line(options.out, key | line)


if __name__ == "__main__":
    main()
