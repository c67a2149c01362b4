"""Atomic, symlink-safe file writes; bounded reads; hashes."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

logger = logging.getLogger(__name__)

LOCK = ".jlgcn.lock"

# Flags that some systems lack. Without O_NONBLOCK, opening a pipe would block.
_PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | _PLAIN
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | _PLAIN
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.tmp")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file atomically: a temporary file replaces `path` if the context ends without error.

    The temporary file has a random name in the same folder and is synced to disk (fsync) before
    the rename. `path` therefore has either the old or the new content at every moment, also with
    concurrent writers; a symbolic link is replaced, not followed. After an error nothing is left.

    Args:
        path: the file; its folder must exist.

    Raises:
        ValueError: `path` is a folder, a device or a pipe.
        OSError: the operating system reports an error.
    """
    path = Path(path)
    _check_target(path)
    temporary = _temporary_name(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_file(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write a file atomically (:func:`replacing`); text is encoded as UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def read_file(path: str | os.PathLike[str], max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file. A pipe or a device, which might never end, is refused.
        max_bytes: a larger file is refused before it is read; None for any size.

    Raises:
        ValueError: it is not a regular file, or too large.
        OSError: it does not exist, or cannot be read.
    """
    path = Path(path)
    descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no ordinary file")
        if max_bytes is not None and found.st_size > max_bytes:
            raise ValueError(f"{path.name} has more than {max_bytes:,} bytes")
        return file.read(found.st_size)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder atomically: a temporary folder is renamed to `path` when the context ends.

    `path` is therefore complete whenever it exists, provided that its files are written by
    :func:`replacing` or :func:`write_file`. After an error nothing is left.

    Args:
        path: a name that does not exist yet, in a folder that does.
    """
    temporary = _temporary_name(path)
    temporary.mkdir()
    try:
        yield temporary
        sync_folder(temporary)
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder; if the process is killed, no partial folder is left under its name."""
    temporary = _temporary_name(path)
    os.replace(path, temporary)
    shutil.rmtree(temporary)


def sync_folder(folder: Path) -> None:
    """Sync the directory entries of a folder to disk (not on Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path, *, seconds: float = 600.0) -> Iterator[None]:
    """Hold a folder's lock, so that processes which write several files of it take turns.

    The lock is one of the system, on the file ``.jlgcn.lock``: it ends with the process that holds
    it, even by kill -9, and the file itself means nothing and stays.

    Args:
        folder: which must exist.
        seconds: how long to wait for another process.

    Raises:
        TimeoutError: somebody else held it all the time.
    """
    flags = os.O_RDWR | os.O_CREAT | _NO_LINKS | _NO_WAITING
    descriptor = os.open(folder / LOCK, flags, 0o666)
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"another process has been writing to {folder} for {seconds:.0f} s; wait for "
                    "it, or write to another folder"
                )
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, name: re.Pattern[str]) -> None:
    """Delete temporary files and folders of killed writers; the folder must be locked.

    Args:
        folder: the folder.
        name: pattern of the final name, without the prefix and suffix that :func:`replacing` and
            :func:`new_folder` add.
    """
    for path in folder.glob(".*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and name.fullmatch(found["name"]):
            mode = path.lstat().st_mode  # a symbolic link is not ours
            if stat.S_ISREG(mode):
                path.unlink()
            elif stat.S_ISDIR(mode):
                shutil.rmtree(path)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _check_target(path: Path) -> None:
    """Refuse to replace what is not a regular file: /dev/stdout would be gone for everybody."""
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing there, or a dangling link
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise ValueError(f"{path} is {kind} and cannot be written; name a file")


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        # Some shared filesystems have no locks. One writer is safe there, and usual.
        logger.warning("this filesystem has no locks; let one process at a time write to a folder")
    return True


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal.

    Example:
        >>> sha256_of(b"")[:8]
        'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


def hash_of_document(document: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON document, independent of the order of its fields.

    Example:
        >>> hash_of_document({"a": 1, "b": 2}) == hash_of_document({"b": 2, "a": 1})
        True
    """
    return sha256_of(json.dumps(document, sort_keys=True).encode())


def hash_of_file(path: Path) -> str:
    """Return the SHA-256 of a file of any size, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, max_bytes: int = 64 * 2**20) -> dict[str, Any]:
    """Return the JSON object in a file, or raise a ValueError with the reason.

    Args:
        path: the file.
        max_bytes: a larger file is refused: parsed JSON takes many times its size.
    """
    content = read_file(path, max_bytes)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return found
