"""Files of shards on any filesystem of pyarrow: written whole, never changed, mapped to be read."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
from safetensors import safe_open
from torch import Tensor

from jlgcn._files import locked, remove_leftovers, replacing, sha256_of
from jlgcn._optional import require
from jlgcn.closed_form.shards import Output

_DATA, _SUMMARY = ".data", ".done"
_TASKS = (_DATA, _SUMMARY, ".parquet")

# Final names of files whose writers, if they were killed, left a temporary one.
_WRITTEN = re.compile(r".+\.(data|done|parquet|json)")

# Seconds for which another writer of a model is waited for.
_LOCK_SECONDS = 2.0

# Bytes of an object that are in memory while it is fetched.
_BLOCK_BYTES = 2**24

# Files that a process has mapped at a time.
_MAX_MAPPED = 4096


def filesystem(uri: str) -> tuple[Any, str]:
    """Return the pyarrow filesystem of a path or URI, and the path in it.

    Args:
        uri: a path, or ``s3://bucket/folder``, ``gs://…``, ``hdfs://…``. An S3 server other than
            Amazon's is named by ``AWS_ENDPOINT_URL``, or in the URI by ``?endpoint_override=…``.
    """
    fs = require("pyarrow.fs", "scale", f"reading {uri}")
    if "://" in uri:
        found: tuple[Any, str] = fs.FileSystem.from_uri(uri)
        return found
    return fs.LocalFileSystem(), os.path.abspath(uri)


def below(uri: str, name: str) -> str:
    """Return the URI of a file or folder in a folder: its name comes before ``?``.

    Example:
        >>> below("s3://bucket/model?scheme=http", "parts")
        's3://bucket/model/parts?scheme=http'
    """
    place, mark, options = uri.partition("?") if "://" in uri else (uri, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def absolute(uri: str) -> str:
    """Return a URI as it is, and the absolute path of a relative one, for workers elsewhere."""
    return uri if "://" in uri else os.path.abspath(uri)


@contextmanager
def sole_writer(uri: str) -> Iterator[None]:
    """Hold the lock of a model's folder on disk: two writers would delete each other's files.

    Object stores have no locks; see :func:`jlgcn.engine.document.write_document`.

    Raises:
        TimeoutError: another fit or update holds it.
    """
    files, path = filesystem(uri)
    if files.type_name != "local":
        yield
        return
    Path(path).mkdir(parents=True, exist_ok=True)
    with locked(Path(path), seconds=_LOCK_SECONDS):
        yield


class Store:
    """Files in a folder, on disk or in an object store, each written whole and never changed.

    A task's file is named by the hash of its inputs, so whoever finds it need not run the task.
    Files of an object store are fetched once for each machine, to the user's cache folder
    (``XDG_CACHE_HOME``), and mapped from there.

    Args:
        uri: the folder, which is written to.
        others: folders of further files, which are read only.
    """

    def __init__(self, uri: str, *others: str) -> None:
        self.uris = (uri, *others)
        self._places = [filesystem(each) for each in self.uris]
        self._files, self._root = self._places[0]
        self.is_local = self._files.type_name == "local"

    def has(self, name: str, suffix: str = _SUMMARY) -> bool:
        """Whether a task's file is there, complete."""
        return self._exists(self._files, f"{self._root}/{name}{suffix}")

    def put(self, name: str, output: Output) -> None:
        """Write what a stage returned; its summary comes last, and says that all is there."""
        if output.write is not None:
            with self.writing(f"{name}{output.suffix or _DATA}") as file:
                output.write(file)
        elif output.tensors:
            self._put_tensors(f"{name}{_DATA}", output.tensors)
        if not output.suffix:
            self._put_tensors(f"{name}{_SUMMARY}", output.summary)

    def keep(self, tensors: Mapping[str, Tensor]) -> str:
        """Write tensors to a file that is named by their hash, and return its name."""
        content = _bytes_of(tensors)
        name = f"kept-{sha256_of(content)[:24]}"
        if not self.has(name, _DATA):
            with self.writing(f"{name}{_DATA}") as file:
                file.write(content)
        return name

    def summary(self, name: str) -> Mapping[str, Tensor]:
        """Return the summary of a task."""
        found: dict[str, Tensor] = safetensors.torch.load(self.read(f"{name}{_SUMMARY}"))
        return found

    def read(self, file_name: str) -> bytes:
        """Return the content of a small file."""
        with self._files.open_input_file(f"{self._root}/{file_name}") as file:
            content: bytes = file.read()
            return content

    @contextmanager
    def writing(self, file_name: str) -> Iterator[BinaryIO]:
        """Write a file that is there as a whole or not at all."""
        target = f"{self._root}/{file_name}"
        if self.is_local:
            Path(self._root).mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                yield file
            return
        # No stream of pyarrow can abort: to close one, even by its destructor, completes the
        # upload of half a file. So the file is whole before its upload begins, and where that
        # fails, the object is not completed and an older one stays.
        fs = require("pyarrow.fs", "scale", f"writing {target}")
        folder = self._cache(self.uris[0])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            whole = f"{place}/{file_name}"
            with replacing(whole) as file:
                yield file
            places = {"source_filesystem": fs.LocalFileSystem()}
            fs.copy_files(whole, target, **places, destination_filesystem=self._files)

    def keep_only(self, needed: set[str]) -> None:
        """Delete the files of all other tasks, which nobody needs any more."""
        self.delete(set(self.names()) - needed)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the files of some tasks."""
        for name in names:
            for file_name in (f"{name}{suffix}" for suffix in _TASKS):
                if self._exists(self._files, f"{self._root}/{file_name}"):
                    self._files.delete_file(f"{self._root}/{file_name}")
                (self._cache(self.uris[0]) / file_name).unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Delete temporary files of writers that were killed; nobody else may write meanwhile."""
        if self.is_local:
            remove_leftovers(Path(self._root), _WRITTEN)

    def names(self) -> list[str]:
        """Return the names of all finished tasks, and of what was kept."""
        arrow = require("pyarrow.fs", "scale", "listing files")
        found = self._files.get_file_info(arrow.FileSelector(self._root, allow_not_found=True))
        parts = [os.path.splitext(each.base_name) for each in found]
        return sorted({name for name, suffix in parts if suffix in _TASKS})

    def tensors(self, name: str, *, keep: bool = True) -> Mapping[str, Tensor]:
        """Return the tensors of a file, mapped; see :class:`jlgcn.closed_form.shards.Files`."""
        return (_mapped if keep else _map)(str(self.path(name)))

    def path(self, name: str) -> Path:
        """Return the path of a file on this machine, which an object is fetched to."""
        for uri, (files, root) in zip(self.uris, self._places, strict=True):
            source = f"{root}/{name}{_DATA}"
            if files.type_name == "local":
                if os.path.exists(source):
                    return Path(source)
                continue
            cached = self._cache(uri) / f"{name}{_DATA}"
            if cached.exists():
                return cached
            if self._exists(files, source):
                cached.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with files.open_input_stream(source) as stream, replacing(cached) as file:
                    while block := stream.read(_BLOCK_BYTES):
                        file.write(block)
                return cached
        raise FileNotFoundError(
            f"{name} is in none of {', '.join(self.uris)}; if the model was changed meanwhile, "
            "load it again, else run the fit again"
        )

    def _put_tensors(self, file_name: str, tensors: Mapping[str, Tensor]) -> None:
        content = _bytes_of(tensors)
        with self.writing(file_name) as file:
            file.write(content)

    @staticmethod
    def _exists(files: Any, path: str) -> bool:  # noqa: ANN401
        return bool(files.get_file_info(path).is_file)

    @staticmethod
    def _cache(uri: str) -> Path:
        return cache_folder() / sha256_of(uri.encode())[:16]


def cache_folder() -> Path:
    """Return the user's folder for files that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jlgcn"


def _bytes_of(tensors: Mapping[str, Tensor]) -> bytes:
    content: bytes = safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()})
    return content


def _map(path: str) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


_mapped = lru_cache(_MAX_MAPPED)(_map)


@lru_cache(8)
def open_store(*uris: str) -> Store:
    """Return the store of some folders, one for each process."""
    return Store(*uris)
