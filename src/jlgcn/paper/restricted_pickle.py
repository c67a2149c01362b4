"""A restricted unpickler for the raw Planetoid files: arrays, sparse matrices, lists, dicts.

The only code of the package that reads pickle. Files are verified against their published SHA-256
before; this is defence in depth.
"""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
from typing import Any

import numpy as np
import scipy.sparse


class _CsrParts:
    """Placeholder for a csr_matrix of any SciPy version: collects its fields."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.fields = state

    def matrix(self) -> scipy.sparse.csr_matrix:
        fields = self.fields
        shape = fields.get("_shape", fields.get("shape"))
        return scipy.sparse.csr_matrix(
            (fields["data"], fields["indices"], fields["indptr"]), shape=shape
        )


def _reconstruct(cls: type, shape: tuple[int, ...], kind: bytes | str) -> np.ndarray:
    if cls is not np.ndarray:
        raise pickle.UnpicklingError(f"an array of type {cls} is not allowed")
    if shape != (0,):  # what NumPy writes; the shape follows with the data
        raise pickle.UnpicklingError(f"an array that begins with shape {shape} is not allowed")
    return np.ndarray(shape, np.dtype("b"))


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _CsrParts,
    ("scipy.sparse._csr", "csr_matrix"): _CsrParts,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("collections", "defaultdict"): collections.defaultdict,
}

# Planetoid's files have protocol 2.
_MAX_PROTOCOL = 3


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"this file asks for {module}.{name}; only arrays, sparse matrices, lists and "
                "dictionaries of numbers are allowed"
            ) from None


def _check_operations(content: bytes) -> None:
    """Refuse opcodes that no Planetoid file contains, before any is executed.

    A large memo index makes CPython allocate memory for all smaller ones. Opcodes of newer
    protocols (buffers, frames) are not needed.
    """
    for operation, argument, place in pickletools.genops(content):
        if operation.proto > _MAX_PROTOCOL:
            raise pickle.UnpicklingError(
                f"{operation.name} at byte {place} belongs to protocol {operation.proto}; only "
                f"protocols up to {_MAX_PROTOCOL} are allowed"
            )
        if operation.name.endswith("PUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError(
                f"{operation.name} at byte {place} has memo index {argument}, beyond the file"
            )


def read_numbers(content: bytes) -> Any:  # noqa: ANN401
    """Return the array, sparse matrix, or dictionary of lists in a pickle.

    Raises:
        ValueError: the pickle has any other content; no code of it was executed.
    """
    try:
        _check_operations(content)
        found = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        return found.matrix() if isinstance(found, _CsrParts) else found
    except Exception as problem:  # a damaged file may raise any exception
        raise ValueError(f"not a Planetoid file: {problem}") from None
