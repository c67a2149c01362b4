"""Saved estimators and networks: a folder of safetensors and JSON, replaced atomically."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from jlgcn._files import (
    hash_of_document,
    hash_of_file,
    locked,
    read_file,
    remove_leftovers,
    sha256_of,
    write_file,
)
from jlgcn._schema import Check, record, text

DOCUMENT = "model.json"
_TENSOR_FILE = re.compile(r"model-[0-9a-f]{16}\.safetensors")
_OWN_FILE = re.compile(rf"{re.escape(DOCUMENT)}|{_TENSOR_FILE.pattern}")
_OWN_HASH = "document_sha256"

# Parsed JSON takes many times its size in memory.
_MAX_DOCUMENT_BYTES = 64 * 2**20
# Attempts of a reader while writers replace the model.
_TRIES = 100


@dataclass(frozen=True)
class Schema:
    """Schema of a document.

    Attributes:
        version: kind and version; a document with another one is refused.
        fields: checks of all fields, except version and hashes.
    """

    version: int | str
    fields: dict[str, Check]

    def check(self, document: dict[str, Any]) -> None:
        """Raise ValueError unless the document has exactly these fields, with valid values."""
        record({"schema": _anything, "sha256": text(64)} | self.fields)(document, "")


def write_model(
    folder: Path, tensors: dict[str, Tensor], document: dict[str, Any], schema: Schema
) -> None:
    """Write a model atomically: a crash leaves the old model or the new one.

    Tensors are in a file named by their hash, to which the document refers. The document is
    replaced by a rename; then the old document's tensors, and no other file, are deleted. A lock
    serialises processes that save into the same folder.

    Args:
        folder: folder to write to; created if it does not exist.
        tensors: tensors by name.
        document: the fields of the schema.
        schema: schema of the document.

    Raises:
        FileExistsError: the folder has a document of that name from another program.
        ValueError: a field is not as the schema requires.
    """
    content = safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()})
    sha256 = sha256_of(content)
    document = {"schema": schema.version, "sha256": sha256} | document
    try:
        schema.check(document)
    except ValueError as error:
        raise ValueError(f"the model cannot be saved: {error}") from None
    signed = json.dumps(document | {_OWN_HASH: hash_of_document(document)}, indent=2).encode()
    if len(signed) > _MAX_DOCUMENT_BYTES:
        raise ValueError(
            f"the model cannot be saved: names of rows and columns must take at most "
            f"{_MAX_DOCUMENT_BYTES:,} bytes, but they take {len(signed):,}; use shorter ids"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        old = _old_tensor_file(folder)
        remove_leftovers(folder, _OWN_FILE)
        new = folder / _tensor_name(sha256)
        is_there = new.is_file() and not new.is_symlink() and hash_of_file(new) == sha256
        if not is_there:
            write_file(new, content)
        write_file(folder / DOCUMENT, signed)
        if old is not None and old != new:
            old.unlink(missing_ok=True)


def read_model(folder: Path, schema: Schema) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and document of a model, with verified hashes and a checked document.

    A reader starts again if a writer replaced the document meanwhile.
    """
    for _ in range(_TRIES):
        try:
            before = _identity(folder)
            return _read_once(folder, schema)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{folder} holds no model: {DOCUMENT} is missing; pass a folder that save wrote"
            ) from None
        except _UnreadableError:
            raise
        except ValueError as error:
            if _identity(folder) == before:  # no writer replaced it
                raise damaged(folder, str(error)) from None
    raise TimeoutError(
        f"{folder} was replaced {_TRIES} times while it was read; load it when no process saves"
    )


class _UnreadableError(ValueError):
    """A model of another schema version: reading it again would not help."""


def _identity(folder: Path) -> tuple[int, int]:
    found = (folder / DOCUMENT).stat()
    return found.st_ino, found.st_mtime_ns


def _read_once(folder: Path, schema: Schema) -> tuple[dict[str, Tensor], dict[str, Any]]:
    document = _read_document(folder, schema)
    path = folder / _tensor_name(document["sha256"])
    try:
        content = read_file(path)
    except OSError:
        raise ValueError(f"{path.name} is missing") from None
    if sha256_of(content) != document["sha256"]:
        raise ValueError(f"{path.name} does not have the hash in {DOCUMENT}")
    try:
        return safetensors.torch.load(content), document
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from None


def _parse(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return the document and its own hash, both unverified."""
    content = read_file(folder / DOCUMENT, _MAX_DOCUMENT_BYTES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{DOCUMENT} is not JSON ({error})") from None
    if not isinstance(document, dict) or _OWN_HASH not in document:
        raise ValueError(f"{DOCUMENT} is not the document of a model")
    return document, document.pop(_OWN_HASH)


def _read_document(folder: Path, schema: Schema) -> dict[str, Any]:
    document, own_hash = _parse(folder)
    version = document.get("schema")
    if type(version) is not type(schema.version) or version != schema.version:
        raise _UnreadableError(
            f"the model in {folder} was written in schema {str(version)[:40]} but this class "
            f"reads {schema.version}; use the class, and the version of jlgcn, that wrote it"
        )
    if own_hash != hash_of_document(document):
        raise ValueError(f"{DOCUMENT} does not have its own hash")
    schema.check(document)
    if not _TENSOR_FILE.fullmatch(_tensor_name(document["sha256"])):
        raise ValueError("sha256 is not a hash")
    return document


def _old_tensor_file(folder: Path) -> Path | None:
    """Return the tensor file of the model to replace; raise if the document is not ours."""
    name = ""
    try:
        document, own_hash = _parse(folder)
        if own_hash == hash_of_document(document):
            name = _tensor_name(str(document.get("sha256")))
    except FileNotFoundError:
        return None
    except ValueError:
        pass
    if not _TENSOR_FILE.fullmatch(name):
        raise FileExistsError(
            f"{folder / DOCUMENT} is not a document that jlgcn wrote, or it is damaged; save to "
            "another folder, or delete the file first"
        )
    return folder / name


def _anything(value: Any, where: str) -> Any:  # noqa: ANN401
    return value


def _tensor_name(sha256: str) -> str:
    return f"model-{sha256[:16]}.safetensors"


def damaged(folder: Path, what: str) -> ValueError:
    """Return the error for a damaged model."""
    return ValueError(f"the model in {folder} is damaged: {what}; save or copy it again")
