"""The closed form on an object store and on machines of a Ray cluster.

    python -m benchmarks.engine_cluster bytes --out results/scale/engine_bytes.json
    python -m benchmarks.engine_cluster machines --out results/scale/engine_machines.json

"bytes": planted rows on disk and on an S3 server on loopback (moto). Predictions of fit, predict
and update are compared, and bytes that pass through the loopback device are counted by stage,
beside what `jlgcn.engine.plan` expects. "machines": one and two raylets of one core each on
loopback, in turn, and the seconds of each stage.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from benchmarks.engine_growth import write
from benchmarks.measure import write_json
from jlgcn.closed_form import ClosedFormOptions
from jlgcn.engine import ShardedModel
from jlgcn.engine.plan import STAGES, Size

OPTIONS = ClosedFormOptions(n_candidates=20, n_neighbors=20)


class StageLog(logging.Handler):
    """Adds up what a counter and the clock say, by stage."""

    def __init__(self, counter: Any = lambda: 0) -> None:  # noqa: ANN401
        super().__init__(logging.INFO)
        self.amounts: defaultdict[str, int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._counter, self._before = counter, counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Take the end of a stage."""
        arguments: Any = record.args
        stage, _, _, seconds = arguments
        now = self._counter()
        self.amounts[stage] += now - self._before
        self.seconds[stage] += seconds
        self._before = now


@contextmanager
def logged(handler: StageLog) -> Iterator[StageLog]:
    """Let a handler see the stages of an engine."""
    logger = logging.getLogger("jlgcn.engine.tasks")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def loopback_bytes() -> int:
    """Return the bytes that this machine has sent to itself."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


def count_bytes(num_rows: int) -> dict[str, Any]:
    """Fit, predict and update on disk and on S3."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    folder = Path(tempfile.mkdtemp())
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    files = fs.S3FileSystem(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
    files.create_dir("bucket")
    write(folder / "all.parquet", num_rows)
    shard_rows = -(-num_rows // 4)
    # A shard reads the whole row groups that it has a part of.
    rows = pq.read_table(folder / "all.parquet")
    pq.write_table(rows, folder / "items.parquet", row_group_size=shard_rows)
    write(folder / "new.parquet", num_rows // 10, 10**6)
    for name in ("items", "new"):
        with files.open_output_stream(f"bucket/{name}.parquet") as stream:
            stream.write((folder / f"{name}.parquet").read_bytes())
    found: list[list[pa.Table]] = []
    try:
        for root in (str(folder), "s3://bucket"):
            with logged(StageLog(loopback_bytes)) as log:
                model = ShardedModel.fit(
                    f"{root}/items.parquet",
                    label="kind",
                    out=f"{root}/model",
                    options=OPTIONS,
                    num_workers=1,
                    shard_rows=shard_rows,
                )
            place = root.removeprefix("s3://")
            where = files if root.startswith("s3") else None
            tables = [pq.read_table(f"{place}/model/predictions", filesystem=where)]
            model.predict(f"{root}/new.parquet", f"{root}/out", num_workers=1)
            tables.append(pq.read_table(f"{place}/out", filesystem=where))
            model.update(f"{root}/new.parquet", num_workers=1)
            tables.append(pq.read_table(f"{place}/model/predictions", filesystem=where))
            found.append(tables)
    finally:
        server.stop()
        shutil.rmtree(folder)
    size = Size(num_rows=num_rows, num_features=64, options=OPTIONS)
    expected = {kind: sum(parts) for kind, parts in size.traffic().items()}
    counted = {kind: sum(log.amounts[s] for s in stages) for kind, stages in STAGES.items()}
    return {
        "same_result": {
            what: mine.equals(theirs)
            for what, mine, theirs in zip(("fit", "predict", "update"), *found, strict=True)
        },
        "stages": {
            kind: {"counted_bytes": counted[kind], "formula_bytes": expected[kind]}
            for kind in STAGES
        },
        "other_bytes": sum(log.amounts.values()) - sum(counted.values()),
    }


@contextmanager
def cluster(num_machines: int) -> Iterator[str]:
    """Start raylets of one core each, with folders and object stores of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, started = f"127.0.0.1:{port}", []
    for number in range(num_machines):
        folder = tempfile.mkdtemp(dir="/tmp")
        role = [f"--address={address}"] if number else ["--head", f"--port={port}"]
        common = ["--num-cpus=1", "--object-store-memory=100000000", "--memory=8000000000"]
        here = ["--node-ip-address=127.0.0.1", f"--temp-dir={folder}", "--block"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["ray", "start", *role, *common, *here]
        process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload] # noqa: S603
        started.append((process, folder))
        time.sleep(15)
    try:
        yield address
    finally:
        for process, folder in reversed(started):
            process.terminate()
            process.wait(60)
            shutil.rmtree(folder, ignore_errors=True)


def compare_machines(num_rows: int, repeats: int) -> dict[str, Any]:
    """Fit on one machine and on two, in turn."""
    seconds: dict[str, list[dict[str, float]]] = {"1": [], "2": []}
    folder = Path(tempfile.mkdtemp())
    write(folder / "items.parquet", num_rows)
    try:
        for _ in range(repeats):
            for count, found in seconds.items():
                with cluster(int(count)) as address, logged(StageLog()) as log:
                    ShardedModel.fit(
                        str(folder / "items.parquet"),
                        label="kind",
                        out=str(folder / "model"),
                        options=OPTIONS,
                        shard_rows=-(-num_rows // 8),
                        engine="ray",
                        address=address,
                    )
                shutil.rmtree(folder / "model")
                found.append({s: round(t, 2) for s, t in log.seconds.items()})
    finally:
        shutil.rmtree(folder)
    return {"seconds_by_stage": seconds}


def main() -> None:
    """Parse the command line, measure, and write a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["bytes", "machines"])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    settings: dict[str, object] = {"rows": args.rows, "columns": 64}
    if args.what == "bytes":
        write_json(args.out, settings, count_bytes(args.rows))
    else:
        found = compare_machines(args.rows, args.repeats)
        write_json(args.out, settings | {"repeats": args.repeats}, found)


if __name__ == "__main__":
    main()
