"""Downloads that are retried, and kept only if their hash is right."""

from __future__ import annotations

import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path

from jlgcn._files import sha256_of, write_file

logger = logging.getLogger(__name__)


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

    A cut connection is tried again from the start: files here have a few megabytes. A wrong hash
    raises at once, since trying again would bring the same bytes.

    Args:
        url: where it is.
        path: where it shall be.
        sha256: hash of the whole file, in hexadecimal.
        retries: how often to try again after an error of the network.
        timeout: seconds without an answer that count as one.
        pause: seconds before the first retry; doubled at each further one.

    Raises:
        ValueError: the file at `url` is not the one expected.
        ConnectionError: all tries failed.
    """
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError(f"files are fetched by https, but the address is {url}")
    for attempt in range(retries + 1):
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:  # noqa: S310
                content: bytes = response.read()
            break
        except (OSError, http.client.HTTPException) as problem:
            if isinstance(problem, urllib.error.HTTPError) and problem.code in (403, 404, 410):
                raise ConnectionError(f"{url} is not there any more ({problem})") from None
            if attempt == retries:
                raise ConnectionError(
                    f"{url} could not be fetched after {retries + 1} tries ({problem}); check the "
                    "connection and call again"
                ) from None
            logger.info("%s: %s; trying again", url, problem)
            time.sleep(pause * 2**attempt)
    found = sha256_of(content)
    if found != sha256:
        raise ValueError(
            f"what {url} sent is not the published file: its SHA-256 is {found[:16]}… where "
            f"{sha256[:16]}… was expected; nothing was kept. Get the file from somewhere else"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_file(path, content)
