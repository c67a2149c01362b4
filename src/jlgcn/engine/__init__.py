"""The closed form on more rows than memory holds: shards on disk or in an object store."""

from jlgcn.engine.fit import fit_shards
from jlgcn.engine.local import LocalExecutor
from jlgcn.engine.model import ShardedModel
from jlgcn.engine.ray import RayExecutor

__all__ = [
    "LocalExecutor",
    "RayExecutor",
    "ShardedModel",
    "fit_shards",
]
