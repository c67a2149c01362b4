"""A fitted network as tensors and JSON, and the checks of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from jlgcn._schema import Check, real, record, variant, whole
from jlgcn._validation import check_finite
from jlgcn.estimator.network_model import NetworkModel
from jlgcn.estimator.solvers import FittedModel
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
from jlgcn.nn import JLGCN, DecoupledJLGCN
from jlgcn.nn.persistence import SavedModule, arguments_of, restored

_CLASSES: dict[str, type[JLGCN | DecoupledJLGCN]] = {
    kind.__name__: kind for kind in (JLGCN, DecoupledJLGCN)
}


def _arguments_of_class(kind: type[SavedModule]) -> Callable[[], dict[str, Check]]:
    return lambda: {"arguments": record(kind._ARGUMENTS)}


#: Fields of a network besides its tensors.
NETWORK_FIELDS: dict[str, Check] = {
    "network": variant(
        "class", {name: _arguments_of_class(kind) for name, kind in _CLASSES.items()}
    ),
    "unit": real(0, 1e300, above=True),
    "best_epoch": whole(0, 10**9),
}

# Shapes of tensors. A letter is the same number everywhere: N rows, F features, H hidden features,
# C classes, M labels, V validation labels, T epochs.
_OF_MODEL: Shapes = {
    "logits": ("N", "C"),
    "train": ("M",),
    "labels": ("M",),
    "validation": ("V",),
}
_OF_SCALER: Shapes = {"scaler/shift": ("F",), "scaler/scale": ("F",)}
_OF_TRAINING: Shapes = {"curve": ("T", "curve")}
_INTEGERS = ("train", "labels", "validation")
_PREFIX = "network/"


def network_to_tensors(model: FittedModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a fitted network, and its other fields as JSON."""
    assert isinstance(model, NetworkModel)
    network = {_PREFIX + name: t for name, t in model.network.state_dict().items()}
    tensors = {name: getattr(model, name) for name in (*_OF_MODEL, *_OF_TRAINING)}
    tensors |= network | features_to_tensors(model.x)
    tensors |= {f"hidden/{index}": hidden for index, hidden in enumerate(model.hidden)}
    if model.given is not None:
        tensors |= graph_to_tensors("given", model.given)
    document = {
        "network": {
            "class": type(model.network).__name__,
            "arguments": arguments_of(model.network),
        },
        "unit": model.unit,
        "best_epoch": model.best_epoch,
    }
    return tensors, document


def network_from_tensors(tensors: dict[str, Tensor], document: dict[str, Any]) -> NetworkModel:
    """Return a fitted network, on the device of its tensors, after validating all of them."""
    arguments = document["network"]["arguments"]
    num_layers = arguments.get("num_layers", 1)
    names = [name for name in tensors if name.startswith(_PREFIX)]
    shapes: Shapes = _OF_MODEL | features_shapes(tensors)
    shapes |= {f"hidden/{index}": ("N", "H") for index in range(num_layers - 1)}
    if "given/row" in tensors:
        shapes |= graph_shapes("given")
    check_names(tensors, [*names, *shapes, *_OF_SCALER, *_OF_TRAINING])
    sizes = check_shapes(tensors, shapes, torch.float32, integers=_INTEGERS)
    scaler_dtype = check_floating(tensors["scaler/scale"], "scaler/scale")
    sizes = check_shapes(tensors, _OF_SCALER, scaler_dtype, sizes=sizes)
    sizes = check_shapes(tensors, _OF_TRAINING, torch.float64, sizes=sizes)
    _check_sizes(sizes, document)
    num_rows, num_features = sizes["N"], sizes["F"]
    for name in ("train", "validation"):
        check_range(name, tensors[name], 0, num_rows)
    check_range("labels", tensors["labels"], 0, sizes["C"])
    if not bool(torch.isin(tensors["validation"], tensors["train"]).all()):
        raise ValueError("a row of validation has no label")
    # Copies, since tensors of safetensors share the memory of the file's content.
    state = {name[len(_PREFIX) :]: tensors[name].clone() for name in names}
    network = restored(_CLASSES[document["network"]["class"]], state, arguments)
    learners = network.learners if isinstance(network, JLGCN) else []
    if not all(learner.is_calibrated for learner in learners):
        raise ValueError("a metric of the network is not calibrated")
    dtype = next(network.parameters()).dtype
    if dtype != torch.float32:
        raise ValueError(f"parameters of the network must be torch.float32, but they are {dtype}")
    check_finite(tensors["scaler/scale"], "scaler/scale", "save the model again")
    return NetworkModel(
        network=network,
        x=features_from_tensors(tensors, num_rows, num_features),
        unit=float(document["unit"]),
        given=graph_from_tensors(tensors, "given", num_rows) if "given/row" in tensors else None,
        hidden=tuple(tensors[f"hidden/{index}"] for index in range(num_layers - 1)),
        best_epoch=document["best_epoch"],
        **{name: tensors[name] for name in (*_OF_MODEL, *_OF_TRAINING)},
    )


def _check_sizes(sizes: dict[str, int], document: dict[str, Any]) -> None:
    """Raise unless the sizes of tensors are those of the network."""
    arguments = document["network"]["arguments"]
    num_layers = arguments.get("num_layers", 1)
    wanted = {"F": arguments["in_channels"], "C": arguments["out_channels"]}
    wanted |= {"H": arguments["hidden_channels"]} if num_layers > 1 else {}
    wanted |= {"curve": 3}
    for letter, size in wanted.items():
        if sizes[letter] != size:
            raise ValueError(
                f"the network has {size} where its tensors have {sizes[letter]} ({letter})"
            )
    if arguments.get("num_learned", 1) != num_layers:
        raise ValueError("every layer of the network must learn a graph")
    if not document["best_epoch"] < sizes["T"]:
        raise ValueError(f"best_epoch must be below {sizes['T']}, the number of epochs")
