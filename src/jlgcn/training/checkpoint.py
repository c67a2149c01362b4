"""Checkpoints that survive a kill at any moment: tensors and plain numbers, never pickles.

A checkpoint is a folder, written under another name, brought to the disk, and then renamed;
``LATEST`` names the newest one and is replaced the same way. So at every moment either the old or
the new one is whole. Every file has its hash, the one that holds the hashes included.
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

# What is small is small: a larger file is not one of ours.
_MAX_STATE_BYTES = 8 * 2**20


def save_checkpoint(
    folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]
) -> Path:
    """Write a checkpoint and return its folder; any error of the disk reaches the caller.

    Only checkpoints are deleted: what else is in the folder stays, whatever it is called.
    Processes that save into one folder take turns.

    Args:
        folder: where checkpoints are kept; the newest three stay.
        step: number of the checkpoint; later ones are greater.
        tensors: what is large.
        state: what is small, as JSON.
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
    """Return the names of checkpoints, the oldest first."""
    return sorted((p.name for p in folder.glob("step-*") if _NAME.fullmatch(p.name)), key=_order)


def _order(name: str) -> tuple[int, int]:
    """Return the step in a name, and which of the checkpoints of that step it is."""
    step, _, number = name.removeprefix("step-").partition(".")
    return int(step), int(number or 0)


def _is_ours(path: Path) -> bool:
    """Whether a folder is a checkpoint and nothing else, and so may be deleted."""
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        document = read_json(path / _STATE, _MAX_STATE_BYTES)
    except (ValueError, OSError):
        return False
    is_signed = document.pop("sha256", None) == hash_of_document(document)
    return is_signed and all(p.name in (_TENSORS, _STATE) for p in path.iterdir())


def _new_name(folder: Path, step: int) -> Path:
    """Return a name that is free: no moment may be without the checkpoint that is replaced."""
    for number in itertools.count():
        path = folder / (f"step-{step:08d}.{number}" if number else f"step-{step:08d}")
        if not os.path.lexists(path):  # a link to nothing takes a name, too
            break
    return path


@functools.cache
def _versions() -> dict[str, str]:
    environment = versions()
    return {name: environment[name] for name in ("jlgcn", "python", "torch", "numpy")}


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors and state of the newest whole checkpoint, or None where there is none.

    One that is damaged is passed over, with a line in the log, for the one before it.
    """
    candidates = _names(folder)[::-1]
    latest = folder / _LATEST
    if latest.is_file():
        # A folder newer than LATEST is whole, too, unless the hash says otherwise; but what LATEST
        # names was brought to the disk for certain.
        named = latest.read_bytes()[:100].decode(errors="replace").strip()
        candidates.sort(key=lambda name: name != named)
    for name in candidates:
        try:
            return _read(folder / name)
        except _DAMAGED as problem:
            logger.warning("checkpoint %s is damaged (%s); trying an older one", name, problem)
    return None


# What a damaged or hostile file can raise; an error of the disk itself is not among them.
_DAMAGED = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, SafetensorError),
    *(FileNotFoundError, NotADirectoryError, IsADirectoryError),
)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    document = read_json(path / _STATE, _MAX_STATE_BYTES)
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"it is of schema {document.get('schema')!r}, not {_SCHEMA}")
    own = document.pop("sha256", None)
    if own != hash_of_document(document):
        raise ValueError(f"{_STATE} does not have its hash")
    content = read_file(path / _TENSORS)
    if sha256_of(content) != document["files"][_TENSORS]:
        raise ValueError("the tensors do not have their hash")
    state = document["state"]
    if not isinstance(state, dict):
        raise TypeError("its state is no object")
    return safetensors.torch.load(content), state
