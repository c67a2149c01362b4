"""Models, networks and checkpoints, changed and signed again, so that every hash is right.

python -m tests.fuzz.signed --minutes 20 --json results/reliability/fuzz_signed.json

The readers of :mod:`tests.fuzz.readers` rarely get past a hash. Here the document is changed as
JSON, the tensors as bytes or as tensors, and both get the hashes that belong to them. What is read
is used: predictions, explanations and suggestions of a model, logits of a
network, the next epoch of a checkpoint. A
ValueError or OSError refuses; anything else is a crash, and so are probabilities that are NaN.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import random
import shutil
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from jlgcn import JLGCNClassifier
from jlgcn._files import hash_of_document, sha256_of
from jlgcn.nn import JLGCN
from jlgcn.training.checkpoint import load_checkpoint
from jlgcn.training.environment import versions
from tests.faults.hostile import signed
from tests.fuzz.readers import CORPUS, REFUSALS, SLOW_SECONDS, changed
from tests.training.small import train_small

NUMBERS = (0, 1, -1, 2, 3, 7, 0.5, 1e-320, 1e-30, 1e30, 1e308, -1e308, 2**31, 2**63, 10**30)
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    float("nan"),
    float("inf"),
    True,
    None,
    "",
    "1",
    "<b>",
    "\ud800",
    [],
    {},
    [[]],
)
Input = tuple[dict[str, Any], bytes]


def corpus(kind: str, folder: Path) -> list[Input]:
    """Return documents and tensors to change."""
    if kind == "model":
        files = [path.read_bytes().partition(b"\n----\n") for path in CORPUS.glob("*.model")]
        return [(json.loads(document), tensors) for document, _, tensors in files]
    if kind == "network":
        JLGCN(3, 4, 2, rank=2).save(folder)
        (tensor_file,) = folder.glob("*.safetensors")
        return [(json.loads((folder / "model.json").read_text()), tensor_file.read_bytes())]
    train_small(0, 3, folder)
    (state,) = folder.glob("step-00000002/state.json")
    return [(json.loads(state.read_text()), (state.parent / "tensors.safetensors").read_bytes())]


def change_document(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a document with one to three values replaced, removed, added or exchanged."""
    document = copy.deepcopy(document)
    for _ in range(chance.randrange(1, 4)):
        place: Any = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
                place = place[key]
                continue
            match chance.randrange(5):
                case 0:
                    del place[key]
                case 1 if isinstance(place, dict):
                    place[f"{key}_"] = place[key]
                case 1:
                    place.append(place[key])
                case 2:
                    place[key] = place[chance.choice(keys)]
                case _:
                    place[key] = chance.choice(VALUES)
            break
    return document


def change_tensors(content: bytes, chance: random.Random) -> bytes:
    """Return tensors of which one has another number, shape, type or name."""
    if chance.random() < 0.2:
        return changed(content, content, chance)
    tensors = safetensors.torch.load(content)
    name = chance.choice(sorted(tensors))
    tensor = tensors[name].clone()
    match chance.randrange(6):
        case 0:
            del tensors[name]
            tensors[chance.choice([f"{name}_", *sorted(tensors)])] = tensor
            return bytes(safetensors.torch.save(tensors))
        case 1:
            tensor = tensor.to(chance.choice([torch.float16, torch.int32, torch.float64]))
        case 2:
            tensor = tensor[: chance.randrange(len(tensor) + 1)] if tensor.dim() else tensor[None]
        case 3:
            tensor = tensor.mT if tensor.dim() > 1 else tensor.flip(0)
        case _ if tensor.numel():
            flat = tensor.view(-1)
            for _ in range(chance.randrange(1, 4)):
                value: float
                if not tensor.is_floating_point():
                    value = chance.choice([-2, -1, 0, 1, 5, 250, 2**40, -(2**63), 2**63 - 1])
                    value = value if tensor.dtype == torch.int64 else value % 256
                    flat[chance.randrange(len(flat))] = value
                else:  # by way of float64, where a number too large becomes infinite
                    value = chance.choice([*NUMBERS[:12], float("nan"), float("inf")])
                    flat[chance.randrange(len(flat))] = torch.tensor(value, dtype=torch.float64).to(
                        flat.dtype
                    )
    return bytes(safetensors.torch.save(tensors | {name: tensor.contiguous().clone()}))


def change(source: Input, chance: random.Random) -> Input:
    """Return an input with a change in its document, in its tensors or in both."""
    document, content = source
    which = chance.randrange(5)
    if which != 0:
        content = change_tensors(content, chance)
    if which in (0, 1):
        document = change_document(document, chance)
    return document, content


def use_model(folder: Path, document: dict[str, Any], content: bytes) -> None:
    """Read a signed model, and do with it all that a person might."""
    document["sha256"] = sha256_of(content)
    (folder / "model.json").write_text(signed(document))
    (folder / f"model-{document['sha256'][:16]}.safetensors").write_bytes(content)
    model = JLGCNClassifier.load(folder)
    assert np.isfinite(model.label_distributions_).all(), "probabilities of rows are NaN"
    rows = np.zeros((2, model.n_features_in_))
    rows[1] = 1
    for step in (
        lambda: model.predict_proba(rows),
        lambda: model.predict_proba(rows, np.array([[0, 1], [0, 0]])),
        lambda: model.explain_node(0),
        lambda: model.explain_edge(0, 1),
        lambda: model.suggest_labels(2),
        model.important_features,
        lambda: model.edges(top_k=2),
    ):
        try:
            found = step()
        except REFUSALS:
            continue
        if isinstance(found, np.ndarray):
            assert np.isfinite(found).all(), "probabilities of new rows are NaN"


def use_network(folder: Path, document: dict[str, Any], content: bytes) -> None:
    """Read a signed network and compute logits."""
    document["sha256"] = sha256_of(content)
    (folder / "model.json").write_text(signed(document))
    (folder / f"model-{document['sha256'][:16]}.safetensors").write_bytes(content)
    model = JLGCN.load(folder)
    x = torch.eye(20, 3)
    assert model.calibrate(x)(x).logits.shape == (20, model.out_channels)


def use_checkpoint(folder: Path, document: dict[str, Any], content: bytes) -> None:
    """Read a signed checkpoint and train another epoch from it."""
    document.pop("sha256", None)
    if isinstance(document.get("files"), dict):
        document["files"]["tensors.safetensors"] = sha256_of(content)
    (folder / "step-00000002").mkdir()
    (folder / "step-00000002" / "tensors.safetensors").write_bytes(content)
    text = json.dumps(document | {"sha256": hash_of_document(document)})
    (folder / "step-00000002" / "state.json").write_text(text)
    if load_checkpoint(folder) is None:
        raise ValueError("damaged, as the log says")
    try:
        _, result = train_small(0, 3, folder)
    except FloatingPointError as error:  # parameters so large that their loss is not finite
        raise ValueError(str(error)) from None
    assert np.isfinite([result.val_accuracy, result.test_accuracy]).all(), "accuracy is NaN"


USES: dict[str, Callable[[Path, dict[str, Any], bytes], None]] = {
    "model": use_model,
    "network": use_network,
    "checkpoint": use_checkpoint,
}


def fuzz(kind: str, seconds: float, seed: int, crashes: Path | None = None) -> dict[str, int]:
    """Change and read until the time is over; return how many inputs were read, refused, …."""
    chance = random.Random(seed)
    count = {"inputs": 0, "read": 0, "refused": 0, "crashes": 0, "slow": 0}
    count["stopped by a hash"] = 0  # behind which nothing would have been tried
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as temporary:
        sources = corpus(kind, Path(temporary) / "source")
        folder = Path(temporary) / "input"
        while time.monotonic() < deadline:
            document, content = change(chance.choice(sources), chance)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            started = time.process_time()
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    USES[kind](folder, document, content)
                outcome = "read"
            except REFUSALS as error:
                outcome = "refused" if str(error) else "crashes"
                count["stopped by a hash"] += "have its" in str(error) or "the hash" in str(error)
            except Exception:
                outcome = "crashes"
                if crashes is not None:
                    crashes.mkdir(parents=True, exist_ok=True)
                    name = f"{kind}-{seed}-{count['inputs']}"
                    (crashes / f"{name}.txt").write_text(traceback.format_exc())
                    shutil.copytree(folder, crashes / name)
            count[outcome] += 1
            count["inputs"] += 1
            count["slow"] += time.process_time() - started > SLOW_SECONDS
    return count


def main() -> None:
    """Fuzz for some minutes and write the counts."""
    logging.disable()
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="for all kinds together")
    parser.add_argument("--kinds", nargs="+", default=list(USES), choices=list(USES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--crashes", type=Path, help="where to keep inputs that crash a reader")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes / len(arguments.kinds)
    counts = {
        kind: fuzz(kind, seconds, arguments.seed, arguments.crashes) for kind in arguments.kinds
    }
    document = {
        "settings": {"seed": arguments.seed},
        "results": {"minutes": arguments.minutes, "counts": counts},
        "environment": versions(),
    }
    text = json.dumps(document, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
