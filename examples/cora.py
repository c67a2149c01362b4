"""JLGCN on Cora: the paper's network, the exact graph of all pairs, selected by validation.

JLGCN_DATA=… python examples/cora.py            (200 epochs, about two minutes)
python examples/cora.py --download              (fetches Cora first)
"""

import argparse

import torch

from jlgcn.nn import JLGCN
from jlgcn.paper import load_planetoid
from jlgcn.training import RunOptions, TrainConfig, fit_nodes

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--download", action="store_true")
args = parser.parse_args()

torch.set_flush_denormal(True)  # on a CPU: tiny weights cost time and mean nothing
data = load_planetoid("cora", download=args.download)
x = torch.nn.functional.normalize(data.x, p=1)  # rows sum to 1
print(data)

torch.manual_seed(args.seed)
model = JLGCN(x.shape[1], 16, data.num_classes, rank=16, backend="exact")
result = fit_nodes(
    model,
    x,
    data.y,
    data.edge_index,
    train=data.train,
    val=data.val,
    test=data.test,
    config=TrainConfig(epochs=args.epochs),
    options=RunOptions(progress=True),
)
print(f"epoch {result.best_epoch}: validation {result.val_accuracy:.3f}, ", end="")
print(f"test {result.test_accuracy:.3f}; {result.seconds / args.epochs:.2f} s an epoch")

# The learned graph itself: whom does paper 0 listen to in the first layer, and does Cora cite them?
weights = model(x, data.graph()).learned[0].rows(data.train[:1]).squeeze(0).detach()
weights[0] = 0
cited = set(data.edge_index[1, data.edge_index[0] == 0].tolist())
for node in weights.topk(5).indices.tolist():
    same = "same class" if data.y[node] == data.y[0] else "other class"
    link = "cited" if node in cited else "not cited"
    print(f"paper {node}: weight {weights[node]:.3f}, {same}, {link}")
