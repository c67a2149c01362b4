"""Downloads that are resumed, retried, and kept only if their hash is right."""

from __future__ import annotations

import hashlib
import logging
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal

from jlgcn._files import open_in_place, rename

logger = logging.getLogger(__name__)

_CHUNK = 2**16


def download(
    url: str,
    path: Path,
    sha256: str,
    *,
    retries: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Fetch a file whose SHA-256 is known; `path` appears only when the hash is right.

    A cut connection is taken up where it broke off, also in a later call: what has arrived waits
    beside `path`, under the same name with ``.part``. A wrong hash deletes it and raises at once,
    since trying again would bring the same bytes.

    Args:
        url: where it is.
        path: where it shall be.
        sha256: hash of the whole file, in hexadecimal.
        retries: how often to try again after an error of the network.
        timeout: seconds without an answer that count as one.
        pause: seconds before the first retry; doubled at each further one.

    Raises:
        ValueError: the file at `url` is not the one expected.
        ConnectionError: all tries failed; what has arrived is kept for the next call.
    """
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError(f"files are fetched by https, but the address is {url}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for attempt in range(retries + 1):
        try:
            _fetch(url, part, timeout)
            break
        except (urllib.error.URLError, OSError) as problem:
            if isinstance(problem, urllib.error.HTTPError) and problem.code in (403, 404, 410):
                raise ConnectionError(f"{url} is not there any more ({problem})") from None
            if attempt == retries:
                raise ConnectionError(
                    f"{url} could not be fetched after {retries + 1} tries ({problem}); check the "
                    f"connection and call again: what has arrived is kept in {part}"
                ) from None
            logger.info("%s: %s; trying again", url, problem)
            time.sleep(pause * 2**attempt)
    found = hashlib.sha256(part.read_bytes()).hexdigest()
    if found != sha256:
        part.unlink()
        raise ValueError(
            f"what {url} sent is not the published file: its SHA-256 is {found[:16]}… where "
            f"{sha256[:16]}… was expected; nothing was kept. Get the file from somewhere else"
        )
    rename(part, path)
    return path


def _fetch(url: str, part: Path, timeout: float) -> None:
    """Append to `part` what is missing of the file."""
    if part.is_symlink():  # which is nothing that arrived here
        part.unlink()
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
    try:
        response = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as problem:
        if problem.code == 416 and have:  # nothing is missing
            return
        raise
    with response:
        # A server that does not know ranges sends everything from the start.
        mode: Literal["ab", "wb"] = "ab" if response.status == 206 else "wb"
        expected = response.headers.get("Content-Length")
        arrived = 0
        with open_in_place(part, mode) as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                arrived += len(chunk)
            file.flush()
            os.fsync(file.fileno())
    if expected is not None and arrived < int(expected):
        raise ConnectionError(f"the connection was cut after {arrived} of {expected} bytes")
