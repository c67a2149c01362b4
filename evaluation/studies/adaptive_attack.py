"""An adaptive attack on the closed form, beside the same attack transferred from a GCN.

PRBCD (Geisler et al., 2021; PyTorch Geometric's) adds and deletes 5 to 25 % of the edges of Cora to
lower the probability margin of all unlabelled nodes of a development split, whose classes it knows.
It needs a differentiable model, a surrogate. Adaptive: the fitted closed form, through its
diffusion by 30 Chebyshev steps; neighbours, metric, hyperparameters, classifier and the norms of
diffused rows are frozen, and new edges are discounted by learned distance as given ones are.
Transferred: a GCN, trained on the clean graph. Then all methods are fitted to the attacked graph
(poisoning): the estimator and a GCN, both also on the audit's cleaned graph. Logistic regression
sees no graph.

A line for every share of edges, surrogate and seed goes to one file, and a run goes on where the
file ends; `--show` prints means, and `--picture` draws them.

    OMP_NUM_THREADS=1 python -m evaluation.studies.adaptive_attack
"""

from __future__ import annotations

import argparse
import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

from evaluation.studies.graph_audit import Problem, load, normalize_words
from evaluation.studies.learn_graph import accuracy
from evaluation.study_tables import attack_table
from evaluation.suite.run import append_line
from jlgcn._files import write_file
from jlgcn.closed_form import ClosedFormModel
from jlgcn.closed_form.layer import unit_rows
from jlgcn.estimator.audit import audit
from jlgcn.paper.records import read_lines

OUT = Path("results/studies/adaptive_attack.jsonl")
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
_STEPS = 30  # of the diffusion
_BLOCK = 20_000  # pairs that the attack looks at, at a time
_EPOCHS = 75


def _spread(x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    """Return the product of a weighted adjacency matrix and columns."""
    row, col = edges
    return torch.zeros_like(x).index_add(0, row, weight.unsqueeze(-1) * x[col])


def _normalized(num_nodes: int, edges: Tensor, weight: Tensor) -> Tensor:
    """Return the weights of D^-½ A D^-½."""
    degree = torch.zeros(num_nodes).index_add(0, edges[0], weight)
    factor = degree.clamp(min=1e-12).rsqrt()
    return weight * factor[edges[0]] * factor[edges[1]]


class FrozenClosedForm(nn.Module):
    """The closed form as a function of the given edges' weights; all else is as it was fitted."""

    def __init__(self, model: ClosedFormModel) -> None:
        super().__init__()
        layer, self.model = model.layers[-1], model
        pattern = layer.learned.pattern
        loops = torch.arange(pattern.num_nodes).expand(2, -1)
        self.edges = torch.cat([torch.stack([pattern.row, pattern.col]), loops], 1)
        learned = model.learned_scale * layer.learned.weight
        self.weight = torch.cat([learned, torch.ones(pattern.num_nodes)]).float()
        norm = model.diffused.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        self.columns = (model.features @ model.classifier.graph.to(model.features.dtype)).float()
        self.norm = norm.float()
        rest = model.logits - unit_rows(model.diffused) @ model.classifier.graph.to(norm.dtype)
        self.rest = rest.float()
        z = model.x @ layer.metric
        scale = model.candidates.unit**-0.5
        self.coordinates = torch.cat([scale * model.features, z], -1).float()

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
        """Return logits of all nodes."""
        options = self.model.options
        if options.given_decay:
            apart = self.coordinates[edges[0]] - self.coordinates[edges[1]]
            weight = weight * torch.exp(-options.given_decay * apart.square().sum(-1))
        both = torch.cat([self.edges, edges], 1)
        entries = _normalized(len(x), both, torch.cat([self.weight, weight]))
        # Chebyshev semi-iteration of h = restart · x + (1 - restart) · S h.
        shrink, start = 1 - options.restart, options.restart * self.columns
        before, h, step = torch.zeros_like(start), start, 2.0
        for _ in range(_STEPS):
            step = 1 / (1 - shrink**2 * step / 4)
            before, h = h, before + step * (start + shrink * _spread(h, both, entries) - before)
        logits: Tensor = h / self.norm + self.rest
        return logits


class GCN(nn.Module):
    """Two graph convolutions of row-normalised words, trained on the clean graph."""

    def __init__(self, problem: Problem, x: Tensor, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(x.shape[1], 64)
        self.second = nn.Linear(64, int(problem.truth.max()) + 1)
        edges, train = both_ways(problem.edges), problem.y >= 0
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(200):
            logits = self(x, edges, torch.ones(edges.shape[1]))
            loss = functional.cross_entropy(logits[train], problem.y[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
        """Return logits of all nodes."""
        loops = torch.arange(len(x)).expand(2, -1)
        edges = torch.cat([edges, loops], 1)
        entries = _normalized(len(x), edges, torch.cat([weight, torch.ones(len(x))]))
        hidden = functional.dropout(x, 0.5, self.training) @ self.first.weight.mT
        hidden = (_spread(hidden, edges, entries) + self.first.bias).relu()
        hidden = functional.dropout(hidden, 0.5, self.training) @ self.second.weight.mT
        logits: Tensor = _spread(hidden, edges, entries) + self.second.bias
        return logits


def both_ways(edges: np.ndarray) -> Tensor:
    """Return edges that are there once, (2, E), in both directions."""
    return torch.from_numpy(np.concatenate([edges, edges[::-1]], 1))


def attacked(problem: Problem, surrogate: nn.Module, x: Tensor, share: float, seed: int) -> Problem:
    """Return the problem with a share of its edges flipped."""
    from torch_geometric.contrib.nn import PRBCDAttack

    torch.manual_seed(seed)
    attack: Any = PRBCDAttack(surrogate, _BLOCK, _EPOCHS, epochs_resampling=60, log=False)
    asked = (problem.truth >= 0) & (problem.y < 0)
    budget = round(share * problem.edges.shape[1])
    edges, _ = attack.attack(
        x, both_ways(problem.edges), problem.truth, budget, idx_attack=asked.nonzero().flatten()
    )
    found = np.unique(np.sort(edges.numpy(), 0), axis=1)
    return replace(problem, edges=found[:, found[0] != found[1]])


def scores(problem: Problem, x: Tensor, seed: int) -> dict[str, float]:
    """Return the accuracy of every method, fitted to this graph, on the attacked nodes."""
    train, asked = problem.y >= 0, (problem.truth >= 0) & (problem.y < 0)

    def share_right(predicted: Tensor) -> float:
        return round(float((predicted == problem.truth)[asked].double().mean()), 4)

    def network(edges: Tensor) -> float:
        ones = torch.ones(edges.shape[1])
        data = Data(x=x, y=problem.truth, edge_index=edges, edge_weight=ones)
        return round(accuracy("gcn", data, train, seed), 4)

    regression = LogisticRegression(C=10.0, max_iter=1000)
    words = normalize_words(problem.words) * problem.words.shape[1] ** 0.5
    regression.fit(words[train.numpy()], problem.y[train].numpy())
    cleaned = audit(problem.model, None, None).cleaned()
    ends = torch.stack([cleaned.source, cleaned.target])
    again = replace(problem, edges=ends.numpy(), is_wrong=np.zeros(len(cleaned), dtype=bool))
    return {
        "jlgcn": share_right(problem.model.logits.argmax(-1)),
        "jlgcn, cleaned graph": share_right(again.model.logits.argmax(-1)),
        "gcn": network(both_ways(problem.edges)),
        "gcn, cleaned graph": network(torch.cat([ends, ends.flip(0)], 1)),
        "logistic regression": share_right(torch.from_numpy(regression.predict(words))),
    }


def picture(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw mean accuracies by share of changed edges, an axis for each surrogate."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import PercentFormatter

    figure, axes = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
    styles = {"jlgcn": ("C0", "-o"), "gcn": ("C1", "-s"), "logistic regression": ("0.5", ":")}
    for ax, surrogate in zip(axes, ("closed form", "gcn"), strict=True):
        own = [line for line in lines if line["surrogate"] == surrogate]
        for name in [key for key in own[0] if key not in ("share", "surrogate", "seed")]:
            colour, style = styles[name.removesuffix(", cleaned graph")]
            style = style.replace("-", "--") if "cleaned" in name else style
            means = [
                float(np.mean([line[name] for line in own if line["share"] == share]))
                for share in SHARES
            ]
            ax.plot(SHARES, means, style, color=colour, markersize=3.5, label=name)
        title = "attack on a GCN" if surrogate == "gcn" else "attack on the closed form"
        ax.set(title=title, xlabel="edges changed", xticks=SHARES)
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy")
    axes[1].legend(frameon=False, fontsize=7, loc="lower left")
    data = io.BytesIO()
    figure.savefig(data, dpi=150, format="png", metadata={"Software": None})
    write_file(path, data.getvalue())


def main() -> None:
    """Run what the file does not have."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--picture", type=Path, help="file for a picture of the means")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        print(attack_table(lines))
        return
    if options.picture:
        picture(lines, options.picture)
        return
    done = {(line["share"], line["surrogate"], line["seed"]) for line in lines}
    warnings.simplefilter("ignore")
    torch.set_flush_denormal(True)
    for seed in range(options.seeds):
        problem = load("cora", seed)
        x = torch.from_numpy(normalize_words(problem.words).toarray().astype(np.float32))
        surrogates = {"closed form": FrozenClosedForm(problem.model), "gcn": GCN(problem, x, seed)}
        for share in SHARES:
            for name, surrogate in surrogates.items():
                if (share, name, seed) in done:
                    continue
                found = attacked(problem, surrogate, x, share, seed) if share else problem
                line = {"share": share, "surrogate": name, "seed": seed} | scores(found, x, seed)
                append_line(options.out, line)


if __name__ == "__main__":
    main()
