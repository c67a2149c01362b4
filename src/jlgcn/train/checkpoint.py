"""Checkpoints that survive a kill at any moment: tensors and plain numbers, never pickles.

A checkpoint is a folder, written under another name, brought to the disk, and then renamed;
``LATEST`` names the newest one and is replaced the same way. So at every moment either the old or
the new one is whole.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from jlgcn.data.files import sha256_of

logger = logging.getLogger(__name__)

_KEPT = 3
_TENSORS, _STATE, _LATEST = "tensors.safetensors", "state.json", "LATEST"


def save_checkpoint(
    folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]
) -> Path:
    """Write a checkpoint and return its folder; any error of the disk reaches the caller.

    Args:
        folder: where checkpoints are kept; the newest three stay.
        step: number of the checkpoint; later ones are greater.
        tensors: what is large.
        state: what is small, as JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:08d}"
    temporary = final.with_suffix(".tmp")
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir()
    content = safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()})
    document = {"step": step, "sha256": sha256_of(content), "state": state}
    write_to_disk(temporary / _TENSORS, content)
    write_to_disk(temporary / _STATE, json.dumps(document).encode())
    _sync(temporary)
    if final.exists():
        shutil.rmtree(final)
    os.replace(temporary, final)
    _sync(folder)
    write_to_disk(folder / f"{_LATEST}.tmp", final.name.encode())
    os.replace(folder / f"{_LATEST}.tmp", folder / _LATEST)
    _sync(folder)
    for old in sorted(folder.glob("step-????????"))[:-_KEPT]:
        shutil.rmtree(old)
    return final


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors and state of the newest whole checkpoint, or None where there is none.

    One that is damaged is passed over, with a line in the log, for the one before it.
    """
    candidates = sorted((p.name for p in folder.glob("step-????????")), reverse=True)
    latest = folder / _LATEST
    if latest.exists():
        # A folder newer than LATEST is whole, too, unless the hash says otherwise; but what LATEST
        # names was brought to the disk for certain.
        named = latest.read_text().strip()
        candidates.sort(key=lambda name: name != named)
    for name in candidates:
        try:
            document = json.loads((folder / name / _STATE).read_bytes())
            content = (folder / name / _TENSORS).read_bytes()
            if sha256_of(content) != document["sha256"]:
                raise ValueError("the tensors do not have their hash")
            state: dict[str, Any] = document["state"]
            return safetensors.torch.load(content), state
        except (ValueError, KeyError, TypeError, FileNotFoundError) as problem:
            logger.warning("checkpoint %s is damaged (%s); trying an older one", name, problem)
    return None


def write_to_disk(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
