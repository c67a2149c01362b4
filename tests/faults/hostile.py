"""Files that somebody has damaged, or made to do harm, and how the readers take them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import scipy.sparse
import torch

from evaluation.npz import load_npz
from jlgcn import JLGCNClassifier
from jlgcn._files import LOCK, hash_of_document
from jlgcn.estimator.table_encoder import TableEncoder
from jlgcn.io.table_file import read_table
from jlgcn.paper import load_clouds
from jlgcn.paper.restricted_pickle import read_numbers
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint

MEGABYTE = 2**20


class Bomb:
    """Leaves a file behind if somebody unpickles it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def make_model(folder: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 4)) + 3 * (np.arange(30) % 2)[:, None]
    y = np.where(np.arange(30) < 8, np.arange(30) % 2, -1)
    JLGCNClassifier(n_layers=1).fit(x, y).save(folder)


def make_checkpoint(folder: Path) -> None:
    save_checkpoint(folder, 1, {"w": torch.arange(300.0)}, {"epoch": 1, "best": {"loss": 0.5}})


def load_model(folder: Path) -> object:
    return JLGCNClassifier.load(folder).predict(np.zeros((1, 4)))


def load_only(folder: Path) -> object:
    found = load_checkpoint(folder)
    if found is None:
        raise ValueError("the checkpoint is damaged")  # as its log has said
    return found


def damage(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with one accident: bits, a hole, a cut, something more, something moved."""
    place = chance.randrange(max(1, len(content)))
    kind = chance.choice(["bit", "byte", "hole", "cut", "more", "moved", "empty"])
    changed = bytearray(content)
    match kind:
        case "bit":
            changed[place] ^= 1 << chance.randrange(8)
        case "byte":
            changed[place] = (changed[place] + chance.randrange(1, 256)) % 256
        case "hole":
            end = min(len(changed), place + chance.randrange(1, 200))
            changed[place:end] = bytes(end - place)
        case "cut":
            del changed[place:]
        case "more":
            changed[place:place] = chance.randbytes(chance.randrange(1, 100))
        case "moved":
            changed[:] = changed[place:] + changed[:place]
        case "empty":
            changed.clear()
    return bytes(changed)


def mutants(template: Path, number: int, seed: int) -> Iterator[Callable[[Path], None]]:
    """Yield ways to damage one file of a folder."""
    chance = random.Random(seed)
    names = sorted(str(p.relative_to(template)) for p in template.rglob("*") if p.is_file())
    names = [name for name in names if Path(name).name not in ("LATEST", LOCK)]
    made = 0
    while made < number:
        name = chance.choice(names)
        content = (template / name).read_bytes()
        changed = damage(content, chance)
        if changed != content:
            made += 1
            yield lambda folder, n=name, c=changed: (folder / n).write_bytes(c)  # type: ignore[misc]


def attempt(read: Callable[[Path], object], path: Path) -> dict[str, Any]:
    """Read a file and say what came of it, how long it took and what memory."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the high-water mark so far
    before = _status("VmRSS")
    start = time.process_time()  # of this process: others may keep the machine busy
    try:
        read(path)
        outcome = "read"
    except (ValueError, OSError) as error:
        outcome = "refused" if str(error) else "refused without a word"
    return {
        "outcome": outcome,
        "seconds": time.process_time() - start,
        "extra bytes": _status("VmHWM") - before,
    }


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def try_mutants(folder: Path, number: int, answer: Path) -> None:
    """Read so many damaged checkpoints and models, and write what came of each."""
    results = []
    for kind, make, read in (
        ("checkpoint", make_checkpoint, load_only),
        ("model", make_model, load_model),
    ):
        template = folder / kind
        make(template)
        for index, change in enumerate(mutants(template, number // 2, seed=7)):
            copy = folder / f"{kind}-{index}"
            shutil.copytree(template, copy)
            change(copy)
            results.append({"kind": kind} | attempt(read, copy))
            shutil.rmtree(copy)
    answer.write_text(json.dumps(results))


def signed(document: dict[str, Any]) -> str:
    """Return the document of a model with the hash that belongs to it."""
    document = {name: value for name, value in document.items() if name != "document_sha256"}
    return json.dumps(document | {"document_sha256": hash_of_document(document)})


def _with_tensors(folder: Path, content: bytes, **changes: object) -> Path:
    """Return a model whose document names other tensors, with hashes that are right."""
    make_model(folder)
    document = json.loads((folder / "model.json").read_text()) | changes
    document["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / f"model-{document['sha256'][:16]}.safetensors").write_bytes(content)
    (folder / "model.json").write_text(signed(document))
    return folder


def _header(header: bytes, length: int | None = None, rest: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + rest


def _tensor(**fields: object) -> bytes:
    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    return json.dumps({"spread": one | fields}).encode()


def hostile_files(folder: Path, trace: Path) -> dict[str, tuple[Callable[[Path], object], Path]]:
    """Write the files, and return who shall read which."""
    import h5py

    bomb = pickle.dumps(Bomb(trace))
    model = {
        "a pickle named safetensors": bomb,
        "a header longer than the file": _header(b"{}", 2**62),
        "a header of 2^63": _header(b"{}", 2**63 + 1),
        "a header that is no JSON": _header(b"\xff" * 64),
        "a tensor outside the file": _header(_tensor(data_offsets=[0, 2**40]), rest=bytes(4)),
        "a shape that overflows": _header(_tensor(shape=[2**62, 2**62]), rest=bytes(4)),
        "a negative shape": _header(_tensor(shape=[-1]), rest=bytes(4)),
        "an unknown type": _header(_tensor(dtype="OBJECT"), rest=bytes(4)),
        "a header of a hundred thousand brackets": _header(b"[" * 100_000),
        "tensors that are NaN": safetensors.torch.save({"spread": torch.full((30, 4), torch.nan)}),
        "no tensors": safetensors.torch.save({}),
    }
    files: dict[str, tuple[Callable[[Path], object], Path]] = {}
    for index, (name, content) in enumerate(model.items()):
        files[name] = (load_model, _with_tensors(folder / f"model-{index}", content))
    for name, text in {
        "a path out of the folder": json.dumps({"schema": 5, "sha256": "../../../etc/passwd"}),
        "a million brackets": "[" * 1_000_000,
        "two million empty lists": "[" + "[]," * 2_000_000 + "[]]",
    }.items():
        path = folder / f"model-{name.replace(' ', '-')}"
        make_model(path)
        document = text if text[0] == "[" else signed(json.loads(text))
        (path / "model.json").write_text(document)
        files[name] = (load_model, path)
    path = folder / "checkpoint"
    make_checkpoint(path)
    (path / "step-00000001" / "tensors.safetensors").write_bytes(bomb)
    (path / "LATEST").write_text("../../../../etc")
    files["a checkpoint of pickles"] = (load_only, path)
    np.savez(folder / "objects.npz", x=np.array([Bomb(trace)], dtype=object))
    files["an NPZ file of objects"] = (load_npz, folder / "objects.npz")
    with zipfile.ZipFile(folder / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f4", "fortran_order": False, "shape": (2**28,)}
        )
        with archive.open("node_features.npy", "w", force_zip64=True) as entry:
            entry.write(header.getvalue())
            for _ in range(1024):
                entry.write(bytes(MEGABYTE))
    files["an NPZ file of a gigabyte of zeros"] = (load_npz, folder / "zeros.npz")
    clouds = folder / "clouds"
    clouds.mkdir()
    with h5py.File(clouds / "a.h5", "w") as file:
        file.create_dataset("data", (10**6, 2048, 3), "f4", chunks=(1, 2048, 3))
        file.create_dataset("label", (10**6, 1), "i8", chunks=(1000, 1))
    for part in ("train", "test"):
        (clouds / f"{part}_files.txt").write_text("a.h5\n")
    files["an HDF5 file of 25 GB that are not there"] = (load_clouds, clouds)
    (folder / "ind.cora.x").write_bytes(bomb)
    files["a Planetoid file that runs something"] = (
        lambda p: read_numbers(p.read_bytes()),
        folder / "ind.cora.x",
    )
    (folder / "table.parquet").write_bytes(b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1")
    files["a Parquet file of two gigabytes of footer"] = (read_table, folder / "table.parquet")
    return files | bombs(folder)


def bombs(folder: Path) -> dict[str, tuple[Callable[[Path], object], Path]]:
    """Write small files that unpack to gigabytes, and return who shall read which."""
    import h5py
    import pyarrow
    import pyarrow.csv
    from pyarrow import parquet

    files: dict[str, tuple[Callable[[Path], object], Path]] = {}
    path = folder / "text.parquet"
    write_long_text(path)
    files["a Parquet file of 3.5 GB of text as a feature"] = (lambda p: read_table(p).x, path)
    files["a Parquet file of 3.5 GB of text as ids"] = (
        lambda p: read_table(p, id_column="text"),
        path,
    )
    path = Path(__file__).parents[1] / "fuzz/corpus/many_rows.parquet"
    files["a Parquet file of 300 million rows"] = (read_table, path)
    path = folder / "page.parquet"
    column = pyarrow.table({"text": ["x" * 2**28]})
    parquet.write_table(column, path, compression="zstd", use_dictionary=False)
    files["a Parquet file of a page of 256 MB"] = (read_table, path)
    del column
    digits = b"1," + b"0" * (MEGABYTE // 4) + b"\n"
    for name, pack, block in (
        ("rows.csv.gz", gzip.compress, b"1,2\n" * (MEGABYTE // 4)),
        ("digits.csv.gz", gzip.compress, digits),
        ("digits.csv.bz2", bz2.compress, digits),
    ):
        packed = pack(b"a,b\n") + pack(block) * (600 * MEGABYTE // len(block))
        (folder / name).write_bytes(packed)
        files[f"600 MB in {name}"] = (read_table, folder / name)
    path = folder / "shape.npz"
    arrays = {
        "edge_index": np.array([[0], [1]]),
        "y": np.array([0, 1, 0, 1]),
        "x_indptr": np.array([0, 1, 1, 1, 1]),
        "x_indices": np.array([0]),
        "x_data": np.array([1.0]),
        "x_shape": np.array([4, 6 * 10**8]),
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]
    files["an NPZ file of 4 rows of 600 million features"] = (load_npz, path)
    path = folder / "narrow.npz"
    arrays |= {"edge_index": np.zeros((2, 5 * 10**7), np.int8), "x_shape": np.array([4, 1])}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    files["an NPZ file of 50 million edges of a byte"] = (load_npz, path)
    path = folder / "packed"
    path.mkdir()
    with h5py.File(path / "a.h5", "w") as file:
        data = file.create_dataset("data", (4, 8, 3), "f4", chunks=(4, 8, 3), compression="gzip")
        packer = zlib.compressobj()
        first, again = (
            packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
        )
        data.id.write_direct_chunk((0, 0, 0), first + 599 * again)
        file["label"] = np.zeros((4, 1), np.int64)
    for part in ("train", "test"):
        (path / f"{part}_files.txt").write_text("a.h5\n")
    files["an HDF5 file of a chunk of 600 MB"] = (load_clouds, path)
    return files


def write_long_text(path: Path) -> None:
    """Write a Parquet file of 3,500 rows that all have one text, a million characters long."""
    import pyarrow
    import pyarrow.csv
    from pyarrow import parquet

    text = pyarrow.DictionaryArray.from_arrays([0] * 3500, ["x" * 10**6])
    table = pyarrow.table({"text": text, "a": [0.5] * 3500})
    parquet.write_table(table, path, compression="zstd", store_schema=False)


def encoded(path: Path) -> object:
    """Encode a raw table, whose column of numbers is replaced by one that differs."""
    frame = read_table(path).frame
    return TableEncoder().fit_transform(frame.set_column(1, "a", [np.arange(3500) / 7]))


def try_large(folder: Path, answer: Path) -> None:
    """Do what may be done although it once took gigabytes, and write what came of it."""
    write_long_text(folder / "text.parquet")
    x = scipy.sparse.random_array(
        (40, 10**6), density=1e-4, format="csr", dtype=np.float32, random_state=0
    )
    y = np.where(np.arange(40) < 20, np.arange(40) % 2, -1)
    JLGCNClassifier().fit(x[:, :2000], y)  # so that all code is there
    results = {
        "label": attempt(lambda p: read_table(p, label_column="text"), folder / "text.parquet"),
        "raw": attempt(encoded, folder / "text.parquet"),
        "fit": attempt(lambda p: JLGCNClassifier().fit(x, y), folder),
    }
    answer.write_text(json.dumps(results))


def try_hostile(folder: Path, answer: Path) -> None:
    """Read every hostile file, and write what came of each."""
    trace = folder / "code-was-run"
    results = {}
    for name, (read, path) in hostile_files(folder, trace).items():
        size = (
            sum(p.stat().st_size for p in path.rglob("*")) if path.is_dir() else path.stat().st_size
        )
        results[name] = attempt(read, path) | {"bytes": size}
    answer.write_text(json.dumps({"files": results, "code was run": trace.exists()}))
