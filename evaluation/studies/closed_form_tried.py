"""Try what might bring the closed form further, on fresh splits.

After a fit as it was frozen the second time, what is left open is tried on it (since then, labels
choose the temperature too, so that a run of today differs a little from the committed file):

- *kernel*: a Gaussian kernel's ridge regression on the spread features, in place of a linear one;
- *smoothed*: predictions spread over the joined graph once more, and mixed with themselves;
- *own labels*: predictions with a probability of at least 0.9 taken for labels, and fitted again;
- *all labels*: the validation nodes learned from too. No method may do that under the protocols; it
  says what the number of labels costs.

Accuracies are those of nodes that neither trained nor chose; data for development hold no published
test label. A line for every claim and split goes to one file, and a run goes on where the file
ends.

    python -m evaluation.studies.closed_form_tried --splits 5
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from evaluation.claim_data import load_claim
from evaluation.claim_experiment import scaled
from jlgcn.closed_form import ClosedFormModel, ClosedFormOptions, fit_closed_form
from jlgcn.graphs import personalized_pagerank
from jlgcn.paper.node_data import NodeData

CLAIMS = (
    ("given", "cora"),
    ("given", "citeseer"),
    ("given", "pubmed"),
    ("edges50", "cora"),
    ("nograph", "cora"),
    ("tables", "wine"),
    ("tables", "cancer"),
)
OPTIONS = ClosedFormOptions(inputs="degree", kernel_gamma=0.0, n_components=256)
CONFIDENT = 0.9
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
WIDTHS = (0.5, 1.0, 2.0, 4.0)  # of the kernel, over the median squared distance
RESTARTS = (0.05, 0.1, 0.2, 0.5, 0.8)
SHARES = (0.0, 0.5, 1.0)
TEMPERATURES = 8.0  # as the closed form's own classifier has it


def most_likely(tries: Iterable[Tensor], data: NodeData) -> Tensor:
    """Return the scores under which the classes of validation nodes are most likely."""
    return min(tries, key=lambda scores: float(cross_entropy(scores[data.val], data.y[data.val])))


def by_kernel(model: ClosedFormModel, data: NodeData) -> Tensor:
    """Return scores of a kernel ridge regression on the spread features."""
    x = model.inputs().double()
    target = one_hot(data.y[data.train], data.num_classes).double()
    mean = target.mean(0)
    distance = torch.cdist(x, x[data.train]).square()
    distance = distance / distance.median()

    def tries() -> Iterable[Tensor]:
        for width in WIDTHS:
            kernel = (-width * distance).exp()
            for penalty in PENALTIES:
                moment = kernel[data.train].clone()
                moment.diagonal().add_(penalty)
                yield TEMPERATURES * (mean + kernel @ torch.linalg.solve(moment, target - mean))

    return most_likely(tries(), data)


def smoothed(model: ClosedFormModel, data: NodeData) -> Tensor:
    """Return log-probabilities, mixed with what the graph's neighbours say."""
    own = model.logits.softmax(-1)
    own[data.train] = one_hot(data.y[data.train], data.num_classes).to(own.dtype)

    def tries() -> Iterable[Tensor]:
        for restart in RESTARTS:
            spread = personalized_pagerank(model.graph.normalized(), own, restart).clamp(min=1e-9)
            spread = (spread / spread.sum(-1, keepdim=True)).log()
            for share in SHARES:
                yield share * spread + (1 - share) * model.logits.log_softmax(-1)

    return most_likely(tries(), data)


def with_own_labels(model: ClosedFormModel, data: NodeData) -> tuple[Tensor, Tensor]:
    """Return classes and nodes to learn from: those given, and those predicted with confidence."""
    probability, predicted = model.logits.softmax(-1).max(-1)
    takes = probability >= CONFIDENT
    takes[data.val] = False
    takes[data.train] = True
    classes = predicted.clone()
    for nodes in (data.train, data.val):
        classes[nodes] = data.y[nodes]
    return classes, takes.nonzero().squeeze(-1)


def attempt(data: NodeData) -> dict[str, float]:
    """Return the accuracy of everything that is tried."""
    x = scaled(data.x)
    graph = data.graph() if data.edge_index.shape[1] else None

    def accuracy(scores: Tensor) -> float:
        return float((scores[data.test].argmax(-1) == data.y[data.test]).double().mean())

    model = fit_closed_form(x, data.y, graph, train=data.train, val=data.val, options=OPTIONS)
    found = {
        "as it is": accuracy(model.logits),
        "kernel": accuracy(by_kernel(model, data)),
        "smoothed": accuracy(smoothed(model, data)),
    }
    classes, nodes = with_own_labels(model, data)
    again = fit_closed_form(x, classes, graph, train=nodes, val=data.val, options=OPTIONS)
    found["own labels"] = accuracy(again.logits)
    nodes = torch.cat([data.train, data.val])
    again = fit_closed_form(x, data.y, graph, train=nodes, options=OPTIONS)
    found["all labels"] = accuracy(again.logits)
    return found


def main() -> None:
    """Write a line for every claim and split that the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=5, help="fresh splits of each data set")
    parser.add_argument("--out", type=Path, default=Path("results/studies"))
    args = parser.parse_args()
    torch.set_flush_denormal(True)
    path = args.out / "closed_form_tried.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = [(line["claim"], line["split"]) for line in lines]
    for split in range(args.splits):
        for setting, dataset in CLAIMS:
            claim = f"{setting}/{dataset}"
            if (claim, split) in done:
                continue
            found = attempt(load_claim(setting, dataset, seed=split, develops=True))
            rounded = {name: round(value, 4) for name, value in found.items()}
            line = {"claim": claim, "split": split, "accuracy": rounded}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
