"""The one place that reads pickles: the raw Planetoid files, and nothing but numbers in them.

Files are compared with their published hash before they come here; this is the second lock.
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
    """Stands in for a sparse matrix of SciPy: takes its fields, whatever SciPy calls them today."""

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
    if shape != (0,):  # NumPy writes this one, and sets the true one with the numbers
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
                "dictionaries of numbers are read"
            ) from None


def _check_operations(content: bytes) -> None:
    """Refuse what no Planetoid file does before anything of it is done.

    An object that is remembered under a large number makes CPython ask for memory for all smaller
    ones. Operations of newer protocols (buffers, frames) are simply not needed.
    """
    for operation, argument, place in pickletools.genops(content):
        if operation.proto > _MAX_PROTOCOL:
            raise pickle.UnpicklingError(
                f"{operation.name} at byte {place} belongs to protocol {operation.proto}; only "
                f"protocols up to {_MAX_PROTOCOL} are read"
            )
        if operation.name.endswith("PUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError(
                f"{operation.name} at byte {place} remembers object {argument}, more than there are"
            )


def read_numbers(content: bytes) -> Any:  # noqa: ANN401
    """Return the array, sparse matrix, or dictionary of lists in a pickle.

    Raises:
        ValueError: there is anything else in it; nothing of it has been run.
    """
    try:
        _check_operations(content)
        found = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        return found.matrix() if isinstance(found, _CsrParts) else found
    except Exception as problem:  # a damaged file may raise anything, a matrix without fields too
        raise ValueError(f"not a Planetoid file: {problem}") from None
