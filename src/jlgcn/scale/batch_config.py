"""How a network is trained on batches, and on which nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BatchConfig:
    """How a network is trained on batches.

    Attributes:
        epochs: passes over the training nodes.
        batch_size: of them in a step, in each process.
        fanouts: neighbours that are drawn in each hop, one number a layer; -1 for all.
        num_neighbors: nearest rows in the table.
        lr: learning rate of Adam.
        weight_decay: L2 penalty of Adam.
        glr_weight: weight λ of the regularizer, estimated from the nodes of a batch.
        min_recall: the table is built anew when its recall, see :meth:`NeighborTable.recall`, falls
            below this share of what it was when it was built; 0 never builds it anew.
        num_workers: processes that sample ahead.

    Example:
        >>> BatchConfig(epochs=3).fanouts
        (10, 10)
    """

    epochs: int = 20
    batch_size: int = 1024
    fanouts: tuple[int, ...] = (10, 10)
    num_neighbors: int = 16
    lr: float = 0.01
    weight_decay: float = 5e-4
    glr_weight: float = 0.0
    min_recall: float = 0.8
    num_workers: int = 0


@dataclass(frozen=True, eq=False)
class Split:
    """Which nodes are learned from, select, and are looked at once.

    Attributes:
        train: nodes to learn from, (M,), int64.
        val: nodes to select by.
        test: nodes that are looked at once, after selection.

    Example:
        >>> Split.of(torch.tensor([0, 1, -1, 1, 0, 1]), num_train=2, num_val=1).train.shape
        torch.Size([2])
    """

    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def of(cls, y: Tensor, *, num_train: int, num_val: int, seed: int = 0) -> Split:
        """Draw a split of the nodes whose class is known; all others of them are test nodes."""
        known = (y >= 0).nonzero().squeeze(-1)
        if len(known) <= num_train + num_val:
            raise ValueError(
                f"{len(known)} nodes have a class, which is too few for {num_train} to train, "
                f"{num_val} to validate and some to test; ask for fewer"
            )
        known = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))]
        train, val, test = known.split([num_train, num_val, len(known) - num_train - num_val])
        return cls(train, val, test)
