"""Files of others, which are read without trust, and edges written for others to read."""

from jlgcn.io.files import data_root

__all__ = ["data_root"]
