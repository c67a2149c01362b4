"""The document of a model of shards, ``shards.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jlgcn._files import hash_of_document, sha256_of
from jlgcn._schema import flag, list_of, maybe, real, record, text, whole, word
from jlgcn.closed_form.options import CHECKS
from jlgcn.closed_form.scaling import KINDS
from jlgcn.engine.store import Store, below

DOCUMENT = "shards.json"

_MANY = 10**9
_NAME = text(100_000)
_NAMES = list_of(_NAME, _MANY)
_AMOUNT = real(0, 1e300)

#: Names, types and ranges of the document's fields.
_CHECK = record(
    {
        "schema": whole(2, 2),
        "sha256": text(64),
        "options": record(CHECKS),
        "classes": _NAMES,
        "columns": _NAMES,
        "id_column": maybe(_NAME),
        "label_column": _NAME,
        "scaler": record(
            {"kind": word(*KINDS[1:]), "is_count": flag, "power": real(0, 1, above=True)}
        ),
        "bounds": list_of(whole(0, 2**62), _MANY),
        "unit": real(0, 1e300, above=True),
        "learned_scale": _AMOUNT,
        "landmark_gamma": _AMOUNT,
        "losses": list_of(_AMOUNT, 1000),
        "evidence": text(10_000),
        "num_labels": whole(1, 2**62),
        "head": _NAME,
        "labels": _NAME,
        "quantizer": _NAME,
        "index": _NAME,
        "order": _NAME,
        "x": _NAMES,
        "learned": _NAMES,
        "edges": _NAMES,
        "scores": _NAMES,
        "said": _NAMES,
        "predictions": _NAMES,
        "inputs": _NAMES,
    }
)


def read_document(uri: str) -> dict[str, Any]:
    """Return the document of a model, after checking its hash and all of its fields."""
    try:
        found = json.loads(Store(uri).read(DOCUMENT))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{uri} holds no model of shards: {DOCUMENT} is missing; pass the folder of a fit "
            "with an engine"
        ) from None
    own_hash = found.pop("sha256", "") if isinstance(found, dict) else ""
    if own_hash != hash_of_document(found):
        raise ValueError(f"{below(uri, DOCUMENT)} does not have its own hash; copy or fit it again")
    _CHECK({"sha256": own_hash} | found, "")
    return dict(found)


def names_of_parts(document: Mapping[str, Any]) -> set[str]:
    """Return the names of all files in ``parts`` that a model needs."""
    single = {document[name] for name in ("head", "labels", "quantizer", "index", "order")}
    return single.union(*(document[name] for name in ("x", "learned", "edges", "scores", "said")))


def hash_of_present(uri: str) -> str | None:
    """Return the SHA-256 of the document's bytes, which need not be a document; None for none."""
    store = Store(uri)
    return sha256_of(store.read(DOCUMENT)) if store.has(DOCUMENT, "") else None


def write_document(uri: str, document: Mapping[str, Any], replaced: str | None) -> None:
    """Write the document, which makes a folder a model.

    Args:
        uri: the folder.
        document: fields of the document.
        replaced: what :func:`hash_of_present` was at the start. Where there are no locks, another
            fit or update may have written meanwhile; its files would be deleted.
    """
    if hash_of_present(uri) != replaced:
        raise ValueError(
            f"{below(uri, DOCUMENT)} was changed meanwhile by another fit or update; load the "
            "model again, and let one at a time write to it"
        )
    signed = {"sha256": hash_of_document(dict(document))} | dict(document)
    _CHECK(signed, "")
    with Store(uri).writing(DOCUMENT) as file:
        file.write(json.dumps(signed, indent=2).encode())
