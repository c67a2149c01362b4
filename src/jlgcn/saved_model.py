"""Fitted models on disk: plain numbers and JSON, checked before anything is believed."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import safetensors.torch
import scipy.sparse
import torch
from safetensors import SafetensorError
from torch import Tensor

from jlgcn._checks import check_finite
from jlgcn.data.files import hash_of_file, read_json, sha256_of
from jlgcn.graphs import SparseGraph
from jlgcn.nn import ClosedFormJLGCN, ClosedFormLayer, ClosedFormOptions
from jlgcn.nn.candidates import Candidates, GraphChoice
from jlgcn.nn.node_inputs import Landmarks, num_blocks
from jlgcn.ops import SparseFeatures, symmetric_pattern
from jlgcn.train.checkpoint import write_to_disk

SCHEMA_VERSION = 3
DOCUMENT = "model.json"
_HASH = re.compile("[0-9a-f]{64}")
_OWN_HASH = "document_sha256"


def write_model(folder: Path, tensors: dict[str, Tensor], document: dict[str, Any]) -> None:
    """Write a model; at every moment there is the old one, or the new one, whole.

    The document names the tensors by their hash and is replaced at one stroke, after which the old
    tensors are deleted.

    Args:
        folder: where to; it is made if need be.
        tensors: what is large.
        document: what is small, as JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()})
    sha256 = sha256_of(content)
    document = {"schema": SCHEMA_VERSION, "sha256": sha256} | document
    document[_OWN_HASH] = _own_hash(document)
    tensor_file = _tensor_file(folder, sha256)
    write_to_disk(tensor_file, content)
    temporary = folder / f"{DOCUMENT}.tmp"
    write_to_disk(temporary, json.dumps(document, indent=2).encode())
    os.replace(temporary, folder / DOCUMENT)
    for old in folder.glob("model-*.safetensors"):
        if old != tensor_file:
            old.unlink()


def read_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and document of a model, after checking that they belong together."""
    try:
        document = read_json(folder / DOCUMENT)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{folder} holds no model: {DOCUMENT} is missing; pass a folder that save_pretrained "
            "wrote"
        ) from None
    except ValueError as error:
        raise damaged(folder, str(error)) from None
    if "schema" not in document:
        raise damaged(folder, f"{DOCUMENT} names no schema")
    own_hash = document.pop(_OWN_HASH, None)
    # Schema 1 had no hash of its document; before 3, classifiers were linear in leveled features.
    if document["schema"] not in (1, 2, SCHEMA_VERSION):
        raise ValueError(
            f"{folder} was written in schema {document['schema']!r} but this version reads "
            f"{SCHEMA_VERSION}; use the version of jlgcn that wrote it"
        )
    if own_hash != (_own_hash(document) if document["schema"] != 1 else None):
        raise damaged(folder, f"{DOCUMENT} does not have its own hash")
    sha256 = document.get("sha256")
    if not isinstance(sha256, str) or not _HASH.fullmatch(sha256):
        raise damaged(folder, f"{DOCUMENT} names no hash of tensors")
    path = _tensor_file(folder, sha256)
    if not path.is_file():
        raise damaged(folder, f"{path.name} is missing")
    if hash_of_file(path) != sha256:
        raise damaged(folder, f"{path.name} does not have the hash that {DOCUMENT} names")
    try:
        return safetensors.torch.load(path.read_bytes()), document
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise damaged(folder, f"{path.name} cannot be read ({error})") from None


def _own_hash(document: dict[str, Any]) -> str:
    # As it will be read back: what JSON has no word for, such as a tuple, is another thing then.
    return sha256_of(json.dumps(document, sort_keys=True).encode())


def _tensor_file(folder: Path, sha256: str) -> Path:
    return folder / f"model-{sha256[:16]}.safetensors"


def model_to_tensors(model: ClosedFormJLGCN) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return all that a fitted model is, as tensors and as JSON."""
    candidates = model.candidates
    tensors = {
        "index": candidates.index,
        "distance": candidates.distance,
        "projection": model.projection,
        "spread": model.spread,
        "weight": model.weight,
        "bias": model.bias,
        "train": model.train,
        "labels": model.labels,
    }
    if isinstance(candidates.x, SparseFeatures):
        x = candidates.x
        tensors |= {"x/crow": x.crow, "x/col": x.col, "x/value": x.value}
    else:
        tensors["x"] = candidates.x
    tensors |= _graph_to_tensors("graph", model.graph)
    if candidates.given is not None:
        assert candidates.given_distance is not None
        tensors |= _graph_to_tensors("given", candidates.given)
        tensors["given_distance"] = candidates.given_distance
    if model.landmarks is not None:
        tensors["landmarks"] = model.landmarks.points
        tensors["whitening"] = model.landmarks.whitening
    for index, layer in enumerate(model.layers):
        tensors |= {f"metric/{index}": layer.metric, f"logits/{index}": layer.logits}
        tensors |= _graph_to_tensors(f"learned/{index}", layer.learned)
    document = {
        "options": asdict(model.options),
        "choice": asdict(model.choice),
        "unit": candidates.unit,
        "learned_scale": model.learned_scale,
        "losses": [layer.loss for layer in model.layers],
        "num_features": model.projection.shape[0],
        "landmark_decay": 0.0 if model.landmarks is None else model.landmarks.decay,
    }
    return tensors, document


def model_from_tensors(
    folder: Path, tensors: dict[str, Tensor], document: dict[str, Any]
) -> ClosedFormJLGCN:
    """Return the fitted model of a file, whose numbers must fit together."""
    try:
        return _model(tensors, document)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        raise damaged(folder, f"its parts do not fit together ({error})") from None


def _model(tensors: dict[str, Tensor], document: dict[str, Any]) -> ClosedFormJLGCN:
    for name, tensor in tensors.items():
        if name not in ("distance", "given_distance"):  # infinite where there is no neighbour
            check_finite(tensor, name, "save the model again")
        elif bool(tensor.isnan().any()):
            raise ValueError(f"{name} has NaN")
    num_nodes = tensors["spread"].shape[0]
    missing = {"inputs": "leveled", "kernel_decay": 0.0} if document["schema"] < 3 else {}
    options = _read(ClosedFormOptions, missing | document["options"])
    choice = _read(GraphChoice, missing | document["choice"])
    x: Tensor | SparseFeatures
    if "x" in tensors:
        x = tensors["x"]
    else:
        parts = tuple(tensors[f"x/{name}"].numpy() for name in ("value", "col", "crow"))
        size = (num_nodes, int(document["num_features"]))
        matrix = scipy.sparse.csr_array(parts, shape=size)
        matrix.check_format()
        x = SparseFeatures.from_scipy(matrix)
    index = tensors["index"]
    if x.shape[0] != num_nodes or index.shape[0] != num_nodes:
        raise ValueError("features and graphs are of different numbers of nodes")
    if index.numel() and not -1 <= int(index.min()) <= int(index.max()) < num_nodes:
        raise ValueError("candidates are not nodes")
    given = _graph(tensors, "given", num_nodes) if "given/row" in tensors else None
    candidates = Candidates(
        x,
        float(document["unit"]),
        index,
        tensors["distance"],
        given,
        None if given is None else tensors["given_distance"],
    )
    layers = tuple(
        ClosedFormLayer(
            tensors[f"metric/{i}"],
            _graph(tensors, f"learned/{i}", num_nodes),
            tensors[f"logits/{i}"],
            float(loss),
        )
        for i, loss in enumerate(document["losses"])
    )
    num_features, num_components = tensors["projection"].shape
    num_classes = tensors["bias"].shape[0]
    num_inputs = num_components * num_blocks(choice.inputs)
    landmarks = None
    if choice.kernel_decay > 0:
        points, whitening = tensors["landmarks"], tensors["whitening"]
        if points.shape != (len(whitening), num_inputs):
            raise ValueError(f"landmarks have the shape {tuple(points.shape)}")
        landmarks = Landmarks(points, float(document["landmark_decay"]), whitening)
        num_inputs = whitening.shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "spread": (num_nodes, num_components),
        "weight": (num_inputs, num_classes),
        "distance": tuple(index.shape),
        **{f"metric/{i}": (num_features, num_classes) for i in range(len(layers))},
        **{f"logits/{i}": (num_nodes, num_classes) for i in range(len(layers))},
    }
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(tensors[name].shape)}, not {shape}")
    train, labels = tensors["train"], tensors["labels"]
    for name, numbers, end in (("train", train, num_nodes), ("labels", labels, num_classes)):
        if numbers.shape != train.shape or not numbers.numel():
            raise ValueError(f"{name} has the shape {tuple(numbers.shape)}")
        if not 0 <= int(numbers.min()) <= int(numbers.max()) < end:
            raise ValueError(f"{name} goes from {int(numbers.min())} to {int(numbers.max())}")
    if x.shape[1] != num_features or not layers:
        raise ValueError("the metric is not one of these features")
    return ClosedFormJLGCN(
        options=options,
        choice=choice,
        candidates=candidates,
        layers=layers,
        graph=_graph(tensors, "graph", num_nodes),
        learned_scale=float(document["learned_scale"]),
        projection=tensors["projection"],
        spread=tensors["spread"],
        landmarks=landmarks,
        weight=tensors["weight"],
        bias=tensors["bias"],
        train=train,
        labels=labels,
    )


def _read(kind: type[Any], values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a dataclass of plain values, refusing names that it does not have."""
    names = {field.name for field in fields(kind)}
    if set(values) != names:
        raise ValueError(f"{kind.__name__} has other fields: {sorted(set(values) ^ names)}")
    return kind(**values)


def _graph_to_tensors(name: str, graph: SparseGraph) -> dict[str, Tensor]:
    row, col = graph.edge_index
    return {f"{name}/row": row, f"{name}/col": col, f"{name}/weight": graph.weight}


def _graph(tensors: dict[str, Tensor], name: str, num_nodes: int) -> SparseGraph:
    row, col, weight = (tensors[f"{name}/{part}"] for part in ("row", "col", "weight"))
    ends = torch.cat([row, col])
    if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < num_nodes:
        raise ValueError(f"edges of {name} are not between nodes")
    pattern = symmetric_pattern(row, col, num_nodes)
    if not (torch.equal(pattern.row, row) and torch.equal(pattern.col, col)):
        raise ValueError(f"edges of {name} are not listed in both directions, in order")
    if weight.shape != row.shape:
        raise ValueError(f"{name} has {len(row)} edges but {len(weight)} weights")
    return SparseGraph.from_pattern(pattern, weight)


def damaged(folder: Path, what: str) -> ValueError:
    """Return the error that says what is wrong with a model, and what to do."""
    return ValueError(f"the model in {folder} is damaged: {what}; save or copy it again")
