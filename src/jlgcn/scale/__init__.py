"""Data that need not fit into memory: packed rows, neighbour tables, batches (extra ``pyg``)."""

from jlgcn.scale.batch_config import BatchConfig, Split
from jlgcn.scale.forward import BatchOutput, forward_batch
from jlgcn.scale.inference import infer
from jlgcn.scale.mapping import Mapper, in_turn
from jlgcn.scale.packing import PackPlan, pack, pack_shard, read_plan
from jlgcn.scale.planted import planted_table, write_planted
from jlgcn.scale.ray_engine import fit_over_ray, over_ray
from jlgcn.scale.sampler import TableSampler, table_loader
from jlgcn.scale.store import PackedTable, TableFeatureStore, TableGraphStore
from jlgcn.scale.table import NeighborTable
from jlgcn.scale.training import fit_batches

__all__ = [
    "BatchConfig",
    "BatchOutput",
    "Mapper",
    "NeighborTable",
    "PackPlan",
    "PackedTable",
    "Split",
    "TableFeatureStore",
    "TableGraphStore",
    "TableSampler",
    "fit_batches",
    "fit_over_ray",
    "forward_batch",
    "in_turn",
    "infer",
    "over_ray",
    "pack",
    "pack_shard",
    "planted_table",
    "read_plan",
    "table_loader",
    "write_planted",
]
