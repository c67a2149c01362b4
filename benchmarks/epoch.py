"""One epoch of the paper's network on Cora against the same written plainly in PyTorch.

    JLGCN_DATA=data python -m benchmarks.epoch

An epoch is what `jlgcn paper run citation/cora` does for each: a step of training with the
regularizer on 16 random directions, and a pass without dropout for validation. The plain network
holds every graph as an N × N matrix, which is how the paper's authors wrote it. Both begin with the
same weights and draw the same dropout; their first losses are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu

from benchmarks.measure import median_ratio, peak_bytes, table, times_side_by_side, write_json
from jlgcn import SparseGraph
from jlgcn.nn import JLGCN, JLGCNConv
from jlgcn.ops.dropout import dropout
from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import normalize_rows

CORA_NODES = 2708
PROBES = 16
GLR_WEIGHT = 1e-4


class PlainJLGCN(nn.Module):
    """Two layers with dense matrices, by the authors' code: equations and nothing else."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        widths = [(in_channels, hidden_channels), (hidden_channels, out_channels)]
        self.metrics = nn.ModuleList(nn.Linear(before, 16, bias=False) for before, _ in widths)
        self.lins = nn.ModuleList(nn.Linear(before, after) for before, after in widths)

    def forward(self, x: Tensor, given: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits and the graph of each layer."""
        graph, graphs = given, []
        for index, (metric, lin) in enumerate(zip(self.metrics, self.lins, strict=True)):
            x = dropout(x if index == 0 else leaky_relu(x, 0.2), 0.5, self.training)
            z = metric(x)
            square = z.square().sum(-1)
            distance = square.unsqueeze(-1) + square - 2 * z @ z.mT
            learned = normalized((-distance.clamp(min=0)).exp())
            graph = normalized(graph + learned)
            graphs.append(graph)
            assert isinstance(lin, nn.Linear)
            x = graph @ (x @ lin.weight.T) + lin.bias
        return x, graphs


def smoothness(graphs: list[Tensor], x: Tensor) -> Tensor:
    """Return tr(Fᵀ(I - A)F) over the graphs, with new random directions F of x for each."""
    total = x.new_zeros(())
    for a in graphs:
        signs = 2 * torch.randint(0, 2, (x.shape[1], PROBES)) - 1
        f = x @ (signs.to(x.dtype) / PROBES**0.5)
        total = total + (f * (f - a @ f)).sum()
    return total


def normalized(a: Tensor) -> Tensor:
    """Normalise a matrix symmetrically, with degrees of at least 1."""
    scale = a.sum(-1).clamp(min=1).rsqrt()
    return scale.unsqueeze(-1) * a * scale


def networks(in_channels: int, out_channels: int) -> dict[str, nn.Module]:
    """Return both networks, with the same weights."""
    torch.manual_seed(0)
    library = JLGCN(in_channels, 16, out_channels, rank=16, backend="exact")
    plain = PlainJLGCN(in_channels, 16, out_channels)
    for conv, metric, lin in zip(library.convs, plain.metrics, plain.lins, strict=True):
        assert isinstance(conv, JLGCNConv)
        metric.load_state_dict(conv.learner.metric.state_dict())
        lin.load_state_dict({"weight": conv.lin.weight, "bias": conv.bias})
    return {"jlgcn": library, "plain": plain}


def prepare(name: str, num_nodes: int) -> Callable[[], float]:
    """Return a function that runs one epoch on the first nodes of Cora, and returns its loss."""
    data = load_planetoid("cora")
    x, y = normalize_rows(data.x)[:num_nodes], data.y[:num_nodes]
    edges = data.edge_index[:, (data.edge_index < num_nodes).all(0)]
    given = SparseGraph(edges, num_nodes=num_nodes)
    matrix = given.to_dense() if name == "plain" else None
    train = data.train[data.train < num_nodes]
    others = torch.cat([data.val, data.test])
    others = others[others < num_nodes]
    model = networks(x.shape[1], data.num_classes)[name]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=5e-4)
    torch.manual_seed(1)

    def epoch() -> float:
        model.train()
        if isinstance(model, JLGCN):
            out = model(x, given, train)
            logits, glr = out.logits, model.regularizer(out, x, probes=PROBES)
        else:
            logits, graphs = model(x, matrix)
            logits, glr = logits[train], smoothness(graphs, x)
        loss = cross_entropy(logits, y[train]) + GLR_WEIGHT * glr
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(x, given, others) if isinstance(model, JLGCN) else model(x, matrix)
        return float(loss.detach())

    return epoch


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_flush_denormal(True)  # for both, before there are threads
    torch.set_num_threads(args.threads)

    names = ("plain", "jlgcn")
    losses = {name: prepare(name, CORA_NODES)() for name in names}
    if not math.isclose(losses["jlgcn"], losses["plain"], rel_tol=1e-4):
        raise SystemExit(f"the two networks differ: {losses}")
    seconds = times_side_by_side({name: prepare(name, CORA_NODES) for name in names}, args.repeats)
    results = {
        name: {
            "epoch_seconds": statistics.median(seconds[name]),
            "epoch_ratio": median_ratio(seconds[name], seconds["plain"]),
            "peak_bytes": peak_bytes(prepare, name, CORA_NODES, num_threads=args.threads),
            "first_loss": losses[name],
        }
        for name in names
    }
    rows = [
        [
            name,
            f"{r['epoch_seconds']:.3f} s",
            f"{r['epoch_ratio']:.2f}",
            f"{r['peak_bytes'] / 2**20:,.0f} MiB",
            f"{r['peak_bytes'] / results['plain']['peak_bytes']:.3f}",
        ]
        for name, r in results.items()
    ]
    print(f"Cora, float32, {args.threads} threads, median of {args.repeats} epochs\n")
    print(table(["", "epoch", "× plain", "peak", "× plain"], rows))
    if args.json:
        settings = {"repeats": args.repeats, "threads": args.threads}
        write_json(args.json, settings, {"cases": results})


if __name__ == "__main__":
    main()
