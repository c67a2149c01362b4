"""JLGCN on point clouds: no graph is given, every layer learns one for each cloud.

JLGCN_DATA=… python examples/clouds.py modelnet40_ply_hdf5_2048
python examples/clouds.py modelnet10_voxel_hdf5_1024 --epochs 10 --points 256
"""

import argparse
from dataclasses import replace

import torch

from jlgcn.nn import PRESETS, GraphLevelJLGCN
from jlgcn.paper import load_clouds
from jlgcn.training import GraphTrainConfig, RunOptions, fit_graphs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", help="a folder of clouds, by path or below JLGCN_DATA")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--points", type=int, default=256)
parser.add_argument("--clouds", type=int, help="train on so many of them only")
args = parser.parse_args()

data = load_clouds(args.folder)
print(data)
if args.clouds is not None:
    some = torch.randperm(len(data.train), generator=torch.manual_seed(0))[: args.clouds]
    data = replace(data, train=data.train[some])

# A metric that begins at the scale of the data, where the paper's begins at random.
options = replace(PRESETS["paper"], metric_init="median")
torch.manual_seed(0)
model = GraphLevelJLGCN(3, data.num_classes, options=options)
config = GraphTrainConfig(
    epochs=args.epochs,
    num_points=args.points,
    lr_step=max(1, args.epochs // 10),
    augments=True,
)
result = fit_graphs(
    model,
    data.points,
    data.y,
    train=data.train,
    val=data.val,
    test=data.test,
    config=config,
    points_missing=(0.5, 0.9),
    options=RunOptions(progress=True),
)
print(f"epoch {result.best_epoch}: validation {result.val_accuracy:.3f}, ", end="")
print(f"test {result.test_accuracy:.3f}, {result.seconds / args.epochs:.1f} s an epoch")
for share, accuracy in result.measured["accuracy_missing"].items():
    print(f"with {float(share):.0%} of the points missing: {accuracy:.3f}")
