"""Crash-safe checkpoints of tensors (safetensors) and JSON; pickle is never used.

A checkpoint is a folder, written under a temporary name, synced to disk and renamed atomically;
``LATEST`` names the newest one and is replaced the same way. A crash leaves the old or the new
checkpoint intact. SHA-256 hashes cover every file, the file of hashes included.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from jlgcn._files import (
    hash_of_document,
    locked,
    new_folder,
    read_file,
    read_json,
    remove_folder,
    remove_leftovers,
    sha256_of,
    write_file,
)
from jlgcn.training.environment import versions

logger = logging.getLogger(__name__)

_KEPT = 3
_SCHEMA = 2
_TENSORS, _STATE, _LATEST = "tensors.safetensors", "state.json", "LATEST"
_NAME = re.compile(r"step-[0-9]{8,}(\.[1-9][0-9]*)?")
_LEFT_OVER = re.compile(rf"{_LATEST}|{_NAME.pattern}")

# A larger state file was not written by save_checkpoint.
_MAX_STATE_BYTES = 8 * 2**20


def save_checkpoint(
    folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]
) -> Path:
    """Write a checkpoint and return its folder; errors of the disk are not caught.

    Older checkpoints are deleted, other files never. A lock serialises processes that save into the
    same folder.

    Args:
        folder (Path): folder of checkpoints; the newest three are kept.
        step (int ≥ 0): number of the checkpoint; later ones are greater.
        tensors (dict of Tensor): tensors of any device.
        state (dict): everything else, as JSON.
    """
    content = safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()})
    document = {
        "schema": _SCHEMA,
        "step": step,
        "files": {_TENSORS: sha256_of(content)},
        "versions": _versions(),
        "state": state,
    }
    signed = document | {"sha256": hash_of_document(document)}
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        remove_leftovers(folder, _LEFT_OVER)
        final = _new_name(folder, step)
        with new_folder(final) as temporary:
            write_file(temporary / _TENSORS, content)
            write_file(temporary / _STATE, json.dumps(signed))
        write_file(folder / _LATEST, final.name)
        others = [n for n in _names(folder) if n != final.name and _is_ours(folder / n)]
        same = [name for name in others if _order(name)[0] == step]
        older = [name for name in others if name not in same]
        for name in (*same, *older[: 1 - _KEPT]):
            remove_folder(folder / name)
    return final


def _names(folder: Path) -> list[str]:
    """Return the names of all checkpoints, oldest first."""
    return sorted((p.name for p in folder.glob("step-*") if _NAME.fullmatch(p.name)), key=_order)


def _order(name: str) -> tuple[int, int]:
    """Return the step in a name, and its counter among checkpoints of the same step."""
    step, _, number = name.removeprefix("step-").partition(".")
    return int(step), int(number or 0)


def _is_ours(path: Path) -> bool:
    """Whether a folder holds a checkpoint and nothing else, so that it may be deleted."""
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        document = read_json(path / _STATE, _MAX_STATE_BYTES)
    except (ValueError, OSError):
        return False
    is_signed = document.pop("sha256", None) == hash_of_document(document)
    return is_signed and all(p.name in (_TENSORS, _STATE) for p in path.iterdir())


def _new_name(folder: Path, step: int) -> Path:
    """Return an unused name: a checkpoint of the same step stays until the new one is complete."""
    for number in itertools.count():
        path = folder / (f"step-{step:08d}.{number}" if number else f"step-{step:08d}")
        if not os.path.lexists(path):  # a dangling link takes a name too
            break
    return path


@functools.cache
def _versions() -> dict[str, str]:
    environment = versions()
    return {name: environment[name] for name in ("jlgcn", "python", "torch", "numpy")}


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors (on the CPU) and state of the newest intact checkpoint, or None.

    Damaged checkpoints are skipped with a warning in the log.
    """
    candidates = _names(folder)[::-1]
    latest = folder / _LATEST
    if latest.is_file():
        # A folder newer than LATEST may be intact, as its hash tells; the one that LATEST names was
        # certainly synced to disk.
        named = latest.read_bytes()[:100].decode(errors="replace").strip()
        candidates.sort(key=lambda name: name != named)
    for name in candidates:
        try:
            return _read(folder / name)
        except _DAMAGED as problem:
            logger.warning("checkpoint %s is damaged (%s); trying an older one", name, problem)
    return None


# Errors that a damaged or hostile file can raise; input/output errors are not among them.
_DAMAGED = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, SafetensorError),
    *(FileNotFoundError, NotADirectoryError, IsADirectoryError),
)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    document = read_json(path / _STATE, _MAX_STATE_BYTES)
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"its schema is {document.get('schema')!r}, not {_SCHEMA}")
    own = document.pop("sha256", None)
    if own != hash_of_document(document):
        raise ValueError(f"the hash of {_STATE} does not match")
    content = read_file(path / _TENSORS)
    if sha256_of(content) != document["files"][_TENSORS]:
        raise ValueError("the hash of the tensors does not match")
    state = document["state"]
    if not isinstance(state, dict):
        raise TypeError("its state is not a JSON object")
    return safetensors.torch.load(content), state
