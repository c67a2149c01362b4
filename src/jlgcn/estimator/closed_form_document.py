"""A fitted closed-form model as tensors and JSON, and the checks of both."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from jlgcn._schema import Check, list_of, maybe, real, record, word
from jlgcn.closed_form import ClosedFormModel, ClosedFormOptions
from jlgcn.closed_form.classifier import Classifier, Evidence
from jlgcn.closed_form.model import ClosedFormLayer
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.options import CHECKS, SelectedOptions
from jlgcn.estimator.tensors import (
    Shapes,
    check_floating,
    check_names,
    check_range,
    check_shapes,
    features_from_tensors,
    features_shapes,
    features_to_tensors,
    graph_from_tensors,
    graph_shapes,
    graph_to_tensors,
)
from jlgcn.graphs.candidates import Candidates

_AMOUNT = real(0, 1e300)

#: Names of the averaged classifiers.
PARTS = ("linear", "neighbours", "kernel", "graph")

#: Fields of a closed-form model besides its tensors.
CLOSED_FORM_FIELDS: dict[str, Check] = {
    "options": record(CHECKS),
    "unit": real(0, 1e300, above=True),
    "learned_scale": _AMOUNT,
    "losses": list_of(_AMOUNT, 1000),
    "landmark_gamma": _AMOUNT,
    "weights": list_of(record({"name": word(*PARTS), "weight": real(0, 1), "loss": _AMOUNT}), 10),
    "without_graph": maybe(
        record({"loss": _AMOUNT, "gain": real(-1e300, 1e300), "error": _AMOUNT})
    ),
}

# Shapes of tensors. A letter is the same number everywhere: N rows, F features, D components,
# C classes, K candidates, L landmarks, B blocks of features, M labels, H labels that were held out,
# X entries of sparse features, E entries of a graph.
_OF_CANDIDATES: Shapes = {"index": ("N", "K"), "distance": ("N", "K")}
_OF_MODEL: Shapes = {
    "projection": ("F", "D"),
    "diffused": ("N", "D"),
    "train": ("M",),
    "labels": ("M",),
    "counts": ("M",),
}
_OF_CLASSIFIER: Shapes = {
    "classifier/graph": ("D", "C"),
    "classifier/blocks": ("B", "F", "C"),
    "classifier/kernel": ("L", "C"),
    "classifier/bias": ("C",),
    "classifier/landmarks": ("L", "D"),
    "held_out": ("H", "C"),
    "is_held_out": ("H",),
}
_OF_SCALER: Shapes = {"scaler/shift": ("F",), "scaler/scale": ("F",)}
_INTEGERS = ("index", "train", "labels", "is_held_out")
_INFINITE = ("distance", "given_distance")  # without a neighbour


def closed_form_to_tensors(model: ClosedFormModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a fitted model, and its other fields as JSON."""
    candidates = model.candidates
    tensors = {name: getattr(candidates, name) for name in _OF_CANDIDATES}
    tensors |= {name: getattr(model, name) for name in _OF_MODEL}
    tensors |= features_to_tensors(candidates.x)
    tensors |= graph_to_tensors("graph", model.graph)
    if candidates.given is not None:
        assert candidates.given_distance is not None
        tensors |= graph_to_tensors("given", candidates.given)
        tensors["given_distance"] = candidates.given_distance
    classifier, evidence = model.classifier, model.evidence
    tensors |= {
        "classifier/graph": classifier.graph,
        "classifier/blocks": classifier.blocks,
        "classifier/kernel": classifier.kernel,
        "classifier/bias": classifier.bias,
        "classifier/landmarks": classifier.landmarks.points,
        "held_out": evidence.held_out,
        "is_held_out": evidence.is_held_out.long(),
    }
    for index, layer in enumerate(model.layers):
        tensors[f"metric/{index}"] = layer.metric
        tensors |= graph_to_tensors(f"learned/{index}", layer.learned)
    document = {
        "options": asdict(model.options),
        "unit": candidates.unit,
        "learned_scale": model.learned_scale,
        "losses": [layer.loss for layer in model.layers],
        "landmark_gamma": classifier.landmarks.gamma,
        "weights": [
            {"name": name, "weight": weight, "loss": evidence.losses[name]}
            for name, weight in evidence.weights.items()
        ],
        "without_graph": None
        if evidence.without_graph is None
        else dict(zip(("loss", "gain", "error"), evidence.without_graph, strict=True)),
    }
    return tensors, document


def closed_form_from_tensors(
    tensors: dict[str, Tensor], document: dict[str, Any]
) -> ClosedFormModel:
    """Return a fitted model, on the device of its tensors, after validating all of them."""
    options: SelectedOptions = ClosedFormOptions(**document["options"])
    shapes = _shapes(document, tensors)
    check_names(tensors, shapes)
    dtype = check_floating(tensors["diffused"], "diffused")
    sizes = check_shapes(tensors, shapes, dtype, integers=_INTEGERS, infinite=_INFINITE)
    num_nodes, num_features, num_classes = sizes["N"], sizes["F"], sizes["C"]
    check_range("index", tensors["index"], -1, num_nodes)
    check_range("train", tensors["train"], 0, num_nodes)
    check_range("labels", tensors["labels"], 0, num_classes)
    if not bool((tensors["counts"] > 0).all()):
        raise ValueError("counts of labels must be above 0")
    x = features_from_tensors(tensors, num_nodes, num_features)
    given = None
    if "given/row" in tensors:
        given = graph_from_tensors(tensors, "given", num_nodes)
    graph = graph_from_tensors(tensors, "graph", num_nodes)
    if not bool((graph.degree() > 0).all()):
        raise ValueError("a node of graph has no edge, not even a self-loop")
    if sizes["B"] not in (0, 1, 1 if given is None else 3):
        raise ValueError(f"{sizes['B']} blocks of features do not fit to the given graph")
    layers = tuple(
        ClosedFormLayer(
            tensors[f"metric/{i}"],
            graph_from_tensors(tensors, f"learned/{i}", num_nodes),
            float(loss),
        )
        for i, loss in enumerate(document["losses"])
    )
    candidates = Candidates(
        x=x,
        unit=float(document["unit"]),
        given=given,
        given_distance=tensors.get("given_distance"),
        **{name: tensors[name] for name in _OF_CANDIDATES},
    )
    return ClosedFormModel(
        options=options,
        candidates=candidates,
        layers=layers,
        graph=graph,
        learned_scale=float(document["learned_scale"]),
        classifier=Classifier(
            graph=tensors["classifier/graph"],
            blocks=tensors["classifier/blocks"],
            landmarks=Landmarks(tensors["classifier/landmarks"], float(document["landmark_gamma"])),
            kernel=tensors["classifier/kernel"],
            bias=tensors["classifier/bias"],
        ),
        evidence=_evidence(tensors, document),
        **{name: tensors[name] for name in _OF_MODEL},
    )


def _evidence(tensors: dict[str, Tensor], document: dict[str, Any]) -> Evidence:
    check_range("is_held_out", tensors["is_held_out"], 0, 2)
    found, alone = document["weights"], document["without_graph"]
    return Evidence(
        weights={part["name"]: float(part["weight"]) for part in found},
        losses={part["name"]: float(part["loss"]) for part in found},
        without_graph=None
        if alone is None
        else (float(alone["loss"]), float(alone["gain"]), float(alone["error"])),
        held_out=tensors["held_out"],
        is_held_out=tensors["is_held_out"].bool(),
    )


def _shapes(document: dict[str, Any], tensors: dict[str, Tensor]) -> Shapes:
    """Return names and shapes of the tensors that the document requires."""
    shapes: Shapes = _OF_CANDIDATES | _OF_MODEL | _OF_CLASSIFIER | _OF_SCALER
    graphs = ["graph"]
    shapes |= features_shapes(tensors)
    if "given/row" in tensors:
        graphs.append("given")
        shapes["given_distance"] = ("E given",)
    if not document["losses"]:
        raise ValueError("it has no layer")
    for index in range(len(document["losses"])):
        shapes[f"metric/{index}"] = ("F", "C")
        graphs.append(f"learned/{index}")
    for name in graphs:
        shapes |= graph_shapes(name)
    return shapes
