"""Citation networks Cora, Citeseer and Pubmed, in the Planetoid split of Yang et al. (2016)."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from jlgcn._files import sha256_of
from jlgcn.io.download import download as fetch
from jlgcn.io.files import data_root, read_verified
from jlgcn.paper.node_data import NodeData, both_directions
from jlgcn.paper.restricted_pickle import read_numbers

Planetoid = Literal["cora", "citeseer", "pubmed"]

_ADDRESS = "https://github.com/kimiyoung/planetoid/raw/master/data"
_NUM_VAL = 500

#: SHA-256 of the published files.
SHA256 = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
}


def load_planetoid(
    name: Planetoid,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = False,
) -> NodeData:
    """Read a citation network with its public (Planetoid) split.

    Every file is verified against its published SHA-256, and its pickle is read without executing
    code. Edges are undirected; self-loops and duplicates of the raw files are removed. Fifteen
    nodes of Citeseer have neither features nor a class; they are kept, with class -1.

    Args:
        name ("cora", "citeseer" or "pubmed"): data set.
        root (path or None, default None): folder that contains ``planetoid/``; None for the
            environment variable JLGCN_DATA.
        download (bool, default False): download missing files.

    Returns:
        Features (bag of words), classes, edges and split, on the CPU.
    """
    names = sorted({file.split(".")[1] for file in SHA256})
    if name not in names:
        raise ValueError(f"name must be one of {', '.join(names)}, but it is {name!r}")
    folder = data_root(root) / "planetoid"
    content: dict[str, bytes] = {}
    for part in ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"):
        file = f"ind.{name}.{part}"
        if download and not (folder / file).exists():
            fetch(f"{_ADDRESS}/{file}", folder / file, SHA256[file])
        content[part] = read_verified(folder / file, SHA256[file])

    test = np.array([int(line) for line in content["test.index"].split()])
    y_train, y_test, y_all = (read_numbers(content[part]) for part in ("y", "ty", "ally"))
    x_test, x_all = (read_numbers(content[part]).toarray() for part in ("tx", "allx"))
    # Rows of tx are in the order of test.index, which has gaps at nodes without features.
    num_nodes = test.max() + 1
    x = np.zeros((num_nodes, x_all.shape[1]), dtype=np.float32)
    one_hot = np.zeros((num_nodes, y_all.shape[1]), dtype=np.int64)
    x[: len(x_all)], one_hot[: len(y_all)] = x_all, y_all
    x[test], one_hot[test] = x_test, y_test
    y = np.where(one_hot.any(1), one_hot.argmax(1), -1)

    neighbors: dict[int, list[int]] = read_numbers(content["graph"])
    edges = np.array([(i, j) for i, others in neighbors.items() for j in others])
    num_train = len(y_train)
    return NodeData(
        name=name,
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        edge_index=both_directions(torch.from_numpy(edges.T), num_nodes),
        train=torch.from_numpy(np.arange(num_train)),
        val=torch.from_numpy(np.arange(num_train, num_train + _NUM_VAL)),
        test=torch.from_numpy(np.sort(test)),
        sha256=sha256_of("".join(map(sha256_of, content.values())).encode()),
    )


def subsample(data: NodeData, num_others: int) -> NodeData:
    """Keep the nodes of the split and the first `num_others` of the others.

    The paper "sub-samples 10,000 nodes" of Pubmed; the code of its authors keeps the 1,560 nodes of
    the split and the first 10,000 others.
    """
    in_split = torch.zeros_like(data.y, dtype=torch.bool)
    in_split[torch.cat([data.train, data.val, data.test])] = True
    others = (~in_split).nonzero().flatten()[:num_others]
    nodes = torch.cat([in_split.nonzero().flatten(), others]).sort().values
    return replace(data.subset(nodes), name=f"{data.name}-{len(nodes)}")


def normalize_rows(
    x: Tensor,  # (N, K)
) -> Tensor:  # (N, K)
    """Scale every row to unit L2 norm, as the paper does; zero rows are kept.

    Example:
        >>> normalize_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    return torch.nn.functional.normalize(x, dim=-1)
