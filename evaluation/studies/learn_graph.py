"""Compare networks of PyTorch Geometric on a fixed kNN graph and on the graph of `LearnGraph`.

Data for development only: sentence embeddings of newsgroups and of WordNet nouns (3,000 rows),
Cora and Citeseer without their edges (scored on nodes that are no published test nodes), digits
and wine. 2 or 5 labels a class are drawn ten times; all other rows are scored once, after 200
epochs, without any selection. Fixed is the symmetrised 20-NN graph of the features as `LearnGraph`
scales them, with weights of 1; learned has the edges and weights of `LearnGraph()`. The layers'
weights are PyTorch Geometric's, the products are those of `jlgcn.SparseGraph`, which are faster on
a CPU; tests compare both.

A line for every data set, number of labels, draw and network goes to one file, and a run goes on
where the file ends; `--show` prints mean gains and their standard errors.

    OMP_NUM_THREADS=1 python -m evaluation.studies.learn_graph --data /path/to/data
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCN2Conv, GCNConv, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from evaluation.study_tables import learn_graph_table
from evaluation.suite.run import append_line
from jlgcn import SparseGraph
from jlgcn.closed_form import FeatureScaler, LearnGraph
from jlgcn.nn.features import Features, drop, product
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.csr import symmetric_pattern
from jlgcn.ops.dropout import dropout
from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import Planetoid, normalize_rows
from jlgcn.paper.records import read_lines

DATASETS = ("newsgroups", "wordnet", "cora", "citeseer", "digits", "wine")
NETWORKS = ("gcn", "sage", "gcnii")
NUM_ROWS = 3000
NUM_NEIGHBORS = 20
EPOCHS = 200
HIDDEN = 64
GCNII_DEPTH = 4
SPARSE = 0.1  # features of lower density are multiplied as sparse ones
OUT = Path("results/studies/learn_graph.jsonl")


def load(name: str, root: Path) -> Data:
    """Return features and classes; -1 for nodes of a published test split."""
    if name in get_args(Planetoid):
        dataset: Planetoid = cast(Any, name)
        found = load_planetoid(dataset, root)
        y = found.y.clone()
        y[found.test] = -1
        return Data(x=normalize_rows(found.x), y=y)
    if name in ("digits", "wine"):
        x, y = (load_digits if name == "digits" else load_wine)(return_X_y=True)
        x = x / 16 if name == "digits" else (x - x.mean(0)) / x.std(0)
    else:
        file = "newsgroups" if name == "newsgroups" else "wordnet_nouns"
        with np.load(root / f"text/{file}.npz") as arrays:
            rows = np.random.default_rng(0).permutation(len(arrays["y"]))[:NUM_ROWS]
            x, y = arrays["x"][rows], arrays["y"][rows]
    return Data(x=torch.from_numpy(x.astype(np.float32)), y=torch.from_numpy(y.astype(np.int64)))


def draw(y: Tensor, num_labels: int, seed: int) -> Tensor:  # (N,), bool
    """Return a mask with so many labelled nodes of each class."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    mask = torch.zeros(len(y), dtype=torch.bool)
    for label in y[y >= 0].unique():
        mask[order[y[order] == label][:num_labels]] = True
    return mask


def fixed_graph(data: Data) -> Data:
    """Return the data with the symmetrised kNN graph of its features, without weights."""
    neighbors = nearest_neighbors(FeatureScaler.fit(data.x)(data.x), NUM_NEIGHBORS)
    # a node without any word has no neighbours
    is_found = neighbors.flatten() >= 0
    row = torch.arange(len(neighbors)).repeat_interleave(neighbors.shape[1])
    pattern = symmetric_pattern(row[is_found], neighbors.flatten()[is_found], len(neighbors))
    edges = torch.stack([pattern.row, pattern.col])
    return Data(x=data.x, y=data.y, edge_index=edges, edge_weight=torch.ones(edges.shape[1]))


class Network(nn.Module):
    """Two GCN or SAGE layers, or four of GCNII between two linear ones; dropout before each."""

    def __init__(self, kind: str, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.kind = kind
        self.first: nn.Module = nn.Identity()
        self.last: nn.Module = nn.Identity()
        if kind == "gcnii":
            self.first, self.last = nn.Linear(in_channels, HIDDEN), nn.Linear(HIDDEN, out_channels)
            convs = [GCN2Conv(HIDDEN, 0.1, 0.5, layer + 1) for layer in range(GCNII_DEPTH)]
        else:
            conv = GCNConv if kind == "gcn" else SAGEConv
            convs = [conv(in_channels, HIDDEN), conv(HIDDEN, out_channels)]
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Features, graph: SparseGraph) -> Tensor:
        """Return logits; `graph` is that of :func:`operator`."""
        if self.kind != "gcnii":
            first, second = self.convs
            return self._convolve(second, self._convolve(first, x, graph).relu(), graph)
        assert isinstance(self.first, nn.Linear)
        inputs = drop(x, 0.5, self.training)
        h = start = (product(inputs, self.first.weight) + self.first.bias).relu()
        for conv in self.convs:
            assert isinstance(conv, GCN2Conv)
            smoothed = graph.matmul(dropout(h, 0.5, self.training))
            mixed = (1 - conv.alpha) * smoothed + conv.alpha * start
            h = ((1 - conv.beta) * mixed + conv.beta * (mixed @ conv.weight1)).relu()
        logits: Tensor = self.last(dropout(h, 0.5, self.training))
        return logits

    def _convolve(self, conv: nn.Module, x: Features, graph: SparseGraph) -> Tensor:
        x = drop(x, 0.5, self.training)
        out: Tensor
        if self.kind == "gcn":
            assert isinstance(conv, GCNConv)
            out = graph.matmul(product(x, conv.lin.weight)) + conv.bias
        else:
            assert isinstance(conv, SAGEConv)
            own, neighbors = product(x, conv.lin_r.weight), product(x, conv.lin_l.weight)
            out = graph.matmul(neighbors) + conv.lin_l.bias + own
        return out


def operator(kind: str, data: Data) -> SparseGraph:
    """Return the matrix that layers multiply with: normalised with loops, or a mean for SAGE."""
    edges, weight = data.edge_index, data.edge_weight
    if kind != "sage":
        edges, weight = gcn_norm(edges, weight, data.num_nodes)
        return SparseGraph(edges, weight, data.num_nodes)
    graph = SparseGraph(edges, num_nodes=data.num_nodes)  # SAGEConv takes no weights
    degree = graph.degree().clamp(min=1)
    return SparseGraph.from_pattern(graph.pattern, graph.weight / degree[graph.pattern.row])


def accuracy(kind: str, data: Data, train: Tensor, seed: int) -> float:
    """Train on the masked nodes, and return the accuracy on the other nodes with a class."""
    torch.manual_seed(seed)
    graph = operator(kind, data)
    x: Features = data.x
    if float((data.x != 0).float().mean()) < SPARSE:
        x = SparseFeatures.from_dense(data.x)
    model = Network(kind, data.x.shape[1], int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(EPOCHS):
        loss = functional.cross_entropy(model(x, graph)[train], data.y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    others = ~train & (data.y >= 0)
    with torch.no_grad():
        predicted = model(x, graph).argmax(-1)
    return float((predicted == data.y)[others].float().mean())


def main() -> None:
    """Run what the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=DATASETS)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        print(learn_graph_table(lines))
        return
    done = {(line["data"], line["labels"], line["draw"], line["network"]) for line in lines}
    warnings.simplefilter("ignore")
    data = {name: load(name, options.data) for name in options.only}
    fixed = {name: fixed_graph(found) for name, found in data.items()}
    for seed in range(options.draws):
        for name, labels in ((name, labels) for name in options.only for labels in (2, 5)):
            missing = [kind for kind in NETWORKS if (name, labels, seed, kind) not in done]
            if not missing:
                continue
            found = data[name]
            found.train_mask = draw(found.y, labels, seed)
            started = time.process_time()
            learned = LearnGraph()(found)
            seconds = time.process_time() - started
            for kind in missing:
                line = {"data": name, "labels": labels, "draw": seed, "network": kind}
                for graph, of in (("fixed", fixed[name]), ("learned", learned)):
                    line[graph] = round(accuracy(kind, of, found.train_mask, seed), 4)
                line["transform_seconds"] = round(seconds, 1)
                append_line(options.out, line)


if __name__ == "__main__":
    main()
