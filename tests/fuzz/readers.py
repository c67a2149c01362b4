"""Every reader of files, fed with damaged and invented ones: a ValueError, or what it says.

python -m tests.fuzz.readers --minutes 15 --json results/reliability/fuzz.json

Inputs are those of the corpus, changed by accidents (bits, holes, cuts, pieces of others). Anything
but a refusal by ValueError or OSError is a crash and is kept; so is an input that takes more
than five seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CORPUS = Path(__file__).parent / "corpus"
REFUSALS = (ValueError, OSError)
SLOW_SECONDS = 5.0


def _table(path: Path) -> object:
    from jlgcn.estimator.table_encoder import TableEncoder
    from jlgcn.io.table_file import column_names, read_edges, read_table

    column_names(path)
    with contextlib.suppress(*REFUSALS):
        read_edges(path, ["a", "b"])
    found = read_table(path)
    with contextlib.suppress(*REFUSALS):
        TableEncoder().fit_transform(found.frame)
    return found.x


def _clouds(path: Path) -> object:
    from jlgcn.paper import load_clouds

    folder = path.parent / "clouds"
    folder.mkdir(exist_ok=True)
    (folder / "a.h5").write_bytes(path.read_bytes())
    for part in ("train", "test"):
        (folder / f"{part}_files.txt").write_text("a.h5\n")
    return load_clouds(folder)


def _npz(path: Path) -> object:
    from evaluation.npz import load_npz

    return load_npz(path)


def _planetoid(path: Path) -> object:
    from jlgcn.paper.restricted_pickle import read_numbers

    return read_numbers(path.read_bytes())


def _model(path: Path) -> object:
    """Read a model whose two files are one input, parted by a line."""
    from jlgcn import JLGCNClassifier

    document, _, tensors = path.read_bytes().partition(b"\n----\n")
    folder = path.parent / "model"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "model.json").write_bytes(document)
    try:
        name = str(json.loads(document)["sha256"])[:16]
        (folder / f"model-{name}.safetensors").write_bytes(tensors)
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        pass
    return JLGCNClassifier.load(folder)


def _checkpoint(path: Path) -> object:
    from jlgcn.training.checkpoint import load_checkpoint

    document, _, tensors = path.read_bytes().partition(b"\n----\n")
    folder = path.parent / "checkpoints" / "step-00000001"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_bytes(document)
    (folder / "tensors.safetensors").write_bytes(tensors)
    found = load_checkpoint(folder.parent)
    if found is None:
        raise ValueError("the checkpoint is damaged, as its log says")
    return found


def _setting(path: Path) -> object:
    """Set fields of an experiment from text, a line each, as --set does."""
    from jlgcn.paper import NodeExperiment
    from jlgcn.paper.experiment import with_settings

    lines = path.read_text(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines[:20])
    return with_settings(NodeExperiment(), {name: value for name, _, value in pairs})


#: What is read, by the ending of a file of the corpus.
TARGETS: dict[str, Callable[[Path], object]] = {
    "csv": _table,
    "parquet": _table,
    "npz": _npz,
    "h5": _clouds,
    "planetoid": _planetoid,
    "model": _model,
    "checkpoint": _checkpoint,
    "set": _setting,
}


def changed(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return an input with one to four accidents."""
    data = bytearray(content)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data) + 1)
        end = min(len(data), place + chance.choice([1, 2, 4, 8, 64]))
        match chance.randrange(7):
            case 0 if place < len(data):
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place:end] = chance.randbytes(end - place)
            case 2:
                del data[place:end]
            case 3:
                data[place:place] = chance.choice([b"\xff" * 8, b"\0" * 8, b"-1", b"nan", b"1e999"])
            case 4:
                start = chance.randrange(len(other) + 1)
                data[place:end] = other[start : start + chance.randrange(1, 64)]
            case 5:
                data[place:place] = data[place:end] * chance.randrange(1, 9)
            case 6:
                del data[place:]
    return bytes(data)


def read(kind: str, content: bytes, folder: Path) -> tuple[str, float]:
    """Give an input to its reader; return "read", "refused" or the trace of a crash."""
    path = folder / f"input.{kind}"
    path.write_bytes(content)
    start = time.process_time()  # others may keep the machine busy
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            TARGETS[kind](path)
        outcome = "read"
    except REFUSALS as error:
        outcome = "refused" if str(error) else "refused without a word"
    except Exception:
        outcome = traceback.format_exc()
    return outcome, time.process_time() - start


def inputs() -> dict[str, list[bytes]]:
    """Return the corpus, by kind."""
    found: dict[str, list[bytes]] = {kind: [] for kind in TARGETS}
    for path in sorted(CORPUS.iterdir()):
        found[path.suffix[1:]].append(path.read_bytes())
    return found


def fuzz(
    seconds: float, seed: int, folder: Path, crashes: Path | None, kinds: list[str]
) -> dict[str, Any]:
    """Feed readers in turn until the time is over, and count."""
    chance = random.Random(seed)
    corpus = inputs()
    counts = {
        kind: {"inputs": 0, "read": 0, "refused": 0, "crashes": 0, "slow": 0} for kind in kinds
    }
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        kind = kinds[sum(count["inputs"] for count in counts.values()) % len(kinds)]
        content = changed(chance.choice(corpus[kind]), chance.choice(corpus[kind]), chance)
        outcome, taken = read(kind, content, folder)
        count = counts[kind]
        count["inputs"] += 1
        count["slow"] += taken > SLOW_SECONDS
        if outcome in ("read", "refused"):
            count[outcome] += 1
        else:
            count["crashes"] += 1
            if crashes is not None:
                crashes.mkdir(parents=True, exist_ok=True)
                name = f"{kind}-{seed}-{count['inputs']}"
                (crashes / f"{name}.{kind}").write_bytes(content)
                (crashes / f"{name}.txt").write_text(outcome)
    return counts


def main() -> None:
    """Fuzz for some minutes and write the counts."""
    import logging
    import tempfile

    logging.disable()  # readers tell what is damaged, and here that is everything
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--crashes", type=Path, help="Where to keep inputs that crash a reader.")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = fuzz(
            60 * arguments.minutes,
            arguments.seed,
            Path(folder),
            arguments.crashes,
            arguments.kinds,
        )
    document = {"minutes": arguments.minutes, "seed": arguments.seed, "counts": counts}
    text = json.dumps(document, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
