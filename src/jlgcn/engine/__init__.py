"""The closed form on more rows than memory holds: shards on disk or in an object store."""

from jlgcn.engine.model import ShardedModel

__all__ = ["ShardedModel"]
